"""What JAX's own explanations of cache misses cost: on while a test counts, for its traces."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from measure import Row, cpu, main, microseconds, pairs


def measure(smallest: bool) -> Iterator[Row]:
    traces, times = (3, 1) if smallest else (10, 3)
    logger = logging.getLogger("jax._src.interpreters.partial_eval")
    logger.addFilter(_drop)
    try:
        for whose, counts in {"that function": (10, 100, 1000), "others": (10_000,)}.items():
            for count in (5,) if smallest else counts:
                yield _by_signatures(whose, count, traces, times)
    finally:
        logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("TRACING CACHE MISS")


def _by_signatures(whose: str, count: int, traces: int, times: int) -> Row:
    jax.clear_caches()
    f, other = (jax.jit(lambda x, n=n: x + n) for n in range(2))
    sizes = itertools.count(1)

    def trace(g: Any, number: int) -> None:
        for _ in range(number):
            jax.eval_shape(g, jax.ShapeDtypeStruct((next(sizes),), np.float32))

    def explained() -> float:
        jax.config.update("jax_explain_cache_misses", True)
        try:
            return cpu(lambda: trace(f, traces))
        finally:
            jax.config.update("jax_explain_cache_misses", False)

    trace(f if whose == "that function" else other, count)
    found = pairs(lambda: cpu(lambda: trace(f, traces)), explained, times)
    added = (found.b - found.a) / traces
    return Row(
        f"one trace with `jax_explain_cache_misses` on, {count:,} signatures of {whose}",
        "off",
        "grows with signatures",
        str(found),
        None,
        f"{found.noise:.0%}",
        f"adds {microseconds(added)} to {microseconds(found.a / traces)} CPU; JAX's own, no plugin",
    )


if __name__ == "__main__":
    main(measure)
