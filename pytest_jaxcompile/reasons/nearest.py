"""What a function was compiled for before, and which of it is nearest.

Pure code over records. What a story keeps, and the work of a look into it, is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator
from itertools import islice, repeat
from typing import Any, Final

from pytest_jaxcompile.reasons.differences import differences, distance
from pytest_jaxcompile.records import Signature

__all__ = ["Lengths", "Story", "differences", "distance"]

_RECENT: Final = 256
"""Signatures that are kept to compare with; fewer of large ones, but some of any size."""
_RECENT_LEAVES: Final = 16_384
_RECENT_LEAST: Final = 8
_SEEN: Final = 20_000
"""Signatures that are known again, by their hash."""
_LENGTHS: Final = 4096
_LENGTHS_OF: Final = 32


class Lengths:
    """The sizes that one axis of an argument had, as long as its other axes never changed."""

    __slots__ = ("_shape", "axis", "clear", "done", "more", "padded", "sizes")

    def __init__(self) -> None:
        self.clear = True
        """Whether no more than one axis ever changed, and all sizes are numbers."""
        self.axis: int | None = None
        self.sizes: list[int] = []
        """Sorted, each once."""
        self.padded: set[int] = set()
        """What they are when padded to powers of two."""
        self.more = False
        """Whether there were more sizes than are kept."""
        self.done = 0
        self._shape: tuple[int | str, ...] = ()

    def add(self, shape: tuple[int | str, ...]) -> None:
        if not self.clear:
            return
        if self.axis is None:
            self._find_axis(shape)
        else:
            i = self.axis
            rest, same = shape[:i] + shape[i + 1 :], self._shape[:i] + self._shape[i + 1 :]
            self.clear = rest == same
        if self.clear and self.axis is not None:
            self._add_size(shape[self.axis])

    def _find_axis(self, shape: tuple[int | str, ...]) -> None:
        if not self._shape:
            self._shape = shape
        changed = [i for i, (a, b) in enumerate(zip(self._shape, shape, strict=True)) if a != b]
        if len(changed) == 1:
            self.axis = changed[0]
            self._add_size(self._shape[self.axis])
        self.clear = self.clear and len(changed) <= 1

    def _add_size(self, size: int | str) -> None:
        if not isinstance(size, int):
            self.clear = False
            return
        at = bisect_left(self.sizes, size)
        if at < len(self.sizes) and self.sizes[at] == size:
            return
        self.padded.add(1 << (size - 1).bit_length() if size > 0 else 0)
        if len(self.sizes) < _LENGTHS:
            self.sizes.insert(at, size)
        else:
            self.more = True


class Story:
    """The signatures that one function was compiled for, bounded in number."""

    __slots__ = ("_count", "_index", "_leaves", "_lengths", "_recent", "_seen", "_unindexed")

    def __init__(self) -> None:
        self._recent: deque[Signature] = deque()
        self._seen: set[int] = set()
        self._count = 0
        self._leaves = 0
        self._index = _Index()
        self._unindexed = 0
        self._lengths: dict[tuple[str, int], Lengths] = {}

    def __len__(self) -> int:
        """How many signatures are kept to compare with."""
        return len(self._recent)

    def __iter__(self) -> Iterator[Signature]:
        """Most recent first."""
        return iter(self._recent)

    def add(self, signature: Signature) -> None:
        recent = self._recent
        self._leaves += len(signature.leaves)
        while len(recent) >= _RECENT or (
            len(recent) >= _RECENT_LEAST and self._leaves > _RECENT_LEAVES
        ):
            oldest = recent.pop()
            self._leaves -= len(oldest.leaves)
            if self._unindexed > len(recent):
                self._unindexed = len(recent)
            else:
                self._index.change(self._count - len(recent) - 1, oldest, -1)
        recent.appendleft(signature)
        self._count += 1
        self._unindexed += 1
        if len(self._seen) < _SEEN:
            self._seen.add(hash(signature))

    def nearest(self, signature: Signature) -> Signature | None:
        """The earlier signature with the fewest differences; the most recent of several.

        One that was seen before is its own nearest, also if it is no longer kept.
        """
        recent = self._recent
        if hash(signature) in self._seen:
            return signature
        if not recent:
            return None
        best, least = 0, distance(recent[0], signature)
        if least <= 1 or len(recent) == 1:
            return recent[0]
        for age in reversed(range(self._unindexed)):
            self._index.change(self._count - age - 1, recent[age], 1)
        self._unindexed = 0
        # A look at one is dear, a bound for all of them cheap: look in the order of the bounds.
        bounds = self._index.bounds(self._count, len(recent), signature)
        level = min(bounds)
        while level <= _Index.MOST and (level < least or (level == least and best > 0)):
            age = bounds.find(level)
            while age >= 0 and (level < least or age < best):
                n = distance(recent[age], signature, least + (age < best))
                if n < least or (n == least and age < best):
                    best, least = age, n
                age = bounds.find(level, age + 1)
            level += 1
        return recent[best]

    def lengths(self, path: str, now: tuple[int | str, ...]) -> Lengths:
        """The sizes of an argument until ``now``, which is not in the story yet.

        Counts on from the last time it was asked for the argument, over what is kept: between
        two differences of a shape there were none that the first had not counted.
        """
        rank = len(now)
        key = (path, rank)
        found = self._lengths.get(key)
        if found is None:
            found = Lengths()
            if len(self._lengths) < _LENGTHS_OF:
                self._lengths[key] = found
        paths, at = None, None
        for signature in islice(self._recent, self._count - found.done):
            if signature.paths is not paths:
                paths = signature.paths
                at = paths.index(path) if path in paths else None
            if at is not None and len(signature.leaves[at].shape) == rank:
                found.add(signature.leaves[at].shape)
        found.add(now)
        found.done = self._count
        return found


class _Index:
    """For each value of each column, such as the leaf of a path, the signatures that have it.

    A set of signatures is one number with a byte for each: adding such numbers counts for all
    of them at once, in how many columns they agree with another signature.
    """

    __slots__ = ("_having", "_layouts")

    MOST: Final = 255
    """What a byte can count."""

    def __init__(self) -> None:
        self._having: dict[Hashable, int] = {}
        self._layouts: dict[tuple[Hashable, ...], int] = {}

    def change(self, number: int, signature: Signature, sign: int) -> None:
        """Put in (1) or take out (-1) the signature that was the ``number``-th of the story."""
        change = sign << 8 * (number % _RECENT)
        names, values = self._columns(signature)
        _change(self._layouts, names, change)
        for value in values:
            _change(self._having, value, change)

    def bounds(self, count: int, kept: int, signature: Signature) -> bytes:
        """For each signature, most recent first, how many differences there are at least."""
        names, values = self._columns(signature)
        own = set(names)
        # The three columns that every signature has are in no layout.
        total = sum(
            having * (3 + (len(names) if layout == names else len(own.intersection(layout))))
            for layout, having in self._layouts.items()
        )
        total -= sum(map(self._having.get, values, repeat(0)))
        slots = total.to_bytes(_RECENT, "little")
        newest = (count - 1) % _RECENT
        return (slots[newest::-1] + slots[:newest:-1])[:kept]

    def _columns(self, s: Signature) -> tuple[tuple[Hashable, ...], list[Hashable]]:
        """Names of columns, of which none can differ without a difference, and their values."""
        paths: tuple[Hashable, ...] = s.paths
        if len(paths) + len(s.static) > self.MOST - 3:
            return (), self._always(s)  # a bound may be too low, and few of this size are kept
        if len({*paths, ""}) <= len(paths):
            # Without a path of its own, a leaf is compared with the same place of like programs.
            whole = hash((paths, s.transform))
            paths = tuple((whole, i) for i in range(len(paths)))
        names = (*paths, *[("static", name) for name, _ in s.static])
        return names, [*zip(paths, s.leaves, strict=True), *s.static, *self._always(s)]

    @staticmethod
    def _always(s: Signature) -> list[Hashable]:
        return [("options", s.options), ("transform", s.transform), ("call", s.tree, s.call_form)]


def _change(sets: dict[Any, int], key: Hashable, by: int) -> None:
    left = sets.get(key, 0) + by
    if left:
        sets[key] = left
    else:
        del sets[key]
