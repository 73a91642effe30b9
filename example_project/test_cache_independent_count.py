"""What makes JAX compile again, and what does not: one idea per test."""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cache_independent_count import cache_independent_count, masked_total, total

# A context manager of ``jax`` itself in new releases, of ``jax.experimental`` in older ones.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


@pytest.mark.parametrize(
    ("x_a", "x_b", "expected"),
    [([1, 2], [3], 6), ([], [4], 4), ([], [], 0), ([0.5, 1.5], [2.0, 3.0, 4.0], 11.0)],
)
def test_the_sum_is_right(x_a, x_b, expected):
    """Lengths may differ, an empty input adds zero, integers and floats both work."""
    assert cache_independent_count(x_a, x_b) == expected


def pairs(*lengths):
    return [(np.ones(n, np.float32), np.ones(n, np.float32)) for n in lengths]


def test_a_new_length_compiles(jax_compiles):
    """Lengths 3 and 4 compile once each; going back to 3 reuses the first executable."""
    assert jax_compiles.per_call(cache_independent_count, pairs(3, 4, 3)) == [1, 1, 0]


def test_three_versions_and_one_reuse(jax_compiles):
    """Lengths 8, 16 and 32 need three executables; the second 8 needs none."""
    assert jax_compiles.per_call(cache_independent_count, pairs(8, 16, 32, 8)) == [1, 1, 1, 0]


def test_one_call_may_compile_twice(jax_compiles):
    """Two lengths in one call are two signatures of one function."""
    with jax_compiles.exactly(2, of=total):
        cache_independent_count(np.ones(3), np.ones(5))


def test_values_do_not_matter(jax_compiles):
    """The cache looks at shape and dtype, never at the numbers inside."""
    calls = [np.array(v, np.float32) for v in ([0, 0, 0], [1, 2, 3], [7, 7, 7])]
    assert jax_compiles.per_call(total, calls) == [1, 0, 0]


def test_dtype_matters(jax_compiles):
    """The same shape with another dtype is another executable."""
    calls = [np.ones(3, np.float32), np.ones(3, np.int32), np.ones(3, np.float32)]
    assert jax_compiles.per_call(total, calls) == [1, 1, 0]
    assert jax_compiles[-1].reasons[0].kind == "dtype"


def test_a_python_scalar_is_weakly_typed(jax_compiles):
    """``2.0`` and ``jnp.float32(2.0)`` share shape and dtype and differ in weak type only."""
    assert jax_compiles.per_call(total, [2.0, jnp.float32(2.0), 3.0]) == [1, 1, 0]
    assert [reason.kind for reason in jax_compiles[-1].reasons] == ["weak_type"]


def test_a_static_value_is_part_of_the_signature(jax_compiles):
    """Each new value of a static argument compiles, however the arrays look."""

    @functools.partial(jax.jit, static_argnames="power")
    def raised(x, power):
        return x**power

    x = np.ones(3, np.float32)
    assert jax_compiles.per_call(raised, [(x, 2), (x, 3), (x, 2)]) == [1, 1, 0]


def test_a_lambda_made_anew_compiles_anew(jax_compiles):
    """Every new function object starts with an empty cache, even with the same code."""
    x = np.ones(3, np.float32)
    with jax_compiles.exactly(3, of="<lambda>") as seen:
        for _ in range(3):
            jax.jit(lambda x: x + 1)(x)
    assert seen[1].reasons[0].kind == "new_function"


def test_a_function_that_is_kept_compiles_once(jax_compiles):
    """The remedy: jit once, outside the loop, and keep the result."""
    x = np.ones(3, np.float32)
    increment = jax.jit(lambda x: x + 1)
    with jax_compiles.exactly(1, of=increment):
        for _ in range(3):
            increment(x)


def test_a_configuration_is_part_of_the_signature(jax_compiles):
    """Under another configuration the same call compiles again."""
    x = np.ones(3, np.float32)
    with jax_compiles.exactly(2, of=total) as seen:
        total(x)
        with enable_x64(True):
            total(x)
        total(x)
    assert seen[1].reasons[0].kind == "config"


def test_padding_bounds_the_number_of_executables(jax_compiles):
    """Nine lengths padded to 4, 8 and 16 compile three times, and every answer stays right."""
    with jax_compiles.exactly(3, of=masked_total):
        for length in (1, 3, 4, 5, 7, 8, 9, 13, 16):
            values = np.arange(length, dtype=np.float32)
            padded = np.zeros(max(4, 1 << (length - 1).bit_length()), np.float32)
            padded[:length] = values
            assert masked_total(padded, length) == values.sum()


def test_eager_operations_compile_beside_it(jax_compiles):
    """``+`` outside ``jit`` compiles too, but not as the user's: it is in ``ops`` and ``all``."""
    x = np.ones(7, np.float32)
    added = total(x) + total(x)
    assert added == 14
    assert jax_compiles.count == 1
    assert jax_compiles.all.count == jax_compiles.count + jax_compiles.ops.count


def test_a_steady_loop_compiles_nothing(jax_compiles):
    """After the first call nothing compiles, eager operations included."""
    (warm_up,) = pairs(3)
    cache_independent_count(*warm_up)
    with jax_compiles.none():
        for _ in range(10):
            cache_independent_count(*warm_up)


@pytest.mark.jax_compiles(exactly=1, of=total)
def test_the_first_call_is_the_slow_one():
    """Compiling dominates the first call; times are shown, never asserted."""
    x = jnp.ones(1000)
    for name in ("first", "second"):
        start = time.perf_counter()
        total(x).block_until_ready()  # dispatch is asynchronous: wait before looking at the clock
        print(f"{name} call: {(time.perf_counter() - start) * 1e3:.2f} ms")
