"""Which function is which: by object, never by name.

Every callable that JAX compiled for gets a number that lasts as long as the
object and is never used again, so a record can tell two functions called
``step`` apart without keeping either alive.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import threading
import weakref
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final

from pytest_jaxcompile.jax_internals import probe as probes
from pytest_jaxcompile.jax_internals.call_frames import Stack
from pytest_jaxcompile.jax_internals.file_origin import JAX
from pytest_jaxcompile.jax_internals.jit_options import forget_options, options_of
from pytest_jaxcompile.jax_internals.probe import Probe

_MAX_LAYERS = 16


class Numbers:
    """A number for every object met, dropped together with the object."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._alive: set[int] = set()
        self._lock = threading.RLock()

    def of(self, value: Any, create: bool = True) -> int | None:
        """The number of ``value``; ``None`` if it is new and not to be numbered.

        Objects that cannot be referred to weakly get none; JAX refuses them as functions.
        """
        key = id(value)
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[0]() is value:
                return known[1]
            if not create:
                return None
            try:
                ref = weakref.ref(value, functools.partial(self._drop, key))
            except TypeError:
                return None
            number = next(self._next)
            self._known[key] = (ref, number)
            self._alive.add(number)
            return number

    def _drop(self, key: int, ref: weakref.ref[Any]) -> None:
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[0] is ref:
                del self._known[key]
                self._alive.discard(known[1])

    def alive(self, number: int) -> bool:
        """Whether the object of this number is still there."""
        return number in self._alive


numbers = Numbers()

_MAX_FUNCTIONS: Final = 4096
_MAX_USERS: Final = 65_536
_users: dict[int | None, bool] = {}
_functions: dict[Hashable, Function] = {}
"""What was found of a function, by its number: numbers are never used again."""


def layers(value: Any, jitted: tuple[type, ...]) -> Iterator[Any]:
    """``value``, and what it wraps, down to the first jitted object or plain function."""
    for _ in range(_MAX_LAYERS):
        yield value
        if isinstance(value, jitted):
            return
        if isinstance(value, MethodType):
            value = value.__func__
        elif isinstance(value, functools.partial):
            value = value.func
        else:
            value = wrapped(value)
        if value is None:
            return


def wrapped(value: Any) -> Any:
    """What a wrapper says it wraps. A property of a stranger may raise: then it says nothing."""
    try:
        inner = getattr(value, "__wrapped__", None)
        if inner is None:
            members = getattr(value, "__dict__", {})
            # As of a partial of a library's, such as equinox's.
            inner = members.get("func") if {"func", "args", "keywords"} <= members.keys() else None
    except Exception:
        return None
    return inner if callable(inner) else None


@dataclass(frozen=True, slots=True)
class Function:
    """A function as records know it."""

    name: str
    qualname: str
    module: str
    defined_at: str | None
    eager_op: bool
    tokens: frozenset[Hashable]
    """What ``of=`` may match: the numbers of its layers and wrappers, and the jitted object."""
    story: Hashable
    """Compilations of one story are compared with each other."""
    logged: bool = True
    """Whether JAX, from 0.9, logs its traces: those of users' files, as JAX sees it."""
    source: str | None = None
    """What JAX says of the function that it was given, which may be a library's: name and place."""

    @property
    def definition(self) -> tuple[str, str, str | None]:
        return self.module, self.qualname, self.defined_at

    def matches_name(self, pattern: str) -> bool:
        return name_matches(pattern, self.name, self.qualname, self.module)


def name_matches(pattern: str, name: str, qualname: str, module: str) -> bool:
    """Whether ``pattern`` is one of a function's names, or a glob of one."""
    names = (name, qualname, f"{module}.{qualname}")
    return pattern in names or any(fnmatch.fnmatchcase(each, pattern) for each in names)


def identify(stack: Stack, p: Probe) -> Function:
    """The function whose call is on the stack."""
    fun, wrappers = stack.fun, stack.wrappers
    number = numbers.of(fun)
    options = options_of(stack)
    through = tuple(map(numbers.of, wrappers))
    key = (number, options, through, stack.jitted_by_jax, stack.pmap)
    known = _functions.get(key)
    if known is None or number is None or None in through:
        if len(_functions) > _MAX_FUNCTIONS:
            _functions.clear()
        known = _functions[key] = _identify(stack, number, options, p)
    return known


def _identify(
    stack: Stack, number: int | None, options: tuple[tuple[str, str], ...], p: Probe
) -> Function:
    fun = stack.fun
    found = list(layers(fun, p.jitted_types))
    in_jax = all(_in_jax(layer, p) for layer in found)
    eager_op = in_jax and is_eager(fun, stack.jitted_by_jax, p)
    outer = None if eager_op else wrapper_of(stack, p)
    if outer is not None:
        found += [o for o in layers(outer, p.jitted_types) if o is not outer]
    tokens: set[Hashable] = {numbers.of(layer) for layer in found}
    tokens |= {bound(layer) for layer in found if isinstance(layer, MethodType)}
    tokens.add(("jit", number, options))
    if not eager_op:
        own = {id(layer) for layer in found}
        tokens |= {
            numbers.of(wrapper)
            for wrapper in stack.wrappers
            if stack.pmap or own & {id(layer) for layer in layers(wrapper, p.jitted_types)}
        }
    if outer is not None:
        tokens.add(numbers.of(outer))
    story: Hashable = number
    if outer is not None:
        story = numbers.of(outer)
        if not stack.pmap:
            story = wrapper_token(outer, fun, options, p) or story
            tokens.add(story)
    if stack.pmap:
        tokens |= {("pmap", numbers.of(layer)) for layer in found}
    tokens.discard(None)
    described = list(found)
    while p.is_jitted(described[-1]):
        described += layers(p.inner(described[-1]), p.jitted_types)
    name, qualname, module, defined_at = describe(described)
    file = next(
        (o.__code__.co_filename for o in described[::-1] if isinstance(o, FunctionType)), ""
    )
    return Function(
        name=name,
        qualname=qualname,
        module=module,
        defined_at=defined_at,
        eager_op=eager_op,
        tokens=frozenset(tokens),
        story=story,
        logged=p.logs_traces_of(file),
        source=getattr(stack.info, "fun_sourceinfo", None),
    )


def wrapper_of(stack: Stack, p: Probe) -> Any:
    """The object through which a library made the call and that stands for one function.

    Needed where a library jits one function of its own for many of the user's
    (``equinox.filter_jit``), or a new one for every call (``jax.pmap``). ``None`` if there is none.
    """
    if stack.pmap and stack.wrappers:
        return stack.wrappers[-1] if len(stack.wrappers) > 1 else stack.wrappers[0]
    for candidate in stack.wrappers:
        if isinstance(candidate, (FunctionType, MethodType, functools.partial)):
            continue
        if any(p.inner(jitted) is stack.fun for jitted in held(candidate, p)):
            return candidate
    return None


def held(wrapper: Any, p: Probe) -> list[Any]:
    """The jitted objects that a library's wrapper calls: what stands in its attributes."""
    try:
        members = list(vars(wrapper).values())
    except Exception:  # without attributes, or a stranger that will not show them
        return []
    return [member for member in members if type(member) is p.jitted_types[0]]


def is_alive(function: Function) -> bool:
    """Whether the object that tells ``function`` from others is still there."""
    story = function.story
    number = story[-1] if isinstance(story, tuple) else story
    return not isinstance(number, int) or numbers.alive(number)


def wrapper_token(
    wrapper: Any, fun: Any, options: tuple[tuple[str, str], ...], p: Probe
) -> Hashable:
    """What a wrapper has in common with its copies: equinox makes one at every transformation.

    ``None`` if it wraps no plain function, so that nothing but its identity tells it apart.
    """
    user = list(layers(wrapper, p.jitted_types))[-1]
    if not isinstance(user, FunctionType):
        return None
    return ("wrapped", numbers.of(fun), options, numbers.of(user))


def describe(found: list[Any]) -> tuple[str, str, str, str | None]:
    """Name, qualified name, module and ``file:line`` of the innermost layer that has them."""
    named = next((o for o in found if isinstance(getattr(o, "__name__", None), str)), None)
    if named is None:
        named = type(found[0])
    function = next((o for o in reversed(found) if isinstance(o, FunctionType)), None)
    source = function or named
    module = getattr(source, "__module__", None) or "?"
    qualname = getattr(source, "__qualname__", named.__name__)
    body = function or vars(type(found[-1])).get("__call__")
    code = getattr(body, "__code__", None)
    defined_at = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
    return (source if function else named).__name__, qualname, module, defined_at


def _in_jax(value: Any, p: Probe) -> bool:
    if isinstance(value, FunctionType):
        return p.zone(value.__code__.co_filename) == JAX
    if isinstance(value, (functools.partial, MethodType)):
        return True  # decided by what they hold
    if p.is_jitted(value):
        return all(_in_jax(layer, p) for layer in layers(p.inner(value), p.jitted_types))
    module = getattr(type(value), "__module__", "") or ""
    return module.partition(".")[0] in ("jax", "jaxlib", "builtins", "functools")


def is_eager(fun: Any, jitted_by_jax: bool, p: Probe) -> bool:
    """Whether JAX jits ``fun``, which is JAX's, to run an operation eagerly.

    ``jax.jit(jnp.sum)`` of a user's is none: nothing of JAX's holds that jitted object.
    """
    return jitted_by_jax or p.owns(fun)


def users(fun: Any) -> bool:
    """Whether a cold start forgets ``fun``: all but the functions that JAX jits itself."""
    number = numbers.of(fun)
    known = _users.get(number)
    if known is None:
        p = probes.probe()
        found = layers(fun, p.jitted_types)
        known = not all(_in_jax(layer, p) for layer in found) or not p.owns(fun)
        if len(_users) > _MAX_USERS:
            _users.clear()
        if number is not None:
            _users[number] = known
    return known


def bound(method: MethodType) -> tuple[str, int | None, int | None]:
    """Two accesses of one bound method are two objects; what they bind is the same."""
    return ("method", numbers.of(method.__self__), numbers.of(method.__func__))


def forget_functions() -> None:
    """Drop what was kept to be found quickly: nobody listens any more."""
    _functions.clear()
    _users.clear()
    forget_options()
