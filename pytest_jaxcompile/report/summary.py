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

OUTCOMES: Final = ("passed", "skipped", "xfailed", "xpassed", "failed", "error")
"""Of a test, from good to bad; of several phases or runs of it the worst stays."""

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

    def add(self, item: Item, sign: int = 1) -> None:
        """Count one of its compilations; with ``sign=-1`` take it away."""
        self.compilations += sign
        self.again += sign * item.again
        self.disk_hits += sign * item.disk_hit
        self.seconds += sign * item.seconds
        if item.reasons:
            self.reasons[item.reasons[0].kind] += sign


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
        from pytest_jaxcompile.report import json_form

        return json_form.listed(json_form.stream(self))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        """Read what :meth:`to_json` wrote.

        Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else. Fields that are
        not known are left out.
        """
        from pytest_jaxcompile.report import json_form

        return json_form.read(data)


class Reasons:
    """Makes reasons of their texts; reasons that are equal are kept once."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Any, ...], ...], tuple[Reason, ...]] = {}

    def __call__(self, rows: Iterable[Iterable[Any]]) -> tuple[Reason, ...]:
        key = tuple(map(tuple, rows))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(Reason(*row) for row in key)
        return found


class Builder:
    """Gathers a summary, one packet of compilations at a time."""

    def __init__(self) -> None:
        self.summary = Summary()
        self._functions: dict[tuple[Any, ...], int] = {}
        self._signatures: dict[str, int] = {}
        self._tests: dict[str, TestItem] = {}
        self._outside: dict[str, Outside] = {}
        self._reasons = Reasons()

    def test(self, nodeid: str, outcome: str, seconds: float, packet: Packet | None) -> None:
        """Add one phase of a test; phases of one test add up, the worst outcome stays."""
        test = self._tests.get(nodeid)
        if test is None:
            test = self._tests[nodeid] = TestItem(nodeid, outcome, 0.0)
            self.summary.tests.append(test)
        test.seconds += seconds
        if OUTCOMES.index(outcome) > OUTCOMES.index(test.outcome):
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
            self._place(place).compilations.append(item)

    def _place(self, place: str) -> Outside:
        found = self._outside.get(place)
        if found is None:
            found = self._outside[place] = Outside(place)
            self.summary.outside.append(found)
        return found

    def count(self, item: Item, sign: int = 1) -> Item:
        self.summary.functions[item.function].add(item, sign)
        return item

    def take(self, other: Summary, workers: Mapping[str, str]) -> None:
        """Add the tests of another summary, with its workers renamed."""
        functions = [
            self._function((f.name, f.qualname, f.module, f.defined_at, f.eager_op))
            for f in other.functions
        ]
        signatures = [self._signature(text) for text in other.signatures]

        def mine(items: Iterable[Item]) -> Iterator[Item]:
            for item in items:
                function, signature = functions[item.function], signatures[item.signature]
                worker = workers.get(item.worker, item.worker)
                yield self.count(
                    item._replace(function=function, signature=signature, worker=worker)
                )

        for test in other.tests:
            self.test(test.id, test.outcome, test.seconds, None)
            self._tests[test.id].compilations += mine(test.compilations)
        for place in other.outside:
            self._place(place.place).compilations += mine(place.compilations)

    def _read(self, packet: Packet) -> Iterator[Item]:
        functions = [self._function(f) for f in packet["functions"]]
        signatures = [self._signature(s) for s in packet["signatures"]]
        worker = sys.intern(packet["worker"])
        for row in packet["rows"]:
            function, signature, called_from, phase, *rest = row
            trace, lower, compiling, disk_hit, thread, reasons, start = rest
            yield self.count(
                Item(
                    functions[function],
                    signatures[signature],
                    called_from and sys.intern(called_from),
                    sys.intern(phase),
                    trace,
                    lower,
                    compiling,
                    disk_hit,
                    sys.intern(thread),
                    worker,
                    self._reasons(reasons),
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
                signatures.setdefault(compact(record.signature.to_json()), len(signatures)),
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


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
