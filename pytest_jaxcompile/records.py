"""What one compilation was: frozen records of text and numbers.

Nothing here imports JAX or pytest, and no record keeps an array, a function or
a frame alive. Every record knows its JSON form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal[
    "new_function",
    "jit_options",
    "config",
    "transform",
    "tree",
    "static_value",
    "call_form",
    "shape",
    "dtype",
    "weak_type",
    "device",
    "sharding",
    "commitment",
    "evicted",
    "unknown",
]
"""Why a function compiled again, in the order in which reasons are ranked."""

KINDS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]

_SHORT_DTYPES = (
    ("bfloat", "bf"),
    ("float", "f"),
    ("uint", "u"),
    ("int", "i"),
    ("complex", "c"),
)


def short_dtype(dtype: str) -> str:
    """JAX's short form of a dtype name: ``float32`` is ``f32``."""
    for long, short in _SHORT_DTYPES:
        if dtype.startswith(long) and dtype[len(long) :].isdigit():
            return short + dtype[len(long) :]
    return dtype


class Leaf(NamedTuple):
    """What the compilation cache keys on for one array, without its path."""

    shape: tuple[int | str, ...]
    dtype: str
    weak_type: bool = False
    sharding: str | None = None
    """How a committed array is laid out; ``None`` where JAX is free to choose."""
    devices: str | None = None
    """The devices of a committed array, such as ``cpu:0``."""
    committed: bool = False

    def __str__(self) -> str:
        text = f"{short_dtype(self.dtype)}[{','.join(map(str, self.shape))}]"
        if self.weak_type:
            text += "{weak_type=True}"
        return text


class Static(NamedTuple):
    """A value that is part of the signature: a static argument, or metadata in a tree."""

    text: str
    """A short ``repr``."""
    type: str
    compares: Literal["value", "identity"]
    """Whether two equal-looking objects share an executable."""
    key: int
    """Equal for equal values of one process: the hash, or the number of the object."""

    # Equal hashes do not make equal values: hash(-1) == hash(-2). The text tells them apart,
    # but for the addresses in it.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or tuple(self[1:]) != tuple(other[1:]):
            return False
        if self.compares == "identity" or self.text == other.text:
            return True
        return without_addresses(self.text) == without_addresses(other.text)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        text = "" if self.compares == "identity" else without_addresses(self.text)
        return hash((text, *self[1:]))


def without_addresses(text: str) -> str:
    """A ``repr`` without what differs between two objects that read the same."""
    return _ADDRESS.sub("", text) if "0x" in text else text


_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")


def _brief(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


Tree: TypeAlias = "str | tuple[Any, ...]"
"""``"*"`` for a leaf, ``"None"``, or ``(node type, metadata, child names, children)``."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One array of a call, with the path a user would write."""

    path: str
    leaf: Leaf

    @property
    def shape(self) -> tuple[int | str, ...]:
        return self.leaf.shape

    @property
    def dtype(self) -> str:
        return self.leaf.dtype

    @property
    def weak_type(self) -> bool:
        return self.leaf.weak_type

    @property
    def sharding(self) -> str | None:
        return self.leaf.sharding

    @property
    def devices(self) -> str | None:
        return self.leaf.devices

    @property
    def committed(self) -> bool:
        return self.leaf.committed

    def __str__(self) -> str:
        return f"{self.path}: {self.leaf}" if self.path else str(self.leaf)


@dataclass(frozen=True, slots=True)
class Signature:
    """What the jit cache keyed on for one compilation.

    ``paths`` and ``leaves`` run in parallel; equal parts are shared between
    signatures, so that large argument trees are kept once.
    """

    paths: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    tree: Tree = "*"
    static: tuple[tuple[str, Static], ...] = ()
    """Static arguments by parameter name, however they were passed."""
    call_form: tuple[tuple[str, str], ...] = ()
    """Per parameter ``positional``, ``keyword`` or ``default``."""
    config: tuple[tuple[str, str], ...] = ()
    """Options of the trace context that differ from the start of the process."""
    context: int = 0
    """Fingerprint of the whole trace context."""
    options: tuple[tuple[str, str], ...] = ()
    """Options given to ``jit``, those left out omitted."""
    transform: tuple[str, ...] = ()
    """Transformations of the jitted function, outermost first."""
    devices: str | None = None
    """The devices the executable was built for."""
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # Asked for several times, and dear for large trees.
        if not self._hash:
            parts = tuple(getattr(self, name) for name in self.__match_args__)
            object.__setattr__(self, "_hash", hash(parts))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the hash: another process has another seed for that of text.
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return tuple(map(Argument, self.paths, self.leaves))

    def __str__(self) -> str:
        shown = [str(leaf) for leaf in self.leaves[:6]]
        if len(self.leaves) > 6:
            shown.append(f"... {len(self.leaves) - 6} more")
        shown += [f"{name}={_brief(value.text)}" for name, value in self.static]
        return f"({', '.join(shown)})"

    def call(self, function: str) -> str:
        """How a call of ``function`` reads, such as ``vmap of f(f32[3,2])``."""
        return " of ".join((*self.transform, f"{function}{self}"))

    def to_json(self) -> dict[str, Any]:
        return {
            "arguments": [
                {
                    "path": path,
                    "shape": list(leaf.shape),
                    "dtype": leaf.dtype,
                    "weak_type": leaf.weak_type,
                    "sharding": leaf.sharding,
                    "devices": leaf.devices,
                    "committed": leaf.committed,
                }
                for path, leaf in zip(self.paths, self.leaves, strict=True)
            ],
            "static": [
                {"name": name, "value": value.text, "type": value.type, "compares": value.compares}
                for name, value in self.static
            ],
            "call_form": dict(self.call_form),
            "config": dict(self.config),
            "options": dict(self.options),
            "transform": list(self.transform),
            "devices": self.devices,
            "text": f"{self}, under {' of '.join(self.transform)}" if self.transform else str(self),
        }


@dataclass(frozen=True, slots=True)
class Reason:
    """One difference to the nearest earlier compilation."""

    kind: Kind
    argument: str | None = None
    """The path of the argument, such as ``params['w']``; ``None`` if it is no argument's.

    Where very many differ in one kind, the last reason of it gives their number instead."""
    before: str | None = None
    after: str | None = None
    hint: str | None = None
    """What to do about it; ``None`` where nothing is sure."""

    def __str__(self) -> str:
        where = f" of {self.argument}" if self.argument else ""
        change = ""
        if self.before is not None or self.after is not None:
            change = f": {self.before} -> {self.after}"
        return f"{self.kind}{where}{change}"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "argument": self.argument,
            "before": self.before,
            "after": self.after,
            "hint": self.hint,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reason:
        return cls(data["kind"], data["argument"], data["before"], data["after"], data["hint"])


@dataclass(frozen=True, slots=True)
class Compilation:
    """One executable obtained: built by XLA, or loaded from the persistent cache.

    Holds text and numbers only. Times are in seconds; ``start`` is ``time.time()``
    when the first of its phases began. Phases that lay apart (ahead of time) are
    put together, before the end of the last.
    """

    function: str
    """The function's own name."""
    qualname: str
    module: str
    defined_at: str | None
    """``file:line`` of the definition, where Python knows it."""
    called_from: str | None
    """``file:line`` of the call that compiled: the first frame that is in no library."""
    signature: Signature
    trace_seconds: float = 0.0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    """Building by XLA, or loading from disk when ``disk_hit``."""
    disk_hit: bool = False
    eager_op: bool = False
    phase: str = "call"
    """``setup``, ``call`` or ``teardown`` of a test; ``import``, ``collection`` or ``session``."""
    thread: str = "MainThread"
    reasons: tuple[Reason, ...] = ()
    start: float = 0.0
    number: int = 0
    """Position among the compilations of this process."""
    key: str = field(default="", compare=False)
    """The same for two compilations of one function, different for two functions of one name."""

    @property
    def seconds(self) -> float:
        """Own time of all phases; compilations nested inside are not counted in."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @property
    def name(self) -> str:
        """``module.qualname``, as ``of=`` accepts it."""
        return f"{self.module}.{self.qualname}"

    @property
    def call(self) -> str:
        """The call as it reads, such as ``f(f32[3], k=2)`` or ``vmap of f(f32[3,2])``."""
        return self.signature.call(self.function)

    def __str__(self) -> str:
        text = self.call
        if self.disk_hit:
            text += " [from disk]"
        return f"{text} at {self.called_from}" if self.called_from else text

    def to_json(self) -> dict[str, Any]:
        return {
            "function": self.function,
            "qualname": self.qualname,
            "module": self.module,
            "defined_at": self.defined_at,
            "called_from": self.called_from,
            "signature": self.signature.to_json(),
            "seconds": self.seconds,
            "trace_seconds": self.trace_seconds,
            "lower_seconds": self.lower_seconds,
            "compile_seconds": self.compile_seconds,
            "disk_hit": self.disk_hit,
            "eager_op": self.eager_op,
            "phase": self.phase,
            "thread": self.thread,
            "reasons": [reason.to_json() for reason in self.reasons],
            "start": self.start,
            "number": self.number,
            "key": self.key,
        }
