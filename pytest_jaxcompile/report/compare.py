"""Several summaries side by side: added up, or one against the other. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_jaxcompile.records import Reason
from pytest_jaxcompile.report.summary import Builder, FunctionTotals, Summary

FIRST: Final = "first compilation"
"""Stands for the reason of a compilation that needs none."""


# -- adding up --------------------------------------------------------------------------


def merge(
    summaries: Sequence[Summary],
    names: Sequence[str] = (),
    processes: bool | None = None,
) -> Summary:
    """One summary of the shards of a suite, or of the processes of one multi-host run.

    Compilations add up, a test's too if several ran it; its worst outcome stays. The run
    took as long as the longest. Workers that share a name get that of their input before it:
    ``names``, or "process 0", or its number. With ``processes`` the inputs are processes of
    one run, and ``notes["only_in"]`` names the functions that some of them compiled and
    others did not; ``None`` decides by :func:`are_processes`.
    """
    labels = list(names) or _labels(summaries)
    builder = Builder()
    for summary, workers in zip(summaries, _workers(summaries, labels), strict=True):
        builder.take(summary, workers)
    merged = builder.summary
    merged.started = min((s.started for s in summaries if s.started > 0), default=0.0)
    merged.seconds = max((s.seconds for s in summaries), default=0.0)
    merged.complete = all(s.complete for s in summaries)
    merged.environment = _environment([s.environment for s in summaries])
    merged.notes = _notes([s.notes for s in summaries], labels)
    if are_processes(summaries) if processes is None else processes:
        merged.notes["only_in"] = only_in(summaries, labels)
    return merged


def are_processes(summaries: Sequence[Summary]) -> bool:
    """Whether the inputs look like processes of one run: JAX numbered them so, or all ran the same.

    Shards run different tests. Scripts run no test; several of them count as one run.
    """
    if len(summaries) < 2:
        return False
    environments = [s.environment for s in summaries]
    indices = {e.get("process_index", 0) for e in environments}
    if all(e.get("process_count", 1) > 1 for e in environments):
        return len(indices) == len(summaries)
    ran = [{test.id for test in s.tests} for s in summaries]
    return all(tests == ran[0] for tests in ran)


def only_in(summaries: Sequence[Summary], labels: Sequence[str]) -> list[dict[str, Any]]:
    """User's functions that not all inputs compiled: which did, and which did not."""
    places: dict[tuple[str, str, str], list[int]] = {}
    shown: dict[tuple[str, str, str], FunctionTotals] = {}
    for number, summary in enumerate(summaries):
        for function in summary.users():
            # Hosts keep their files in different folders, but run the same lines.
            file, line = _file(function.defined_at)
            key = function.module, function.qualname, f"{file.rpartition('/')[2]}:{line}"
            shown.setdefault(key, function)
            found = places.setdefault(key, [])
            if number not in found:
                found.append(number)
    return [
        {
            "function": f"{key[0]}.{key[1]}",
            "defined_at": shown[key].defined_at,
            "in": [labels[i] for i in found],
            "not_in": [label for i, label in enumerate(labels) if i not in found],
        }
        for key, found in sorted(places.items())
        if len(found) < len(summaries)
    ]


def _labels(summaries: Sequence[Summary]) -> list[str]:
    indices = [s.environment.get("process_index") for s in summaries]
    if len(set(indices)) == len(summaries) and None not in indices:
        return [f"process {index}" for index in indices]
    return [str(number) for number in range(1, len(summaries) + 1)]


def _workers(summaries: Sequence[Summary], labels: Sequence[str]) -> list[dict[str, str]]:
    """New names for the workers of each input, where two inputs use one name."""
    mine = [{item.worker for item in summary.items()} for summary in summaries]
    times = Counter(worker for workers in mine for worker in workers)
    return [
        {w: f"{label} {w}".rstrip() for w in workers if times[w] > 1}
        for label, workers in zip(labels, mine, strict=True)
    ]


def _environment(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Texts that differ are joined, devices are united, workers added."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in found for name in one):
        values = [one[name] for one in found if one.get(name) is not None]
        different = [value for i, value in enumerate(values) if value not in values[:i]]
        if name == "workers":
            merged[name] = sum(values)
        elif not values:
            merged[name] = None
        elif all(isinstance(value, str) for value in different):
            merged[name] = ", ".join(sorted(different))
        elif all(isinstance(value, list) for value in different):
            merged[name] = list(dict.fromkeys(part for value in different for part in value))
        elif len(different) == 1:
            merged[name] = different[0]
        elif name != "process_index":
            merged[name] = max(different, key=repr)
    return merged


def _notes(found: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """Notes that differ are kept by input."""
    merged: dict[str, Any] = {}
    for name in sorted({name for notes in found for name in notes} - {"only_in"}):
        by_label = {
            label: notes[name] for label, notes in zip(labels, found, strict=True) if name in notes
        }
        values = list(by_label.values())
        merged[name] = values[0] if all(value == values[0] for value in values) else by_label
    return merged


# -- one against the other ----------------------------------------------------------------


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
    keys = [(f.module, f.qualname, _file(f.defined_at)[0]) for f in summary.functions]
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
            found.append(f"{len(tests)} tests {text}, such as {min(tests)}")
    return found


def _file(place: str | None) -> tuple[str, str]:
    """File and line; of a library's file the part that no installation changes."""
    if place is None:
        return "", ""
    file, _, line = place.replace("\\", "/").rpartition(":")
    for folder in ("/site-packages/", "/dist-packages/"):
        file = file.rpartition(folder)[2]
    return file, line
