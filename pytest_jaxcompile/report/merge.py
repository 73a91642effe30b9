"""Several summaries added up. A pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_jaxcompile.report.compare import split_place
from pytest_jaxcompile.report.summary import Builder, FunctionTotals, Summary


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
            file, line = split_place(function.defined_at)
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
