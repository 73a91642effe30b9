"""A recording that starts cold counts the same, whatever ran before it in the process."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxcompile import count_compiles
from pytest_jaxcompile.recording.cold_start import start_cold

VERSION = jax.__version_info__
X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def plain(x):
    return x * 2


@jax.jit
def kept(x):
    return x * 2


@functools.partial(jax.jit, static_argnames="k")
def with_static(x, k):
    return x * k


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x):
        return x + 1

    def free(self, x):
        return x + 2


MODEL = Model()
OPTIONS = {"xla_embed_ir_in_executable": True}


def remade():
    """Jitted anew in every recording: the jitted object dies, the function lives."""
    jax.jit(plain)(X3)
    jax.jit(plain)(X4)


def remade_donating():
    jax.jit(plain, donate_argnums=0)(jax.device_put(X3))
    jax.jit(plain)(X3)


def remade_with_compiler_options():
    jax.jit(plain, compiler_options=OPTIONS)(X3)


def remade_over_a_function_of_jax():
    jax.jit(jnp.sum)(X3)
    jax.jit(jnp.linalg.norm)(X3)


def remade_over_a_bound_method():
    jax.jit(MODEL.free)(X3)


def remade_over_a_partial():
    jax.jit(functools.partial(plain))(X3)


def transformed():
    jax.vmap(kept)(np.ones((2, 3), np.float32))
    jax.grad(lambda x: kept(x).sum())(X3)


def evaluated_before():
    jax.eval_shape(plain, X3)
    jax.eval_shape(kept, X3)
    jax.jit(plain)(X3)
    kept(X3)


def ahead_of_time():
    kept.lower(X3).compile()
    jax.jit(plain).lower(X4).compile()


@jax.jit
def outer(x):
    return kept(x) + with_static(x, k=2)


def nested():
    outer(X3)
    kept(X3)


def mapped():
    jax.pmap(plain)(np.ones((1, 3), np.float32))


MAPPED = jax.pmap(plain)


def mapped_and_kept():
    MAPPED(np.ones((1, 3), np.float32))
    MAPPED(np.ones((1, 4), np.float32))


GRAD = jax.jit(jax.grad(lambda x: (x * x).sum()))
GRAD_OF_JIT = jax.jit(jax.grad(jax.jit(lambda x: (x * x).sum())))


def jitted_gradients():
    GRAD(X3)
    GRAD_OF_JIT(X3)


def filter_jit():
    equinox = pytest.importorskip("equinox")
    equinox.filter_jit(plain)(X3)


PROGRAMS = {
    # name: (what a cold recording counts, what to do)
    "module level": (2, lambda: (kept(X3), kept(X4))),
    "static": (2, lambda: (with_static(X3, k=2), with_static(X3, k=3), with_static(X3, k=2))),
    "method": (1, lambda: MODEL.step(X3)),
    "remade": (2, remade),
    "remade donating": (2, remade_donating),
    "remade with compiler options": (1, remade_with_compiler_options),
    "remade over a function of JAX": (2, remade_over_a_function_of_jax),
    "remade over a bound method": (1, remade_over_a_bound_method),
    "remade over a partial": (1, remade_over_a_partial),
    "transformed": (3, transformed),
    "evaluated before": (2, evaluated_before),
    "ahead of time": (2, ahead_of_time),
    "nested": (2, nested),
    "pmap": (1, mapped),
    "pmap kept": (2, mapped_and_kept),
    "jitted gradients": (2, jitted_gradients),
    "filter_jit": (1, filter_jit),
}


def cold(run):
    with count_compiles(cold=True) as log:
        run()
    return log.count


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_count_again_and_again(name):
    expected, run = PROGRAMS[name]
    counts = []
    for _ in range(3):
        counts.append(cold(run))
        gc.collect()
    assert counts == [expected] * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_the_same_count_in_any_order(order):
    names = list(PROGRAMS) if order == "forwards" else list(reversed(PROGRAMS))
    counts = {name: cold(PROGRAMS[name][1]) for name in names}
    assert counts == {name: PROGRAMS[name][0] for name in names}


def test_without_a_cold_start_the_order_matters():
    """Negative control: the second recording of a warm function counts nothing."""
    kept(X3)
    with count_compiles() as warm:
        kept(X3)
    assert warm.count == 0
    assert cold(lambda: kept(X3)) == 1


def test_eager_operations_stay_warm():
    """A cold start forgets users' functions, not what JAX runs ``x + 1`` with."""
    x = jax.device_put(np.ones(19, np.float32))

    def eager():
        (x + 1).sum()
        jnp.zeros(19)
        jnp.where(x > 0, x, 0)
        kept(x)

    cold(eager)
    with count_compiles(cold=True) as log:
        eager()
    assert [record.function for record in log.all] == ["kept"]
    with count_compiles() as log:
        start_cold("all")  # negative control: this forgets all
        eager()
    assert log.ops.count >= 4
    assert log.count == 1


def test_none_forgets_nothing():
    kept(X3)
    with count_compiles() as log:
        start_cold("none")
        kept(X3)
        assert log.count == 0
        start_cold()
        kept(X3)
    assert log.count == 1


def test_a_cold_start_inside_a_recording_begins_a_new_story():
    """What is compiled again only because of the cold start has no reason: it is a first time."""
    with count_compiles(cold=True) as log:
        kept(X3)
        kept(X4)
        start_cold()
        kept(X3)
    assert [[reason.kind for reason in record.reasons] for record in log] == [[], ["shape"], []]


def test_results_stay_right():
    for start in ("functions", "all"):
        start_cold(start)
        assert kept(X3).tolist() == [2, 2, 2]
        assert MODEL.step(X4).tolist() == [2] * 4
        assert jax.grad(lambda x: kept(x).sum())(X3).tolist() == [2, 2, 2]
        assert float(jnp.ones(3).sum()) == 3


def test_cold_starts_while_other_threads_call():
    """A cold start in the middle of other threads' calls leaves every result right."""
    from concurrent.futures import ThreadPoolExecutor

    def work(n):
        return [float(kept(np.full(n, i, np.float32))[0]) for i in range(20)]

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(work, n) for n in (3, 4, 5, 6)]
        for _ in range(10):
            start_cold()
        assert [r.result() for r in results] == [[2.0 * i for i in range(20)]] * 4


def test_functions_that_die_are_not_kept_alive():
    class Token:
        pass

    alive = []

    def make():
        token, other = Token(), Token()
        alive.extend((weakref.ref(token), weakref.ref(other)))

        def f(x):
            return x * 2 if token else x

        jitted = jax.jit(f)
        partial = jax.jit(functools.partial(lambda t, x: x * 3, other))
        alive.extend((weakref.ref(f), weakref.ref(jitted)))
        with count_compiles(cold=True) as log:
            jitted(X3)
            partial(X3)
            assert log.of(jitted).count == 1
        start_cold()
        return log

    log = make()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 4
    assert log.count == 2  # the records outlive the functions


def test_permutations_of_three_recordings():
    """Every order of three recordings that share functions, dropped and kept ones."""
    runs = {
        "a": (2, lambda: (kept(X3), jax.jit(plain)(X3))),
        "b": (2, lambda: (kept(X4), jax.jit(plain)(X3))),
        "c": (1, lambda: jax.jit(plain)(X3)),
    }
    for order in itertools.permutations(runs):
        assert {n: cold(runs[n][1]) for n in order} == {n: runs[n][0] for n in runs}, order
