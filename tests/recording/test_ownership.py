"""Whose a program is where nothing but its making tells: no call on the stack, or JAX's own."""

from __future__ import annotations

import functools
import gc
import threading
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxcompile import CountUnavailableError, count_compiles

X = np.ones(3, np.float32)


def make(k):
    """Functions of one definition: their place and name do not tell them apart."""

    @jax.jit
    def scaled(x):
        return jnp.sin(x) * k

    return scaled


def on_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def evaluated(a, b):
    jaxpr = jax.make_jaxpr(a)(X)
    jax.make_jaxpr(b)(X)
    jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)


def evaluated_inside(a, b):
    jaxpr = jax.make_jaxpr(lambda x: a(x) + 1)(X)
    jax.make_jaxpr(lambda x: b(x) + 1)(X)
    jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)


def checkpointed(a, b):
    jax.make_jaxpr(b)(X)
    jax.checkpoint(a)(X)


def pulled_later(a, b):
    _, pull = jax.vjp(a, X)
    jax.vjp(b, X)
    pull(X)


def pulled_on_a_thread(a, b):
    _, pull = jax.vjp(a, X)
    on_a_thread(lambda: (b(X), pull(X)))


# what runs, and how many programs it makes of the first function and of the second
PROGRAMS = {
    evaluated: (1, 0),
    evaluated_inside: (1, 0),
    checkpointed: (1, 0),
    pulled_later: (2, 1),
    pulled_on_a_thread: (2, 1),
}


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_of_functions_of_one_definition_each_has_its_own(run):
    a, b = make(2.0), make(3.0)
    with count_compiles(cold=True) as log:
        run(a, b)
    assert (log.of(a).count, log.of(b).count) == PROGRAMS[run]


def test_many_of_one_definition_pulled_in_another_order():
    functions = [make(float(k)) for k in range(40)]
    with count_compiles(cold=True) as log:
        pulls = [jax.vjp(f, X)[1] for f in functions]
        for pull in reversed(pulls):
            pull(X)
    assert Counter(log.of(f).count for f in functions) == {2: 40}


@pytest.mark.parametrize("first", [0, 1])
def test_where_two_could_be_meant_no_number_is_given(first):
    """A backward pass of a rematerialised function that nothing links to its making."""
    pair = [make(2.0), make(3.0)]
    for f in pair:
        jax.checkpoint(f)(X)
    chosen = pair[first]
    with count_compiles(cold=True) as log:
        jax.grad(lambda x: jax.checkpoint(chosen)(x).sum())(X)
    try:
        assert log.of(chosen).count == log.count
    except CountUnavailableError as error:
        assert "functions could be meant" in str(error)  # noqa: PT017


def test_what_nobody_can_reach_is_not_meant():
    """Functions of earlier tests may wait for the garbage collector, in cycles."""
    gc.disable()
    try:
        with count_compiles(cold=True) as log:
            gone = make(2.0)
            gone(X)
            cycle = [gone]
            cycle.append(cycle)
            del gone, cycle
            f = make(3.0)
            jax.checkpoint(f)(X)
            jax.grad(lambda x: jax.checkpoint(f)(x).sum())(X)
            assert log.of(f).count == log.count - 1
    finally:
        gc.enable()


def test_nothing_is_kept_for_the_next_recording():
    """A program is not given to a function of its definition that another recording met."""
    a, b = make(2.0), make(3.0)
    with count_compiles(cold=True):
        a(X)
    _, pull = jax.vjp(b, X)
    with count_compiles() as log:
        pull(X)
    try:
        assert (log.of(a).count, log.of(b).count) == (0, 1)
    except CountUnavailableError as error:
        assert "functions could be meant" in str(error)  # noqa: PT017


@pytest.mark.parametrize("start", [count_compiles, functools.partial(count_compiles, cold=True)])
def test_lowered_before_and_compiled_now(start):
    @jax.jit
    def only_one_of_its_name(x):
        return x * 5

    lowered = only_one_of_its_name.lower(X)
    with start() as log:
        lowered.compile()
    assert log.of(only_one_of_its_name).count == log.count == 1


def test_a_cold_start_forgets_what_was_rematerialised():
    f = make(2.0)
    counts = []
    for _ in range(3):
        with count_compiles(cold=True) as log:
            jax.grad(lambda x: jax.checkpoint(f)(x).sum())(X)
        counts.append(log.count)
    assert counts[0] > 0
    assert counts == counts[:1] * 3


# -- what the user has jitted, called by JAX -------------------------------------------------

CALLED_BY_JAX = {
    "jax.tree.map": lambda f: jax.tree.map(f, {"a": X, "b": X}),
    "jax.tree_util.tree_map": lambda f: jax.tree_util.tree_map(f, {"a": X, "b": X}),
    "jnp.vectorize": lambda f: jnp.vectorize(f, signature="(n)->()")(X),
    "jnp.apply_along_axis": lambda f: jnp.apply_along_axis(f, 0, np.ones((3, 2), np.float32)),
    "jax.pure_callback": lambda f: jax.pure_callback(f, jax.ShapeDtypeStruct((), jnp.float32), X),
    "jax.grad": lambda f: jax.grad(f)(X),
}


@pytest.mark.parametrize("name", CALLED_BY_JAX)
def test_a_function_of_jax_that_the_user_jitted_is_the_users(name):
    total = jax.jit(jnp.sum)
    with count_compiles(cold=True) as log:
        jax.block_until_ready(CALLED_BY_JAX[name](total))
    assert log.of(total).count == log.count > 0


@pytest.mark.parametrize("wrap", [jax.grad, jax.vmap, jax.value_and_grad, jax.checkpoint])
def test_each_call_of_a_transformed_function(wrap):
    f = jax.jit(lambda x: x * x)
    argument = jnp.ones if wrap in (jax.vmap, jax.checkpoint) else jnp.float32
    with count_compiles(cold=True) as log:
        first, again = log.per_call(wrap(f), [argument(4), argument(4)])
    assert (first, again) == (2 if wrap in (jax.grad, jax.value_and_grad) else 1, 0)
    assert log.of(wrap(f)).count == log.of(f).count == first


# -- what is not the function that is asked for -------------------------------------------------


def test_an_object_that_holds_a_function_is_another_function():
    class Solver:
        def __init__(self, func):
            self.func = func

        def __call__(self, x):
            return self.func(x) + 1

    step = jax.jit(lambda x: x * 2)
    solve = jax.jit(Solver(step))
    with count_compiles(cold=True) as log:
        solve(X)
    assert (log.of(solve).count, log.of(step).count) == (1, 0)
    with count_compiles(cold=True) as log:
        helped = Solver(lambda x: step(x) + make(3.0)(x))
        assert log.per_call(helped, [X]) == [2]


def test_a_callable_beside_the_jitted_one_is_not_meant():
    optimize = pytest.importorskip("scipy.optimize")

    def value(x):
        return float((x**2).sum())

    slope = jax.jit(lambda x: 2 * x)
    with count_compiles(cold=True) as log:
        optimize.minimize(value, np.ones(2), jac=lambda x: np.asarray(slope(x), float))
    assert (log.of(value).count, log.of(slope).count) == (0, 1)


# -- static values --------------------------------------------------------------------------------


class Model:
    def loss(self, x):
        return x * 2


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k

    def __repr__(self):
        return "Slotted()"


def test_a_bound_method_compares_by_what_it_binds():
    traced = []

    @functools.partial(jax.jit, static_argnums=1)
    def step(x, loss):
        traced.append(1)
        return loss(x)

    one, other = Model(), Model()
    with count_compiles(cold=True) as log:
        for x, model in ((X, one), (X, one), (X[:2], one), (X[:2], other)):
            step(x, model.loss)
    assert log.count == len(traced) == 3
    assert [[r.kind for r in record.reasons] for record in log] == [
        [],
        ["shape"],
        ["static_value"],
    ]


def test_objects_that_read_the_same_and_cannot_be_referred_to_weakly():
    @functools.partial(jax.jit, static_argnums=1)
    def step(x, slotted):
        return x * slotted.k

    one, other = Slotted(1), Slotted(2)
    with count_compiles(cold=True) as log:
        step(X, one)
        step(X, other)
    assert [r.kind for r in log[-1].reasons] == ["static_value"]


# -- where JAX keeps very many traces ------------------------------------------------------------

SWITCHES = [
    "pytest_jaxcompile.recording.recorder.MANY_OF_ONE",
    "pytest_jaxcompile.jax_internals.listeners._MANY_TRACES",
]


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="its events tell of all traces")
@pytest.mark.parametrize("switch", SWITCHES)
def test_traces_are_exact_or_an_error_where_they_are_many(switch, monkeypatch):
    """Comparing each new trace with all is switched off then; outermost ones still have events."""
    monkeypatch.setattr(switch, 8)
    ran = []

    @jax.jit
    def inner(x):
        ran.append("inner")
        return x + 1

    @jax.jit
    def outer(x):
        ran.append("outer")
        return inner(x)

    @jax.jit
    def plain(x):
        ran.append("plain")
        return x

    with count_compiles(cold=True) as log:
        for n in range(1, 31):
            plain(np.ones(n, np.float32))
    assert log.of(plain).traces == ran.count("plain") == 30
    with count_compiles(cold=True) as log:
        for n in range(1, 31):
            outer(np.ones(n, np.float32))
    assert ran.count("inner") == ran.count("outer") == log.of(outer).count == 30
    with pytest.raises(CountUnavailableError, match="more traces kept by JAX than it compares"):
        log.of(inner).traces


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="its events tell of all traces")
def test_a_trace_that_fails_and_is_tried_again_is_one_where_they_are_many(monkeypatch):
    monkeypatch.setattr(SWITCHES[1], 8)
    refuse = [True]
    ended = []

    @jax.jit
    def f(x):
        if refuse:
            raise ValueError("not yet")
        ended.append(x)
        return x

    with count_compiles(cold=True) as log:
        for n in range(1, 21):
            jax.jit(lambda x: x)(np.ones(n, np.float32))
        with pytest.raises(ValueError, match="not yet"):
            f(X)
        refuse.clear()
        f(X)
    assert log.of(f).traces == len(ended) == 1


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="its events tell of all traces")
def test_few_traces_of_one_function_are_told_again_after_a_cold_start(monkeypatch):
    monkeypatch.setattr(SWITCHES[0], 8)
    inner = jax.jit(lambda x: x + 1)
    outer = jax.jit(lambda x: inner(x) * 2)
    with count_compiles(cold=True):
        for n in range(1, 21):
            outer(np.ones(n, np.float32))
        with count_compiles(cold=True) as log:
            outer(X)
        assert log.of(inner).traces == 1
