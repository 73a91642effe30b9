"""Functions that a library jits for the user: whose a program is, and what is an eager op."""

from __future__ import annotations

import functools
import logging
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxcompile import count_compiles

equinox = pytest.importorskip("equinox")

X = jnp.ones((4, 3))


@pytest.fixture
def compiled(caplog):
    """What JAX itself says that it compiled since it was asked last, by name."""
    jax.config.update("jax_log_compiles", True)
    caplog.set_level(logging.DEBUG, "jax")

    def said() -> Counter[str]:
        messages = [r.getMessage() for r in caplog.records]
        caplog.clear()
        finished = [m.split()[4] for m in messages if m.startswith("Finished XLA compilation")]
        return Counter(name.removeprefix("jit(").removesuffix(")") for name in finished)

    try:
        yield said
    finally:
        jax.config.update("jax_log_compiles", False)


class Model(equinox.Module):
    w: jax.Array

    @equinox.filter_jit
    def go(self, x):
        return self.w * x

    @equinox.filter_jit
    def __call__(self, x):
        return self.w + x


class Plain:
    @equinox.filter_jit
    def go(self, x):
        return x * 2


def model():
    return Model(jnp.float32(1))


METHODS = {
    "method of a module": lambda: (model().go, Model.go, Model.__call__),
    "call of a module": lambda: (model().__call__, Model.__call__, Model.go),
    "method of a plain class": lambda: (Plain().go, Plain.go, Model.go),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_filtered_method_counts_bound_and_unbound(name):
    bound, unbound, other = METHODS[name]()
    with count_compiles(cold=True) as log:
        for _ in range(2):
            bound(X)
        bound(X[:2])
    assert [log.of(f).count for f in (bound, unbound, other)] == [2, 2, 0]
    assert log.count == 2


def test_a_module_counts_for_its_filtered_call():
    one = model()
    with count_compiles(cold=True) as log:
        one(X)
        one.go(X)
    assert log.of(one).count == 1
    assert log.count == 2


class Step:
    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x):
        return x * 2


def test_an_object_counts_for_its_jitted_call():
    step = Step()
    with count_compiles(cold=True) as log:
        step(X)
        jax.jit(lambda x: x)(X)
    assert log.of(step).count == 1
    assert log.count == 2


def test_each_call_of_an_object_that_jits_inside():
    """It is not jitted itself, so what compiles in its calls is counted."""
    inner = jax.jit(lambda x: x + 1)

    class Trainer:
        def __call__(self, x):
            return inner(x)

    with count_compiles(cold=True) as log:
        assert log.per_call(Trainer(), [X, X, X[:2]]) == [1, 0, 1]


def scalar(f):
    return lambda x: f(x).sum()


TRANSFORMED = {
    "filter_vmap": (lambda f: equinox.filter_vmap(f)(X), 1),
    "filter_jvp": (lambda f: equinox.filter_jvp(f, (X,), (X,)), 1),
    "filter_checkpoint": (lambda f: equinox.filter_checkpoint(f)(X), 1),
    "jax.grad": (lambda f: jax.grad(scalar(f))(X), 2),
    "filter_grad": (lambda f: equinox.filter_grad(scalar(f))(X), 2),
    "jax.vmap": (lambda f: jax.vmap(f)(X), 1),
}


@pytest.mark.parametrize("jit", [jax.jit, equinox.filter_jit])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transformed_function_counts_for_itself(name, jit, compiled):
    transform, times = TRANSFORMED[name]

    def doubled(x):
        return x * 2

    one, other = jit(doubled), jit(lambda x: x * 3)
    other(X)
    compiled()
    with count_compiles(cold=True) as log:
        transform(one)
    assert compiled()["doubled"] == times
    assert log.of(one).count == log.of(doubled).count == log.count == times
    assert log.of(other).count == 0
    assert {record.function for record in log} == {"doubled"}


EAGER = {
    "filter_grad": lambda: equinox.filter_grad(lambda x: (x * 2).sum())(X),
    "filter_value_and_grad": lambda: equinox.filter_value_and_grad(lambda x: (x * 2).sum())(X),
    "filter_vmap": lambda: equinox.filter_vmap(lambda x: x * 2, out_axes=1)(X),
}


@pytest.mark.parametrize("name", EAGER)
def test_what_runs_eagerly_under_a_library_stays_an_eager_op(name, compiled):
    jax.clear_caches()
    compiled()
    with count_compiles() as log:
        EAGER[name]()
    said = compiled()
    assert said.total() > 1
    assert Counter(record.function for record in log.ops) == said
    assert log.count == 0


@pytest.mark.parametrize("name", ["filter_checkpoint", "jax.grad"])
def test_of_two_functions_of_one_definition_the_one_that_runs_is_meant(name):
    """Their programs come without a call that would tell them apart."""
    transform, times = TRANSFORMED[name]

    def make(k):
        @jax.jit
        def scaled(x):
            return x * k

        return scaled

    one, two = make(2.0), make(3.0)
    with count_compiles(cold=True) as log:
        one(X)
        transform(two)
    assert (log.of(one).count, log.of(two).count) == (1, times)
