"""What a reader wants to know first: how much, what again, what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pytest_jaxcompile.report.summary import FunctionTotals, Item, Summary


class Advice(NamedTuple):
    """What to do about the compilations of one function that have one kind of reason."""

    function: int
    """Position in :attr:`Summary.functions`."""
    kind: str
    hint: str
    times: int
    seconds: float
    """Own time of those compilations: the most that following the hint can save."""


class Again(NamedTuple):
    """One function that compiled after it had been compiled before."""

    function: int
    """Position in :attr:`Summary.functions`."""
    times: int
    seconds: float
    kinds: tuple[tuple[str, int], ...]
    """How often each kind was the first reason, the most frequent first."""


def again(summary: Summary) -> list[Again]:
    """Functions of the user that compiled again, the most expensive first."""
    found = []
    for function, items in _again_by_function(summary).items():
        kinds = Counter(item.reasons[0].kind for item in items)
        ranked = tuple(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0])))
        found.append(Again(function, len(items), _seconds(items), ranked))
    return sorted(
        found, key=lambda a: (-a.seconds, -a.times, full_name(summary.functions[a.function]))
    )


def advice(summary: Summary) -> list[Advice]:
    """Hints, one for each function and kind, the one that can save most first."""
    found = []
    for function, items in _again_by_function(summary).items():
        by_kind: dict[str, list[Item]] = {}
        for item in items:
            by_kind.setdefault(item.reasons[0].kind, []).append(item)
        for kind, group in by_kind.items():
            hint = _hint(group)
            if hint is not None:
                found.append(Advice(function, kind, hint, len(group), _seconds(group)))
    return sorted(found, key=lambda a: (-a.seconds, -a.times, a.hint))


def workers(summary: Summary) -> int:
    """How many processes ran tests, as far as is known; at least 1."""
    told = summary.environment.get("workers")
    seen = len({item.worker for item in summary.items()})
    return max(1, seen, told if isinstance(told, int) else 0)


def share(summary: Summary) -> float | None:
    """Compiling as a part of the time of all processes; ``None`` if that is not known."""
    capacity = summary.seconds * workers(summary)
    return summary.compile_seconds / capacity if capacity > 0 else None


def full_name(function: FunctionTotals) -> str:
    """``module.qualname``, as ``of=`` accepts it."""
    return f"{function.module}.{function.qualname}"


def duration(seconds: float) -> str:
    """A time as people write it: ``12 ms``, ``3.4 s``, ``2 min 05 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def percent(part: float) -> str:
    """A share of 1 as a percentage; below one half of a percent it says so."""
    if 0 < part < 0.005:
        return "less than 1%"
    return f"{part * 100:.0f}%"


def number(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _again_by_function(summary: Summary) -> dict[int, list[Item]]:
    found: dict[int, list[Item]] = {}
    for item in summary.items():
        if item.again and not summary.functions[item.function].eager_op:
            found.setdefault(item.function, []).append(item)
    return found


def _seconds(items: Iterable[Item]) -> float:
    return sum(item.seconds for item in items)


def _hint(items: list[Item]) -> str | None:
    """The hint of the latest compilation, which has seen the most: first reasons before others."""
    latest = sorted(items, key=lambda item: item.start)[::-1]
    for first_only in (True, False):
        for item in latest:
            for reason in item.reasons[:1] if first_only else item.reasons[1:]:
                if reason.hint is not None:
                    return reason.hint
    return None
