"""What GitHub Actions shows: an annotation at a line, a summary under the job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pytest_jaxcompile.report import highlights
from pytest_jaxcompile.report.summary import Summary

SUMMARY_LIMIT: Final = 1024 * 1024
"""Bytes of one step's summary; GitHub drops a larger one whole."""
_ROWS: Final = 50
_CELL: Final = 200
"""Characters of one name or hint."""


def annotation(path: str | None, line: int | None, title: str, message: str) -> str:
    """The workflow command that marks ``message`` as an error at a line of a file."""
    properties = {"file": path, "line": None if line is None else str(line), "title": title}
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::error {shown}".rstrip() + f"::{_data(message)}"


def step_summary(summary: Summary) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``, at most :data:`SUMMARY_LIMIT` bytes in UTF-8."""
    return _bounded(_lines(summary), SUMMARY_LIMIT)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# -- the summary ----------------------------------------------------------------------


def _lines(summary: Summary) -> Iterator[str]:
    yield "## JAX compilations"
    yield ""
    if not summary.complete:
        yield "**Incomplete:** the run stopped early or a worker was lost."
        yield ""
    yield _totals(summary)
    yield ""
    yield from _again(summary)
    yield from _tests(summary)


def _totals(summary: Summary) -> str:
    users, ops = summary.users(), summary.ops()
    part, processes = highlights.share(summary), highlights.workers(summary)
    text = f"Compiling took **{highlights.duration(summary.compile_seconds)}**"
    if part is not None:
        run = highlights.duration(summary.seconds)
        whole = (
            f"the run's {run}" if processes == 1 else f"the {run} that {processes} processes ran"
        )
        text += f", **{highlights.percent(part)}** of {whole}"
    compiled = highlights.number(sum(f.compilations for f in users), "compilation")
    return (
        f"{text}: {compiled} of {highlights.number(len(users), 'function')}, "
        f"{sum(f.again for f in users):,} of them again; "
        f"{highlights.number(sum(f.compilations for f in ops), 'eager op')}; "
        f"{highlights.number(sum(f.disk_hits for f in (*users, *ops)), 'disk hit')}."
    )


def _again(summary: Summary) -> Iterator[str]:
    found = highlights.again(summary)
    if not found:
        yield "No function compiled again."
        yield ""
        return
    hints = {a.function: a.hint for a in reversed(highlights.advice(summary))}
    rows = []
    for a in found[:_ROWS]:
        function = summary.functions[a.function]
        why = ", ".join(f"{kind} {times:,}" for kind, times in a.kinds)
        name = _code(highlights.full_name(function))
        counts = f"{function.compilations:,}", f"{a.times:,}", highlights.duration(a.seconds)
        rows.append((name, *counts, _escape(why), _escape(hints.get(a.function, ""))))
    heads = ("Function", "Compilations", "Again", "Time of those", "Why", "What to do")
    yield from _table("Functions that compile again", heads, "lrrrll", rows, len(found))


def _tests(summary: Summary) -> Iterator[str]:
    found = [test for test in summary.tests if test.compilations]
    if not found:
        return
    found.sort(key=lambda test: (-test.compile_seconds, test.id))
    rows = [
        (
            _code(test.id),
            _escape(test.outcome),
            f"{len(test.compilations):,}",
            highlights.duration(test.compile_seconds),
            highlights.duration(test.seconds),
        )
        for test in found[:_ROWS]
    ]
    heads = ("Test", "Outcome", "Compilations", "Compile time", "Test time")
    yield from _table("Tests that cost most", heads, "llrrr", rows, len(found))


def _table(
    title: str, heads: Sequence[str], align: str, rows: Iterable[Sequence[str]], total: int
) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('--:' if side == 'r' else ':--' for side in align)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    if total > _ROWS:
        yield f"{total - _ROWS:,} more are not shown."
        yield ""


def _code(text: str) -> str:
    # Not a code span: in a table no fence of backticks holds every name, an element does.
    return f"<code>{_escape(text)}</code>"


def _escape(text: str) -> str:
    """``text`` with nothing in it that Markdown, HTML or GitHub's links could act on."""
    if len(text) > _CELL:
        text = f"{text[: _CELL - 1]}…"
    printable = "".join(c if c.isprintable() else _visible(c) for c in text)
    return re.sub(r"[^\w\s,/=()-]|_", lambda match: f"&#{ord(match[0])};", printable)


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode("ascii")


def _bounded(lines: Iterable[str], limit: int) -> str:
    """Whole lines as far as they fit, with a note where some do not."""
    note = "\nCut short: GitHub shows no more.\n"
    kept: list[str] = []
    size = len(note.encode())
    for line in lines:
        size += len(line.encode()) + 1
        if size > limit:
            return "\n".join(kept) + "\n" + note
        kept.append(line)
    return "\n".join(kept) + "\n"
