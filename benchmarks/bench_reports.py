"""Reports of very many compilations: time, memory, and what travels from an xdist worker."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from measure import Row, child, main, microseconds

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report import files, terminal
from pytest_jaxcompile.report.summary import Builder, pack

_PER_TEST: Final = 20


def measure(smallest: bool) -> Iterator[Row]:
    for count in (1000,) if smallest else (10_000, 100_000, 1_000_000):
        done = child([__file__, "--build", str(count)])
        build, as_json, shown, megabytes = map(float, done.output.split())
        is_target = count == 1_000_000
        yield Row(
            f"JSON of {count:,} compilations in {count // _PER_TEST:,} tests",
            "-",
            "<= 20 s, <= 500 MB" if is_target else "linear in compilations",
            f"{as_json:.2f} s, {done.peak / 1e6:.0f} MB",
            as_json <= 20 and done.peak <= 500e6 if is_target else None,
            "one run",
            f"CPU; file of {megabytes:.0f} MB; adding up {microseconds(build / count)} each",
        )
        yield Row(
            f"terminal report of {count:,} compilations",
            "-",
            "<= 5 s" if is_target else "linear in compilations",
            f"{shown:.2f} s",
            shown <= 5 if is_target else None,
            "one run",
            "CPU",
        )
    sizes = [len(json.dumps(pack(_records(0, n), "/repo", "gw0"))) for n in (1, 10, 100)]
    yield Row(
        "payload from an xdist worker, a test of 1, 10, 100 compilations",
        "-",
        "in proportion",
        ", ".join(f"{size:,}" for size in sizes) + " bytes",
        None if smallest else sizes[2] <= 100 * sizes[0],
        "none",
        f"{(sizes[2] - sizes[1]) / 90:.0f} bytes each",
    )


def _records(first: int, count: int) -> list[Compilation]:
    """Ten functions, a hundred signatures, every second compilation one of a new shape."""
    found = []
    for n in range(first, first + count):
        leaves = tuple(Leaf((n % 100, size), "float32") for size in range(10))
        signature = Signature(tuple(f"params['w{i}']" for i in range(10)), leaves)
        reason = Reason("shape", "params['w0']", "(3,)", f"({n % 100},)", None)
        record = Compilation(
            function=f"step_{n % 10}",
            qualname=f"step_{n % 10}",
            module="model",
            defined_at=f"/repo/model.py:{n % 10}",
            called_from=f"/repo/test_model.py:{n % 300}",
            signature=signature,
            trace_seconds=n % 7 / 1000,
            lower_seconds=n % 11 / 1000,
            compile_seconds=n % 13 / 100,
            start=1.7e9 + n / 100,
        )
        found.append(replace(record, reasons=(reason,)) if n % 2 else record)
    return found


def _build(count: int) -> None:
    starts = range(0, 5 * _PER_TEST, _PER_TEST)
    packets = [pack(_records(n, _PER_TEST), "/repo", "gw0") for n in starts]
    builder = Builder()
    start = time.process_time()
    for n in range(count // _PER_TEST):
        builder.test(f"test_model.py::test_{n}", "passed", 0.1, packets[n % len(packets)])
    build = time.process_time() - start
    summary = builder.summary
    summary.environment = {"jax": "0", "workers": 1}
    summary.seconds = 1e5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        start = time.process_time()
        files.save_json(path, summary)
        as_json = time.process_time() - start
        size = path.stat().st_size
    start = time.process_time()
    lines = list(terminal.lines(summary))
    assert lines
    print(build, as_json, time.process_time() - start, size / 1e6)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        _build(int(sys.argv[2]))
    else:
        main(measure)
