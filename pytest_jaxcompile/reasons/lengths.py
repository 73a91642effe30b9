"""The shapes that one argument had so far, so that advice speaks of all of them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_KEPT: Final = 4096


class Lengths:
    """The sizes of one axis."""

    __slots__ = ("more", "padded", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        """Sorted, each once."""
        self.padded: set[int] = set()
        """What they are when padded to powers of two."""
        self.more = False
        """Whether there were more sizes than are kept."""

    def add(self, size: int) -> None:
        at = bisect_left(self.sizes, size)
        if at < len(self.sizes) and self.sizes[at] == size:
            return
        self.padded.add(1 << (size - 1).bit_length() if size > 0 else 0)
        if len(self.sizes) < _KEPT:
            self.sizes.insert(at, size)
        else:
            self.more = True


class Shapes:
    """The shapes of one argument, by their number of axes."""

    __slots__ = ("axes", "symbolic")

    def __init__(self) -> None:
        self.axes: dict[int, list[Lengths]] = {}
        """For each number of axes that was met, the lengths of each."""
        self.symbolic = False
        """Whether a size was no number, as under ``jax.export``."""

    def add(self, shape: tuple[int | str, ...]) -> None:
        axes = self.axes.setdefault(len(shape), [])
        if not axes:
            axes += [Lengths() for _ in shape]
        for lengths, size in zip(axes, shape, strict=True):
            if isinstance(size, int):
                lengths.add(size)
            else:
                self.symbolic = True

    def varied(self, rank: int) -> list[int]:
        """The axes, of all shapes with so many, that had more than one length."""
        return [i for i, lengths in enumerate(self.axes.get(rank, ())) if len(lengths.sizes) > 1]
