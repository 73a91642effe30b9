"""What ``of=`` asks for: a function by object, or by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from types import FunctionType, MethodType
from typing import Any

from pytest_jaxcompile.identity import (
    Function,
    bound,
    describe,
    layers,
    numbers,
    options_key,
    wrapped,
)
from pytest_jaxcompile.probe import Probe, probe


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
        self.tokens = frozenset(t for t in _tokens(value, p) if t is not None)
        found = list(layers(value, p.jitted_types))
        self.jitted = p.is_jitted(found[-1]) or p.is_pmapped(value) or not _is_plain_chain(found)
        name, qualname, module, _ = describe(found)
        self.text = qualname or f"{module}.{name}"

    def matches(self, function: Function) -> bool:
        if self.pattern is not None:
            return function.matches_name(self.pattern)
        return not self.tokens.isdisjoint(function.tokens)


def _tokens(value: Any, p: Probe) -> set[Hashable]:
    found = list(layers(value, p.jitted_types))
    last = found[-1]
    if p.is_pmapped(value) or p.is_pmapped(last):
        return _pmap_tokens(value if p.is_pmapped(value) else last, p)
    if p.is_jitted(last):
        return {("jit", numbers.of(p.inner(last)), options_key(p.info(last)))}
    tokens: set[Hashable] = {numbers.of(layer) for layer in found}
    tokens |= {bound(layer) for layer in found if isinstance(layer, MethodType)}
    if isinstance(value, MethodType):
        # ``obj.step``, not every instance's ``step``.
        return {bound(value)} if _is_plain(value.__func__) else tokens
    if _is_plain(value):
        return tokens
    wrapper = next((o for o in found if not isinstance(o, (functools.partial, MethodType))), value)
    if _is_plain(wrapper):
        return tokens
    exact: set[Hashable] = {numbers.of(wrapper)}
    own = {numbers.of(layer) for layer in layers(wrapper, p.jitted_types)}
    for held in list(getattr(wrapper, "__dict__", {}).values()):
        if type(held) is p.jitted_types[0]:
            inner = p.inner(held)
            shared = {numbers.of(layer) for layer in layers(inner, p.jitted_types)} & own
            if shared or wrapped(wrapper) is None:
                exact.add(("jit", numbers.of(inner), options_key(p.info(held))))
    return exact


def _is_plain_chain(found: list[Any]) -> bool:
    return all(isinstance(o, (FunctionType, functools.partial, MethodType)) for o in found)


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
