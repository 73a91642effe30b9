"""What the log holds, and what links a program to the call that made it."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal

from pytest_jaxcompile.errors import CountUnavailableError
from pytest_jaxcompile.history import Draft
from pytest_jaxcompile.identity import Function, identify
from pytest_jaxcompile.probe import Probe
from pytest_jaxcompile.records import Signature
from pytest_jaxcompile.stack import Stack, jaxpr_of

_MARKED: Final = 32


class Entry:
    """One thing that JAX did."""

    __slots__ = ("did", "draft", "function", "phase", "scope")

    def __init__(
        self,
        did: Literal["trace", "lowering", "compilation"],
        function: Function,
        scope: str | None,
        phase: str,
        draft: Draft | None = None,
    ) -> None:
        self.did = did
        self.function = function
        self.scope = scope
        """The test that ran, or ``None`` outside tests."""
        self.phase = phase
        self.draft = draft
        """Of a compilation, what its record is written from."""


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
        self.last: deque[tuple[Function, Signature | None, frozenset[int]]] = deque(maxlen=256)
        self.pending: list[tuple[Any, Entry]] = []
        self.call: tuple[int, Function, Signature] | None = None
        """What was lowered last, and compiles next."""

    def remember(
        self, function: Function, part: Signature | None = None, jaxprs: Iterable[Any] = ()
    ) -> None:
        """For programs that come without their call: what was traced or called last comes last."""
        self.last.append((function, part, marks(jaxprs)))


def marks(jaxprs: Iterable[Any]) -> frozenset[int]:
    """Ids of what a jaxpr's equations make: the variables stay the same objects in its copies."""
    return frozenset(
        id(variable)
        for jaxpr in jaxprs
        for equation in jaxpr_of(jaxpr).eqns[:_MARKED]
        for variable in equation.outvars
    )


def by_definition(stack: Stack, thread: UnderWay, p: Probe) -> tuple[Function, Signature]:
    """A program without a call: the last function of this thread defined at that place."""
    debug = getattr(jaxpr_of(stack.jaxpr), "debug_info", None)
    source = str(getattr(debug, "func_src_info", None) or "")
    name, _, place = source.partition(" at ")
    name = name or stack.name or "?"

    def meant(function: Function) -> bool:
        if place:
            return function.source == source or function.defined_at == place
        return function.name == name

    mine = marks(stack.related)
    found = [each for each in reversed(thread.last) if meant(each[0])]
    # Several functions can have one definition: the backward pass belongs to the one whose
    # forward pass its jaxpr was made from.
    for function, part, kept in found:
        if not mine.isdisjoint(kept):
            return function, part or Signature()
    if found:
        function = found[0][0]
        parts = (part for other, part, _ in found if part and other.story == function.story)
        return function, next(parts, Signature())
    if not place.startswith(p.directory):
        return _by_heap(name, place, p), Signature()
    tokens: frozenset[Hashable] = frozenset()
    return Function(name, name, "?", place, True, tokens, ("place", place), False), Signature()


def _by_heap(name: str, place: str, p: Probe) -> Function:
    """A program of a function that was traced before anybody listened.

    Raises :class:`CountUnavailableError` if several functions could be meant, or none.
    """
    found: dict[Hashable, Function] = {}
    for jitted in p.live_jitted():
        stack = Stack()
        stack.fun, stack.info = p.inner(jitted), p.info(jitted)
        function = identify(stack, p)
        if place in (function.defined_at, "") and function.name == name:
            found[function.story] = function
    if len(found) != 1:
        raise CountUnavailableError(
            f"a program of {name}, defined at {place or 'an unknown place'}, compiled without "
            f"a call that could be read, and {len(found)} functions could be meant"
        )
    return next(iter(found.values()))
