"""Calls whose arguments a library has split: arrays here, all else in one static argument.

``equinox.filter_jit`` jits a function of three arguments, of which the last, static one holds
for the function, its first argument and the others each a pair: the leaves that are no arrays,
and the structure. Records show what the caller wrote instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final, NamedTuple

from pytest_jaxcompile.jax_internals.call_frames import Stack
from pytest_jaxcompile.jax_internals.probe import Probe
from pytest_jaxcompile.recording.functions import layers, wrapper_of

SPLIT_PREFIX: Final = "dynamic_"
"""How the names of the arrays of a split call begin."""
_PARTS: Final = ("fun", "first", "rest")


class SplitArgument(NamedTuple):
    """One argument as the caller wrote it."""

    name: str
    structure: Any
    """JAX's ``PyTreeDef``."""


class SplitCall(NamedTuple):
    arguments: list[SplitArgument]
    static: list[tuple[str, Any]]
    """The leaves that are no arrays, by their path."""
    paths: dict[str, str]
    """What JAX calls an array of the split call, and its path in the call that was written."""


def split_call(stack: Stack, p: Probe) -> SplitCall | None:
    """The call that was written, if the one on the stack is made from it."""
    args = stack.args or ()
    if len(args) != 3 or stack.pmap or not _is_split(args[2], p):
        return None
    try:
        return _together(args[2], list(_names(stack, p)), p)
    except Exception:
        # Another library's, or a node of the user's that takes no stand-ins: JAX's names are left.
        return None


def _together(parts: Any, names: list[str], p: Probe) -> SplitCall:
    arguments: list[SplitArgument] = []
    static: list[tuple[str, Any]] = []
    paths: dict[str, str] = {}
    for part, (leaves, structure) in zip(_PARTS, parts, strict=True):
        if part == "fun" and len(leaves) == 1 and isinstance(leaves[0], FunctionType):
            continue  # which function it is, is told by other means
        if part == "rest":
            arguments += _rest(structure, names)
        else:
            arguments.append(SplitArgument(_name(names, 0, part), structure))
        for index, path in enumerate(_leaf_paths(structure, p)):
            name = _written(path, part, names, p)
            if leaves[index] is not None:
                static.append((name, leaves[index]))
            for group in ("donate", "nodonate"):
                paths[f"{SPLIT_PREFIX}{group}['{part}'][{index}]"] = name
    return SplitCall(arguments, static, paths)


def _rest(structure: Any, names: list[str]) -> Iterator[SplitArgument]:
    """All arguments but the first: the positional ones, and those by keyword."""
    positional, keywords = structure.children()
    # The last positional one is equinox's own, and always None.
    for index, child in enumerate(positional.children()[:-1], 1):
        yield SplitArgument(_name(names, index), child)
    data = keywords.node_data()
    if data is not None:
        yield from map(SplitArgument, data[1], keywords.children())


def _is_split(value: Any, p: Probe) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == len(_PARTS)
        and all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], tuple)
            and isinstance(pair[1], p.jax.tree_util.PyTreeDef)
            and pair[1].num_leaves == len(pair[0])
            for pair in value
        )
    )


def _names(stack: Stack, p: Probe) -> Iterator[str]:
    """Parameters of the user's function, in order, as far as they can be passed by position."""
    wrapper = wrapper_of(stack, p)
    if wrapper is None:
        return
    try:
        parameters = inspect.signature(list(layers(wrapper, p.jitted_types))[-1]).parameters
    except (TypeError, ValueError):  # a callable without one
        return
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            yield name


def _name(names: list[str], index: int, part: str = "rest") -> str:
    if part == "fun":
        return "fun"
    return names[index] if index < len(names) else f"args[{index}]"


def _leaf_paths(structure: Any, p: Probe) -> list[tuple[Any, ...]]:
    tree = p.jax.tree_util
    # As JAX does itself to name leaves: a node must take any objects for its children.
    dummy = tree.tree_unflatten(structure, [object()] * structure.num_leaves)
    return [path for path, _ in tree.tree_flatten_with_path(dummy)[0]]


def _written(path: tuple[Any, ...], part: str, names: list[str], p: Probe) -> str:
    keystr = p.jax.tree_util.keystr
    if part != "rest":
        return _name(names, 0, part) + str(keystr(path))
    group, key, *rest = path
    name = _name(names, key.idx + 1) if group.idx == 0 else str(key.key)
    return name + str(keystr(tuple(rest)))
