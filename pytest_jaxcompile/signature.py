"""From what JAX holds during a compilation to a signature of text and numbers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from pytest_jaxcompile.call import MAX_SHARED, mapped_paths, share
from pytest_jaxcompile.probe import Probe
from pytest_jaxcompile.records import Leaf, Signature
from pytest_jaxcompile.stack import Stack, jaxpr_of


def complete(base: Signature, stack: Stack, p: Probe) -> Signature:
    """``base`` with the arrays of the program, its devices and the trace context."""
    jaxpr = jaxpr_of(stack.jaxpr)
    paths, leaves = base.paths, base.leaves
    if jaxpr is not None:
        avals = [v.aval for v in jaxpr.invars]
        operands = list(stack.operands or ())
        if len(operands) != len(avals):
            operands = [None] * len(avals)
        leaves = share(tuple(map(_Leaves().of, avals, operands)))
        paths = share(mapped_paths(stack, p) if stack.pmap else _paths(jaxpr, len(avals)))
        if len(paths) != len(avals):
            paths = share(_paths(jaxpr, len(avals)))
    elif stack.args is not None:  # pmap until 0.7: no jaxpr of the call is on the stack
        values = p.jax.tree_util.tree_leaves((stack.args, stack.kwargs))
        avals = [
            p.jax.typeof(v) if hasattr(p.jax, "typeof") else p.jax.core.get_aval(v) for v in values
        ]
        leaves = share(tuple(map(_Leaves().of, avals, values)))
        paths = share(mapped_paths(stack, p))
    fingerprint, config = p.context()
    if stack.transforms:
        # Under a transformation JAX sets contexts of its own; options are still the user's.
        config = tuple(pair for pair in config if pair[0].startswith("jax_"))
    options = base.options
    if stack.compiler_options and "compiler_options" not in dict(options):
        options += (("compiler_options", str(dict(stack.compiler_options))),)
    return replace(
        base,
        paths=paths,
        leaves=leaves,
        config=config,
        context=fingerprint,
        options=options,
        transform=tuple(reversed(stack.transforms)),
        devices=_devices(stack.devices) if stack.devices is not None else base.devices,
    )


class _Leaves:
    """Leaves of one call; most of its arrays share one sharding."""

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[str, str]] = {}

    def of(self, aval: Any, operand: Any) -> Leaf:
        layout: tuple[str | None, str | None] = (None, None)
        committed = getattr(operand, "_committed", None)
        if committed is None:
            committed = getattr(operand, "committed", False)
        if committed:
            sharding = getattr(operand, "sharding", None)
            committed = sharding is not None
            if committed:
                known = self._layouts.get(id(sharding))
                if known is None:
                    known = self._layouts[id(sharding)] = layout_of(sharding)
                layout = known
        weak = getattr(aval, "weak_type", False)
        key = (getattr(aval, "shape", ()), getattr(aval, "dtype", None), weak, layout, committed)
        leaf = _leaves.get(key)
        if leaf is None:
            leaf = _leaf(aval, key)
            if len(_leaves) > MAX_SHARED:
                _leaves.clear()
            _leaves[key] = leaf
        return leaf


_leaves: dict[Hashable, Leaf] = {}
"""One leaf for all arrays that are alike: most of a tree's, and most of one call's to another."""


def _leaf(aval: Any, key: tuple[Any, ...]) -> Leaf:
    shape, dtype, weak, layout, committed = key
    return Leaf(
        shape if all(type(n) is int for n in shape) else tuple(map(str, shape)),
        getattr(dtype, "name", None) or str(dtype or type(aval).__name__),
        bool(weak),
        layout[0],
        layout[1],
        bool(committed),
    )


def layout_of(sharding: Any) -> tuple[str, str]:
    """A sharding as (how, where): its spec over named mesh axes, and its devices."""
    devices = _devices(getattr(sharding, "_device_assignment", None) or sharding.device_set)
    spec, mesh = getattr(sharding, "spec", None), getattr(sharding, "mesh", None)
    if spec is not None and mesh is not None:
        axes = ", ".join(f"{name}: {size}" for name, size in mesh.shape.items())
        how = f"{spec} over mesh ({axes})"
    elif "," not in devices and ".." not in devices:
        how = "single device"
    else:
        how = str(sharding)
    kind = getattr(sharding, "memory_kind", None)
    if kind not in (None, "device", "unpinned_host"):
        how += f", memory {kind}"
    return how, devices


def _devices(devices: Any) -> str:
    """``cpu:0..3`` for four devices in order, else each by name."""
    named = [f"{d.platform}:{d.id}" for d in devices]
    if not isinstance(devices, (list, tuple)) and isinstance(devices, (set, frozenset)):
        named.sort()
    ids = [d.id for d in devices]
    if (
        len(ids) > 2
        and ids == sorted(ids)
        and ids[-1] - ids[0] == len(ids) - 1
        and not isinstance(devices, (set, frozenset))
    ):
        return f"{named[0]}..{ids[-1]}"
    return ",".join(named)


def _paths(jaxpr: Any, count: int) -> tuple[str, ...]:
    names = getattr(jaxpr.debug_info, "arg_names", None) or ()
    found = tuple(name or "" for name in names)[-count:] if count else ()
    return ("",) * (count - len(found)) + found
