"""How two signatures of one function differ: every difference, none hidden by another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import groupby, islice
from operator import ne
from typing import Any, Final, TypeAlias

from pytest_jaxcompile.records import KINDS, Kind, Leaf, Reason, Signature, Static, Tree

_RANK: Final = {kind: rank for rank, kind in enumerate(KINDS)}
_SINGLE: Final = (None, "single device")
_LIMIT: Final = 32
"""Differences of one kind that are told one by one; a reason of its own counts the others."""
_LONG: Final = 64

_Pairs: TypeAlias = tuple[tuple[str, str], ...]
_Statics: TypeAlias = tuple[tuple[str, Static], ...]
_Difference: TypeAlias = tuple[Kind, str | None, Any, Any]
"""Kind, argument, and what to tell of before and after: text, or what :data:`_TEXT` reads."""


def differences(before: Signature, after: Signature) -> tuple[Reason, ...]:
    """Every difference, what the user must change first coming first. Empty if there is none."""
    found = _differences(before, after)
    found.sort(key=lambda difference: _RANK[difference[0]])
    reasons: list[Reason] = []
    for kind, group in groupby(found, key=lambda difference: difference[0]):
        text = _TEXT.get(kind)
        for _, argument, old, new in islice(group, _LIMIT):
            if text:
                old, new = text(old), text(new)  # noqa: PLW2901
            reasons.append(Reason(kind, argument or None, old, new))
        more = sum(1 for _ in group)
        if more:
            reasons.append(Reason(kind, f"{more} more argument{'' if more == 1 else 's'}"))
    return tuple(reasons)


def distance(before: Signature, after: Signature, limit: int | None = None) -> int:
    """How far two signatures are apart: the number of their differences.

    A call of which nothing is known is one apart from one that is known. Under other
    transformations the arrays are others, too. So each transformation that came
    or went counts, and if that renamed the arrays, it counts once more. With ``limit``, a
    distance of at least ``limit`` may be told too low, but never below ``limit``.
    """
    if limit is not None and before.paths == after.paths and before.transform == after.transform:
        leaves: int = sum(map(ne, before.leaves, after.leaves))
        if leaves >= limit:
            return leaves
    n = len(_differences(before, after))
    n += isinstance(before.tree, str) != isinstance(after.tree, str)
    if before.transform != after.transform:
        old, new = Counter(before.transform), Counter(after.transform)
        n += max(0, (old - new).total() + (new - old).total() - 1)
        n += before.paths != after.paths or "" in after.paths
    return n


def _differences(before: Signature, after: Signature) -> list[_Difference]:
    found = _of_program(before, after)
    found += _of_call(before, after)
    rebuilt = before.devices != after.devices
    for path, old, new in _changed_leaves(before, after):
        for kind in _leaf_kinds(old, new, rebuilt):
            found.append((kind, path, old, new))
    if rebuilt and before.devices and after.devices and not _explains_devices(found):
        found.append(("device", None, _on(before.devices), _on(after.devices)))
    if not found:
        found += _unnamed(before, after)
    return found


def _of_program(before: Signature, after: Signature) -> list[_Difference]:
    found: list[_Difference] = []
    if before.options != after.options:
        found += _options(before, after)
    if before.context != after.context:
        found += _config(before, after)
    old, new = _transform(before), _transform(after)
    if before.transform != after.transform:
        found.append(("transform", None, old, new))
    elif before.transform and len(before.leaves) != len(after.leaves):
        # Such as the backward pass with respect to another argument.
        numbers = len(before.leaves), len(after.leaves)
        found.append(
            (
                "transform",
                None,
                f"{old} with {numbers[0]} arrays",
                f"{new} with {numbers[1]} arrays",
            )
        )
    return found


def _of_call(before: Signature, after: Signature) -> list[_Difference]:
    found: list[_Difference] = []
    if isinstance(before.tree, str) or isinstance(after.tree, str):
        return found  # of a program that came without its call, nothing is known of one
    moved: dict[str, tuple[str, str]] = {}
    if before.call_form != after.call_form:
        moved = _moved(before.call_form, after.call_form)
        found += [("call_form", name, *forms) for name, forms in moved.items()]
    if before.tree is not after.tree:
        for path, old, new in _tree(before.tree, after.tree):
            # An argument that was left out is no other structure, but another spelling.
            if path not in moved or "absent" not in (old, new):
                found.append(("tree", path, old, new))
    if before.static != after.static:
        found += _static(before.static, after.static, moved)
    return found


def _unnamed(before: Signature, after: Signature) -> Iterator[_Difference]:
    """What is left to tell where no difference has a name."""
    if before.context != after.context and after.transform:
        text = " of ".join(after.transform)
        yield "transform", None, text, f"{text} in another context, such as an axis name"
    elif before.context != after.context:
        yield "config", None, "one trace context", "another one, by no option that JAX names"
    elif before != after and isinstance(before.tree, str) == isinstance(after.tree, str):
        arrays = [f"a program of {len(s.leaves)} arrays" for s in (before, after)]
        yield "unknown", None, *(arrays if arrays[0] != arrays[1] else ("one program", "another"))


# -- what the function and its call are ---------------------------------------------


def _changed(before: _Pairs, after: _Pairs) -> Iterator[tuple[str, str | None, str | None]]:
    old, new = dict(before), dict(after)
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _options(before: Signature, after: Signature) -> Iterator[_Difference]:
    for name, *values in _changed(before.options, after.options):
        texts = [f"no {name}" if value is None else f"{name}={value}" for value in values]
        yield "jit_options", None, *_contrast(*texts)


def _config(before: Signature, after: Signature) -> Iterator[_Difference]:
    opposite = {"True": "False", "False": "True"}
    for name, old, new in _changed(before.config, after.config):
        if before.transform != after.transform and not name.startswith("jax_"):
            continue  # the contexts of a transformation are JAX's own doing
        # Options are told that differ from the start of the process, so one of two may be missing.
        was = old if old is not None else opposite.get(new or "", "default")
        now = new if new is not None else opposite.get(old or "", "default")
        yield "config", None, f"{name}={was}", f"{name}={now}"


_PASSES: Final = {
    "linearize": "linearize (forward pass of grad)",
    "transpose": "transpose (backward pass of grad)",
}


def _transform(signature: Signature) -> str:
    return " of ".join(_PASSES.get(name, name) for name in signature.transform) or "a plain call"


def _moved(before: _Pairs, after: _Pairs) -> dict[str, tuple[str, str]]:
    """Parameters passed in another way. One more of ``*args`` is another structure instead."""
    return {
        name: (old or "absent", new or "absent")
        for name, old, new in _changed(before, after)
        if (old and new) or "default" in (old, new)
    }


def _static(before: _Statics, after: _Statics, moved: Collection[str]) -> Iterator[_Difference]:
    old, new = dict(before), dict(after)
    for name in dict.fromkeys((*old, *new)):
        a, b = old.get(name), new.get(name)
        if a is not None and b is not None:
            if a != b:
                yield "static_value", name, *_told_apart(a, b)
        elif name not in moved:
            yield "static_value", name, a.text if a else "absent", b.text if b else "absent"


def _told_apart(a: Static, b: Static, prefix: str = "") -> tuple[str, str]:
    """Two texts that differ, also where both objects read the same."""
    if a.text != b.text:
        old, new = _contrast(a.text, b.text)
    elif a.type != b.type:
        old, new = f"{a.text} ({a.type})", f"{b.text} ({b.type})"
    else:
        other = "another value that reads the same"
        if b.compares == "identity":
            other = "another object"
        elif "..." in b.text:
            other = "another value, in a part that is not shown"
        old, new = a.text, f"{b.text}, {other}"
    return prefix + old, prefix + new


def _contrast(a: str, b: str) -> tuple[str, str]:
    """Of two long texts the part in which they differ, with some of what stands around it."""
    if max(len(a), len(b)) <= _LONG:
        return a, b
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    start, end = max(0, start - 16), max(0, end - 16)
    return tuple(  # type: ignore[return-value]
        ("..." if start else "") + text[start : len(text) - end] + ("..." if end else "")
        for text in (a, b)
    )


# -- arrays -------------------------------------------------------------------------


def _changed_leaves(a: Signature, b: Signature) -> Iterator[tuple[str, Leaf, Leaf]]:
    if a.leaves is b.leaves and a.paths is b.paths:
        return
    same_program = a.transform == b.transform
    if a.paths == b.paths:
        for index, differs in enumerate(map(ne, a.leaves, b.leaves)):
            if differs and (same_program or a.paths[index]):
                yield a.paths[index], a.leaves[index], b.leaves[index]
        return
    new = dict(zip(b.paths, b.leaves, strict=True))
    for path, leaf in zip(a.paths, a.leaves, strict=True):
        other = new.get(path)
        if path and other is not None and other != leaf:
            yield path, leaf, other


def _leaf_kinds(a: Leaf, b: Leaf, rebuilt: bool) -> list[Kind]:
    """``rebuilt`` tells that the executable is for other devices."""
    kinds: list[Kind] = []
    if a.shape != b.shape:
        kinds.append("shape")
    if a.dtype != b.dtype:
        kinds.append("dtype")
    if a.weak_type != b.weak_type:
        kinds.append("weak_type")
    if a.sharding != b.sharding and (a.sharding not in _SINGLE or b.sharding not in _SINGLE):
        kinds.append("sharding")
    elif a.devices != b.devices and (a.committed == b.committed or rebuilt):
        kinds.append("device")
    if a.committed != b.committed:
        kinds.append("commitment")
    return kinds


def _explains_devices(found: list[_Difference]) -> bool:
    return any(
        kind in ("device", "sharding") or (kind == "config" and "default_device" in old)
        for kind, _, old, _ in found
    )


def _shape(leaf: Leaf) -> str:
    return f"({', '.join(map(str, leaf.shape))}{',' if len(leaf.shape) == 1 else ''})"


def _strength(leaf: Leaf) -> str:
    return f"{'weak' if leaf.weak_type else 'strong'} {leaf.dtype}"


def _layout(leaf: Leaf) -> str:
    return f"{leaf.sharding} on {leaf.devices}" if leaf.sharding else "unsharded"


def _on(devices: str | None) -> Leaf:
    return Leaf((), "", devices=devices)


_TEXT: Final[dict[str, Callable[[Leaf], str]]] = {
    "shape": _shape,
    "dtype": lambda leaf: leaf.dtype,
    "weak_type": _strength,
    "sharding": _layout,
    "device": lambda leaf: leaf.devices or "the default device",
    "commitment": lambda leaf: "committed" if leaf.committed else "uncommitted",
}


# -- structure ----------------------------------------------------------------------


def _tree(a: Tree, b: Tree, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two structures part: (path, before, after), as deep as they can be told apart."""
    if a is b or a == b:
        return
    if isinstance(a, str) or isinstance(b, str):
        yield path, _node(a), _node(b)
        return
    kind, metadata, names, children = a
    other_kind, other_metadata, other_names, other_children = b
    if kind != other_kind:
        yield path, kind, other_kind
        return
    if kind == "call":
        yield from _arguments(a, b)
        return
    if metadata != other_metadata:
        if isinstance(metadata, Static) and isinstance(other_metadata, Static):
            yield path, *_told_apart(metadata, other_metadata, f"{kind} with metadata ")
        else:
            old, new = ("with" if m is not None else "without" for m in (metadata, other_metadata))
            yield path, f"{kind} {old} metadata", f"{kind} {new} metadata"
    if names != other_names:
        yield path, _members(kind, names, other_names), _members(kind, other_names, names)
        return
    for name, child, other in zip(names, children, other_children, strict=True):
        yield from _tree(child, other, path + name)


def _arguments(a: tuple[Any, ...], b: tuple[Any, ...]) -> Iterator[tuple[str, str, str]]:
    old, new = (dict(zip(tree[2], tree[3], strict=True)) for tree in (a, b))
    for name in dict.fromkeys((*old, *new)):
        if name in old and name in new:
            yield from _tree(old[name], new[name], name)
        else:
            yield name, _node(old.get(name, "absent")), _node(new.get(name, "absent"))


def _node(tree: Tree) -> str:
    if isinstance(tree, str):
        return "an array" if tree == "*" else tree
    return str(tree[0])


def _members(kind: str, names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """How many members there are, and which of them only here."""
    known = set(others)
    own = [] if kind in ("list", "tuple") else [name for name in names if name not in known]
    shown = ", ".join(own[:4]) + (", ..." if len(own) > 4 else "")
    if names and not own and len(names) == len(others) and kind not in ("list", "tuple"):
        shown = ", ".join(names[:4])  # the same members in another order
    return f"{kind} of {len(names)}" + (f" with {shown}" if shown else "")
