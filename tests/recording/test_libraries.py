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


# -- arguments that a library splits ----------------------------------------------------------


class Scaled(equinox.Module):
    w: jax.Array
    factor: float
    act: object = equinox.field(static=True, default=jnp.tanh)


def reasons(f, *calls):
    """The reasons of the last call, as (kind, argument, before, after)."""
    with count_compiles(cold=True) as log:
        for args, kwargs in calls:
            f(*args, **kwargs)
    assert log.count == len(calls)
    return [(r.kind, r.argument, r.before, r.after) for r in log[-1].reasons]


def call(*args, **kwargs):
    return args, kwargs


SPLIT = {
    "shape of a module's array": (
        call(Scaled(X, 1.0), X),
        call(Scaled(X[:2], 1.0), X[:2]),
        [("shape", "model.w", "(4, 3)", "(2, 3)"), ("shape", "x", "(4, 3)", "(2, 3)")],
    ),
    "a number in a module": (
        call(Scaled(X, 1.0), X),
        call(Scaled(X, 2.0), X),
        [("static_value", "model.factor", "1.0", "2.0")],
    ),
    "a number by position": (
        call(Scaled(X, 1.0), X, 0.1),
        call(Scaled(X, 1.0), X, 0.2),
        [("static_value", "rate", "0.1", "0.2")],
    ),
    "a number by keyword, in a dict": (
        call(Scaled(X, 1.0), X, more={"k": 1}),
        call(Scaled(X, 1.0), X, more={"k": 2}),
        [("static_value", "more['k']", "1", "2")],
    ),
    "an array where a number was": (
        call(Scaled(X, 1.0), X, 0.1),
        call(Scaled(X, 1.0), X, jnp.float32(0.1)),
        [("static_value", "rate", "0.1", "absent")],
    ),
    "another member": (
        call(Scaled(X, 1.0), X, more={"k": X}),
        call(Scaled(X, 1.0), X, more={"k": X, "l": X}),
        [("tree", "more", "dict of 1", "dict of 2 with ['l']")],
    ),
}


@pytest.mark.parametrize("donate", ["none", "all", "all-except-first"])
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_reasons_name_what_the_caller_wrote(name, donate):
    @equinox.filter_jit(donate=donate)
    def step(model, x, rate=1.0, *, more=None):
        return jax.tree.map(lambda leaf: leaf + 1, (model.w * model.factor, x, rate, more))

    *calls, expected = SPLIT[name]
    fresh = [jax.tree.map(lambda v: v + 0 if equinox.is_array(v) else v, c) for c in calls]
    assert sorted(reasons(step, *fresh)) == sorted(expected)  # a donated array comes first


def test_a_signature_reads_as_the_call_was_written():
    @equinox.filter_jit
    def step(model, *rest, flag):
        return model.w

    with count_compiles(cold=True) as log:
        step(Scaled(X, 1.0), X, 3, flag=True)
    assert log[0].call == "step(f32[4,3], f32[4,3], args[2]=3, flag=True, model.factor=1.0)"
    assert log[0].signature.paths == ("model.w", "args[1]")


def test_a_jitted_model_names_its_own_arrays():
    model = equinox.filter_jit(equinox.nn.Linear(3, 2, key=jax.random.key(0)))
    with count_compiles(cold=True) as log:
        model(X[0])
    assert [path for path in log[0].signature.paths if path.startswith("fun.")] == [
        "fun.weight",
        "fun.bias",
    ]


@jax.tree_util.register_pytree_node_class
class Strict:
    """A node that takes no stand-ins for its children."""

    def __init__(self, value):
        if type(value) is object:
            raise TypeError("no array")
        self.value = value

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_a_node_that_takes_no_stand_ins_is_counted_under_other_names():
    @equinox.filter_jit
    def step(a, k):
        return a.value * k

    calls = [call(Strict(X), 1), call(Strict(X), 2)]
    ((kind, argument, before, after),) = reasons(step, *calls)
    assert (kind, argument) == ("static_value", "static")
    assert before != after
