"""What a failed expectation says."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pytest_jaxcompile.jax_internals.probe import probe
from pytest_jaxcompile.recording.functions import describe, layers
from pytest_jaxcompile.records import Compilation, Reason

_SHOWN: Final = 20
_REASONS_SHOWN: Final = 4
_HINTS_SHOWN: Final = 5
_FIRST: Final = (
    "nothing was compiled twice; a test starts cold, after its fixtures: if this was to be warm, "
    "call it once in the test itself, before the block"
)


def message(
    records: Sequence[Compilation],
    others: Sequence[Compilation],
    least: int | None,
    most: int | None,
    named: str,
    *,
    missing: Sequence[str] = (),
) -> str:
    """Expected and actual; a line per compilation; what else compiled; what to do.

    ``missing`` tells, if there were too few, where the others may be.
    """
    found = [_headline(len(records), least, most, named)]
    found += lines(records)
    found += missing
    found += _beside(others, too_few=most is None or len(records) <= most)
    # Of several that say the same of one argument, the last knows most.
    hints = {
        (record.key, reason.kind, reason.argument): reason.hint
        for record in records
        for reason in record.reasons
        if reason.hint is not None
    }
    if most is not None and len(records) > most:
        told = list(dict.fromkeys(hints.values()))
        if len(told) > _HINTS_SHOWN:
            told[_HINTS_SHOWN:] = [f"and {len(told) - _HINTS_SHOWN} more"]
        if not any(record.reasons for record in records):
            told = [_FIRST]
        found += ["What to do:", *(f"  - {hint}" for hint in told)] if told else []
    return "\n".join(found)


def _headline(actual: int, least: int | None, most: int | None, named: str) -> str:
    if most == 0:
        expected = "no compilation"
    else:
        bound, n = ("exactly", least) if least == most else ("at most", most)
        if most is None:
            bound, n = "at least", least
        expected = f"{bound} {n} compilation{'' if n == 1 else 's'}"
    return f"expected {expected}{' of ' + named if named else ''}, got {actual}"


def lines(records: Sequence[Compilation]) -> Iterator[str]:
    """One line per compilation: function and signature, the user's line, the reason."""
    width = len(str(len(records)))
    for number, record in enumerate(records[:_SHOWN], 1):
        yield f"  {number:>{width}}. {line(record)}"
    if len(records) > _SHOWN:
        yield f"  ... and {len(records) - _SHOWN} more"


def line(record: Compilation) -> str:
    place = f"  {shown_path(record.called_from)}" if record.called_from else ""
    origin = " [from disk]" if record.disk_hit else ""
    op = "eager op " if record.eager_op else ""
    thread = "" if record.thread == "MainThread" else f" on thread {record.thread}"
    text = f"{op}{record.call}{origin}{place}{thread}  {why(record.reasons)}"
    return " ".join(part.strip() for part in text.splitlines())  # a static value may read as many


def why(reasons: Sequence[Reason]) -> str:
    """All reasons in one line, the first one first."""
    if not reasons:
        return "first compilation"
    shown = "; ".join(map(str, reasons[:_REASONS_SHOWN]))
    more = len(reasons) - _REASONS_SHOWN
    if more <= 0:
        return shown
    return f"{shown}; {more} more difference{'' if more == 1 else 's'}"


def _beside(others: Iterable[Compilation], too_few: bool) -> Iterator[str]:
    """What compiled but was not counted; eager operations only where a count is missing."""
    counts = Counter(r.function for r in others if not r.eager_op)
    if counts:
        told = ", ".join(f"{name} ({n})" for name, n in counts.most_common(5))
        yield f"Compiled too, but not asked for: {told}"
    ops = sum(1 for r in others if r.eager_op)
    if ops and too_few:
        yield f"Eager operations that compiled, counted only by .ops and .all: {ops}"


def shown_path(place: str) -> str:
    """``file:line`` relative to the current folder where it lies below it."""
    here = os.getcwd() + os.sep
    return place.removeprefix(here)


def live_names() -> list[tuple[str, str, str]]:
    """Name, qualname and module of every jitted function alive in this process."""
    p = probe()
    return [
        describe(list(layers(p.inner(jitted), p.jitted_types)))[:3] for jitted in p.live_jitted()
    ]


def unknown_name(pattern: str, live: Sequence[tuple[str, str, str]]) -> str:
    """``live`` are the jitted functions alive: name, qualname and module."""
    users = {name for name, _, module in live if module.partition(".")[0] != "jax"}
    asked = pattern.strip("*?")
    near = difflib.get_close_matches(asked, sorted(users), n=3, cutoff=0.5)
    near = near or difflib.get_close_matches(asked, sorted({name for name, *_ in live}), n=3)
    suggestion = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return (
        f"of={pattern!r} names no function that this process has jitted, so a count of it would "
        f"say nothing.{suggestion}"
    )
