"""From what JAX holds during a compilation to a signature of text and numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from typing import Any

from pytest_jaxcompile.jax_internals.call_frames import Stack, jaxpr_of
from pytest_jaxcompile.jax_internals.probe import Probe
from pytest_jaxcompile.recording.arguments import MAX_SHARED, mapped_paths, share
from pytest_jaxcompile.recording.split_calls import SPLIT_PREFIX, split_call
from pytest_jaxcompile.records import Leaf, Signature


class Program:
    """A compiled program: what its signature is written from, once somebody reads it.

    Holds JAX's descriptions of arrays and where they were laid out, but no array.
    """

    __slots__ = (
        "_avals",
        "_compiler_options",
        "_devices",
        "_layouts",
        "_paths",
        "config",
        "context",
        "part",
        "transform",
    )

    def __init__(self, part: Signature, stack: Stack, p: Probe) -> None:
        self.part = part
        """What the caller wrote."""
        self.transform = stack.transforms[::-1]
        self.context, self.config = p.context()
        if stack.transforms:
            # Under a transformation JAX sets contexts of its own; options are still the user's.
            self.config = tuple(pair for pair in self.config if pair[0].startswith("jax_"))
        self._read_arrays(stack, p)
        self._devices = stack.devices
        self._compiler_options = stack.compiler_options

    def _read_arrays(self, stack: Stack, p: Probe) -> None:
        jaxpr = jaxpr_of(stack.jaxpr)
        operands: Sequence[Any] = stack.operands or ()
        avals: list[Any] = []
        paths: tuple[str, ...] = ()
        if jaxpr is not None:
            avals = [v.aval for v in jaxpr.invars]
            if stack.pmap:
                paths = mapped_paths(stack, p)
            if len(paths) != len(avals):
                paths = getattr(jaxpr.debug_info, "arg_names", None) or ()
            if paths and str(paths[-1]).startswith(SPLIT_PREFIX):
                split = split_call(stack, p)
                paths = tuple([split.paths.get(name, name) for name in paths]) if split else paths
        elif stack.args is not None:  # pmap until 0.7: no jaxpr of the call is on the stack
            operands = p.jax.tree_util.tree_leaves((stack.args, stack.kwargs))
            typeof = getattr(p.jax, "typeof", None) or p.jax.core.get_aval
            avals = [typeof(value) for value in operands]
            paths = mapped_paths(stack, p)
        self._avals = avals
        self._paths = paths
        self._layouts = _layouts(operands) if len(operands) == len(avals) else {}

    def compiled(self, stack: Stack) -> Program:
        """The same program, lowered before and compiled now, for the devices of ``stack``."""
        again = copy(self)
        # Until 0.5 a lowering ahead of time shows no call, as when a jaxpr is run by itself.
        again.transform = stack.transforms[::-1]
        if stack.devices is not None:
            again._devices = stack.devices
        again._compiler_options = stack.compiler_options
        return again

    def signature(self) -> Signature:
        part = self.part
        layouts, of = self._layouts, _Leaves().of
        leaves = share(tuple([of(aval, layouts.get(i)) for i, aval in enumerate(self._avals)]))
        options = part.options
        if self._compiler_options and "compiler_options" not in dict(options):
            options += (("compiler_options", str(dict(self._compiler_options))),)
        return Signature(
            paths=share(_paths(self._paths, len(leaves))),
            leaves=leaves,
            tree=part.tree,
            static=part.static,
            call_form=part.call_form,
            config=self.config,
            context=self.context,
            options=options,
            transform=self.transform,
            devices=_devices(self._devices) if self._devices is not None else None,
        )


def _layouts(operands: Sequence[Any]) -> dict[int, Any]:
    """The shardings of the committed arrays, by position."""
    found = {}
    for index, operand in enumerate(operands):
        committed = getattr(operand, "_committed", None)
        if committed is None:
            committed = getattr(operand, "committed", False)
        if committed:
            sharding = getattr(operand, "sharding", None)
            if sharding is not None:
                found[index] = sharding
    return found


class _Leaves:
    """Leaves of one call; most of its arrays share one sharding."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str]] = {}

    def of(self, aval: Any, sharding: Any) -> Leaf:
        layout: tuple[str | None, str | None] = (None, None)
        if sharding is not None:
            known = self._known.get(id(sharding))
            if known is None:
                known = self._known[id(sharding)] = layout_of(sharding)
            layout = known
        weak = getattr(aval, "weak_type", False)
        dtype = getattr(aval, "dtype", None)
        key = (getattr(aval, "shape", ()), dtype, weak, layout, sharding is not None)
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


def _paths(names: Sequence[str | None], count: int) -> tuple[str, ...]:
    """As many as there are arrays: constants of the program come first, and have no name."""
    found = tuple(name or "" for name in names)[-count:] if count else ()
    return ("",) * (count - len(found)) + found
