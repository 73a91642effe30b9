"""Traces that JAX told of when they began, until it is seen whether they ended (from JAX 0.9)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pytest_jaxcompile.jax_internals.call_frames import Stack
from pytest_jaxcompile.recording.attribution import Entry
from pytest_jaxcompile.recording.functions import Function

_MAX_FAILED: Final = 256


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[Any, Entry]] = []


class OpenTraces:
    """Each as a pair: JAX's cache entry, which a completed trace fills, and ours."""

    def __init__(self, ended: Callable[[Entry, Any], None]) -> None:
        """``ended`` is called for each that ended: with JAX's entry if it has no event."""
        self._ended = ended
        self._lock = threading.RLock()
        self._mine = _OfThread()
        self._all: list[list[tuple[Any, Entry]]] = []
        self._failed: deque[tuple[Any, Entry]] = deque(maxlen=_MAX_FAILED)

    def begin(self, entry: Any, trace: Entry) -> None:
        mine = self._mine.open
        with self._lock:
            if not any(mine is other for other in self._all):
                self._all.append(mine)
            mine.append((entry, trace))

    def fail(self, entry: Any, trace: Entry) -> None:
        """It raised. Another try fills the same entry, and JAX does not tell of it again."""
        self._failed.append((entry, trace))

    def resolve(self, stack: Stack) -> Function | None:
        """Tell of the traces that ended with, or inside, the one whose event fires.

        The function of that one if JAX told of it, now or when it was first tried.
        """
        with self._lock:
            mine = self._mine.open
            own = next((i for i, (entry, _) in enumerate(mine) if entry is stack.entry), None)
            if own is None:
                return self._resolve_again(stack)
            ended, mine[own:] = mine[own:], []
            for index, (entry, trace) in enumerate(ended):
                if stack.finished if index == 0 else _filled(entry):
                    self._ended(trace, entry if index else None)
                else:
                    self.fail(entry, trace)
            return ended[0][1].function

    def _resolve_again(self, stack: Stack) -> Function | None:
        again = next((item for item in self._failed if item[0] is stack.entry), None)
        if again is None:
            return None
        if stack.finished:
            self._failed.remove(again)
            self._ended(again[1], None)
        return again[1].function

    def settle(self) -> None:
        """Tell of those that ended without an event, or whose event is still to come."""
        with self._lock:
            for pairs in (*self._all, self._failed):
                for entry, trace in list(pairs):
                    if _filled(entry):
                        pairs.remove((entry, trace))
                        self._ended(trace, entry)
            self._all = [pairs for pairs in self._all if pairs]

    def clear(self) -> None:
        with self._lock:
            for pairs in self._all:
                pairs.clear()
            self._all.clear()
            self._failed.clear()


def _filled(entry: Any) -> bool:
    return getattr(entry, "pjit_params", None) is not None
