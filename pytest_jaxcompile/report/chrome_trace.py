"""Chrome trace events: tests, functions and their phases as nested spans.

A track is one thread of one process. Times are microseconds since the start of
the run; ``otherData`` holds that moment, so that the spans can be laid beside
another trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pytest_jaxcompile.report.summary import Item, Summary, TestItem

_FIRST_PID: Final = 1001
"""Above the numbers that ``jax.profiler`` gives to hosts and devices."""


def render(summary: Summary) -> str:
    """JSON for ``chrome://tracing`` and Perfetto."""
    base = _base(summary)
    events: list[dict[str, Any]] = []
    for pid, (worker, threads) in enumerate(sorted(_threads(summary).items()), _FIRST_PID):
        events.append(_name(pid, None, "process_name", f"JAX compilations {worker}".rstrip()))
        tid = 0
        for thread, groups in sorted(threads.items()):
            for number, lane in enumerate(_lanes(groups, base), 1):
                tid += 1
                label = thread if number == 1 else f"{thread} (overlapping, {number})"
                events.append(_name(pid, tid, "thread_name", label))
                for block in lane:
                    events += _events(block, summary, pid, tid)
    return json.dumps(
        {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {"started_unix_seconds": base, "complete": summary.complete},
        },
        separators=(",", ":"),
    )


def _base(summary: Summary) -> float:
    starts = [item.start for item in summary.items()]
    if summary.started > 0:
        starts.append(summary.started)
    return min(starts, default=0.0)


# -- which compilations belong together ------------------------------------------------


class _Group(NamedTuple):
    """Compilations of one test on one thread, in the order of their start."""

    test: TestItem | None
    items: list[Item]


def _threads(summary: Summary) -> dict[str, dict[str, list[_Group]]]:
    """Groups by worker and thread; a compilation outside tests is a group of its own."""
    found: dict[str, dict[str, list[_Group]]] = {}
    for test in summary.tests:
        own: dict[tuple[str, str], list[Item]] = {}
        for item in test.compilations:
            own.setdefault((item.worker, item.thread), []).append(item)
        for (worker, thread), items in own.items():
            items.sort(key=lambda item: item.start)
            found.setdefault(worker, {}).setdefault(thread, []).append(_Group(test, items))
    for place in summary.outside:
        for worker, thread, items in _runs(place.compilations):
            found.setdefault(worker, {}).setdefault(thread, []).append(_Group(None, items))
    return found


def _runs(items: Iterable[Item]) -> Iterator[tuple[str, str, list[Item]]]:
    """Compilations outside tests, those nested in one another together."""
    open_runs: dict[tuple[str, str], tuple[list[Item], float]] = {}
    for item in sorted(items, key=lambda item: item.start):
        key = item.worker, item.thread
        run, end = open_runs.get(key, ([], 0.0))
        if run and item.start < end:
            run.append(item)
            # What is nested inside lengthens what is around it by its own time.
            open_runs[key] = run, max(end + item.seconds, item.start + item.seconds)
            continue
        if run:
            yield *key, run
        open_runs[key] = [item], item.start + item.seconds
    for (worker, thread), (run, _) in open_runs.items():
        yield worker, thread, run


# -- where they lie in time -------------------------------------------------------------


@dataclass(slots=True)
class _Span:
    """One compilation on the time axis, in whole microseconds: sums of them are exact."""

    item: Item
    phases: list[tuple[str, int, int]]
    children: list[_Span] = field(default_factory=list)

    @property
    def begin(self) -> int:
        return self.phases[0][1]

    @property
    def end(self) -> int:
        return self.phases[-1][2]

    @property
    def compiling(self) -> int:
        """When the last phase begins; nothing nests in that one."""
        return self.phases[-1][1]

    def enclose(self, child: _Span) -> None:
        """Make room: a phase lasts its own time and what is nested in it."""
        self.children.append(child)
        extra, moved, found = child.end - child.begin, [], False
        for name, begin, end in self.phases:
            inside = not found and child.begin < end
            shift = extra if found else 0
            moved.append((name, begin + shift, end + (extra if inside or found else 0)))
            found = found or inside
        self.phases = moved


class _Block(NamedTuple):
    """Spans that follow each other on one track, all of one test or of none."""

    test: TestItem | None
    spans: list[_Span]

    @property
    def begin(self) -> int:
        return self.spans[0].begin

    @property
    def end(self) -> int:
        return self.spans[-1].end


def _span(item: Item, base: float) -> _Span:
    last = "disk load" if item.disk_hit else "compile"
    phases, now = [], round((item.start - base) * 1e6)
    for name, seconds in (
        ("trace", item.trace_seconds),
        ("lower", item.lower_seconds),
        (last, item.compile_seconds),
    ):
        end = now + round(seconds * 1e6)
        phases.append((name, now, end))
        now = end
    return _Span(item, phases)


class _Track:
    """Places compilations as a thread ran them: one inside the trace or lowering of another."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []
        self._open: list[_Span] = []

    def place(self, span: _Span) -> bool:
        """Whether ``span`` has a place here that overlaps nothing in part."""
        while self._open and self._open[-1].end <= span.begin:
            self._close()
        if self._open and span.begin >= self._open[-1].compiling:
            return False
        if not self._open:
            self.spans.append(span)
        self._open.append(span)
        return True

    def close(self) -> None:
        while self._open:
            self._close()

    def _close(self) -> None:
        span = self._open.pop()
        if self._open:
            self._open[-1].enclose(span)


def _blocks(group: _Group, base: float) -> list[_Block]:
    tracks = [_Track()]
    for item in group.items:
        span = _span(item, base)
        if not any(track.place(span) for track in tracks):
            tracks.append(_Track())
            tracks[-1].place(span)
    for track in tracks:
        track.close()
    return [_Block(group.test, track.spans) for track in tracks]


def _lanes(groups: Iterable[_Group], base: float) -> list[list[_Block]]:
    """Blocks on as few tracks as hold them without any overlap."""
    lanes: list[list[_Block]] = []
    blocks = [block for group in groups for block in _blocks(group, base)]
    for block in sorted(blocks, key=lambda block: (block.begin, -block.end)):
        free = next((lane for lane in lanes if lane[-1].end <= block.begin), None)
        if free is None:
            lanes.append([block])
        else:
            free.append(block)
    return lanes


# -- events ---------------------------------------------------------------------------


def _events(block: _Block, summary: Summary, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    def event(
        name: str, category: str, begin: int, end: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        where = {"pid": pid, "tid": tid, "ts": begin, "dur": end - begin}
        return {"name": name, "cat": category, "ph": "X", **where, "args": args}

    def walk(span: _Span) -> Iterator[dict[str, Any]]:
        function = summary.functions[span.item.function]
        args = _args(span.item, summary)
        yield event(function.name, "function", span.begin, span.end, args)
        for name, begin, end in span.phases:
            if end > begin:
                yield event(name, "phase", begin, end, {"function": function.name})
        for child in span.children:
            yield from walk(child)

    if block.test is not None:
        test = block.test
        args = {
            "outcome": test.outcome,
            "seconds": test.seconds,
            "compilations": len(test.compilations),
        }
        yield event(test.id, "test", block.begin, block.end, args)
    for span in block.spans:
        yield from walk(span)


def _args(item: Item, summary: Summary) -> dict[str, Any]:
    function = summary.functions[item.function]
    args: dict[str, Any] = {
        "qualname": f"{function.module}.{function.qualname}",
        "signature": summary.signature(item)["text"],
        "reasons": [str(reason) for reason in item.reasons] or ["first compilation"],
        "hints": [reason.hint for reason in item.reasons if reason.hint is not None],
        "called_from": item.called_from,
        "defined_at": function.defined_at,
        "phase": item.phase,
        "own_seconds": item.seconds,
        "disk_hit": item.disk_hit,
        "eager_op": function.eager_op,
    }
    return {name: value for name, value in args.items() if value not in (None, [])}


def _name(pid: int, tid: int | None, kind: str, name: str) -> dict[str, Any]:
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return {"name": kind, "ph": "M", **where, "args": {"name": name}}
