"""What ``of=`` asks for: a function by object, or by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from types import FunctionType, MethodType
from typing import Any

from pytest_jaxcompile.jax_internals.jit_options import options_key
from pytest_jaxcompile.jax_internals.probe import Probe, probe
from pytest_jaxcompile.recording.functions import (
    Function,
    bound,
    describe,
    held,
    layers,
    numbers,
    wrapped,
    wrapper_token,
)


class Target:
    """What ``of=`` asks for. Raises ``TypeError`` for what is no function."""

    def __init__(self, value: Any) -> None:
        self.pattern: str | None = None
        self.jitted = False
        self.tokens: frozenset[Hashable] = frozenset()
        if isinstance(value, str):
            self.pattern = self.text = value
            return
        if not callable(value):
            raise TypeError(
                f"of={value!r} is no function: give the jitted function, the function under it, "
                "or its name as a string"
            )
        if "jax" not in sys.modules:  # nothing is jitted, and asking must not import it
            self.tokens = frozenset({numbers.of(value)} - {None})
            self.text = describe(list(layers(value, ())))[1]
            return
        p = probe()
        found = _leading_to_jit(value, p)
        self.tokens = frozenset(t for t in _tokens(value, found, p) if t is not None)
        self.jitted = _is_jitted(found, p)
        name, qualname, module, _ = describe(found)
        self.text = qualname or f"{module}.{name}"

    def matches(self, function: Function) -> bool:
        if self.pattern is not None:
            return function.matches_name(self.pattern)
        return not self.tokens.isdisjoint(function.tokens)


def _is_jitted(found: list[Any], p: Probe) -> bool:
    """Whether a call goes to a jitted object, found by us or known to a library's wrapper."""
    last = found[-1]
    return p.is_jitted(last) or p.is_pmapped(last) or any(held(layer, p) for layer in found)


def _leading_to_jit(value: Any, p: Probe) -> list[Any]:
    """The layers of ``value``; for an object whose ``__call__`` is jitted, also the method's."""
    found = list(layers(value, p.jitted_types))
    if _is_jitted(found, p) or isinstance(found[-1], (FunctionType, type)):
        return found
    try:
        method = list(layers(found[-1].__call__, p.jitted_types))
    except Exception:  # a stranger's attribute; it is called in a way of its own
        return found
    return found + method if _is_jitted(method, p) else found


def _tokens(value: Any, found: list[Any], p: Probe) -> set[Hashable]:
    last = found[-1]
    if p.is_pmapped(value) or p.is_pmapped(last):
        return _pmap_tokens(value if p.is_pmapped(value) else last, p)
    if p.is_jitted(last):
        return {("jit", numbers.of(p.inner(last)), options_key(p.info(last)))}
    wrapper = next((layer for layer in found if held(layer, p)), None)
    if wrapper is not None:
        return _wrapper_tokens(wrapper, p)
    tokens: set[Hashable] = {numbers.of(layer) for layer in found}
    tokens |= {bound(layer) for layer in found if isinstance(layer, MethodType)}
    if isinstance(value, MethodType):
        # ``obj.step``, not every instance's ``step``.
        return {bound(value)} if _is_plain(value.__func__) else tokens
    outer = next((o for o in found if not isinstance(o, (functools.partial, MethodType))), value)
    return tokens if _is_plain(value) or _is_plain(outer) else {numbers.of(outer)}


def _wrapper_tokens(wrapper: Any, p: Probe) -> set[Hashable]:
    """Those of a library's wrapper, and of its copies."""
    exact: set[Hashable] = {numbers.of(wrapper)}
    own = {numbers.of(layer) for layer in layers(wrapper, p.jitted_types)}
    for jitted in held(wrapper, p):
        inner, options = p.inner(jitted), options_key(p.info(jitted))
        exact.add(wrapper_token(wrapper, inner, options, p))
        shared = {numbers.of(layer) for layer in layers(inner, p.jitted_types)} & own
        if shared or wrapped(wrapper) is None:
            exact.add(("jit", numbers.of(inner), options))
    return exact


def _is_plain(value: Any) -> bool:
    return isinstance(value, (FunctionType, functools.partial))


def _pmap_tokens(mapped: Any, p: Probe) -> set[Hashable]:
    """From 0.8 the closure that every call of this pmap goes through; before, what it maps."""
    if isinstance(mapped, FunctionType):
        cells = dict(zip(mapped.__code__.co_freevars, mapped.__closure__ or (), strict=True))
        if "infer_params" in cells:
            return {numbers.of(cells["infer_params"].cell_contents)}
    prepare = getattr(mapped, "_prepare_pmap", None)  # 0.6 and 0.7
    if prepare is not None:
        return {numbers.of(prepare)}
    return {("pmap", numbers.of(layer)) for layer in layers(p.inner(mapped), p.jitted_types)}
