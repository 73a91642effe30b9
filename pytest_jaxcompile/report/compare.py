"""One summary against an earlier one: what compiles more or less, and why. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pytest_jaxcompile.records import Reason
from pytest_jaxcompile.report.summary import Summary

FIRST: Final = "first compilation"
"""Stands for the reason of a compilation that needs none."""

_ROWS: Final = 50
"""Functions of one list that are shown."""
_COMMENT: Final = 65_000
"""Characters of a comment on GitHub, which holds 65536."""
_PLACES: Final = 3
_CELL: Final = 200
"""Characters of one name, value or hint."""

Key: TypeAlias = tuple[str, str, str]
"""Module, qualname and defining file of a function; its line may move between two runs."""


@dataclass(frozen=True, slots=True)
class Change:
    """A function that compiles more or less often than before."""

    function: str
    """``module.qualname``"""
    defined_at: str | None
    before: int
    after: int
    why: Mapping[str, int]
    """How many of the compilations that came or went had which first reason."""
    example: Reason | None
    """One of these reasons; None for a first compilation."""
    called_from: str | None
    """``file:line`` of the call that the example is of."""
    places: tuple[tuple[str, int, int], ...]
    """Tests, or places outside tests, whose count changed, with both counts; most changed first."""


class Amount(NamedTuple):
    """What a run compiled in all."""

    compilations: int
    """Of users' functions."""
    eager_ops: int
    seconds: float
    """Own time of all compilations, eager operations' too."""


@dataclass(frozen=True, slots=True)
class Diff:
    """How a run compiles against an earlier one. Users' functions, most changed first."""

    before: Amount
    after: Amount
    more: list[Change] = field(default_factory=list)
    less: list[Change] = field(default_factory=list)
    new: list[Change] = field(default_factory=list)
    """Compiled now and not before."""
    gone: list[Change] = field(default_factory=list)
    """Compiled before and not now."""
    warnings: list[str] = field(default_factory=list)
    """Why the two runs may not be comparable."""


def diff(old: Summary, new: Summary) -> Diff:
    """What compiles more, less, newly or no longer, and why."""
    befores, afters = _by_key(old), _by_key(new)
    found = Diff(_amount(old), _amount(new), warnings=_warnings(old, new))
    for key in sorted(befores.keys() | afters.keys()):
        before, after = befores.get(key) or _Seen(), afters.get(key) or _Seen()
        if before.count != after.count:
            change = _change(key, before, after)
            if not before.count:
                found.new.append(change)
            elif not after.count:
                found.gone.append(change)
            else:
                (found.more if after.count > before.count else found.less).append(change)
    for changes in (found.more, found.less, found.new, found.gone):
        changes.sort(key=lambda change: -abs(change.after - change.before))
    return found


@dataclass(slots=True)
class _Seen:
    """What one run says of one function."""

    defined_at: str | None = None
    count: int = 0
    why: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[Reason | None, str | None]] = field(default_factory=dict)


def _by_key(summary: Summary) -> dict[Key, _Seen]:
    found: dict[Key, _Seen] = {}
    keys = [(f.module, f.qualname, split_place(f.defined_at)[0]) for f in summary.functions]
    places = [(test.id, test.compilations) for test in summary.tests]
    places += [(place.place, place.compilations) for place in summary.outside]
    for place, items in places:
        for item in items:
            function = summary.functions[item.function]
            if function.eager_op:
                continue
            seen = found.setdefault(keys[item.function], _Seen(function.defined_at))
            reason = item.reasons[0] if item.reasons else None
            kind = reason.kind if reason else FIRST
            seen.count += 1
            seen.why[kind] += 1
            seen.places[place] += 1
            seen.examples.setdefault(kind, (reason, item.called_from))
    return found


def _change(key: Key, before: _Seen, after: _Seen) -> Change:
    fuller, other = (after, before) if after.count > before.count else (before, after)
    why = dict((fuller.why - other.why).most_common())
    told = [kind for kind in why if kind != FIRST] or [FIRST]
    example, called_from = fuller.examples.get(told[0], (None, None))
    changed = [
        (place, before.places[place], after.places[place])
        for place in sorted(before.places.keys() | after.places.keys())
        if before.places[place] != after.places[place]
    ]
    changed.sort(key=lambda place: -abs(place[2] - place[1]))
    return Change(
        f"{key[0]}.{key[1]}",
        after.defined_at or before.defined_at,
        before.count,
        after.count,
        why,
        example,
        called_from,
        tuple(changed),
    )


def _amount(summary: Summary) -> Amount:
    users = sum(f.compilations for f in summary.functions if not f.eager_op)
    return Amount(users, summary.compilations - users, summary.compile_seconds)


def _warnings(old: Summary, new: Summary) -> list[str]:
    found = []
    for name, summary in (("old", old), ("new", new)):
        if not summary.complete:
            found.append(f"the {name} run is incomplete: it stopped early or lost a worker")
    for name in ("jax", "jaxlib", "python"):
        versions = old.environment.get(name), new.environment.get(name)
        if versions[0] != versions[1]:
            found.append(f"{name} differs: {versions[0]} -> {versions[1]}")
    ran = [{test.id for test in s.tests} for s in (old, new)]
    for text, tests in (("not run now", ran[0] - ran[1]), ("not run before", ran[1] - ran[0])):
        if tests:
            plural = "" if len(tests) == 1 else "s"
            found.append(f"{len(tests)} test{plural} {text}, such as {min(tests)}")
    return found


def split_place(place: str | None) -> tuple[str, str]:
    """File and line; of a library's file the part that no installation changes."""
    if place is None:
        return "", ""
    file, _, line = place.replace("\\", "/").rpartition(":")
    for folder in ("/site-packages/", "/dist-packages/"):
        file = file.rpartition(folder)[2]
    return file, line


# -- as text ------------------------------------------------------------------------------


def diff_text(diff: Diff) -> str:
    """For a terminal."""
    return "\n".join(_text_lines(diff)) + "\n"


def _text_lines(diff: Diff) -> Iterator[str]:
    yield _headline(diff)
    yield from (f"note: {warning}" for warning in diff.warnings)
    for title, changes in _sections(diff):
        yield ""
        yield f"{title} ({len(changes)}):"
        for change in changes[:_ROWS]:
            step = change.after - change.before
            place = f"  {change.defined_at}" if change.defined_at else ""
            yield f"  {step:+d}  {change.before} -> {change.after}  {change.function}{place}"
            yield f"      why: {_why(change)}"
            if change.example is not None:
                where = f"  {change.called_from}" if change.called_from else ""
                yield f"      such as {_short(str(change.example))}{where}"
                if change.example.hint and step > 0:
                    yield f"      {change.example.hint}"
            yield f"      in {'; '.join(_places(change))}"
        if len(changes) > _ROWS:
            yield f"  ... and {len(changes) - _ROWS} more"


def diff_markdown(diff: Diff) -> str:
    """For a pull request: short enough for a comment on GitHub; names in it stay text."""
    kept, size = [], 0
    for line in _markdown_lines(diff):
        size += len(line) + 1
        if size > _COMMENT:
            kept += ["", "Cut short: a comment holds no more."]
            break
        kept.append(line)
    return "\n".join(kept) + "\n"


def _markdown_lines(diff: Diff) -> Iterator[str]:
    yield "### JAX compilations"
    yield ""
    yield _escape(_headline(diff))
    if diff.warnings:
        yield ""
        yield from (f"- {_escape(warning)}" for warning in diff.warnings)
    for title, changes in _sections(diff):
        yield ""
        yield f"**{title}** ({len(changes)})"
        yield ""
        yield "| Function | Before | After | Why | Such as | Where |"
        yield "|:--|--:|--:|:--|:--|:--|"
        for change in changes[:_ROWS]:
            yield _row(change)
        if len(changes) > _ROWS:
            yield ""
            yield f"{len(changes) - _ROWS} more are not shown."


def _row(change: Change) -> str:
    example = change.example
    such = _escape(str(example)) if example is not None else ""
    if example is not None and example.hint and change.after > change.before:
        such += f"<br>{_escape(example.hint)}"
    return (
        f"| <code>{_escape(change.function)}</code> | {change.before} | {change.after} "
        f"| {_escape(_why(change))} | {such} | {'<br>'.join(map(_escape, _places(change)))} |"
    )


def _sections(diff: Diff) -> Iterator[tuple[str, Sequence[Change]]]:
    told = (
        ("Compile more", diff.more),
        ("Compile newly", diff.new),
        ("Compile less", diff.less),
        ("Compile no longer", diff.gone),
    )
    yield from ((title, changes) for title, changes in told if changes)


def _headline(diff: Diff) -> str:
    before, after = diff.before, diff.after
    changed = any(True for _ in _sections(diff))
    return (
        f"{'' if changed else 'No function compiles more or less. '}"
        f"Compilations {before.compilations} -> {after.compilations} "
        f"({after.compilations - before.compilations:+d}), eager operations "
        f"{before.eager_ops} -> {after.eager_ops}, {before.seconds:.2f} s -> {after.seconds:.2f} s"
    )


def _why(change: Change) -> str:
    sign = "+" if change.after > change.before else "-"
    return ", ".join(f"{kind} {sign}{n}" for kind, n in change.why.items())


def _places(change: Change) -> Iterator[str]:
    for place, before, after in change.places[:_PLACES]:
        yield f"{place} {before} -> {after}"
    if len(change.places) > _PLACES:
        yield f"... and {len(change.places) - _PLACES} more"


def _short(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def _escape(text: str) -> str:
    """``text`` with nothing in it that Markdown, HTML or GitHub's links could act on."""
    shown = "".join(c if c.isprintable() else " " for c in _short(text))
    return re.sub(r"[^\w\s,/=()+-]|_", lambda match: f"&#{ord(match[0])};", shown)
