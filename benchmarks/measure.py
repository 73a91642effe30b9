"""What all benchmarks share: paired runs, medians of ratios, child processes, the table."""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

PACKAGES: Final = ("jax", "jaxlib", "pytest", "chex", "equinox", "pytest-jaxcompile")


class Ratio(NamedTuple):
    """Medians of ``b / a`` over runs in the order a, b, a, and what ``a / a`` gave meanwhile."""

    median: float
    least: float
    most: float
    noise: float
    """Median of how far the two runs of ``a`` around each run of ``b`` were apart."""
    a: float
    b: float

    def __str__(self) -> str:
        digits = 3 if self.median < 2 else 1
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}..{self.most:.{digits}f})"


@dataclass
class Row:
    """One line of the table."""

    what: str
    against: str
    target: str
    measured: str
    met: bool | None = None
    """``None`` where the line only shows how a cost grows, or where the size is no real one."""
    noise: str = ""
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        met = {True: "yes", False: "**no**", None: "-"}[self.met]
        return (self.what, self.against, self.target, self.measured, met, self.noise, self.note)


HEADER: Final = ("what", "against", "target", "measured", "met", "noise", "note")


def pairs(a: Callable[[], float], b: Callable[[], float], times: int) -> Ratio:
    """Run a, b, a, b, ..., a: every ``b`` is divided by the mean of the two ``a`` around it."""
    before, ratios, noise, every_a, every_b = a(), [], [], [], []
    every_a.append(before)
    for _ in range(times):
        middle, after = b(), a()
        ratios.append(2 * middle / (before + after))
        noise.append(abs(after / before - 1))
        every_a.append(after)
        every_b.append(middle)
        before = after
    median = statistics.median
    middles = median(every_a), median(every_b)
    return Ratio(median(ratios), min(ratios), max(ratios), median(noise), *middles)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a part of the median."""
    if len(values) < 4:
        return max(values) / min(values) - 1 if min(values) > 0 else 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle if middle else 0.0


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of ``work``, XLA's threads included, other processes not."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


class Child(NamedTuple):
    seconds: float
    """CPU seconds, of all its threads."""
    wall: float
    peak: int
    """Bytes of memory at the most."""
    output: str


def child(arguments: Sequence[str], cwd: Path | None = None, **environment: str) -> Child:
    """Run Python with ``arguments``. Raises ``RuntimeError`` if it fails."""
    env = {**os.environ, "PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu", **environment}
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        out.seek(0)
        output = out.read().decode(errors="replace")
    if process.returncode:
        what = f"{' '.join(arguments)} ended with {process.returncode}"
        raise RuntimeError(f"{what}:\n{output[-3000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Child(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * unit, output)


_OTHERS: Final = ("cacheprovider", "xdist", "jaxtyping")
PYTEST: Final = ("-m", "pytest", "-q", *(x for name in _OTHERS for x in ("-p", f"no:{name}")))
"""pytest with no plugin installed but ours."""
OFF: Final = ("-p", "no:jaxcompile")


def instructions(arguments: Sequence[str], cwd: Path | None = None) -> int | None:
    """Machine instructions that Python runs for ``arguments``; ``None`` without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    tool = (valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null")
    command = [*tool, sys.executable, *arguments]
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found.group(1)) if found else None


def microseconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def show(rows: Iterable[Row]) -> None:
    """Print Markdown, each line as soon as it is known."""
    for line in (HEADER, ("---",) * len(HEADER)):
        print("| " + " | ".join(line) + " |")
    for row in rows:
        print("| " + " | ".join(row.cells()) + " |", flush=True)


def machine() -> str:
    """Processor, load and versions: what a figure of this table depends on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*: (.*)", info.read_text())
        model = found.group(1) if found else model
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return (
        f"{model}, {os.cpu_count()} cores, load {load}; {platform.platform()}; "
        f"Python {platform.python_version()}, {', '.join(versions)}"
    )


def main(measure: Callable[[bool], Iterable[Row]]) -> None:
    """What a benchmark does when it is run alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--smallest", action="store_true", help="tiny sizes: only whether it runs")
    smallest = parser.parse_args().smallest
    show(measure(smallest))
    print(f"\n{machine()}")
