"""The report as lines of plain text, in pytest's style."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pytest_jaxcompile.report.highlights import share
from pytest_jaxcompile.report.summary import FunctionTotals, Item, Summary

_FUNCTIONS: Final = 10
_TESTS: Final = 5
_PLACES: Final = 5
_SIGNATURE_WIDTH: Final = 60


def lines(summary: Summary, width: int = 80) -> Iterator[str]:
    """The whole report, none of its lines wider than ``width`` but for names and places."""
    if not summary.complete:
        yield "incomplete: the run stopped early or a worker was lost"
    if not summary.environment.get("jax"):
        yield "JAX was not imported: nothing was compiled"
        return
    yield _totals(summary)
    users = summary.users()
    if users:
        yield ""
        yield from _functions(users, width)
    yield from _worst(summary, users)
    yield from _rest(summary)
    yield from _tests(summary)


def _totals(summary: Summary) -> str:
    users = summary.users()
    count = sum(f.compilations for f in users)
    again = sum(f.again for f in users)
    disk = sum(f.disk_hits for f in summary.functions)
    part = share(summary)
    text = f"{_n(count, 'compilation')} of {_n(len(users), 'function')}"
    if again:
        text += f", {again} of them again"
    text += f"; {summary.compile_seconds:.2f} s with eager operations"
    if part is not None:
        text += f", {part:.0%} of the run"
    if disk:
        text += f"; {disk} from disk"
    return text


def _functions(users: list[FunctionTotals], width: int) -> Iterator[str]:
    yield "compiled  again  seconds  function"
    for f in users[:_FUNCTIONS]:
        name = f"{f.module}.{f.qualname}"
        row = f"{f.compilations:>8}  {f.again or '':>5}  {f.seconds:>7.2f}  {name}"
        place = f"  {f.defined_at}" if f.defined_at else ""
        if len(row) + len(place) <= width:
            yield row + place
        else:
            yield row
            if place:
                yield " " * 26 + place.strip()
        reasons = ", ".join(f"{kind} {n}" for kind, n in f.reasons.most_common() if n)
        if reasons:
            yield " " * 26 + f"again because of: {reasons}"
    if len(users) > _FUNCTIONS:
        rest = users[_FUNCTIONS:]
        seconds = sum(f.seconds for f in rest)
        count, again = sum(f.compilations for f in rest), sum(f.again for f in rest)
        yield f"{count:>8}  {again or '':>5}  {seconds:>7.2f}  {len(rest)} more"


def _worst(summary: Summary, users: list[FunctionTotals]) -> Iterator[str]:
    """One recompilation of the function that lost most time on them, in full."""
    again = [f for f in users if f.again]
    if not again:
        return
    worst = max(again, key=lambda f: (f.again, f.seconds))
    index = next(i for i, f in enumerate(summary.functions) if f is worst)
    mine = (i for i in summary.items() if i.function == index and i.again)
    item = max(mine, key=lambda i: i.start)
    yield ""
    yield f"for example, {worst.name} compiled again:"
    yield f"  {_call(summary, worst, item)}"
    for reason in item.reasons[:3]:
        yield f"    {reason}"
    hint = next((r.hint for r in item.reasons if r.hint), None)
    if hint:
        yield f"    {hint}"


def _call(summary: Summary, function: FunctionTotals, item: Item) -> str:
    text = str(json.loads(summary.signatures[item.signature])["text"])
    if len(text) > _SIGNATURE_WIDTH:
        text = text[: _SIGNATURE_WIDTH - 3] + "..."
    return f"{function.name}{text}" + (f"  {item.called_from}" if item.called_from else "")


def _rest(summary: Summary) -> Iterator[str]:
    ops = summary.ops()
    if ops:
        yield ""
        seconds = sum(f.seconds for f in ops)
        names = ", ".join(f.name for f in ops[:3]) + (", ..." if len(ops) > 3 else "")
        told = f"{_n(sum(f.compilations for f in ops), 'compilation')} of {len(ops)} ({names})"
        yield f"eager operations: {told}, {seconds:.2f} s"
    places = [p for p in summary.outside if p.compilations]
    if places:
        yield ""
        yield "outside tests:"
        places.sort(key=lambda p: -sum(i.seconds for i in p.compilations))
        for place in places[:_PLACES]:
            seconds = sum(i.seconds for i in place.compilations)
            count = _n(len(place.compilations), "compilation")
            yield f"  {seconds:>7.2f} s  {place.place} ({count})"
        if len(places) > _PLACES:
            yield f"  {len(places) - _PLACES} more"


def _tests(summary: Summary) -> Iterator[str]:
    costly = sorted((t for t in summary.tests if t.compilations), key=lambda t: -t.compile_seconds)
    if not costly:
        return
    yield ""
    yield "tests that compile longest:"
    for test in costly[:_TESTS]:
        count = _n(len(test.compilations), "compilation")
        yield f"  {test.compile_seconds:>7.2f} s  {test.id} ({count})"
    if len(costly) > _TESTS:
        yield f"  {len(costly) - _TESTS} more"


def _n(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
