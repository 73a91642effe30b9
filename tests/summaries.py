"""Summaries with numbers that are easy to add up by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report.summary import Builder, Summary, pack

ENVIRONMENT = {
    "pytest_jaxcompile": "0.1.0",
    "python": "3.11.7",
    "platform": "Linux",
    "pytest": "9.0.0",
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
    "devices": ["cpu:0"],
    "workers": 1,
    "process_index": 0,
    "process_count": 1,
}
SHAPE = Reason("shape", "x", "(3,)", "(4,)", "pad x")


def compiled(
    name: str = "step",
    *reasons: Reason,
    length: int = 3,
    seconds: float = 0.5,
    line: int = 10,
    file: str = "/root/app/model.py",
    **more: Any,
) -> Compilation:
    """One compilation of ``app.model.name``; a quarter of ``seconds`` each to trace and lower."""
    return Compilation(
        function=name,
        qualname=name,
        module="app.model",
        defined_at=f"{file}:{line}",
        called_from="/root/tests/test_model.py:7",
        signature=Signature(("x",), (Leaf((length,), "float32"),)),
        trace_seconds=seconds / 4,
        lower_seconds=seconds / 4,
        compile_seconds=seconds / 2,
        reasons=reasons,
        start=1000.0,
        **more,
    )


def summary(
    tests: dict[str, Sequence[Compilation]] | None = None,
    outside: dict[str, Sequence[Compilation]] | None = None,
    worker: str = "main",
    **fields: Any,
) -> Summary:
    """Tests that passed in 2 s each, and places outside tests."""
    builder = Builder()
    for test, records in (tests or {}).items():
        builder.test(test, "passed", 2.0, pack(records, "/root", worker))
    for place, records in (outside or {}).items():
        builder.outside(pack(records, "/root", worker, [place] * len(records)))
    made = builder.summary
    made.environment = dict(ENVIRONMENT)
    made.started, made.seconds = 900.0, 10.0
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def usual() -> Summary:
    """A test with three compilations and one without; one eager operation at import."""
    again = compiled("step", SHAPE, length=4, seconds=0.25)
    hit = compiled("loss", seconds=0.125, disk_hit=True, line=20)
    return summary(
        {"t.py::b": [compiled("step"), again, hit], "t.py::a": []},
        {"import of t.py": [compiled("add", seconds=0.0625, eager_op=True)]},
    )
