"""A suite of exact-count tests, as people would write it with each of the ways to count."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from measure import PYTEST, Row, child, main, microseconds, pairs

_OPS: Final = """
import jax, jax.numpy as jnp, numpy as np, pytest

def ten_ops(x):
    y = jnp.sin(x) + jnp.cos(x)
    y = jnp.where(y > 0, y, jnp.exp(y))
    return float(jnp.sum(jnp.sqrt(jnp.abs(y)) * x))

def step(x):
    return x + 1

THREE = np.ones(3, np.float32)

@pytest.fixture
def cold():
    jax.clear_caches()
"""
_OURS: Final = """
def test_{n}(jax_compiles):
    f = jax.jit(step)
    ten_ops(THREE)
    with jax_compiles.exactly(1, of=f):
        f(THREE)
"""
_TESTS: Final = {
    "`jax.clear_caches()` in a fixture": """
from jax._src import test_util

def test_{n}(cold):
    f = jax.jit(step)
    ten_ops(THREE)
    with test_util.count_jit_and_pmap_lowerings() as count:
        f(THREE)
    assert count() == 1
""",
    "`jax._src.test_util` counters, not isolated": """
from jax._src import test_util

def test_{n}():
    f = jax.jit(lambda x: step(x))
    ten_ops(THREE)
    with test_util.count_jit_and_pmap_lowerings() as count:
        f(THREE)
    assert count() == 1
""",
    "`chex.assert_max_traces`, at most, not isolated": """
import chex
def test_{n}():
    f = jax.jit(chex.assert_max_traces(lambda x: step(x), n=1))
    ten_ops(THREE)
    f(THREE)
""",
    "`equinox.debug.assert_max_traces`, at most, not isolated": """
import equinox
def test_{n}():
    f = jax.jit(equinox.debug.assert_max_traces(lambda x: step(x), max_traces=1))
    ten_ops(THREE)
    f(THREE)
""",
}


def measure(smallest: bool) -> Iterator[Row]:
    for name, test in _TESTS.items():
        is_slow = "clear_caches" in name
        sizes = (3,) if smallest else (30, 100, 300) if is_slow else (300,)
        for count in sizes:
            yield _compare(name, test, count, is_slow, 0 if smallest else 1)


def _compare(name: str, test: str, count: int, is_slow: bool, times: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        ours, other = Path(folder, "test_ours.py"), Path(folder, "test_other.py")
        ours.write_text(_OPS + "".join(_OURS.format(n=n) for n in range(count)))
        other.write_text(_OPS + "".join(test.format(n=n) for n in range(count)))
        if not times:  # only whether they pass: one process for both
            child([*PYTEST, str(ours), str(other)], Path(folder))
            return Row(f"a suite of {count} exact-count tests", name, "-", "runs")
        found = pairs(
            lambda: child([*PYTEST, str(ours)], Path(folder)).seconds,
            lambda: child([*PYTEST, str(other)], Path(folder)).seconds,
            times,
        )
    is_target = count == 300
    if is_slow:
        target, met = "at least 5 times faster", found.median >= 5
    else:
        target, met = "not slower beyond isolation", None
    return Row(
        f"a suite of {count} exact-count tests with ten eager ops each",
        name,
        target if is_target else "grows with tests",
        f"{found.median:.2f} times the time",
        met if is_target else None,
        f"{found.noise:.0%}",
        f"CPU {microseconds(found.b)} -> {microseconds(found.a)} with us, all of the process",
    )


if __name__ == "__main__":
    main(measure)
