"""Sums of arrays of any length, compiled once per length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

total = jax.jit(jnp.sum)
"""Compiles once for every shape and dtype it meets."""


def cache_independent_count(x_a: ArrayLike, x_b: ArrayLike) -> jax.Array:
    """The sum of all elements of two one-dimensional arrays, which may differ in length.

    An empty array adds zero. The result does not depend on what was compiled before.
    """
    return total(jnp.asarray(x_a)) + total(jnp.asarray(x_b))


@jax.jit
def masked_total(padded: jax.Array, length: int | jax.Array) -> jax.Array:
    """The sum of the first ``length`` elements of ``padded``."""
    inside = jnp.arange(padded.shape[0]) < length
    return jnp.sum(jnp.where(inside, padded, 0))
