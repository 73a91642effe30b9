"""Calls of a function that is compiled already, inside a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import chex
import equinox
import jax
import jax.numpy as jnp
from measure import Row, cpu, main, microseconds, pairs

from pytest_jaxcompile import count_compiles


def measure(smallest: bool) -> Iterator[Row]:
    calls, times = (100, 1) if smallest else (100_000, 5)
    x = jnp.ones(8)

    def plain(x: Any) -> Any:
        return x + 1

    functions: dict[str, Callable[[Any], Any]] = {
        "": jax.jit(plain),
        "chex.assert_max_traces": jax.jit(chex.assert_max_traces(plain, n=1)),
        "equinox.debug.assert_max_traces": jax.jit(
            equinox.debug.assert_max_traces(plain, max_traces=1)
        ),
        "equinox.filter_jit with its assert_max_traces": equinox.filter_jit(
            equinox.debug.assert_max_traces(plain, max_traces=1)
        ),
    }

    def run(f: Callable[[Any], Any], count: int = calls) -> None:
        for _ in range(count):
            f(x)

    def recorded() -> float:
        with count_compiles() as log:
            found = cpu(lambda: run(functions[""]))
        assert log.all.count == 0
        return found

    for warm in functions.values():
        run(warm, 10)
    for name, f in functions.items():
        found = pairs(
            lambda: cpu(lambda: run(functions[""])),
            (lambda f=f: cpu(lambda: run(f))) if name else recorded,
            times,
        )
        yield Row(
            f"{calls:,} calls of a compiled function {name or 'inside a recording'}".strip(),
            "no recording" if not name else "no counter",
            "1.00, within noise" if not name else "peer",
            str(found),
            None if name or smallest else found.median <= 1 + max(0.01, found.noise),
            f"{found.noise:.1%}",
            f"each {microseconds(found.a / calls)} -> {microseconds(found.b / calls)} CPU",
        )


if __name__ == "__main__":
    main(measure)
