"""The summary of a run: computed once, read by every output.

Functions, signatures and reasons are kept once and referred to by position, so
that size and time grow with the number of compilations and with nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pytest_jaxcompile.records import Compilation, Reason

SCHEMA: Final = 1
"""Version of the JSON form; raised when a field changes its meaning or goes."""


class Item(NamedTuple):
    """One compilation, with positions in the tables of its :class:`Summary`."""

    function: int
    signature: int
    called_from: str | None
    phase: str
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    disk_hit: bool
    thread: str
    worker: str
    reasons: tuple[Reason, ...]
    start: float

    @property
    def seconds(self) -> float:
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @property
    def again(self) -> bool:
        """Whether its function had compiled before."""
        return bool(self.reasons)


@dataclass(slots=True)
class FunctionTotals:
    """One definition, and what all its compilations add up to."""

    name: str
    qualname: str
    module: str
    defined_at: str | None
    eager_op: bool
    compilations: int = 0
    again: int = 0
    disk_hits: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    """How often each kind was the first reason."""


@dataclass(slots=True)
class TestItem:
    """One test: its outcome and what compiled in its phases."""

    __test__ = False

    id: str
    outcome: str
    seconds: float
    """Wall time of setup, call and teardown."""
    compilations: list[Item] = field(default_factory=list)

    @property
    def compile_seconds(self) -> float:
        return sum(item.seconds for item in self.compilations)


@dataclass(slots=True)
class Outside:
    """What compiled outside tests, by place: import, collection, a session, a stray thread."""

    place: str
    compilations: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Summary:
    environment: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0
    """``time.time()`` at the start of the run."""
    seconds: float = 0.0
    """Wall time of the run."""
    complete: bool = True
    """False if a worker was lost or the run stopped early."""
    functions: list[FunctionTotals] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    """Signatures as JSON texts; :meth:`signature` reads one."""
    tests: list[TestItem] = field(default_factory=list)
    outside: list[Outside] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """What hooks add; JSON values by name."""

    def items(self) -> Iterator[Item]:
        for test in self.tests:
            yield from test.compilations
        for place in self.outside:
            yield from place.compilations

    def signature(self, item: Item) -> dict[str, Any]:
        return json.loads(self.signatures[item.signature])  # type: ignore[no-any-return]

    def users(self) -> list[FunctionTotals]:
        """Functions that are no eager operations, the most expensive first."""
        mine = [f for f in self.functions if not f.eager_op and f.compilations]
        return sorted(mine, key=lambda f: (-f.seconds, f.module, f.qualname))

    def ops(self) -> list[FunctionTotals]:
        mine = [f for f in self.functions if f.eager_op and f.compilations]
        return sorted(mine, key=lambda f: (-f.seconds, f.module, f.qualname))

    @property
    def compile_seconds(self) -> float:
        return sum(f.seconds for f in self.functions)

    @property
    def compilations(self) -> int:
        return sum(f.compilations for f in self.functions)

    # -- JSON -----------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The documented form, sorted; see ``schema.json`` beside this module."""
        order = sorted(range(len(self.functions)), key=lambda i: _function_key(self.functions[i]))
        rank = {old: new for new, old in enumerate(order)}
        users, ops = self.users(), self.ops()
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            "environment": self.environment,
            "started": self.started,
            "seconds": self.seconds,
            "totals": {
                "compilations": sum(f.compilations for f in users),
                "functions": len(users),
                "again": sum(f.again for f in users),
                "disk_hits": sum(f.disk_hits for f in (*users, *ops)),
                "eager_ops": sum(f.compilations for f in ops),
                "compile_seconds": self.compile_seconds,
            },
            "functions": [_function_json(self.functions[i]) for i in order],
            "signatures": [json.loads(text) for text in self.signatures],
            "tests": [
                {
                    "id": test.id,
                    "outcome": test.outcome,
                    "seconds": test.seconds,
                    "compilations": [_item_json(item, rank) for item in test.compilations],
                }
                for test in sorted(self.tests, key=lambda test: test.id)
            ],
            "outside": [
                {
                    "place": place.place,
                    "compilations": [_item_json(item, rank) for item in place.compilations],
                }
                for place in sorted(self.outside, key=lambda place: place.place)
            ],
            "notes": self.notes,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        """Read what :meth:`to_json` wrote. Raises ``KeyError`` or ``TypeError`` for anything else."""
        builder = Builder()
        summary = builder.summary
        summary.environment = dict(data["environment"])
        summary.started, summary.seconds = data["started"], data["seconds"]
        summary.complete = data["complete"]
        summary.notes = dict(data["notes"])
        summary.signatures = [_dumps(s) for s in data["signatures"]]
        summary.functions = [
            FunctionTotals(f["name"], f["qualname"], f["module"], f["defined_at"], f["eager_op"])
            for f in data["functions"]
        ]
        for test in data["tests"]:
            items = [builder.count(_item_of(c)) for c in test["compilations"]]
            summary.tests.append(TestItem(test["id"], test["outcome"], test["seconds"], items))
        for place in data["outside"]:
            items = [builder.count(_item_of(c)) for c in place["compilations"]]
            summary.outside.append(Outside(place["place"], items))
        return summary


class Builder:
    """Gathers a summary, one packet of compilations at a time."""

    def __init__(self) -> None:
        self.summary = Summary()
        self._functions: dict[tuple[Any, ...], int] = {}
        self._signatures: dict[str, int] = {}
        self._tests: dict[str, TestItem] = {}
        self._outside: dict[str, Outside] = {}

    def test(self, nodeid: str, outcome: str, seconds: float, packet: Packet | None) -> None:
        """Add one phase of a test; phases of one test add up, the worst outcome stays."""
        test = self._tests.get(nodeid)
        if test is None:
            test = self._tests[nodeid] = TestItem(nodeid, outcome, 0.0)
            self.summary.tests.append(test)
        test.seconds += seconds
        if _WORSE.index(outcome) > _WORSE.index(test.outcome):
            test.outcome = outcome
        if packet:
            test.compilations += self._read(packet)

    def forget(self, nodeid: str) -> None:
        """Drop what is known of a test that runs again."""
        test = self._tests.pop(nodeid, None)
        if test is not None:
            self.summary.tests.remove(test)
            for item in test.compilations:
                self.count(item, -1)

    def outside(self, packet: Packet) -> None:
        """Add compilations that belong to no test; the packet names the place of each."""
        for place, item in zip(packet["places"], self._read(packet), strict=True):
            found = self._outside.get(place)
            if found is None:
                found = self._outside[place] = Outside(place)
                self.summary.outside.append(found)
            found.compilations.append(item)

    def count(self, item: Item, sign: int = 1) -> Item:
        totals = self.summary.functions[item.function]
        totals.compilations += sign
        totals.again += sign * item.again
        totals.disk_hits += sign * item.disk_hit
        totals.seconds += sign * item.seconds
        if item.reasons:
            totals.reasons[item.reasons[0].kind] += sign
        return item

    def _read(self, packet: Packet) -> Iterator[Item]:
        functions = [self._function(f) for f in packet["functions"]]
        signatures = [self._signature(s) for s in packet["signatures"]]
        worker = sys.intern(packet["worker"])
        for row in packet["rows"]:
            function, signature, called_from, phase, *times, disk_hit, thread, reasons, start = row
            yield self.count(
                Item(
                    functions[function],
                    signatures[signature],
                    called_from and sys.intern(called_from),
                    sys.intern(phase),
                    *times,
                    disk_hit,
                    sys.intern(thread),
                    worker,
                    tuple(Reason(*reason) for reason in reasons),
                    start,
                )
            )

    def _function(self, found: Sequence[Any]) -> int:
        key = tuple(found)
        index = self._functions.get(key)
        if index is None:
            index = self._functions[key] = len(self.summary.functions)
            self.summary.functions.append(FunctionTotals(*found))
        return index

    def _signature(self, text: str) -> int:
        index = self._signatures.get(text)
        if index is None:
            index = self._signatures[text] = len(self.summary.signatures)
            self.summary.signatures.append(text)
        return index


Packet = dict[str, Any]
"""Compilations on their way from a worker: basic types only, size in proportion to them."""


def pack(
    records: Iterable[Compilation], root: str, worker: str, places: Sequence[str] = ()
) -> Packet:
    """Compilations as basic types, each function and signature once, paths relative to ``root``."""
    functions: dict[tuple[Any, ...], int] = {}
    signatures: dict[str, int] = {}
    rows = []
    for record in records:
        function = (
            record.function,
            record.qualname,
            record.module,
            relative(record.defined_at, root),
            record.eager_op,
        )
        rows.append(
            [
                functions.setdefault(function, len(functions)),
                signatures.setdefault(_dumps(record.signature.to_json()), len(signatures)),
                relative(record.called_from, root),
                record.phase,
                record.trace_seconds,
                record.lower_seconds,
                record.compile_seconds,
                record.disk_hit,
                record.thread,
                [[r.kind, r.argument, r.before, r.after, r.hint] for r in record.reasons],
                record.start,
            ]
        )
    return {
        "worker": worker,
        "functions": [list(f) for f in functions],
        "signatures": list(signatures),
        "rows": rows,
        "places": list(places),
    }


def relative(place: str | None, root: str) -> str | None:
    """``file:line`` relative to ``root`` where it lies below it, with forward slashes."""
    if place is None:
        return None
    prefix = os.path.join(root, "")
    return place[len(prefix) :].replace(os.sep, "/") if place.startswith(prefix) else place


_WORSE: Final = ("passed", "skipped", "xfailed", "xpassed", "failed", "error")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _function_key(function: FunctionTotals) -> tuple[str, str, str, bool]:
    return function.module, function.qualname, function.defined_at or "", function.eager_op


def _function_json(function: FunctionTotals) -> dict[str, Any]:
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


def _item_json(item: Item, rank: Mapping[int, int]) -> dict[str, Any]:
    return {
        "function": rank[item.function],
        "signature": item.signature,
        "called_from": item.called_from,
        "phase": item.phase,
        "trace_seconds": item.trace_seconds,
        "lower_seconds": item.lower_seconds,
        "compile_seconds": item.compile_seconds,
        "disk_hit": item.disk_hit,
        "thread": item.thread,
        "worker": item.worker,
        "reasons": [reason.to_json() for reason in item.reasons],
        "start": item.start,
    }


def _item_of(data: Mapping[str, Any]) -> Item:
    return Item(
        data["function"],
        data["signature"],
        data["called_from"],
        data["phase"],
        data["trace_seconds"],
        data["lower_seconds"],
        data["compile_seconds"],
        data["disk_hit"],
        data["thread"],
        data["worker"],
        tuple(map(Reason.from_json, data["reasons"])),
        data["start"],
    )
