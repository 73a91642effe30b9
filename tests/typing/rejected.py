"""Uses that type checkers must reject, at the lines that end in ``# rejected``."""

from __future__ import annotations

from pytest_jaxcompile import Compilation, CompileLog, count_compiles


def test_fixture(jax_compiles: CompileLog, record: Compilation) -> None:
    jax_compiles.exactly("2")  # rejected
    jax_compiles.exactly(2, function=print)  # rejected
    jax_compiles.none(of=3)  # rejected
    jax_compiles.count = 3  # rejected
    jax_compiles.append(record)  # rejected
    record.function = "other"  # rejected
    count_compiles(True)  # rejected
    with jax_compiles.at_most(1) as seen:
        seen.per_call(print, [])  # rejected
