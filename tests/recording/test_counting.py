"""Counts belong to objects: every way to jit, and only what really was compiled.

The truth comes from elsewhere: from a counter in the traced body, from arithmetic on
the shapes, and from JAX's events, counted here by a listener of the test's own.
"""

# ruff: noqa: SIM117 -- blocks that fail, and where in them, are what is tested here

from __future__ import annotations

import collections
import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxcompile import CountUnavailableError, count_compiles

VERSION = jax.__version_info__
X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)
COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def events(wanted: str = COMPILED) -> Iterator[list[str]]:
    """JAX's own word on how often something happened, failed attempts included."""
    from jax._src import monitoring

    heard: list[str] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == wanted:
            heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield heard
    finally:
        listeners = monitoring._event_duration_secs_listeners
        if listen in listeners:
            listeners.remove(listen)


# -- every spelling ----------------------------------------------------------------------


@dataclass
class Spelling:
    """One way to have a body compiled: how to call it, and what ``of=`` may be given."""

    call: Callable[[Any], Any]
    handles: list[Any]
    others: list[Any] = field(default_factory=list)
    """Handles that must not match."""
    programs: int = 1
    """Programs per shape."""
    bodies: int | None = 1
    """Runs of the body per shape."""
    traces: int | None = 1
    """Traces per shape."""
    shape: Callable[[int], Any] = lambda n: np.ones(n, np.float32)


SPELLINGS: dict[str, Callable[[Callable[[], None]], Spelling]] = {}


def spelling(make: Callable[[Callable[[], None]], Spelling]) -> Any:
    SPELLINGS[make.__name__.strip("_")] = make
    return make


def _twin() -> Any:
    """Another function of the same name, which must never be taken for the one that compiles."""

    @jax.jit
    def f(x):
        return x

    return f


@spelling
def decorator(ran):
    @jax.jit
    def f(x):
        ran()
        return x + 1

    return Spelling(f, [f, f.__wrapped__, "f"], [_twin()])


@spelling
def partial_of_jit(ran):
    @functools.partial(jax.jit, static_argnames="k")
    def f(x, k=2):
        ran()
        return x * k

    return Spelling(f, [f, f.__wrapped__, functools.partial(f, k=2)], [_twin()])


@spelling
def lambda_(ran):
    inner = lambda x: (ran(), x + 1)[1]  # noqa: E731
    f = jax.jit(inner)
    return Spelling(f, [f, inner, "<lambda>"], [lambda x: x])


@spelling
def static_self(ran):
    class Model:
        @functools.partial(jax.jit, static_argnums=0)
        def f(self, x):
            ran()
            return x + 1

    model = Model()
    return Spelling(model.f, [Model.f, model.f, "*Model.f"], [_twin()])


@spelling
def bound_method(ran):
    class Model:
        def f(self, x):
            ran()
            return x + 1

    model = Model()
    f = jax.jit(model.f)
    return Spelling(f, [f, model.f, Model.f], [Model().f, _twin()])


@spelling
def callable_instance(ran):
    class Model:
        def __call__(self, x):
            ran()
            return x + 1

    model = Model()
    f = jax.jit(model)
    return Spelling(f, [f, model], [Model(), _twin()])


@spelling
def partial(ran):
    def f(k, x):
        ran()
        return x * k

    twice = functools.partial(f, 2)
    jitted = jax.jit(twice)
    return Spelling(jitted, [jitted, twice, f], [jax.jit(functools.partial(f, 3)), _twin()])


@spelling
def jnp_sum(ran):
    f = jax.jit(jnp.sum)
    return Spelling(f, [f, "sum"], [_twin()], bodies=None)


@spelling
def jnp_zeros(ran):
    """A function that makes arrays, of JAX's own, jitted by the user with a static argument."""
    f = jax.jit(jnp.zeros, static_argnums=0)
    return Spelling(f, [f, "zeros"], [_twin()], bodies=None, shape=lambda n: n)


@spelling
def pmap(ran):
    def f(x):
        ran()
        return x + 1

    mapped = jax.pmap(f)
    return Spelling(
        mapped,
        [mapped],
        [jax.pmap(lambda x: x), _twin()],
        shape=lambda n: np.ones((1, n), np.float32),
    )


@spelling
def pjit(ran):
    module = pytest.importorskip("jax.experimental.pjit", reason="this JAX has no pjit any more")

    def f(x):
        ran()
        return x + 1

    jitted = module.pjit(f)
    return Spelling(jitted, [jitted, f, "f"], [_twin()])


@spelling
def shard_map_under_jit(ran):
    if hasattr(jax, "shard_map"):
        shard_map = jax.shard_map
    else:
        from jax.experimental.shard_map import shard_map
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")

    def f(x):
        ran()
        return x + 1

    jitted = jax.jit(shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))
    return Spelling(jitted, [jitted, f], [_twin()], bodies=None, traces=None)


@spelling
def lower_compile(ran):
    @jax.jit
    def f(x):
        ran()
        return x + 1

    return Spelling(lambda x: f.lower(x).compile()(x), [f, f.__wrapped__], [_twin()])


@spelling
def trace_lower_compile(ran):
    @jax.jit
    def f(x):
        ran()
        return x + 1

    return Spelling(lambda x: f.trace(x).lower().compile()(x), [f, "f"], [_twin()])


@spelling
def vmap_of_jit(ran):
    @jax.jit
    def f(x):
        ran()
        return x + 1

    # The body sees one row, of shape (), whatever the number of rows.
    return Spelling(jax.vmap(f), [f], [_twin()], bodies=None, traces=None)


@spelling
def jit_of_vmap(ran):
    def f(x):
        ran()
        return x + 1

    jitted = jax.jit(jax.vmap(f))
    return Spelling(jitted, [jitted, f], [_twin()])


@spelling
def grad_of_jit(ran):
    @jax.jit
    def f(x):
        ran()
        return (x * x).sum()

    return Spelling(jax.grad(f), [f], [_twin()], programs=2)  # forward and backward


@spelling
def jit_of_grad(ran):
    def f(x):
        ran()
        return (x * x).sum()

    jitted = jax.jit(jax.grad(f))
    return Spelling(jitted, [jitted, f], [_twin()])


@spelling
def jit_of_grad_of_jit(ran):
    @jax.jit
    def inner(x):
        ran()
        return (x * x).sum()

    outer = jax.jit(jax.grad(inner))
    # The inner function is traced, but nothing is compiled for it alone.
    return Spelling(outer, [outer], [_twin()])


@spelling
def custom_vjp(ran):
    @jax.custom_vjp
    def f(x):
        ran()
        return (x * x).sum()

    f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * x * g,))
    jitted = jax.jit(f)
    return Spelling(jitted, [jitted, f], [_twin()])


@spelling
def checkpoint(ran):
    def f(x):
        ran()
        return x + 1

    jitted = jax.jit(jax.checkpoint(f))
    return Spelling(jitted, [jitted, f], [_twin()])


@spelling
def filter_jit(ran):
    equinox = pytest.importorskip("equinox")

    def make(k):
        @equinox.filter_jit
        def f(x):
            if k == 1:
                ran()
            return x * k

        return f

    one, two = make(1), make(2)
    two(X3)
    return Spelling(one, [one], [two, _twin()])


@spelling
def nnx_jit(ran):
    nnx = pytest.importorskip("flax.nnx")

    @nnx.jit
    def f(x):
        ran()
        return x + 1

    return Spelling(f, [f], [_twin()])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_counts_for_its_object(name):
    """Shapes 3, 4, 3 compile 2 times the programs of one call, for every handle and no other."""
    runs: list[int] = []
    made = SPELLINGS[name](lambda: runs.append(1))
    x3, x4 = made.shape(3), made.shape(4)
    with count_compiles(cold=True) as log, events() as compiled:
        for x in (x3, x4, x3):
            made.call(x)
    assert log.all.count == len(compiled)
    assert log.count == log.lowerings == 2 * made.programs
    assert log.ops.count == len(compiled) - log.count
    for handle in made.handles:
        assert log.of(handle).count == 2 * made.programs, handle
        assert log.of(handle).lowerings == 2 * made.programs, handle
    for other in made.others:
        assert log.of(other).count == log.of(other).lowerings == log.of(other).traces == 0, other
    if made.bodies is not None:
        assert len(runs) == 2 * made.bodies
    if made.traces is not None:
        assert log.of(made.handles[0]).traces == 2 * made.traces
    assert log.disk_hits == 0


def test_a_handle_that_compiled_nothing_differs_from_one_that_did(log):
    """The comparison above can fail: another object of the same code does not match."""
    make = SPELLINGS["decorator"]
    one, two = make(lambda: None), make(lambda: None)
    one.call(X3)
    assert log.of(one.handles[0]).count == 1
    assert log.of(two.handles[0]).count == 0
    assert log.of("f").count == 1


# -- one body, several objects -----------------------------------------------------------


def test_wrappers_with_other_options_are_told_apart(log):
    """One function under three sets of options: three programs, one of each wrapper."""

    def f(x):
        return x * 2

    options = {"xla_embed_ir_in_executable": True}
    plain, other = jax.jit(f), jax.jit(f, compiler_options=options)
    donated = jax.jit(f, donate_argnums=0)
    for jitted in (plain, other, donated, plain):
        jitted(jax.device_put(X3))
    assert [log.of(j).count for j in (plain, other, donated)] == [1, 1, 1]
    assert log.of(f).count == log.of("f").count == 3
    assert log.of(plain, other).count == 2


def test_wrappers_with_equal_options_share_their_programs(log):
    def f(x):
        return x * 2

    one, two = jax.jit(f), jax.jit(f)
    one(X3)
    two(X3)
    assert log.of(one).count == log.of(two).count == log.of(f).count == 1


def test_two_functions_of_one_name(log):
    def make(k):
        @jax.jit
        def step(x):
            return x * k

        return step

    one, two = make(2), make(3)
    for n in (3, 4):
        one(np.ones(n, np.float32))
    two(X3)
    assert (log.of(one).count, log.of(two).count, log.of("step").count) == (2, 1, 3)
    assert {record.key for record in log.of(one)} != {record.key for record in log.of(two)}
    assert len(log.by_function()) == 2
    assert len(log.by_name()) == 1


def test_bound_methods_of_two_objects(log):
    class Model:
        def __init__(self, k):
            self.k = k

        def step(self, x):
            return x * self.k

    a, b = Model(2), Model(3)
    step_a, step_b = jax.jit(a.step), jax.jit(b.step)
    step_a(X3)
    step_a(X4)
    step_b(X3)
    assert (log.of(a.step).count, log.of(b.step).count, log.of(Model.step).count) == (2, 1, 3)


def test_filter_jit_on_methods_of_two_classes(log):
    equinox = pytest.importorskip("equinox")

    class A(equinox.Module):
        @equinox.filter_jit
        def step(self, x):
            return x + 1

    class B(equinox.Module):
        @equinox.filter_jit
        def step(self, x):
            return x + 2

    a = A()
    a.step(X3)
    a.step(X4)
    B().step(X3)
    assert (log.of(A.step).count, log.of(B.step).count) == (2, 1)
    assert log.of("*A.step").count == 2


def test_nested_functions(log):
    """An inner function is traced inside the outer and compiled only when called itself."""
    runs = collections.Counter()

    @jax.jit
    def inner(x):
        runs["inner"] += 1
        return x * 2

    @jax.jit
    def outer(x):
        runs["outer"] += 1
        return inner(x) + inner(x + 1)

    outer(X3)
    assert (log.of(outer).count, log.of(inner).count) == (1, 0)
    assert (log.of(outer).traces, log.of(inner).traces) == (runs["outer"], runs["inner"]) == (1, 1)
    inner(X3)
    assert log.of(inner).count == 1
    assert log.of(inner).traces == runs["inner"] == 1


def test_traces_of_transformed_functions(log):
    """``vmap`` and ``grad`` of a jitted function compile again without running the body again."""
    runs = []

    @jax.jit
    def f(x):
        runs.append(1)
        return x.sum() * 2

    f(X3)
    jax.vmap(f)(np.ones((2, 3), np.float32))
    jax.grad(f)(X3)
    assert log.of(f).traces == len(runs) == 1
    assert log.of(f).count == log.of(f).lowerings == 4


BODIES = {
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, v: (f(c), v), x, np.ones(2))[0],
    "cond": lambda f: lambda x: jax.lax.cond(x[0] > 0, f, lambda v: v, x),
    "while_loop": lambda f: lambda x: jax.lax.while_loop(lambda v: v[0] < 0, f, x),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "hessian": lambda f: jax.hessian(lambda x: f(x).sum()),
    "an inner jit": jax.jit,
    "eval_shape": lambda f: lambda x: (jax.eval_shape(lambda v: v, x), f(x))[1],
    "checkpoint": jax.checkpoint,
    "a gradient of an inner jit": lambda f: jax.grad(jax.jit(lambda x: f(x).sum())),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_a_traced_body_calls_is_not_another_trace_of_it(log, name):
    """Control flow and transformations inside a jitted function: one trace of the function."""
    jitted = jax.jit(BODIES[name](lambda x: x * 2))
    jitted(X3)
    jitted(X3)
    view = log.of(jitted)
    assert (view.traces, view.lowerings, view.count) == (1, 1, 1)
    assert log.count == 1


def test_ahead_of_time_phases_one_by_one(log):
    runs = []

    @jax.jit
    def f(x):
        runs.append(1)
        return x * 2

    def numbers():
        return log.of(f).traces, log.of(f).lowerings, log.of(f).count

    traced = f.trace(X3)
    assert numbers() == (1, 0, 0)
    lowered = traced.lower()
    assert numbers() == (1, 1, 0)
    lowered.compile()
    assert numbers() == (1, 1, 1)
    f(X3)
    assert len(runs) == 1
    if VERSION >= (0, 5):  # before, an executable made ahead of time is not the call's
        assert numbers() == (1, 1, 1)


# -- failures count as none --------------------------------------------------------------


def test_a_failed_trace_counts_as_none(log):
    fail = [True]

    @jax.jit
    def f(x):
        if fail:
            raise ValueError("as asked")
        return x * 2

    for _ in range(2):
        with pytest.raises(ValueError, match="as asked"):
            f(X3)
    assert (log.of(f).traces, log.of(f).lowerings, log.of(f).count) == (0, 0, 0)
    fail.clear()
    f(X3)
    assert (log.of(f).traces, log.of(f).lowerings, log.of(f).count) == (1, 1, 1)


def test_a_failed_inner_trace_counts_as_none(log):
    """The inner function fails and the outer goes on without it."""

    @jax.jit
    def inner(x):
        raise ValueError("as asked")

    @jax.jit
    def outer(x):
        with contextlib.suppress(ValueError):
            inner(x)
        return x * 2

    outer(X3)
    assert (log.of(outer).traces, log.of(outer).count) == (1, 1)
    assert (log.of(inner).traces, log.of(inner).count) == (0, 0)


def test_a_failed_lowering_counts_as_none(log):
    from jax.extend import core as extend

    primitive = getattr(extend, "Primitive", None) or pytest.skip("no jax.extend.core.Primitive")
    unlowered = primitive("unlowered")
    unlowered.def_abstract_eval(lambda x: x)

    @jax.jit
    def f(x):
        return unlowered.bind(x)

    for _ in range(2):
        with pytest.raises(NotImplementedError):
            f(X3)
    assert (log.of(f).traces, log.of(f).lowerings, log.of(f).count) == (1, 0, 0)


def test_a_failed_compilation_counts_as_none(log):
    """JAX's event says that something was compiled; nothing was."""
    ffi = getattr(jax, "ffi", None) or pytest.skip("no jax.ffi in this JAX")

    @jax.jit
    def f(x):
        call = ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return call(x)

    with events() as attempts:
        for _ in range(2):
            with pytest.raises(Exception, match="no_such_target"):
                f(X3)
    assert len(attempts) >= 1
    assert (log.of(f).lowerings, log.of(f).count, log.count) == (1, 0, 0)


# -- threads -----------------------------------------------------------------------------


def test_other_threads(log):
    @jax.jit
    def f(x):
        return x * 2

    threads = [
        threading.Thread(target=f, args=(np.ones(n, np.float32),), name=f"worker-{n}")
        for n in (3, 4, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    f(X3)
    assert log.of(f).count == log.of(f).traces == log.of(f).lowerings == 3
    assert {r.thread: r.signature.leaves[0].shape for r in log} == {
        f"worker-{n}": (n,) for n in (3, 4, 5)
    }


def test_four_threads_compile_at_once(log):
    """Eight functions over four threads, each for two shapes; same-named ones are told apart."""

    def make(k):
        @jax.jit
        def step(x):
            return x * k

        return step

    steps = [make(k) for k in range(8)]
    gate = threading.Barrier(4)

    def work(index):
        gate.wait()
        for step in steps[index::4]:
            step(X3)
            step(X4)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [log.of(step).count for step in steps] == [2] * 8
    assert [log.of(step).traces for step in steps] == [2] * 8
    assert log.count == 16


def test_one_function_called_first_by_four_threads(log):
    """Threads that meet at one first call share a compilation or make their own: as JAX says."""
    gate = threading.Barrier(4)

    @jax.jit
    def f(x):
        return x * 2

    def work(_):
        gate.wait()
        return f(X3)

    with events() as compiled, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert log.of(f).count == len(compiled) >= 1


# -- eager operations --------------------------------------------------------------------


def test_eager_operations_are_told_from_functions_of_the_same_name(log):
    """``a + b`` runs a jitted ``add`` of JAX's; the user's ``add`` is another function."""

    @jax.jit
    def add(a, b):
        return a * b

    x, y = jax.device_put(np.ones(6, np.float32)), jax.device_put(np.ones(7, np.float32))
    with events() as compiled:
        add(x, x)
        with jax.default_matmul_precision("highest"):  # nobody ran this addition before
            y + y
    assert log.of(add).count == 1
    assert log.count == 1
    assert log.ops.count == len(compiled) - 1 >= 1
    assert not any(record.eager_op for record in log)
    assert all(record.eager_op for record in log.ops)


def test_functions_of_jax_that_the_user_jits_are_the_users(log):
    total, zeros = jax.jit(jnp.sum), jax.jit(jnp.zeros, static_argnums=0)
    total(X3)
    zeros(11)
    assert (log.of(total).count, log.of(zeros).count) == (1, 1)
    assert log.count == 2
    assert {record.function for record in log} == {"sum", "zeros"}


def test_eager_reductions_are_not_the_users_sum(log):
    total = jax.jit(jnp.sum)
    x = jax.device_put(np.ones(13, np.float32))
    with jax.default_matmul_precision("high"):
        jnp.sum(x)
    assert log.ops.count >= 1
    assert (log.count, log.of(total).count) == (0, 0)


def test_eager_scan_and_cond_are_operations(log):
    def body(carry, x):
        return carry + x, carry

    x = jax.device_put(np.ones(3, np.float32))
    jax.lax.scan(body, np.float32(0), x)
    jax.lax.cond(True, lambda v: v + 1, lambda v: v - 1, x)
    jax.lax.while_loop(lambda v: v.sum() < 0, lambda v: v + 1, x)
    assert log.count == 0
    assert log.ops.count == log.all.count >= 3


def test_functions_of_a_library_are_no_eager_operations(log):
    """What a library jits at its top counts as a user's: the user can do something about it."""
    optax = pytest.importorskip("optax")
    state = jax.jit(optax.sgd(0.1).init)
    state({"w": X3})
    assert log.count == 1
    assert log.ops.count == 0


# -- records -----------------------------------------------------------------------------


def test_records_say_where_and_with_what(log):
    @jax.jit
    def f(x, n):
        return x * n

    f(X3, 2)
    (record,) = log.of(f)
    assert record.function == "f"
    assert record.qualname.endswith("test_records_say_where_and_with_what.<locals>.f")
    assert record.module == __name__
    assert record.called_from is not None
    assert record.called_from.rpartition(":")[0] == __file__
    assert record.defined_at is not None
    assert record.defined_at.rpartition(":")[0] == __file__
    assert str(record.signature) == "(f32[3], i32[]{weak_type=True})"
    assert [argument.path for argument in record.signature.arguments] == ["x", "n"]
    assert record.reasons == ()
    with pytest.raises(AttributeError):
        record.function = "g"


def test_seconds_are_positive_and_add_up(log):
    """Nested compilations are inside the outer function's time and counted once."""

    @jax.jit
    def outer(x):
        with jax.ensure_compile_time_eval():
            k = jnp.sin(np.float32(1.25)) + jnp.arange(17.0).sum()
        return x * k

    outer(X3)
    (record,) = log.of(outer)
    assert min(record.trace_seconds, record.lower_seconds, record.compile_seconds) >= 0
    assert record.seconds > 0
    assert record.seconds == pytest.approx(
        record.trace_seconds + record.lower_seconds + record.compile_seconds
    )
    assert log.all.seconds == pytest.approx(log.seconds + log.ops.seconds)
    first = min(r.start for r in log.all)
    last = max(r.start + r.seconds for r in log.all)
    # Own times of what ran one inside the other on one thread fit into the time that passed.
    assert log.all.seconds <= (last - first) * 1.05 + sum(r.seconds for r in log.ops)


def test_disk_hits_are_compilations(fresh):
    """The persistent cache serves a compilation: it counts, and is told as a disk hit."""
    found = fresh(
        """
        import tempfile
        import jax, numpy as np
        from pytest_jaxcompile import count_compiles
        jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        x = np.ones(3, np.float32)
        f, g = jax.jit(lambda x: x * 2), jax.jit(lambda x: x * 3)
        found = []
        for _ in range(2):
            with count_compiles(cold=True) as log:
                f(x), g(x)
            found.append([log.count, log.disk_hits, [r.disk_hit for r in log]])
        tell(found)
        """
    )
    assert found == [[2, 0, [False, False]], [2, 2, [True, True]]]


def test_the_events_of_a_run_are_counted_once(log):
    """Recordings inside recordings each see everything of their stretch, once."""

    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    with count_compiles() as inner:
        f(X4)
    f(np.ones(5, np.float32))
    assert (log.of(f).count, inner.of(f).count) == (3, 1)
    assert inner.traces == 1


def test_disabled_jit_is_an_error_where_a_check_asks(log):
    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    with warnings.catch_warnings(), jax.disable_jit():
        with pytest.raises(CountUnavailableError, match="jax_disable_jit"):
            log.exactly(0, of=f).__enter__()
    with log.none(of=f):  # negative control: without it the same question is answered
        f(X3)
