"""What the log holds, and what links a program to the call that made it."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_jaxcompile.identity import Function
from pytest_jaxcompile.records import Compilation, Signature
from pytest_jaxcompile.stack import jaxpr_of

_MARKED: Final = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that JAX did."""

    did: Literal["trace", "lowering", "compilation"]
    function: Function
    scope: str | None
    """The test that ran, or ``None`` outside tests."""
    phase: str
    compilation: Compilation | None = None


class Attached:
    """Text kept beside an object of JAX's, dropped with it."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def put(self, owner: Any, value: Any) -> None:
        key = id(owner)
        self._kept[key] = (weakref.ref(owner, functools.partial(self._drop, key)), value)

    def _drop(self, key: int, ref: weakref.ref[Any]) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept[0] is ref:
            del self._kept[key]

    def get(self, owner: Any) -> Any:
        kept = self._kept.get(id(owner))
        return kept[1] if kept is not None and kept[0]() is owner else None


class UnderWay(threading.local):
    """What is under way on one thread."""

    def __init__(self) -> None:
        self.disk_hit = False
        self.traced: dict[Hashable, tuple[float, float]] = {}
        self.compiled: deque[tuple[float, float]] = deque(maxlen=1024)
        self.last: deque[tuple[Function, Signature, frozenset[int]]] = deque(maxlen=128)
        self.pending: list[tuple[Any, Entry]] = []
        self.call: tuple[int, Function, Signature] | None = None

    def remember(self, function: Function, part: Signature, jaxprs: Iterable[Any] = ()) -> None:
        """For programs that come without their call: what was called last comes last."""
        self.last.append((function, part, marks(jaxprs)))


def marks(jaxprs: Iterable[Any]) -> frozenset[int]:
    """Ids of what a jaxpr's equations make: the variables stay the same objects in its copies."""
    return frozenset(
        id(variable)
        for jaxpr in jaxprs
        for equation in jaxpr_of(jaxpr).eqns[:_MARKED]
        for variable in equation.outvars
    )
