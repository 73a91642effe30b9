"""What the log holds, and what links a program to the call that made it."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Literal, NamedTuple

from pytest_jaxcompile.errors import CountUnavailableError
from pytest_jaxcompile.jax_internals.call_frames import Stack, jaxpr_of
from pytest_jaxcompile.jax_internals.probe import Probe
from pytest_jaxcompile.recording.functions import Function, identify, is_alive
from pytest_jaxcompile.recording.history import Draft
from pytest_jaxcompile.records import Signature

_MARKED: Final = 32
_REMEMBERED: Final = 2048


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
        self.traced: dict[Hashable, tuple[float | None, float]] = {}
        """When the trace of a story began that was not compiled yet, and its own time."""
        self.compiled: deque[tuple[float, float]] = deque(maxlen=1024)
        """When each compilation ended, and what all its phases took."""
        self.call: tuple[int, Function, Signature] | None = None
        """What was lowered last, and compiles next."""


class Met(NamedTuple):
    """A function that was traced or called, with what is known of the caller's part."""

    function: Function
    part: Signature | None
    marks: frozenset[Any]


class Lately:
    """What was traced or called last, on any thread: for programs that come without their call."""

    def __init__(self) -> None:
        self._met: deque[Met] = deque(maxlen=_REMEMBERED)

    def meet(
        self, function: Function, part: Signature | None = None, jaxprs: Iterable[Any] = ()
    ) -> None:
        self._met.append(Met(function, part, marks(jaxprs)))

    def of_definition(self, meant: Callable[[Function], bool]) -> list[Met]:
        """Most recent first."""
        return [met for met in reversed(self._met.copy()) if meant(met.function)]


def marks(jaxprs: Iterable[Any]) -> frozenset[Any]:
    """What a jaxpr's equations make: the variables stay the same objects in its copies.

    They are kept themselves, since an id may be another's once they are gone. A variable holds
    a type, and no array.
    """
    return frozenset(
        variable
        for jaxpr in jaxprs
        for equation in jaxpr_of(jaxpr).eqns[:_MARKED]
        for variable in equation.outvars
    )


def by_definition(stack: Stack, lately: Lately, p: Probe) -> tuple[Function, Signature]:
    """A program without a call: the function defined at that place that was traced or called.

    Raises :class:`CountUnavailableError` if several functions could be meant, or none.
    """
    debug = getattr(jaxpr_of(stack.jaxpr), "debug_info", None)
    source = str(getattr(debug, "func_src_info", None) or "")
    name, _, place = source.partition(" at ")
    name = name or stack.name or ""
    if not name:  # lowered before anybody listened, and compiled now
        return _by_heap(p.program_name(stack.computation) or "?", "", p), Signature()

    if place:
        found = lately.of_definition(lambda f: f.source == source)
        found = found or lately.of_definition(lambda f: f.defined_at == place)
    else:
        found = lately.of_definition(lambda f: f.name == name)
    # Several functions can have one definition: the backward pass belongs to the one whose
    # forward pass its jaxpr was made from.
    mine = marks(jaxpr for jaxpr in (*stack.related, stack.jaxpr) if jaxpr is not None)
    made_from = next((met for met in found if not mine.isdisjoint(met.marks)), None)
    if made_from is not None:
        return made_from.function, made_from.part or _part(made_from.function, found)
    alive = _alive(found)
    if not all(met.function.eager_op for met in found):
        # One that was met may not be the one that is meant: it is, if there is no other.
        number = max(len(alive), p.number_of_source(source) if place else 0)
        if number > 1:
            gc.collect()  # what nobody can reach any more is not meant
            alive = _alive(found)
            number = max(len(alive), p.number_of_source(source) if place else 0)
        if number > 1:
            raise _ambiguous(name, place, number)
    if found:
        function = next(iter(alive.values()), found[0].function)
        return function, _part(function, found)
    if not place.startswith(p.directory):
        return _by_heap(name, place, p), Signature()
    tokens: frozenset[Hashable] = frozenset()
    return Function(name, name, "?", place, True, tokens, ("place", place), False), Signature()


def _alive(found: list[Met]) -> dict[Hashable, Function]:
    return {met.function.story: met.function for met in found if is_alive(met.function)}


def _part(function: Function, found: list[Met]) -> Signature:
    """What is known last of how ``function`` was called."""
    parts = (met.part for met in found if met.part and met.function.story == function.story)
    return next(parts, Signature())


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
        raise _ambiguous(name, place, len(found))
    return next(iter(found.values()))


def _ambiguous(name: str, place: str, count: int) -> CountUnavailableError:
    return CountUnavailableError(
        f"a program of {name}, defined at {place or 'an unknown place'}, compiled without "
        f"a call that could be read, and {count} functions could be meant"
    )
