"""pytest's start and empty tests, with the plugin installed and JAX not used."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measure import OFF, PYTEST, Row, child, instructions, main, microseconds, pairs, spread

_IMPORT = """
import sys, time, pytest
start = time.thread_time()
import pytest_jaxcompile.plugin
print(time.thread_time() - start)
assert "jax" not in sys.modules and "numpy" not in sys.modules
"""
_NO_JAX = """
import sys

def pytest_sessionfinish():
    assert "jax" not in sys.modules
"""


def measure(smallest: bool) -> Iterator[Row]:
    times = [float(child(["-c", _IMPORT]).output) for _ in range(3 if smallest else 15)]
    found = statistics.median(times)
    yield Row(
        "import of the plugin",
        "-",
        "<= 1 ms, jax not imported",
        f"{microseconds(found)} ({microseconds(min(times))}..{microseconds(max(times))})",
        None if smallest else found <= 1e-3,
        f"{spread(times):.0%}",
        "CPU time, pytest imported before",
    )
    sizes = (10,) if smallest else (50, 500, 5000)
    for count in sizes:
        yield _empty_tests(count, 1 if smallest else 9, count == 5000)
    if not smallest:
        yield from _instructions(50, 250)


def _suite(folder: Path, count: int) -> Path:
    (folder / "test_empty.py").write_text("".join(f"def test_{i}(): pass\n" for i in range(count)))
    (folder / "conftest.py").write_text(_NO_JAX)
    return folder


def _empty_tests(count: int, times: int, is_target: bool) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = _suite(Path(name), count)
        found = pairs(
            lambda: child([*PYTEST, *OFF], folder).seconds,
            lambda: child(PYTEST, folder).seconds,
            times,
        )
    return Row(
        f"pytest start and {count:,} empty tests, plugin installed, JAX not used",
        "`-p no:jaxcompile`",
        "<= 1.005" if is_target else "grows with tests",
        str(found),
        found.median <= 1.005 if is_target else None,
        f"{found.noise:.1%}",
        f"CPU {microseconds(found.a)} -> {microseconds(found.b)}",
    )


def _instructions(few: int, many: int) -> Iterator[Row]:
    """Free of noise: what a run of 5,000 would count, from two small ones."""
    counts = {}
    with tempfile.TemporaryDirectory() as name:
        for size in (few, many):
            folder = _suite(Path(name), size)
            for off in (OFF, ()):
                counts[size, off] = instructions([*PYTEST, *off], folder)
    if None in counts.values():
        return
    added = [counts[size, ()] - counts[size, OFF] for size in (few, many)]
    per_test = (added[1] - added[0]) / (many - few)
    base = (counts[many, OFF] - counts[few, OFF]) / (many - few)
    start = added[0] - per_test * few
    whole = counts[few, OFF] - base * few
    ratio = 1 + (start + per_test * 5000) / (whole + base * 5000)
    yield Row(
        "same, machine instructions for 5,000 tests",
        "`-p no:jaxcompile`",
        "<= 1.005",
        f"{ratio:.4f}",
        ratio <= 1.005,
        "none",
        f"callgrind at {few}, {many}: start {start / whole:+.2%}, each {per_test / base:+.1%}",
    )


if __name__ == "__main__":
    main(measure)
