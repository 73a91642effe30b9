"""A cold start, as each test that counts has one, and the eager ops after it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import Ratio, Row, cpu, main, microseconds, pairs

from pytest_jaxcompile import count_compiles
from pytest_jaxcompile.recording.cold_start import start_cold


def ten_ops(x: Any) -> Any:
    """Ten eager ops, as a test's preparation or check has them."""
    y = jnp.sin(x) + jnp.cos(x)
    y = jnp.where(y > 0, y, jnp.exp(y))
    y = jnp.sum(jnp.sqrt(jnp.abs(y)) * x)
    return float(y)


def measure(smallest: bool) -> Iterator[Row]:
    heap: list[list[None]] = [[] for _ in range(1000 if smallest else 1_000_000)]
    for count in (5,) if smallest else (50, 500, 5000):
        is_target = count == 500
        found = _against_clear_caches(count, 1 if smallest or not is_target else 5)
        jitted = type(jax.jit(ten_ops))
        live = sum(type(f) is jitted for f in gc.get_objects())
        yield Row(
            f"cold start and ten eager ops, {count:,} functions of the user, {live} of JAX",
            "`jax.clear_caches()` and the ten",
            "at least 30 times cheaper" if is_target else "grows with functions",
            f"{1 / found.median:.1f} times cheaper ({1 / found.most:.1f}..{1 / found.least:.1f})",
            1 / found.median >= 30 if is_target else None,
            f"{found.noise:.0%}",
            f"CPU {microseconds(found.a)} -> {microseconds(found.b)}, {len(heap):,} other objects",
        )


def _against_clear_caches(count: int, times: int) -> Ratio:
    x = jnp.ones(8)
    shape = jax.ShapeDtypeStruct((8,), np.float32)
    traced: list[int] = []

    def new(n: int) -> Callable[[Any], Any]:
        return jax.jit(lambda x: (traced.append(n), x + n)[1])

    functions = [new(n) for n in range(count)]

    def test(forget: Callable[[], object]) -> float:
        traced.clear()
        for f in functions:
            jax.eval_shape(f, shape)  # something to forget, at the least cost
        assert len(traced) == count  # the last start had forgotten all of them
        ten_ops(x)
        return cpu(lambda: (forget(), ten_ops(x)))

    with count_compiles():
        return pairs(lambda: test(jax.clear_caches), lambda: test(start_cold), times)


if __name__ == "__main__":
    main(measure)
