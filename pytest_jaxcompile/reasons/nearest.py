"""What a function was compiled for before, and which of it is nearest.

Pure code over records. What is kept, and the work of a search, is bounded: a compilation
costs the same, however many came before it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from pytest_jaxcompile.reasons.differences import differences, distance
from pytest_jaxcompile.reasons.lengths import Shapes
from pytest_jaxcompile.records import Signature

__all__ = ["Versions", "differences", "distance"]

_RECENT: Final = 64
"""Signatures that are compared; fewer of large ones, but some of any size."""
_RECENT_LEAVES: Final = 16_384
_RECENT_LEAST: Final = 8
_SEEN: Final = 20_000
"""Signatures that are known again, by their hash."""
_ALIKE: Final = 1024
"""Older signatures that are found by one half of what they are."""
_VARIED: Final = 64
"""Arguments whose shapes are remembered."""


class Versions:
    """The signatures that one function was compiled for."""

    __slots__ = ("_alike", "_first", "_leaves", "_recent", "_seen", "_shapes")

    def __init__(self) -> None:
        self._recent: deque[Signature] = deque()
        self._leaves = 0
        self._seen: set[int] = set()
        self._alike: OrderedDict[int, Signature] = OrderedDict()
        self._first: dict[str, tuple[int | str, ...]] = {}
        """The shape with which each path was first met."""
        self._shapes: dict[str, Shapes] = {}

    def __len__(self) -> int:
        """How many signatures are compared with the next one."""
        return len(self._recent)

    def __iter__(self) -> Iterator[Signature]:
        """Most recent first."""
        return iter(self._recent)

    def add(self, signature: Signature) -> None:
        self._note_shapes(signature)
        recent = self._recent
        recent.appendleft(signature)
        self._leaves += len(signature.leaves)
        while len(recent) > _RECENT or (
            len(recent) > _RECENT_LEAST and self._leaves > _RECENT_LEAVES
        ):
            self._leaves -= len(recent.pop().leaves)
        for half in _halves(signature):
            self._alike[half] = signature
            self._alike.move_to_end(half)
        while len(self._alike) > _ALIKE:
            self._alike.popitem(last=False)
        if len(self._seen) < _SEEN:
            self._seen.add(hash(signature))

    def nearest(self, signature: Signature) -> Signature | None:
        """The earlier signature with the fewest differences; the most recent of several.

        One that was seen before is its own nearest. Of those that are no longer compared, one
        with the same arrays, or with the same of all else, is still found.
        """
        if hash(signature) in self._seen:
            return signature
        older = [self._alike[half] for half in _halves(signature) if half in self._alike]
        best, least = None, None
        for earlier in (*self._recent, *older):
            n = distance(earlier, signature, least)
            if least is None or n < least:
                best, least = earlier, n
                if n <= 1:
                    break
        return best

    def _note_shapes(self, signature: Signature) -> None:
        last = self._recent[0] if self._recent else None
        if last is not None and last.paths is signature.paths and last.leaves is signature.leaves:
            return
        first = self._first
        for path, leaf in zip(signature.paths, signature.leaves, strict=True):
            shape = first.setdefault(path, leaf.shape)
            if shape != leaf.shape or path in self._shapes:
                self.shapes(path, leaf.shape)

    def shapes(self, path: str, now: tuple[int | str, ...]) -> Shapes:
        """The shapes that the argument had until ``now``, which is counted as well."""
        found = self._shapes.get(path)
        if found is None:
            found = Shapes()
            if path in self._first:
                found.add(self._first[path])
            if len(self._shapes) < _VARIED:
                self._shapes[path] = found
        found.add(now)
        return found


def _halves(s: Signature) -> tuple[int, int]:
    """Digests of the arrays, and of all else."""
    rest = (s.tree, s.static, s.call_form, s.config, s.context, s.options, s.transform, s.devices)
    return hash((0, s.paths, s.leaves)), hash((1, s.paths, rest))
