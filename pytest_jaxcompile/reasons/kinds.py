"""The kinds of reasons: one table, one entry a kind, in the order in which reasons are ranked.

``docs/reasons/KIND.md`` is the page of a kind; a test holds the pages, their index, the JSON schema
and this table against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from pytest_jaxcompile.reasons import hints
from pytest_jaxcompile.reasons.hints import Case
from pytest_jaxcompile.reasons.nearest import Versions
from pytest_jaxcompile.records import Kind, Reason, Signature

_GIVEN: Final = 4
"""Of many reasons of one kind the first few get a hint: more would not be read."""


class Entry(NamedTuple):
    """A kind of reason."""

    when: str
    """One line, as in the docs."""
    hint: Callable[[Reason, Case], str | None]
    """What to do; ``None`` where another reason's hint says it."""


KINDS: Final[dict[Kind, Entry]] = {
    "new_function": Entry(
        "a new function object from a definition seen before: jit in a loop, lambda, partial, "
        "bound method, closure",
        hints.new_function,
    ),
    "jit_options": Entry("the same function under other options of `jit`", hints.jit_options),
    "config": Entry(
        "x64, matmul precision, default device, mesh or another context of the trace",
        hints.config,
    ),
    "transform": Entry(
        "`vmap`, `grad` or another transformation of the jitted function", hints.transform
    ),
    "tree": Entry("argument structure, node type, or metadata held in the structure", hints.tree),
    "static_value": Entry(
        "a static argument differs, or compares by identity and was made again", hints.static
    ),
    "call_form": Entry(
        "positional against keyword, default left out against given", hints.call_form
    ),
    "shape": Entry("the shape of an argument", hints.shape),
    "dtype": Entry("the dtype of an argument", hints.dtype),
    "weak_type": Entry("a Python scalar against an array", hints.weak_type),
    "device": Entry("the devices of an argument, or of the executable", hints.device),
    "sharding": Entry("how an argument is laid out over devices", hints.sharding),
    "commitment": Entry("a committed array against an uncommitted one", hints.commitment),
    "evicted": Entry(
        "the same signature as before: caches were cleared, full, or the function was collected",
        hints.evicted,
    ),
    "unknown": Entry("none of these", hints.unknown),
}


def with_hints(
    reasons: tuple[Reason, ...], signature: Signature, earlier: Versions, name: str
) -> tuple[Reason, ...]:
    """``reasons`` with what each asks for, as far as the signatures tell.

    ``signature`` is the one that compiled now, ``earlier`` what its function, called
    ``name``, was compiled for before.
    """
    of = {(reason.kind, reason.argument) for reason in reasons}
    case = Case(signature, earlier, name, of, {reason.kind for reason in reasons})
    given: Counter[Kind] = Counter()
    found = []
    for r in reasons:
        given[r.kind] += 1
        hint = KINDS[r.kind].hint(r, case) if given[r.kind] <= _GIVEN else None
        found.append(Reason(r.kind, r.argument, r.before, r.after, hint))
    return tuple(found)
