"""Counts per test and function, kept in the repository."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_jaxcompile.counting import messages
from pytest_jaxcompile.counting.expectations import CompileLog
from pytest_jaxcompile.errors import CompileCountError
from pytest_jaxcompile.plugin.options import Options
from pytest_jaxcompile.report.files import save
from pytest_jaxcompile.report.summary import Summary

if TYPE_CHECKING:
    from pytest_jaxcompile.records import Compilation

Counts = dict[str, dict[str, int]]

_CONFLICT: Final = ("<<<<<<<", "=======", ">>>>>>>")
HEADER: Final = "# pytest-jaxcompile baseline 1: compilations per test and function"
ACCEPT: Final = "pytest --jax-compile-baseline={} --jax-compile-update-baseline"


def dumps(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Sorted text: a test's id at the margin, below it a function per line."""
    lines = [HEADER]
    for nodeid in sorted(counts):
        found = {name: n for name, n in counts[nodeid].items() if n}
        if found:
            lines.append(_escaped(nodeid))
            lines += [f"    {found[name]} {name}" for name in sorted(found)]
    return "\n".join(lines) + "\n"


def loads(text: str) -> Counts:
    """Raises ``ValueError``, naming the line, for anything :func:`dumps` would not write."""
    counts: Counts = {}
    lines = text.split("\n")
    conflict = next((n for n, line in enumerate(lines, 1) if line.startswith(_CONFLICT[::2])), None)
    if conflict is not None:
        raise ValueError(f"line {conflict} is left of a merge conflict")
    if lines[0] != HEADER:
        newer = re.match(r"# pytest-jaxcompile baseline (\d+):", lines[0])
        if newer and int(newer[1]) > 1:
            raise ValueError("a newer pytest-jaxcompile wrote it; update pytest-jaxcompile")
        raise ValueError(f"line 1 is not {HEADER!r}")
    nodeid = None
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        if not line.startswith(" "):
            if line == _CONFLICT[1] or (nodeid is not None and not counts[nodeid]):
                raise ValueError(f"line {number} is no test with counts below it: {line!r}")
            nodeid = _unescaped(line)
            counts[nodeid] = {}
            continue
        n, _, name = line.strip().partition(" ")
        if nodeid is None or not n.isdigit() or not name:
            raise ValueError(f"line {number} is no '    COUNT FUNCTION' below a test: {line!r}")
        counts[nodeid][name] = int(n)
    return counts


def _shown(path: Path) -> str:
    """The path as it can be typed in the current folder."""
    return os.path.relpath(path)


_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


def _escaped(nodeid: str) -> str:
    """One line, at the margin, from which the id can be read back."""
    text = "".join(_ESCAPES.get(char, char) for char in nodeid)
    return f"\\s{text[1:]}" if text.startswith(" ") else text


def _unescaped(line: str) -> str:
    plain = {escape: char for char, escape in _ESCAPES.items()} | {"\\s": " "}
    return re.sub(r"\\(.)", lambda found: plain.get(found[0], found[0]), line)


class Baseline:
    """The baseline file of a run."""

    def __init__(self, path: Path, counts: Counts, update: bool) -> None:
        self.path = path
        self.counts = counts
        self.update = update
        self.fewer: list[str] = []
        self.gone: list[str] = []
        self.written = False
        self._collected: set[str] = set()
        self._selected = False

    @classmethod
    def of(cls, options: Options, writing: bool) -> Baseline | None:
        """Raises :class:`pytest.UsageError` for a file that is missing or broken."""
        if options.baseline is None:
            return None
        accept = ACCEPT.format(_shown(options.baseline))
        try:
            counts = loads(options.baseline.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not options.update_baseline:
                raise pytest.UsageError(
                    f"no baseline at {options.baseline}: make one with\n  {accept}"
                ) from None
            counts = {}
        except (OSError, ValueError) as error:
            raise pytest.UsageError(
                f"the baseline {options.baseline} cannot be read: {error}\n"
                f"Mend it, or delete it and make a new one with\n  {accept}"
            ) from None
        return cls(options.baseline, counts, options.update_baseline and writing)

    def check(self, nodeid: str, log: CompileLog) -> None:
        """Raise :class:`CompileCountError` if a function compiled more often than recorded."""
        __tracebackhide__ = True
        recorded = self.counts.get(nodeid, {})
        more: list[str] = []
        records: list[Compilation] = []
        for name, found in log.by_name().items():
            if len(found) > recorded.get(name, 0):
                more.append(f"{name}: {recorded.get(name, 0)} recorded, {len(found)} now")
                records += found
        if more:
            raise CompileCountError(
                "compiles more than the baseline says"
                + (", which has none for this test: " if nodeid not in self.counts else ": ")
                + "; ".join(more)
                + "\n"
                + "\n".join(messages.lines(records))
                + f"\nIf this is meant, accept it with\n  {ACCEPT.format(_shown(self.path))}"
            )

    # -- the end of the run ---------------------------------------------------------------

    def collected(self, nodeids: Iterable[str], selected: bool) -> None:
        """Which tests there are, and whether some were left out by the command line."""
        self._collected.update(nodeids)
        self._selected = self._selected or selected

    def finish(self, summary: Summary, session: pytest.Session) -> None:
        """Find what compiles less or is gone; write the file if asked to."""
        seen = {
            test.id: _counts(test.compilations, summary)
            for test in summary.tests
            if test.outcome in ("passed", "xfailed", "xpassed")
        }
        if summary.complete and not self._selected:
            self.gone = sorted(nodeid for nodeid in self.counts if self._is_gone(nodeid, session))
        if session.config.option.collectonly:
            return
        if self.update:
            kept = {k: v for k, v in self.counts.items() if k not in self.gone}
            self.counts = {**kept, **seen}
            save(self.path, dumps(self.counts))
            self.written = True
            return
        for nodeid, counts in sorted(seen.items()):
            for name, n in sorted(self.counts.get(nodeid, {}).items()):
                if counts.get(name, 0) < n:
                    self.fewer.append(f"{nodeid}: {name} {n} -> {counts.get(name, 0)}")

    def _is_gone(self, nodeid: str, session: pytest.Session) -> bool:
        """Not collected, although its file was, or is no more."""
        if nodeid in self._collected:
            return False
        file = nodeid.partition("::")[0]
        if any(other.partition("::")[0] == file for other in self._collected):
            return True
        return not (session.config.rootpath / file).exists()

    def lines(self) -> Iterator[str]:
        if self.written:
            yield f"baseline written: {_shown(self.path)}"
        if self.fewer:
            n = len(self.fewer)
            yield f"{n} count{' is' if n == 1 else 's are'} lower than in the baseline:"
            yield from (f"  {line}" for line in self.fewer[:20])
        if self.gone and not self.written:
            n = len(self.gone)
            yield f"{n} test{' of the baseline is' if n == 1 else 's of the baseline are'} gone:"
            yield from (f"  {line}" for line in self.gone[:20])
        if (self.fewer or self.gone) and not self.written:
            yield f"Accept with: {ACCEPT.format(_shown(self.path))}"


def _counts(items: list, summary: Summary) -> dict[str, int]:  # type: ignore[type-arg]
    counts: Counter[str] = Counter()
    for item in items:
        function = summary.functions[item.function]
        if item.phase == "call" and not function.eager_op:
            counts[f"{function.module}.{function.qualname}"] += 1
    return dict(counts)
