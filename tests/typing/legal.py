"""Uses that type checkers must accept."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxcompile import (
    Argument,
    Compilation,
    CompileCountError,
    CompileLog,
    CompileView,
    Reason,
    Signature,
    count_compiles,
)


@jax.jit
def doubled(x: jax.Array) -> jax.Array:
    return x * 2


def test_fixture(jax_compiles: CompileLog) -> None:
    with jax_compiles.exactly(2, of=doubled) as seen:
        doubled(jnp.ones(3))
    view: CompileView = seen
    with jax_compiles.at_most(2, of=[doubled, "tripled"], fail_fast=True):
        doubled(jnp.ones(4))
    with jax_compiles.at_least(0), jax_compiles.none(of="doubled"):
        pass
    counts: list[int] = jax_compiles.per_call(doubled, [jnp.ones(3)])
    records: Sequence[Compilation] = jax_compiles
    numbers: tuple[int, int, int, int] = (
        view.count,
        view.traces,
        view.lowerings,
        view.disk_hits,
    )
    seconds: float = view.ops.seconds + view.all.of(doubled).seconds
    text: str = view.explain()
    print(counts, records, numbers, seconds, text)


@pytest.mark.jax_compiles(exactly=1, of=doubled)
def test_marker() -> None:
    doubled(jnp.ones(3))


def script() -> None:
    with count_compiles(cold=True) as log:
        doubled(jnp.ones(3))
    for record in log:
        signature: Signature = record.signature
        arguments: tuple[Argument, ...] = signature.arguments
        reasons: tuple[Reason, ...] = record.reasons
        where: str | None = record.called_from
        print(arguments, reasons, where, record.seconds > 0)
    first: Compilation = log[0]
    error: AssertionError = CompileCountError(str(first))
    raise error
