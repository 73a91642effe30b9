"""The JSON form of a summary, written and read piece by piece; ``schema.json`` describes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from pytest_jaxcompile.report.summary import (
    OUTCOMES,
    SCHEMA,
    FunctionTotals,
    Item,
    Outside,
    Reasons,
    Summary,
    TestItem,
    compact,
)

_REASON_TEXTS: Final = ("argument", "before", "after", "hint")


# -- writing ------------------------------------------------------------------------


def stream(summary: Summary) -> dict[str, Any]:
    """The JSON form, with :class:`Parts` for its long lists.

    Totals are counted anew in the order in which they are written, so that a file that is
    read and written again stays the same to the last digit. Raises ``TypeError`` or
    ``ValueError`` if what a hook added is no JSON.
    """
    tests = sorted(summary.tests, key=lambda test: test.id)
    outside = sorted(summary.outside, key=lambda place: place.place)
    # Workers report in any order; what one worker did stays in its order.
    loose = [sorted(place.compilations, key=lambda item: item.worker) for place in outside]
    totals, functions = _recount(summary, chain(*(t.compilations for t in tests), *loose))
    used = sorted({item.signature for item in summary.items()}, key=summary.signatures.__getitem__)
    signatures = {old: new for new, old in enumerate(used)}

    def items(found: Iterable[Item]) -> Parts:
        return Parts(_items(found, functions, signatures))

    return {
        "schema": SCHEMA,
        "complete": summary.complete,
        "environment": _json(summary.environment),
        "started": summary.started,
        "seconds": summary.seconds,
        "totals": _totals(totals),
        "functions": Parts(map(_function, totals)),
        "signatures": Parts(Encoded(summary.signatures[index]) for index in used),
        "tests": Parts(
            {
                "id": test.id,
                "outcome": test.outcome,
                "seconds": test.seconds,
                "compilations": items(test.compilations),
            }
            for test in tests
        ),
        "outside": Parts(
            {"place": place.place, "compilations": items(found)}
            for place, found in zip(outside, loose, strict=True)
        ),
        "notes": _json(summary.notes),
    }


class Parts:
    """A list that is made while it is read, once."""

    __slots__ = ("_made",)

    def __init__(self, made: Iterable[Any]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[Any]:
        return iter(self._made)


class Encoded(str):
    """What is JSON text already."""

    __slots__ = ()


def listed(value: Any) -> Any:
    """``value`` with all :class:`Parts` in it as lists, and :class:`Encoded` text as its value."""
    if isinstance(value, Encoded):
        return json.loads(value)
    if isinstance(value, Parts):
        return [listed(part) for part in value]
    if isinstance(value, dict):
        return {name: listed(part) for name, part in value.items()}
    return value


def _json(value: Mapping[str, Any]) -> Any:
    """A sorted copy with JSON's own types only."""
    return json.loads(json.dumps(value, sort_keys=True, allow_nan=False))


def _recount(
    summary: Summary, items: Iterable[Item]
) -> tuple[list[FunctionTotals], dict[int, int]]:
    """The functions that ``items`` name, sorted, and where each of the summary's went."""
    found: dict[int, FunctionTotals] = {}
    for item in items:
        totals = found.get(item.function)
        if totals is None:
            f = summary.functions[item.function]
            totals = found[item.function] = FunctionTotals(
                f.name, f.qualname, f.module, f.defined_at, f.eager_op
            )
        totals.add(item)
    order = sorted(found, key=lambda index: _function_key(found[index]))
    return [found[index] for index in order], {old: new for new, old in enumerate(order)}


def _function_key(function: FunctionTotals) -> tuple[str, str, str, bool, str]:
    place = function.defined_at or ""
    return function.module, function.qualname, place, function.eager_op, function.name


def _totals(functions: Sequence[FunctionTotals]) -> dict[str, Any]:
    users = [f for f in functions if not f.eager_op]
    return {
        "compilations": sum(f.compilations for f in users),
        "functions": len(users),
        "again": sum(f.again for f in users),
        "disk_hits": sum(f.disk_hits for f in functions),
        "eager_ops": sum(f.compilations for f in functions if f.eager_op),
        "compile_seconds": sum(f.seconds for f in functions),
    }


def _function(function: FunctionTotals) -> dict[str, Any]:
    return {
        "name": function.name,
        "qualname": function.qualname,
        "module": function.module,
        "defined_at": function.defined_at,
        "eager_op": function.eager_op,
        "compilations": function.compilations,
        "again": function.again,
        "disk_hits": function.disk_hits,
        "seconds": function.seconds,
        "reasons": {kind: n for kind, n in sorted(function.reasons.items()) if n},
    }


def _items(
    items: Iterable[Item], functions: Mapping[int, int], signatures: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    for item in items:
        yield {
            **item._asdict(),
            "function": functions[item.function],
            "signature": signatures[item.signature],
            "reasons": [reason.to_json() for reason in item.reasons],
        }


# -- reading ------------------------------------------------------------------------


def read(data: Mapping[str, Any]) -> Summary:
    """Read what :func:`stream` gives; see :meth:`Summary.from_json`."""
    reader = ItemReader()
    summary = Summary(
        environment=dict(data["environment"]),
        started=data["started"] + 0.0,
        seconds=data["seconds"] + 0.0,
        complete=_truth(data["complete"]),
        functions=[_function_of(f) for f in data["functions"]],
        signatures=[compact(dict(s)) for s in data["signatures"]],
        notes={name: reader.restored(value) for name, value in dict(data["notes"]).items()},
    )

    def items(found: Iterable[Any]) -> list[Item]:
        return [_counted(summary, reader(item)) for item in found]

    for test in data["tests"]:
        outcome = OUTCOMES[OUTCOMES.index(test["outcome"])]
        seconds = test["seconds"] + 0.0
        compilations = items(test["compilations"])
        summary.tests.append(TestItem(sys.intern(test["id"]), outcome, seconds, compilations))
    for place in data["outside"]:
        compilations = items(place["compilations"])
        summary.outside.append(Outside(sys.intern(place["place"]), compilations))
    return summary


class ItemReader:
    """Reads compilations; texts and reasons that are equal are kept once."""

    def __init__(self) -> None:
        self._reasons = Reasons()

    def __call__(self, data: Any) -> Item:
        if isinstance(data, Item):
            return data
        return Item(
            data["function"],
            data["signature"],
            _text(data["called_from"]),
            sys.intern(data["phase"]),
            data["trace_seconds"] + 0.0,
            data["lower_seconds"] + 0.0,
            data["compile_seconds"] + 0.0,
            _truth(data["disk_hit"]),
            sys.intern(data["thread"]),
            sys.intern(data["worker"]),
            self._reasons(
                (sys.intern(r["kind"]), *(_text(r[name]) for name in _REASON_TEXTS))
                for r in data["reasons"]
            ),
            data["start"] + 0.0,
        )

    def hook(self, data: dict[str, Any]) -> Any:
        """For ``json.loads``: makes an item at once, so that its texts need no memory."""
        if "called_from" not in data:
            return data
        try:
            return self(data)
        except (KeyError, TypeError):
            return data  # reading it later tells what is wrong

    def restored(self, value: Any) -> Any:
        """A note that held what looks like a compilation, as it was."""
        if isinstance(value, Item):
            return {**value._asdict(), "reasons": [reason.to_json() for reason in value.reasons]}
        if isinstance(value, dict):
            return {name: self.restored(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.restored(part) for part in value]
        return value


def _counted(summary: Summary, item: Item) -> Item:
    if not 0 <= item.function < len(summary.functions):
        raise ValueError(f"there is no function {item.function}")
    if not 0 <= item.signature < len(summary.signatures):
        raise ValueError(f"there is no signature {item.signature}")
    summary.functions[item.function].add(item)
    return item


def _function_of(data: Mapping[str, Any]) -> FunctionTotals:
    return FunctionTotals(
        sys.intern(data["name"]),
        sys.intern(data["qualname"]),
        sys.intern(data["module"]),
        _text(data["defined_at"]),
        _truth(data["eager_op"]),
    )


def _text(value: Any) -> str | None:
    return None if value is None else sys.intern(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
