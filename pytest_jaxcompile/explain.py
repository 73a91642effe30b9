"""Why a function compiled again: the differences to the nearest earlier signature.

Pure code over records. All differences are found, the kinds that a user must
change first come first, and one never hides another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import is_not
from typing import Final

from pytest_jaxcompile.records import KINDS, Leaf, Reason, Signature, Static, Tree

_RANK: Final = {kind: rank for rank, kind in enumerate(KINDS)}
_SINGLE: Final = (None, "single device")
_LIMIT: Final = 16
"""Differences of one kind that are told one by one; more are summed up."""


class Story:
    """The signatures that one function was compiled for, bounded in number."""

    __slots__ = ("_recent", "_seen")

    def __init__(self, recent: int = 256, seen: int = 20_000) -> None:
        self._recent: deque[Signature] = deque(maxlen=recent)
        self._seen: deque[int] | set[int] = set()

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, signature: Signature) -> None:
        self._recent.appendleft(signature)
        if len(self._seen) < 20_000:
            self._seen.add(hash(signature))  # type: ignore[union-attr]

    def __iter__(self) -> Iterator[Signature]:
        """Most recent first."""
        return iter(self._recent)

    def nearest(self, signature: Signature) -> Signature | None:
        """The earlier signature with the fewest differences; the most recent of several."""
        if hash(signature) in self._seen:
            return signature
        best, least = None, -1
        for earlier in self._recent:
            n = distance(earlier, signature, least)
            if best is None or n < least:
                best, least = earlier, n
                if n <= 1:
                    break
        return best


def distance(a: Signature, b: Signature, limit: int = -1) -> int:
    """How many differences :func:`differences` would tell; may stop counting past ``limit``."""
    n = 0
    if a.context != b.context:
        n += sum(1 for _ in _config(a, b)) or a.transform == b.transform
    if a.options != b.options:
        n += len({name for name, _ in set(a.options) ^ set(b.options)})
    n += a.transform != b.transform
    if a.static != b.static:
        n += len({name for name, _ in set(a.static) ^ set(b.static)})
    if a.call_form != b.call_form:
        n += len({name for name, _ in set(a.call_form) ^ set(b.call_form)})
    if a.tree is not b.tree and a.tree != b.tree:
        n += sum(1 for _ in _tree_differences(a.tree, b.tree))
    if 0 <= limit < n:
        return n
    found = False
    for _, before, after in _changed_leaves(a, b):
        kinds = sum(1 for _ in _leaf_differences(before, after, False))
        n += kinds
        found = found or kinds > 0
    if a.devices != b.devices and not found:
        n += 1
    return n


def differences(before: Signature, after: Signature) -> tuple[Reason, ...]:
    """Every difference between two signatures of one function, ranked. Empty if they are equal."""
    found: list[Reason] = []
    found += _named("jit_options", before.options, after.options)
    found += _config(before, after)
    if before.transform != after.transform:
        found.append(
            Reason("transform", None, _transform(before.transform), _transform(after.transform))
        )
    moved = [name for name, _, _ in _changed(before.call_form, after.call_form)]
    found += [
        Reason("tree", path, old, new)
        for path, old, new in _tree_differences(before.tree, after.tree)
        if path not in moved or (old != "absent" and new != "absent")
    ]
    found += _static(before, after, moved)
    found += [
        Reason("call_form", name, old or "absent", new or "absent")
        for name, old, new in _changed(before.call_form, after.call_form)
        if not _extra(before, after, name)
    ]
    moved_devices = before.devices != after.devices
    for path, old, new in _changed_leaves(before, after):
        found += [Reason(k, path or None, x, y) for k, x, y in _leaf_differences(old, new, moved_devices)]
    kinds = {reason.kind for reason in found}
    if moved_devices and before.devices and after.devices:
        by_default = any(r.kind == "config" and "default_device" in (r.after or "") + (r.before or "") for r in found)
        if not by_default and kinds.isdisjoint({"device", "sharding"}):
            found.append(Reason("device", None, before.devices, after.devices))
    if not found and before.context != after.context:
        found.append(Reason("config", None, "another trace context", "a trace context without a name"))
    found.sort(key=lambda reason: _RANK[reason.kind])
    return tuple(_summed(found))


def _summed(reasons: Iterable[Reason]) -> Iterator[Reason]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason.kind] = counts.get(reason.kind, 0) + 1
        if counts[reason.kind] <= _LIMIT:
            yield reason


def _changed(
    before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, str | None, str | None]]:
    if before == after:
        return
    old, new = dict(before), dict(after)
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _named(kind: str, before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> Iterator[Reason]:
    for name, old, new in _changed(before, after):
        yield Reason(
            kind,  # type: ignore[arg-type]
            None,
            f"{name}={old}" if old is not None else f"no {name}",
            f"{name}={new}" if new is not None else f"no {name}",
        )


def _config(before: Signature, after: Signature) -> Iterator[Reason]:
    if before.context == after.context:
        return
    opposite = {"True": "False", "False": "True"}
    for name, old, new in _changed(before.config, after.config):
        if before.transform != after.transform and not name.startswith("jax_"):
            continue  # the contexts of a transformation are JAX's own doing
        old = old if old is not None else opposite.get(new or "", "default")
        new = new if new is not None else opposite.get(old, "default")
        yield Reason("config", None, f"{name}={old}", f"{name}={new}")


def _extra(before: Signature, after: Signature, name: str) -> bool:
    """Whether ``name`` is one of ``*args`` or ``**kwargs``: more of them is another structure."""
    return name not in dict(before.call_form) or name not in dict(after.call_form)


def _static(before: Signature, after: Signature, moved: list[str]) -> Iterator[Reason]:
    old, new = dict(before.static), dict(after.static)
    for name in dict.fromkeys((*old, *new)):
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            if name not in moved:
                yield Reason("static_value", name, a.text if a else "absent", b.text if b else "absent")
        elif (a.type, a.compares, a.key) != (b.type, b.compares, b.key):
            yield Reason("static_value", name, *_told_apart(a, b))


def _told_apart(a: Static, b: Static) -> tuple[str, str]:
    """Two texts that differ, also where both objects read the same."""
    if a.text != b.text:
        return a.text, b.text
    if a.type != b.type:
        return f"{a.text} ({a.type})", f"{b.text} ({b.type})"
    return a.text, f"{b.text}, another object"


def _transform(transform: tuple[str, ...]) -> str:
    return " of ".join(transform) if transform else "a plain call"


def _changed_leaves(a: Signature, b: Signature) -> Iterator[tuple[str, Leaf, Leaf]]:
    if a.paths is b.paths or a.paths == b.paths:
        if a.leaves is b.leaves:
            return
        for index, differs in enumerate(map(is_not, a.leaves, b.leaves)):
            if differs and a.leaves[index] != b.leaves[index]:
                yield a.paths[index], a.leaves[index], b.leaves[index]
        return
    if a.transform != b.transform:
        return
    new = dict(zip(b.paths, b.leaves, strict=True))
    for path, leaf in zip(a.paths, a.leaves, strict=True):
        other = new.get(path)
        if path and other is not None and other != leaf:
            yield path, leaf, other


def _leaf_differences(a: Leaf, b: Leaf, moved: bool) -> Iterator[tuple[str, str, str]]:  # type: ignore[return]
    if a.shape != b.shape:
        yield "shape", _shape(a), _shape(b)
    if a.dtype != b.dtype:
        yield "dtype", a.dtype, b.dtype
    if a.weak_type != b.weak_type:
        yield "weak_type", *(f"{'weak' if x.weak_type else 'strong'} {x.dtype}" for x in (a, b))
    if a.sharding != b.sharding and (a.sharding not in _SINGLE or b.sharding not in _SINGLE):
        yield "sharding", _layout(a), _layout(b)
    elif a.devices != b.devices and (a.committed and b.committed or moved):
        yield "device", a.devices or "the default device", b.devices or "the default device"
    if a.committed != b.committed:
        yield "commitment", *("committed" if x.committed else "uncommitted" for x in (a, b))


def _shape(leaf: Leaf) -> str:
    return f"({', '.join(map(str, leaf.shape))}{',' if len(leaf.shape) == 1 else ''})"


def _layout(leaf: Leaf) -> str:
    return f"{leaf.sharding} on {leaf.devices}" if leaf.sharding else "unsharded"


def _tree_differences(a: Tree, b: Tree, path: str = "") -> Iterator[tuple[str, str, str]]:
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
        old, new = dict(zip(names, children, strict=True)), dict(zip(other_names, other_children, strict=True))
        for name in dict.fromkeys((*names, *other_names)):
            if name not in old or name not in new:
                yield name, *("absent" if name not in tree else _node(tree[name]) for tree in (old, new))
            else:
                yield from _tree_differences(old[name], new[name], name)
        return
    if metadata != other_metadata:
        yield path, *_told_apart(metadata, other_metadata)
    if names != other_names:
        yield path, _members(kind, names, other_names), _members(kind, other_names, names)
        return
    for name, child, other in zip(names, children, other_children, strict=True):
        yield from _tree_differences(child, other, path + name)


def _node(tree: Tree) -> str:
    if isinstance(tree, str):
        return "an array" if tree == "*" else tree
    return str(tree[0])


def _members(kind: str, names: tuple[str, ...], others: tuple[str, ...]) -> str:
    if kind in ("list", "tuple"):
        return f"{kind} of {len(names)}"
    missing = [name for name in names if name not in set(others)]
    shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
    return f"{kind} of {len(names)}" + (f" with {shown}" if shown else "")
