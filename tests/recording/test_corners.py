"""Corners of counting and of reasons that no other test looks into.

What is asserted of reasons is spelled out by hand, of the nearest signature it is compared with
a plain search, and of counts with a counter in the traced body or with JAX's own events.
"""

# ruff: noqa: PLW0108 -- a fresh function each time, and nothing of JAX's nested in its trace

from __future__ import annotations

import collections
import functools
import gc
import importlib
import logging
import pickle
import time
import warnings
import weakref
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from signatures import BASE, MESH, call, leaf, told, with_x
from test_counting import events

from pytest_jaxcompile import CountUnavailableError, count_compiles
from pytest_jaxcompile.jax_internals import listeners
from pytest_jaxcompile.reasons.lengths import Shapes
from pytest_jaxcompile.reasons.nearest import differences, distance
from pytest_jaxcompile.recording import history
from pytest_jaxcompile.recording.recorder import recorder
from pytest_jaxcompile.records import Reason, Signature, Static

VERSION = jax.__version_info__
X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def _take(seconds: float) -> None:
    """Be busy for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_sharding_that_is_given_up_is_told() -> None:
    """From a mesh back to one device, not only the other way round."""
    assert differences(with_x(BASE, **MESH), BASE) == (
        Reason("sharding", "x", "P('d',) over mesh (d: 4) on cpu:0..3", "single device on cpu:0"),
    )


def test_a_short_text_is_told_whole() -> None:
    """Only what is longer than a line can take is cut to where it differs."""
    texts = ["activation='a_rather_long_name', k=" + k for k in "12"]
    a, b = (Static(text, "m.Config", "value", hash(text)) for text in texts)
    before, after = (Signature(tree=call(), static=(("k", each),)) for each in (a, b))
    (reason,) = differences(before, after)
    assert [reason.before, reason.after] == texts


@pytest.mark.parametrize("sizes", [(3, "b"), (3, 5, "b"), ("a", "b")])
def test_a_size_that_is_no_number_tells_no_length(sizes) -> None:
    """Symbolic sizes, as ``jax.export`` has them, cannot be padded to a power of two."""
    shapes = Shapes()
    for size in sizes:
        shapes.add((size, 4))
    assert shapes.symbolic


def test_an_option_is_told_behind_a_context_that_is_not() -> None:
    """Under another transformation only JAX's own contexts are passed over."""
    before = Signature(("x",), (leaf(3),))
    after = replace(
        before,
        context=1,
        config=(("axis_env", "i"), ("jax_enable_x64", "True")),
        transform=("vmap",),
    )
    assert differences(before, after) == (
        Reason("config", None, "jax_enable_x64=False", "jax_enable_x64=True"),
        Reason("transform", None, "a plain call", "vmap"),
    )


def test_another_context_of_one_transformation_is_told() -> None:
    """Such as a named axis: nothing else of the two programs differs."""
    one = Signature(("x",), (leaf(3),), transform=("vmap",), context=1)
    assert differences(one, replace(one, context=2)) == (
        Reason("transform", None, "vmap", "vmap in another context, such as an axis name"),
    )


def test_an_array_that_changed_beside_a_new_one_is_told() -> None:
    """The paths are others, too; what both programs have is compared."""
    two = Signature(("x", "y"), (leaf(3), leaf(5)), call(x="*", y="*"))
    three = Signature(("a", "x", "y"), (leaf(7), leaf(3), leaf(6)), call(a="*", x="*", y="*"))
    assert differences(two, three) == (
        Reason("tree", "a", "absent", "an array"),
        Reason("shape", "y", "(5,)", "(6,)"),
    )


@pytest.mark.parametrize("arrays", range(250, 257))
def test_the_nearest_of_signatures_with_about_250_arrays(arrays) -> None:
    """Where the number of what can differ is near what one byte can count."""

    def wide(size, changed=0, **other):
        shapes = [size + (i < changed) for i in range(arrays)]
        return Signature(
            tuple(f"w{i}" for i in range(arrays)), tuple(leaf(n) for n in shapes), **other
        )

    far = wide(9, tree=call(x="*"), options=(("inline", "True"),), transform=("vmap",))
    near, nearly, asked = wide(3, 1), wide(3, 2), wide(3)
    assert distance(near, asked) == 1
    assert told(far, near, nearly).nearest(asked) is near


# -- traces where JAX keeps so many that not each is logged ----------------------------------


@pytest.fixture
def many(monkeypatch):
    """As if JAX kept thousands of traces already.

    The bodies are of primitives: what ``jax.numpy`` jits inside them would be more traces.
    """
    monkeypatch.setattr(listeners, "_MANY_TRACES", -1)


def test_outermost_traces_are_counted_where_many_are_kept(many, log):
    """As often as the body runs, and not where a trace that was made is used again."""
    runs = []

    @jax.jit
    def f(x):
        runs.append(1)
        return jax.lax.neg(x)

    for x in (X3, X4, X3):
        f(x)
    jax.vmap(f)(np.ones((2, 3), np.float32))
    assert log.of(f).traces == len(runs) == 2
    assert log.of(f).count == 3


def test_a_trace_made_before_is_none_where_many_are_kept(many):
    runs = []

    @jax.jit
    def f(x):
        runs.append(1)
        return jax.lax.neg(x)

    jax.eval_shape(f, X3)
    assert len(runs) == 1
    with count_compiles() as log:
        f(X3)
    assert (log.of(f).traces, log.of(f).count) == (0, 1)
    assert len(runs) == 1


@pytest.mark.parametrize("depth", [1, 2])
def test_nested_traces_are_an_error_where_many_are_kept(many, depth):
    """Whose they are cannot be told, so no number of traces is given; the others are."""
    runs = collections.Counter()

    def jitted(level):
        @jax.jit
        def f(x):
            runs[level] += 1
            return jax.lax.neg(inner(x))

        inner = jitted(level - 1) if level else lambda x: x
        return f

    f = jitted(depth)
    with count_compiles(cold=True) as log:
        f(X3)
    assert runs == dict.fromkeys(range(depth + 1), 1)
    assert (log.of(f).count, log.of(f).lowerings, log.count) == (1, 1, 1)
    if VERSION >= (0, 9):
        with pytest.raises(CountUnavailableError, match="more traces kept"):
            _ = log.of(f).traces
    else:
        assert log.traces == runs.total()
    with count_compiles(cold=True) as log:  # negative control: the next recording is sound
        jax.jit(lambda x: jax.lax.neg(x))(X3)
    assert log.traces == 1


def test_traces_without_a_call_are_an_error_where_many_are_kept(many, log):
    """``make_jaxpr`` runs the body without an event that would tell of it."""
    runs = []

    @jax.jit
    def f(x):
        runs.append(1)
        return jax.lax.neg(x)

    jax.make_jaxpr(f)(X3)
    assert len(runs) == 1
    if VERSION >= (0, 9):
        with pytest.raises(CountUnavailableError, match="more traces kept"):
            _ = log.of(f).traces
    else:
        assert log.of(f).traces == 1


def test_traces_while_many_become_few_and_many_again(monkeypatch, log):
    """The user's option is as it was while the log is off, and each trace counts once."""
    option = "jax_explain_cache_misses"
    runs = collections.Counter()

    @jax.jit
    def inner(x):
        runs["inner"] += 1
        return jax.lax.neg(x)

    @jax.jit
    def outer(x):
        runs["outer"] += 1
        return jax.lax.neg(inner(x))

    @jax.jit
    def f(x):
        runs["f"] += 1
        return jax.lax.neg(x)

    shapes = iter(range(3, 99))
    for _ in range(2):
        monkeypatch.setattr(listeners, "_MANY_TRACES", 10**6)
        outer(np.ones(next(shapes), np.float32))
        f(np.ones(next(shapes), np.float32))
        assert getattr(jax.config, option) is (VERSION >= (0, 9))
        monkeypatch.setattr(listeners, "_MANY_TRACES", -1)
        f(np.ones(next(shapes), np.float32))
        f(np.ones(next(shapes), np.float32))
        assert getattr(jax.config, option) is False
    assert runs == {"outer": 2, "inner": 2, "f": 6}
    assert [log.of(g).traces for g in (outer, inner, f)] == [2, 2, 6]


# -- what a reason says of a call ------------------------------------------------------------


def test_another_memory_is_told(log):
    """An array in the memory of the host, beside one in that of the device: two programs."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    kinds = {m.kind for m in jax.devices()[0].addressable_memories()}
    if not {"device", "pinned_host"} <= kinds:
        pytest.skip("this device has no memory of the host's that arrays can be put in")
    f = jax.jit(lambda x: x)
    for kind in ("device", "pinned_host"):
        f(jax.device_put(X3, sharding.with_memory_kind(kind)))
    assert log.of(f).count == 2
    (reason,) = log.of(f)[1].reasons
    assert (reason.kind, reason.argument) == ("sharding", "x")
    assert reason.before != reason.after
    assert "pinned_host" in reason.after
    assert "pinned_host" not in reason.before


def test_one_more_of_args_is_called_by_the_name_that_they_have(log):
    @jax.jit
    def total(first, *others):
        return first

    total(X3, X3)
    total(X3, X3, X3)
    (reason,) = log.of(total)[1].reasons
    assert (reason.kind, reason.argument) == ("tree", "others[1]")
    assert log.of(total)[1].signature.paths == ("first", "others[0]", "others[1]")


def test_an_option_that_jax_knows_by_name_and_by_number_is_told_once(log):
    def f(x, k):
        return x

    for options in ({}, {"donate_argnames": "x"}):
        jax.jit(f, static_argnames="k", **options)(jax.device_put(X3), k=2)
    (reason,) = (r for r in log.of(f)[1].reasons if r.kind == "jit_options")
    assert (reason.before, reason.after) == ("no donate_argnums", "donate_argnums=0")


def test_options_left_at_their_default_are_not_told(log):
    given = [{}, {"static_argnums": 1}, {"keep_unused": True}, {"inline": True}]
    for options in given:
        jax.jit(lambda x, k=2: x, **options)(X3)
    told = [dict(record.signature.options) for record in log]
    expected = [{name: str(value) for name, value in options.items()} for options in given]
    if VERSION >= (0, 12):  # there it says when to inline
        expected[-1] = {"inline": "Inline.JAX_LATE"}
    assert told == expected


def test_the_time_of_a_nested_trace_is_the_outer_functions(log):
    """It is told once: a later program of the inner function took no time to trace."""

    @jax.jit
    def inner(x):
        _take(0.2)
        return jax.lax.neg(x)

    @jax.jit
    def outer(x):
        return jax.lax.neg(inner(x))

    outer(X3)
    inner(X3)
    assert log.of(outer)[0].trace_seconds >= 0.2
    assert log.of(inner)[0].trace_seconds < 0.1


def test_what_compiles_inside_a_trace_is_no_time_of_the_trace(log):
    """What all records tell together fits into the time that passed."""

    @jax.jit
    def inner(x):
        for _ in range(400):
            x = jax.lax.sin(x)
        return x

    @jax.jit
    def outer(x):
        _take(0.1)
        with jax.ensure_compile_time_eval():
            k = inner(X3)
        return jax.lax.add(x, k)

    began = time.perf_counter()
    outer(X3)
    passed = time.perf_counter() - began
    (record,) = log.of(inner)
    built = record.lower_seconds + record.compile_seconds
    assert log.of(outer).count == 1
    assert built > 0.05
    assert log.all.seconds <= passed + built / 2


def test_an_object_with_a_name_of_its_own_counts_under_it(log):
    """Its class is a name only where it has none; a qualified name it need not have."""

    class Layer:
        __name__ = "dense_3"

        def __call__(self, x):
            return jax.lax.neg(x)

    layer = Layer()
    del Layer
    jax.jit(layer)(X3)
    (record,) = log.of(layer)
    assert (record.function, record.qualname) == ("dense_3", "dense_3")
    assert log.of("dense_3").count == 1


def test_drafts_that_nobody_reads_are_few(monkeypatch, log):
    """What is held of JAX's own is bounded; the records read later are the same."""
    monkeypatch.setattr(history, "_MAX_DRAFTS", 4)
    f = jax.jit(lambda x: jax.lax.neg(x))
    for n in range(3, 20):
        f(np.ones(n, np.float32))
        assert len(recorder._history._drafts) <= 4
    assert [r.signature.leaves[0].shape for r in log.of(f)] == [(n,) for n in range(3, 20)]
    assert [len(r.reasons) for r in log.of(f)] == [0] + [1] * 16
    assert [r.reasons[0].before for r in log.of(f)[1:]] == [f"({n},)" for n in range(3, 19)]


# -- programs that come without their call ---------------------------------------------------


def _sine():
    @jax.jit
    def f(x):
        return jax.lax.sin(x)

    return f


# Until 0.5 a program that comes without its call has no place in a file, only a name.
placed = pytest.mark.skipif(VERSION < (0, 5), reason="this JAX does not say where it stands")


@placed
@pytest.mark.parametrize("transform", [jax.vjp, jax.linearize])
def test_a_program_of_what_was_traced_before_the_recording(transform):
    """Found by its definition; another function of that name, alive as well, is not meant."""

    @jax.jit
    def f(x):
        return jax.lax.cos(x)

    other = _sine()
    assert other.__name__ == f.__name__
    other(X3)
    out, derived = transform(f, X3)
    with count_compiles() as log, events() as compiled:
        derived(out)
    assert (log.of(f).count, log.of(other).count) == (1, 0)
    assert log.all.count == len(compiled)
    assert [(r.function, r.defined_at) for r in log] == [
        ("f", f"{__file__}:{f.__wrapped__.__code__.co_firstlineno}")
    ]
    assert log.of(f).traces == 0


@placed
def test_a_program_of_one_of_two_functions_traced_before_is_an_error():
    """Both have one definition, and nothing is left that tells which of them it is."""
    one, two = _sine(), _sine()
    out, back = jax.vjp(one, X3)
    with count_compiles() as log:
        back(out)
        with pytest.raises(CountUnavailableError, match="2 functions could be meant"):
            _ = log.of(one).count
    with count_compiles(cold=True) as log:  # negative control: in one recording they are told
        out, back = jax.vjp(one, X3)
        back(out)
    assert (log.of(one).count, log.of(two).count) == (2, 0)


def test_a_checkpoint_is_told(log):
    f = _sine()
    jax.checkpoint(f)(X3)
    f(X4)
    assert [record.signature.transform for record in log.of(f)] == [("checkpoint",), ()]
    (reason,) = (r for r in log.of(f)[1].reasons if r.kind == "transform")
    assert (reason.before, reason.after) == ("checkpoint", "a plain call")


def test_what_was_forgotten_under_a_transformation_is_told_as_forgotten(log):
    """The function is traced again, so it is not another program of the transformation."""
    f = _sine()
    for _ in range(2):
        jax.vmap(f)(np.ones((2, 3), np.float32))
        jax.clear_caches()
    assert log.of(f).traces == log.of(f).count == 2
    assert [r.kind for r in log.of(f)[1].reasons] == ["evicted"]


def test_a_program_made_ahead_of_time_tells_its_devices(log):
    f = _sine()
    f.lower(X3).compile()
    device = jax.devices()[0]
    assert [record.signature.devices for record in log.of(f)] == [f"{device.platform}:{device.id}"]


@placed
@pytest.mark.parametrize("transform", [jax.vjp, jax.linearize])
def test_a_derived_program_is_not_that_of_the_function_called_last(log, transform):
    """Two functions of one name, and the one that runs last is not the one derived from."""

    @jax.jit
    def f(x):
        return jax.lax.cos(x)

    other = _sine()
    assert other.__name__ == f.__name__
    out, derived = transform(f, X3)
    before = log.of(f).count
    other(X3)
    with events() as compiled:
        derived(out)
    assert len(compiled) == 1
    assert (log.of(f).count, log.of(other).count) == (before + 1, 1)


def test_a_derived_program_of_a_function_of_jax_stays_an_operation():
    """Also where its forward pass ran before the recording."""
    out, back = jax.vjp(jnp.linalg.norm, X3)
    with count_compiles() as log, events() as compiled:
        back(out)
    assert log.ops.count == log.all.count == len(compiled) >= 1
    assert log.count == 0


# -- what else JAX does ----------------------------------------------------------------------

MATRIX = np.eye(3, dtype=np.float32)
CALLS = {
    "linalg.norm": lambda: jnp.linalg.norm(X3),
    "linalg.cholesky": lambda: jnp.linalg.cholesky(MATRIX),
    "linalg.solve": lambda: jnp.linalg.solve(MATRIX, X3),
    "nn.relu": lambda: jax.nn.relu(X3),
    "random.normal": lambda: jax.random.normal(jax.random.PRNGKey(0), (3,)),
    "random.permutation": lambda: jax.random.permutation(jax.random.PRNGKey(0), 5),
    "sort": lambda: jnp.sort(X3),
    "cumsum": lambda: jnp.cumsum(X3),
    "kron": lambda: jnp.kron(X3, X3),
    "vmap of sin": lambda: jax.vmap(jnp.sin)(X3),
    "add.reduce": lambda: jnp.add.reduce(X3),
    "einsum": lambda: jnp.einsum("i,i", X3, X3),
    "interp": lambda: jnp.interp(X3, X3, X3),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_jax_jits_itself_is_an_operation(name):
    """Called by the user at once, or from another function of JAX: never the user's."""
    jax.clear_caches()
    with count_compiles() as log, events() as compiled:
        CALLS[name]()
    assert log.ops.count == log.all.count == len(compiled) >= 1
    assert log.count == 0


def test_a_logger_that_was_silenced_is_so_again():
    """Traces are counted, nothing is shown, and the level is the user's afterwards."""
    logger = logging.getLogger("jax._src.interpreters.partial_eval")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with count_compiles(cold=True) as log:
            jax.jit(lambda x: jax.lax.neg(x))(X3)
            assert log.traces == 1
        assert logger.level == logging.CRITICAL
    finally:
        logger.setLevel(level)


def test_a_recording_after_listeners_were_lost_is_sound():
    """Also inside another one, which has missed something and says so."""
    from jax._src import monitoring

    lists = [
        v for k, v in vars(monitoring).items() if k.endswith("_listeners") and isinstance(v, list)
    ]
    f, logger = jax.jit(lambda x: jax.lax.neg(x)), logging.getLogger("jax._src.dispatch")
    with count_compiles(cold=True) as outer:
        f(X3)
        kept, filters = [list(found) for found in lists], list(logger.filters)
        for found in (*lists, logger.filters):
            found.clear()
        f(X4)
        with pytest.raises(CountUnavailableError):
            _ = outer.count
        for found, old in zip((*lists, logger.filters), (*kept, filters), strict=True):
            found[:] = old
        with count_compiles() as inner:
            f(np.ones(5, np.float32))
        assert inner.of(f).count == 1
        with pytest.raises(CountUnavailableError):
            _ = outer.count


def test_nothing_is_kept_of_programs_that_are_gone():
    before = len(recorder._jaxprs._kept), len(recorder._modules._kept)
    for k in range(20):
        with count_compiles(cold=True) as log:
            jax.jit(lambda x, k=k: jax.lax.mul(x, np.float32(k)))(X3)
        assert log.count == 1
    jax.clear_caches()
    gc.collect()
    after = len(recorder._jaxprs._kept), len(recorder._modules._kept)
    assert after <= tuple(n + 5 for n in before)
    assert recorder.entries == []


def test_a_pmap_tells_what_its_caller_wrote(log):
    """Its jit has options and flat arguments of JAX's own, which nobody wrote."""

    def f(x, k):
        return jax.lax.neg(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapped = jax.pmap(f, static_broadcasted_argnums=1)
        mapped(np.ones((1, 3), np.float32), 2)
    (record,) = log.of(mapped)
    assert record.signature.options == ()
    assert record.signature.paths[-1] == "x"  # until 0.7 behind an array of JAX's own
    assert [(name, value.text) for name, value in record.signature.static] == [("k", "2")]
    assert record.signature.call_form == (("k", "positional"), ("x", "positional"))


@pytest.mark.parametrize("phases", ["lower", "trace"])
def test_ahead_of_time_the_call_is_told_as_well(log, phases):
    """What its caller wrote is read when it is traced, and kept until it compiles."""

    @functools.partial(jax.jit, static_argnames="k")
    def f(x, k):
        return jax.lax.neg(x)

    def compile_for(x, k):
        lowered = f.lower(x, k=k) if phases == "lower" else f.trace(x, k=k).lower()
        lowered.compile()

    compile_for(X3, 2)
    compile_for(X4, 2)
    compile_for(X3, 3)
    static = [[(n, v.text) for n, v in r.signature.static] for r in log.of(f)]
    assert static == [[("k", "2")], [("k", "2")], [("k", "3")]]
    assert {r.signature.call_form for r in log.of(f)} == {(("k", "keyword"), ("x", "positional"))}
    assert [[r.kind for r in record.reasons] for record in log.of(f)] == [
        [],
        ["shape"],
        ["static_value"],
    ]


@pytest.mark.skipif(VERSION < (0, 8), reason="this JAX has other contexts for the two")
def test_another_checkpoint_of_one_function_is_told(log):
    """JAX traces it anew for the forward pass, though nothing was forgotten."""
    f = _sine()
    jax.grad(lambda x: jax.checkpoint(f)(x).sum())(X3)
    assert log.of(f).count == 3
    (reason,) = log.of(f)[1].reasons
    assert (reason.kind, reason.before) == ("transform", "checkpoint")
    assert reason.after == "another checkpoint of it"


def test_another_key_of_a_dictionary_is_told_by_its_name(log):
    f = jax.jit(lambda d: d["a"])
    f({"a": X3, "b": X3})
    f({"a": X3, "c": X3})
    (reason,) = log.of(f)[1].reasons
    assert (reason.kind, reason.argument) == ("tree", "d")
    assert (reason.before, reason.after) == ("dict of 2 with ['b']", "dict of 2 with ['c']")


def test_a_cache_on_disk_says_nothing_more_while_traces_are_counted(fresh):
    """JAX warns of every miss where it explains them; the user asked for no explanation."""
    said = fresh(
        """
        import logging, tempfile
        import jax, numpy as np
        from pytest_jaxcompile import count_compiles
        jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        said = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append([record.levelname, record.getMessage()])
        logging.getLogger("jax").addHandler(handler)
        with count_compiles() as log:
            jax.jit(lambda x: x * 2)(np.ones(3, np.float32))
        assert log.traces == log.count == 1
        tell([text for level, text in said if level not in ("DEBUG", "INFO")])
        """
    )
    assert said == []


def test_the_order_of_devices_is_told(fresh):
    """The same mesh over the same devices, turned round: another program."""
    devices, kinds = fresh(
        """
        import jax, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from pytest_jaxcompile import count_compiles
        f = jax.jit(lambda x: x * 2)
        with count_compiles(cold=True) as log:
            for devices in (jax.devices(), jax.devices()[::-1]):
                mesh = Mesh(np.array(devices), ("d",))
                x = np.ones(8, np.float32)
                f(jax.device_put(x, NamedSharding(mesh, PartitionSpec("d"))))
        assert log.of(f).count == 2
        tell([
            [r.signature.leaves[0].devices for r in log.of(f)],
            [reason.kind for reason in log.of(f)[1].reasons],
        ])
        """,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
    )
    assert devices == ["cpu:0..3", "cpu:3,cpu:2,cpu:1,cpu:0"]
    assert kinds == ["device"]


@pytest.mark.skipif(VERSION < (0, 9), reason="this JAX counts traces by its events")
def test_a_recording_after_traces_were_lost_is_sound():
    """Also inside another one, in which the log of traces was off for a while."""
    option = "jax_explain_cache_misses"
    f = jax.jit(lambda x: jax.lax.neg(x))
    with count_compiles(cold=True) as outer:
        jax.config.update(option, False)
        f(X3)
        jax.config.update(option, True)
        with pytest.raises(CountUnavailableError, match=option):
            _ = outer.traces
        with count_compiles() as inner:
            f(X4)
        assert inner.of(f).traces == inner.of(f).count == 1
        with pytest.raises(CountUnavailableError, match=option):
            _ = outer.traces
    assert outer.of(f).count == 2


def test_a_list_that_is_cut_begins_with_what_is_new():
    """What was read is let go; nothing that comes after it is lost."""
    f = jax.jit(lambda x: jax.lax.neg(x))
    recorder.open(traces=False)
    try:
        f(X3)
        read = len(recorder.entries)
        f(X4)
        new = recorder.entries[read:]
        with count_compiles():  # somebody else reads the list: it stays as it is
            assert recorder.trim(read) == read
            assert recorder.entries[read:] == new
        start = recorder.trim(read)
        assert recorder.entries[start:] == new != []
    finally:
        recorder.close(traces=False)


def test_the_levels_of_all_loggers_are_as_before():
    def levels():
        known = [name for name in logging.root.manager.loggerDict if name.startswith("jax")]
        return {name: logging.getLogger(name).level for name in known}

    before = levels()
    assert "jax._src.dispatch" in before
    with count_compiles(cold=True) as log:
        jax.jit(lambda x: jax.lax.neg(x))(X3)
        assert log.traces == 1
    after = levels()
    assert {name: after[name] for name in before} == before


def test_a_transformation_brings_no_configuration_of_its_own(log):
    """JAX sets contexts while it transforms; the user's options are as they were."""
    f = _sine()
    jax.grad(lambda x: f(x).sum())(X3)
    jax.vmap(f, axis_name="i")(np.ones((2, 3), np.float32))
    assert [record.signature.config for record in log.of(f)] == [(), (), ()]


def test_what_was_traced_long_before_does_not_make_a_compilation_older(log):
    f = jax.jit(lambda x: jax.lax.neg(x))
    f.trace(X3)
    _take(0.2)
    called = time.time()
    f(X3)
    (record,) = log
    assert record.start >= called - record.trace_seconds - 0.1


def test_functions_that_are_traced_and_never_compiled_are_not_kept(log):
    for n in range(300):
        jax.eval_shape(lambda x, n=n: x + n, X3)
    assert log.count == 0
    assert len(recorder._thread.traced) <= 256


LIBRARY = """
def fit(step, make, ref):
    state = make()
    watched = ref(state)
    state = step(state)
    return watched() is None
"""


def test_a_loop_of_a_library_keeps_nothing_that_it_has_let_go(tmp_path, monkeypatch, log):
    """Its frame was read while it compiled, and goes on."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "fitting_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    fit = importlib.import_module("fitting_library").fit
    step = jax.jit(lambda x: jax.lax.neg(x))
    assert fit(step, lambda: jnp.full(3, 7.0), weakref.ref)
    assert log.of(step).count == 1


def test_a_signature_travels_without_the_hash_of_this_process(log):
    jax.jit(lambda x: jax.lax.neg(x))(X3)
    signature = log[0].signature
    hash(signature)
    copied = pickle.loads(pickle.dumps(signature))
    assert copied._hash == 0
    assert copied == signature
    assert hash(copied) == hash(signature)
