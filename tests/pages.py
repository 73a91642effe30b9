"""Summaries for the tests of the page."""

from __future__ import annotations

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report.summary import Builder, Summary, pack

T0 = 1_754_000_000.0


def compilation(name, size, start, seconds, reasons=(), **more):
    return Compilation(
        name,
        name,
        "app",
        "/r/app.py:3",
        more.pop("called_from", "/r/test_app.py:9"),
        Signature(("x",), (Leaf((size,), "float32"),)),
        compile_seconds=seconds,
        reasons=reasons,
        start=T0 + start,
        **more,
    )


def shape(before, after, hint=None):
    return (Reason("shape", "x", f"f32[{before}]", f"f32[{after}]", hint),)


def summary_of(*tests, seconds=20.0) -> Summary:
    builder = Builder()
    builder.summary.started = T0
    for nodeid, records in tests:
        builder.test(nodeid, "passed", 2.0, pack(records, "/r", "") if records else None)
    builder.summary.seconds = seconds
    return builder.summary
