"""Signatures that differ in one thing each."""

from __future__ import annotations

from dataclasses import replace

from pytest_jaxcompile.reasons.nearest import Versions
from pytest_jaxcompile.records import Leaf, Signature, Static

SINGLE = {"sharding": "single device", "devices": "cpu:0", "committed": True}
MESH = {"sharding": "P('d',) over mesh (d: 4)", "devices": "cpu:0..3", "committed": True}


def leaf(*shape: int, dtype: str = "float32", **more: object) -> Leaf:
    return Leaf(shape, dtype, **more)  # type: ignore[arg-type]


def number(value: float) -> Static:
    return Static(repr(value), f"builtins.{type(value).__name__}", "value", hash(value))


def call(**arguments: object) -> tuple[object, ...]:
    names = tuple(sorted(arguments))
    return ("call", None, names, tuple(arguments[n] for n in names))


def metadata(text: str) -> tuple[object, ...]:
    return ("State", Static(text, "builtins.tuple", "value", hash(text)), ("[0]",), ("*",))


BASE = Signature(
    paths=("s[0]", "x", "y"),
    leaves=(leaf(2), leaf(3, **SINGLE), leaf(3, **SINGLE)),
    tree=call(s=metadata("(1.0,)"), x="*", y="*"),
    static=(("k", number(1)),),
    call_form=(("k", "keyword"), ("s", "positional"), ("x", "positional"), ("y", "positional")),
    devices="cpu:0",
)


def with_x(signature: Signature, **change: object) -> Signature:
    leaves = list(signature.leaves)
    leaves[1] = leaves[1]._replace(**change)  # type: ignore[arg-type]
    return replace(signature, leaves=tuple(leaves))


def with_y(signature: Signature, **change: object) -> Signature:
    leaves = list(signature.leaves)
    leaves[2] = leaves[2]._replace(**change)  # type: ignore[arg-type]
    return replace(signature, leaves=tuple(leaves))


def told(*signatures: Signature) -> Versions:
    story = Versions()
    for signature in signatures:
        story.add(signature)
    return story
