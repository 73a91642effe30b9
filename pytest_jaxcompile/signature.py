"""From what JAX holds during a compilation to a signature of text and numbers."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Hashable, Iterable
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

from pytest_jaxcompile.identity import numbers, options_key
from pytest_jaxcompile.probe import Probe
from pytest_jaxcompile.records import Leaf, Signature, Static, Tree
from pytest_jaxcompile.stack import Stack, jaxpr_of

_MAX_SHARED = 8192
_shared: dict[Hashable, Any] = {}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlevel = 3


def _share(value: Any) -> Any:
    """One object for equal values, so that ten thousand signatures keep a tree once."""
    if len(_shared) > _MAX_SHARED:
        _shared.clear()
    return _shared.setdefault(value, value)


def of_call(stack: Stack, p: Probe) -> Signature:
    """The part of the signature that the caller wrote: static values, form and tree."""
    # The options of a pmap's jit are JAX's own, made anew for every set of devices.
    info = None if stack.pmap else stack.info
    if stack.args is None:
        return Signature(options=options_key(info))
    parameters = _parameters(getattr(info, "fun_signature", None))
    static_numbers = _static_numbers(info, len(stack.args))
    static_names = frozenset(getattr(info, "static_argnames", None) or ())
    static: list[tuple[str, Static]] = []
    form: list[tuple[str, str]] = []
    dynamic: list[str] = []
    for index, value in enumerate(stack.args):
        name = parameters[index][0] if index < len(parameters) else f"args[{index}]"
        form.append((name, "positional"))
        if index in static_numbers:
            static.append((name, static_of(value)))
        else:
            dynamic.append(name)
    dynamic_names: list[str] = []
    for name in sorted(stack.kwargs):
        form.append((name, "keyword"))
        if name in static_names:
            static.append((name, static_of(stack.kwargs[name])))
        else:
            dynamic_names.append(name)
    given = {name for name, _ in form}
    form += [
        (name, "default") for name, has_default in parameters if has_default and name not in given
    ]
    tree = _call_tree(stack, p, dynamic, dynamic_names)
    return Signature(
        tree=_share(tree),
        static=tuple(sorted(static)),
        call_form=_share(tuple(sorted(form))),
        options=options_key(info),
    )


def complete(base: Signature, stack: Stack, p: Probe) -> Signature:
    """``base`` with the arrays of the program, its devices and the trace context."""
    jaxpr = jaxpr_of(stack.jaxpr)
    paths, leaves = base.paths, base.leaves
    if jaxpr is not None:
        avals = [v.aval for v in jaxpr.invars]
        operands = list(stack.operands or ())
        if len(operands) != len(avals):
            operands = [None] * len(avals)
        leaves = _share(tuple(map(_Leaves().of, avals, operands)))
        paths = _share(_mapped_paths(stack, p) if stack.pmap else _paths(jaxpr, len(avals)))
        if len(paths) != len(avals):
            paths = _share(_paths(jaxpr, len(avals)))
    elif stack.args is not None:  # pmap until 0.7: no jaxpr of the call is on the stack
        values = p.jax.tree_util.tree_leaves((stack.args, stack.kwargs))
        avals = [
            p.jax.typeof(v) if hasattr(p.jax, "typeof") else p.jax.core.get_aval(v) for v in values
        ]
        leaves = _share(tuple(map(_Leaves().of, avals, values)))
        paths = _share(_mapped_paths(stack, p))
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


def static_of(value: Any) -> Static:
    """A static value: how it reads, and by what it is compared."""
    kind = type(value)
    by_identity = getattr(kind, "__eq__", None) is object.__eq__ or isinstance(
        value, (FunctionType, MethodType)
    )
    key: int | None = None
    if by_identity:
        key = numbers.of(value)
    else:
        try:
            key = hash(value)
        except Exception:  # the user's __hash__; JAX has its own word to say on it
            key = None
    text = _text(value)
    if key is None:
        key = hash(text)
    return Static(
        text, f"{kind.__module__}.{kind.__qualname__}", "identity" if by_identity else "value", key
    )


def _text(value: Any) -> str:
    if isinstance(value, FunctionType):
        code = value.__code__
        return f"{value.__qualname__} (defined at {code.co_filename}:{code.co_firstlineno})"
    try:
        text = _short.repr(value)
    except Exception:  # the user's __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


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
            leaf = _leaf(aval, *key)
            if len(_leaves) > _MAX_SHARED:
                _leaves.clear()
            _leaves[key] = leaf
        return leaf


_leaves: dict[Hashable, Leaf] = {}
"""One leaf for all arrays that are alike: most of a tree's, and most of one call's to another."""


def _leaf(
    aval: Any,
    shape: tuple[Any, ...],
    dtype: Any,
    weak: bool,
    layout: tuple[str | None, str | None],
    committed: bool,
) -> Leaf:
    return Leaf(
        shape if all(type(n) is int for n in shape) else tuple(map(str, shape)),
        getattr(dtype, "name", None) or str(dtype or type(aval).__name__),
        bool(weak),
        *layout,
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


def _mapped_paths(stack: Stack, p: Probe) -> tuple[str, ...]:
    """Paths of a pmap's arguments: what JAX compiles for it takes them flat, without names."""
    mapped = next((w for w in reversed(stack.wrappers) if callable(w)), stack.fun)
    parameters = _parameters(_signature(mapped))
    tree = p.jax.tree_util
    found = []
    for index, value in enumerate(stack.args or ()):
        name = parameters[index][0] if index < len(parameters) else f"args[{index}]"
        found += [name + tree.keystr(path) for path, _ in tree.tree_flatten_with_path(value)[0]]
    for name in sorted(stack.kwargs):
        found += [
            name + tree.keystr(path)
            for path, _ in tree.tree_flatten_with_path(stack.kwargs[name])[0]
        ]
    return tuple(found)


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # a callable without one
        return None


def _parameters(signature: Any) -> tuple[tuple[str, bool], ...]:
    """Names a positional or keyword argument can bind to, and whether each has a default."""
    if signature is None:
        return ()
    return tuple(
        (p.name, p.default is not p.empty)
        for p in signature.parameters.values()
        if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD
    )


def _static_numbers(info: Any, count: int) -> frozenset[int]:
    return frozenset(
        n % count if n < 0 else n for n in getattr(info, "static_argnums", ()) or () if count
    )


def _call_tree(stack: Stack, p: Probe, dynamic: list[str], keywords: list[str]) -> Tree:
    """The structure of each parameter's value, whichever way it was passed."""
    args = dict(zip(dynamic, _dynamic_values(stack), strict=False))
    treedef = getattr(stack.params, "in_tree", None)
    children: list[tuple[str, Tree]] = []
    if treedef is not None:
        positional, named = treedef.children()
        if positional.node_data() is not None and positional.num_nodes > 1:
            subtrees = positional.children()
            if len(subtrees) == len(dynamic):
                children += [(n, _tree(t)) for n, t in zip(dynamic, subtrees, strict=True)]
        data = named.node_data()
        if data is not None and data[1]:
            children += [(n, _tree(t)) for n, t in zip(data[1], named.children(), strict=True)]
    if len(children) != len(dynamic) + len(keywords):
        values = {**args, **{name: stack.kwargs[name] for name in keywords}}
        structure = p.jax.tree_util.tree_structure
        children = [(name, _tree(structure(value))) for name, value in values.items()]
    children.sort()
    return ("call", None, tuple(n for n, _ in children), tuple(t for _, t in children))


def _dynamic_values(stack: Stack) -> Iterable[Any]:
    numbers_ = _static_numbers(stack.info, len(stack.args or ()))
    return (value for index, value in enumerate(stack.args or ()) if index not in numbers_)


_namesakes: dict[str, list[int | None]] = {}


def _type_name(kind: type) -> str:
    """A node type's name; with a number if there was another type of that name before."""
    name = kind.__qualname__
    if kind.__module__ == "builtins":
        return name
    seen = _namesakes.setdefault(name, [])
    number = numbers.of(kind)
    if number not in seen:
        seen.append(number)
    position = seen.index(number)
    return f"{name}#{position + 1}" if position else name


def _tree(treedef: Any) -> Tree:
    data = treedef.node_data()
    if data is None:
        return "*"
    kind, metadata = data
    if kind is type(None):
        return "None"
    count = treedef.num_leaves
    if treedef.num_nodes == count + 1:
        children: tuple[Tree, ...] = ("*",) * count
    else:
        children = tuple(map(_tree, treedef.children()))
    if issubclass(kind, dict) and isinstance(metadata, (list, tuple)):
        return (_type_name(kind), None, tuple(f"[{key!r}]" for key in metadata), children)
    fields = getattr(kind, "_fields", None)
    if metadata is None and fields is not None:
        return (_type_name(kind), None, tuple(f".{field}" for field in fields), children)
    names = tuple(f"[{index}]" for index in range(len(children)))
    if metadata is None:
        return (_type_name(kind), None, names, children)
    return (_type_name(kind), static_of(metadata), names, children)
