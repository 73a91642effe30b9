"""Other tools that look into JAX at the same time: right counts, and their output as without us.

Each program runs twice in fresh processes, with a recording and without. What it logs, warns
and prints must be the same but for times.
"""

from __future__ import annotations

import textwrap

import jax
import numpy as np
import pytest

from pytest_jaxcompile import CountUnavailableError, count_compiles

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)

AROUND = """
import contextlib, io, logging, re, sys, traceback, warnings
ours = sys.argv[1] == "with"
stream = io.StringIO()
sys.stderr = stream
sys.excepthook = lambda *error: traceback.print_exception(*error, file=sys.__stderr__)
warnings.simplefilter("always")
warnings.showwarning = lambda m, c, *a, **k: stream.write(f"{{c.__name__}}: {{m}}\\n")
import jax, numpy as np
import jax.numpy as jnp
X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)

def recording():
    if ours:
        from pytest_jaxcompile import count_compiles
        return count_compiles()
    return contextlib.nullcontext()

@jax.jit
def inner(x): return x + 1

@jax.jit
def f(x): return inner(x) * 2

def numbers(log):
    if log is None:
        return None
    found = [log.of(f).count, log.of(f).lowerings]
    try:
        return found + [log.of(f).traces, log.of(inner).traces]
    except Exception as error:
        return found + [type(error).__name__]

{body}

text = re.sub(r"\\d{{4}}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d,\\d+", "TIME", stream.getvalue())
text = re.sub(r"\\d+\\.\\d+(e-?\\d+)?", "N", text)
text = re.sub(r"0x[0-9a-f]+|id=\\d+|\\b\\d{{6,}}\\b", "ADDRESS", text)
tell([found, text.splitlines()])
"""


@pytest.fixture
def both(fresh):
    """Run a program with a recording and without; its numbers, and its output both times."""

    def run(*parts, env=None):
        program = AROUND.format(body="\n".join(map(textwrap.dedent, parts)))
        found, with_us = fresh(program, "with", env=env)
        _, without = fresh(program, "without", env=env)
        return found, with_us, without

    return run


def lines(text, word):
    return [line for line in text if word in line]


CALLS = """
with recording() as log:
    f(X3), f(X4), f(X3)
    (jax.device_put(X3) + 1).sum()
    found = numbers(log)
"""


def test_nothing_is_logged_by_default(both):
    found, with_us, without = both(CALLS)
    assert found == [2, 2, 2, 2]
    assert with_us == without == []


def test_log_compiles(both):
    """``jax_log_compiles`` says the same with and without a recording."""
    found, with_us, without = both('jax.config.update("jax_log_compiles", True)', CALLS)
    assert found == [2, 2, 2, 2]
    assert len(lines(without, "Compiling")) >= 4  # negative control: it does say something
    assert with_us == without


def test_log_compiles_around_a_block(both):
    found, with_us, without = both(
        """
        with recording() as log:
            f(X3)
            with jax.log_compiles():
                f(X4)
            f(np.ones(5, np.float32))
            found = numbers(log)
        """
    )
    assert found == [3, 3, 3, 3]
    assert without
    assert with_us == without


def test_explanations_of_cache_misses_that_the_user_asked_for(both):
    """Turned on by the user before, they are shown as ever."""
    found, with_us, without = both('jax.config.update("jax_explain_cache_misses", True)', CALLS)
    assert found == [2, 2, 2, 2]
    assert len(lines(without, "TRACING CACHE MISS")) >= 2
    assert with_us == without


def test_explanations_turned_on_for_one_block(both):
    """Shown for the block and not for what is around it, also with a recording around both."""
    found, with_us, without = both(
        """
        with recording() as log:
            f(X3)
            with jax.explain_cache_misses(True):
                f(X4)
            f(np.ones(5, np.float32))
            found = numbers(log)
        """
    )
    assert found == [3, 3, 3, 3]
    assert len(lines(without, "TRACING CACHE MISS")) >= 1
    assert with_us == without


def test_explanations_turned_off_in_the_middle(both):
    """Then traces cannot be counted on every JAX; the rest can."""
    found, with_us, without = both(
        """
        with recording() as log:
            f(X3)
            jax.config.update("jax_explain_cache_misses", False)
            f(X4)
            found = numbers(log)
        """
    )
    assert found in ([2, 2, 2, 2], [2, 2, "CountUnavailableError"])
    assert with_us == without


def test_a_logging_level_from_the_environment(both):
    """``JAX_LOGGING_LEVEL=DEBUG``: much output, and the same as without us."""
    found, with_us, without = both(CALLS, env={"JAX_LOGGING_LEVEL": "DEBUG"})
    assert found == [2, 2, 2, 2]
    assert len(without) > 10
    assert with_us == without


def test_debug_log_of_single_modules(both):
    modules = "jax._src.interpreters.pxla,jax._src.dispatch,jax._src.interpreters.partial_eval"
    found, with_us, without = both(
        'logging.getLogger("jax").addHandler(logging.StreamHandler(stream))',
        f'jax.config.update("jax_debug_log_modules", {modules!r})',
        CALLS,
    )
    assert found == [2, 2, 2, 2]
    assert len(lines(without, "Compiling")) >= 2
    assert with_us == without


def test_handlers_of_the_user(both):
    """A handler on the root logger at DEBUG sees what it would see without us, no more."""
    found, with_us, without = both(
        """
        seen = []
        class Handler(logging.Handler):
            def emit(self, record):
                if record.name.startswith("jax"):
                    seen.append(f"{record.levelname} {record.name} {record.getMessage()}")
        logging.getLogger().addHandler(Handler())
        logging.getLogger().setLevel(logging.DEBUG)
        """,
        CALLS,
        "stream.write('\\n'.join(seen))",
    )
    assert found == [2, 2, 2, 2]
    assert len(without) > 5
    assert with_us == without


def test_logging_that_is_turned_off(both):
    """Loggers disabled or silenced in the middle: counts stay right, traces or an error."""
    found, _, _ = both(
        """
        import logging.config
        found = []
        ways = {
            "dictConfig": lambda: logging.config.dictConfig(
                {"version": 1, "disable_existing_loggers": True}),
            "disable": lambda: logging.disable(logging.CRITICAL),
            "one logger": lambda: setattr(
                logging.getLogger("jax._src.interpreters.partial_eval"), "disabled", True),
            "level": lambda: logging.getLogger("jax").setLevel(logging.CRITICAL),
            "nothing": lambda: None,
        }
        for way in ways.values():
            jax.clear_caches()
            with recording() as log:
                f(X3)
                way()
                f(X4)
                found.append(numbers(log))
            logging.disable(logging.NOTSET)
            logging.getLogger("jax").setLevel(logging.NOTSET)
            for name in list(logging.root.manager.loggerDict):
                logging.getLogger(name).disabled = False
        """
    )
    right, unknown = [2, 2, 2, 2], [2, 2, "CountUnavailableError"]
    assert all(numbers in (right, unknown) for numbers in found), found
    assert found[-1] == right  # negative control: left alone, traces are counted again


def test_other_listeners(both):
    """Listeners of others hear the same events, and stay when the recording ends."""
    found, with_us, without = both(
        """
        heard = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **more: heard.append(event))
        jax.monitoring.register_event_listener(lambda event, **more: heard.append(event))
        """,
        CALLS,
        "f(np.ones(6, np.float32))",
        "stream.write('\\n'.join(heard))",
    )
    assert found == [2, 2, 2, 2]
    assert len(without) > 6
    assert with_us == without


def test_listeners_that_are_cleared(log):
    """``clear_event_listeners`` takes ours too: counted on, or told."""

    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    jax.monitoring.clear_event_listeners()
    f(X4)
    assert (log.of(f).count, log.of(f).lowerings, log.of(f).traces) == (2, 2, 2)


def test_all_listeners_lost_for_good_is_an_error():
    """Where nothing is left that could tell us, no number is given."""
    from jax._src import monitoring

    f = jax.jit(lambda x: x * 2)
    lists = [
        v for k, v in vars(monitoring).items() if k.endswith("_listeners") and isinstance(v, list)
    ]
    with count_compiles(cold=True) as log:
        f(X3)
        assert log.count == 1  # negative control
        kept = [list(found) for found in lists]
        for found in lists:
            found.clear()
        filters = _drop_filters()
        f(X4)
        with pytest.raises(CountUnavailableError):
            _ = log.count
        with pytest.raises(CountUnavailableError), log.exactly(0):
            pass
        for logger, held in filters:
            logger.filters[:] = held
        for found, old in zip(lists, kept, strict=True):
            found[:] = old
    with count_compiles(cold=True) as log:
        f(X3)
    assert log.count == 1


def _drop_filters():
    import logging

    logger = logging.getLogger("jax._src.dispatch")
    held = list(logger.filters)
    logger.filters.clear()
    return [(logger, held)]


def test_counters_of_chex_and_equinox(log):
    """They count in the traced body; both see the same, and neither the other."""
    chex = pytest.importorskip("chex")
    equinox = pytest.importorskip("equinox")
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=2)
    def f(x):
        return x * 2

    @equinox.filter_jit
    @equinox.debug.assert_max_traces(max_traces=2)
    def g(x):
        return x * 2

    for n in (3, 4, 3):
        f(np.ones(n, np.float32))
        g(np.ones(n, np.float32))
    assert (log.of(f).count, log.of(f).traces) == (2, 2)
    assert log.of(g).count == 2
    assert equinox.debug.get_num_traces(g) == 2
    with pytest.raises(AssertionError):  # theirs still raise
        f(np.ones(5, np.float32))
    with pytest.raises(RuntimeError):
        g(np.ones(5, np.float32))
    assert (log.of(f).count, log.of(g).count) == (2, 2)
    chex.clear_trace_counter()


def test_checking_leaks(log):
    """Under ``checking_leaks`` JAX caches less; it must find no leak that is ours."""

    @jax.jit
    def f(x):
        return x * 2

    with jax.checking_leaks():
        f(X3)
        f(X4)
        counted = log.of(f).count
    assert counted == log.of(f).lowerings >= 2
    leaked = []

    @jax.jit
    def leaks(x):
        leaked.append(x)
        return x

    with jax.checking_leaks(), pytest.raises(Exception, match=r"[Ll]eak"):
        leaks(X3)  # negative control


def test_disabled_jit(log):
    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    with jax.disable_jit():
        f(X4)  # no compilation of f: only of the operations in it
        with pytest.raises(CountUnavailableError, match="jax_disable_jit"), log.exactly(1):
            pass
        with pytest.raises(CountUnavailableError, match="jax_disable_jit"):
            log.per_call(f, [X3])
    assert log.of(f).count == log.of(f).traces == 1
    f(X4)
    assert log.of(f).count == 2


def test_disabled_jit_on_entry_or_exit_only(log):
    f = jax.jit(lambda x: x * 2)
    jax.config.update("jax_disable_jit", True)
    try:
        with pytest.raises(CountUnavailableError):
            log.none(of=f).__enter__()
    finally:
        jax.config.update("jax_disable_jit", False)
    block = log.exactly(0)
    block.__enter__()
    with jax.disable_jit(), pytest.raises(CountUnavailableError):
        block.__exit__(None, None, None)


def test_no_tracing(log):
    """``jax.no_tracing`` raises at a trace; what failed counts as none."""
    if not hasattr(jax, "no_tracing"):
        from jax._src.config import no_tracing
    else:
        no_tracing = jax.no_tracing

    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    with no_tracing():
        f(X3)
        with pytest.raises(RuntimeError, match="no_tracing"):
            f(X4)
    assert (log.of(f).count, log.of(f).traces) == (1, 1)


def test_caches_cleared_and_config_changed_in_the_middle(log):
    @jax.jit
    def f(x):
        return x * 2

    f(X3)
    jax.clear_caches()
    f(X3)
    assert (log.of(f).count, log.of(f).traces) == (2, 2)
    before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        f(X3)
        assert (log.of(f).count, log.of(f).traces) == (3, 3)
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    f(X3)
    assert log.of(f).count == 3
    assert [[r.kind for r in record.reasons] for record in log.of(f)] == [
        [],
        ["evicted"],
        ["config"],
    ]


def test_a_profiler_and_a_tracer_of_python(log):
    """``sys.settrace`` and ``sys.setprofile`` of a debugger or of coverage see us and pass."""
    import sys

    @jax.jit
    def f(x):
        return x * 2

    calls = []

    def trace(frame, event, arg):
        calls.append(event)
        return trace

    old = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(lambda *a: None)
    try:
        f(X3)
    finally:
        sys.settrace(old[0])
        sys.setprofile(old[1])
    assert calls
    assert (log.of(f).count, log.of(f).traces) == (1, 1)
