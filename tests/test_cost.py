"""Nothing is paid where nothing compiles, and nothing stays behind."""

# ruff: noqa: PT012, SIM117 -- blocks that fail, and where in them, are what is tested here

from __future__ import annotations

import gc
import logging
import sys
import tracemalloc
import weakref

import jax
import numpy as np
import pytest

from pytest_jaxcompile import CompileCountError, count_compiles

VERSION = jax.__version_info__
X3 = np.ones(3, np.float32)


# -- start-up ----------------------------------------------------------------------------

HEAVY = ("jax", "jaxlib", "numpy", "jinja2")
LATE = (
    "recording",
    "plugin.session",
    "plugin.baseline",
    "jax_internals",
    "reasons",
    "counting",
    "report",
    "command_line",
)
LOOK = """
import sys

def loaded():
    heavy = [name for name in {heavy!r} if name in sys.modules]
    late = [name for name in {late!r} if "pytest_jaxcompile." + name in sys.modules]
    return heavy, late

def test_it():
    print("LOADED in the test", *loaded())

def pytest_unconfigure():
    print("LOADED at the end", *loaded())
"""


def loaded(project, *args, extra=""):
    """What is loaded during the tests of a project without JAX, and after the last hook."""
    source = LOOK.format(heavy=HEAVY, late=LATE)
    project.makepyfile(test_it=source + extra)
    project.makeconftest(
        "import test_it\ndef pytest_unconfigure():\n    test_it.pytest_unconfigure()\n"
    )
    result = project.run_tests("-s", *args)
    result.assert_outcomes(passed=1)
    found = [line for line in result.outlines if "LOADED" in line]
    assert len(found) == 2
    return [line.rpartition("LOADED ")[2] for line in found]


def test_the_plugin_loads_nothing_heavy(project):
    assert loaded(project) == ["in the test [] []", "at the end [] []"]


def test_a_report_of_a_project_without_jax_does_not_load_it(project):
    for line in loaded(project, "--jax-compile-report"):
        assert line.partition("[")[2].startswith("] "), line


def test_a_heavy_import_would_be_seen(project):
    """Negative control: the same look at a project that does import."""
    line, _ = loaded(
        project,
        extra="\nimport numpy\nimport pytest_jaxcompile.records\n"
        "import pytest_jaxcompile.reasons\n",
    )
    assert line == "in the test ['numpy'] ['reasons']"


def test_the_package_loads_nothing(fresh):
    assert fresh(
        """
        import sys
        import pytest_jaxcompile
        dir(pytest_jaxcompile)
        before = [n for n in ("jax", "numpy", "pytest") if n in sys.modules]
        pytest_jaxcompile.CompileCountError
        after = [n for n in ("jax", "numpy", "pytest") if n in sys.modules]
        tell([before, after, sorted(set(pytest_jaxcompile.__all__) - set(dir(pytest_jaxcompile)))])
        """
    )[:2] == [[], []]


# -- the dispatch path -------------------------------------------------------------------


def test_a_cached_call_runs_none_of_our_code(log):
    """A profiler counts every Python call: ours appear while something compiles, then never."""
    import pytest_jaxcompile

    folder = pytest_jaxcompile.__path__[0]
    ours: list[str] = []

    def profile(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            ours.append(frame.f_code.co_name)

    @jax.jit
    def f(x):
        return x * 2

    x = jax.device_put(X3)
    sys.setprofile(profile)
    try:
        f(x)
        compiling = len(ours)
        ours.clear()
        for _ in range(100):
            f(x)
    finally:
        sys.setprofile(None)
    assert compiling > 0  # negative control: it is seen when it runs
    assert ours == []
    assert log.of(f).count == 1


def test_nothing_of_jax_is_replaced(fresh):
    """Functions, classes and module attributes of JAX are the same objects before and after."""
    changed = fresh(
        """
        import sys, types
        import jax, numpy as np
        from pytest_jaxcompile import count_compiles

        def attributes():
            found = {}
            for name, module in sorted(sys.modules.items()):
                if name.partition(".")[0] in ("jax", "jaxlib") and module is not None:
                    for key, value in list(vars(module).items()):
                        found[f"{name}.{key}"] = value
                        if isinstance(value, type):
                            for member, held in list(vars(value).items()):
                                found[f"{name}.{key}.{member}"] = held
            return {k: v for k, v in found.items() if callable(v) or isinstance(v, property)}

        f = jax.jit(lambda x: x * 2)
        f(np.ones(3, np.float32))
        before = attributes()
        with count_compiles(cold=True) as log:
            f(np.ones(4, np.float32))
            during = attributes()
        after = attributes()
        def moved(now):
            return sorted(k for k in before if now.get(k) is not before[k])
        control = jax.grad
        jax.grad = lambda f: f
        seen = moved(attributes())
        jax.grad = control
        tell([moved(during), moved(after), seen, log.count])
        """
    )
    assert changed[:2] == [[], []]
    assert "jax.grad" in changed[2]
    assert changed[3] == 1


# -- put back ----------------------------------------------------------------------------


def state():
    """Everything that listening could change."""
    from jax._src import monitoring

    names = [name for name in logging.root.manager.loggerDict if name.startswith("jax")]
    loggers = [logging.getLogger(name) for name in ["", *sorted(names)]]
    return {
        "listeners": {
            name: list(value)
            for name, value in vars(monitoring).items()
            if name.endswith("_listeners") and isinstance(value, list)
        },
        "loggers": [
            (x.name, x.level, x.disabled, x.propagate, list(x.filters), list(x.handlers))
            for x in loggers
        ],
        "config": {name: getattr(jax.config, name, None) for name in sorted(jax.config.values)},
        "meta_path": list(sys.meta_path),
        "hooks": (sys.getprofile(), sys.gettrace(), list(gc.callbacks)),
    }


def test_everything_is_put_back():
    f = jax.jit(lambda x: x * 2)
    with count_compiles():  # the first recording may create loggers
        f(X3)
    before = state()
    with count_compiles(cold=True) as log:
        assert state() != before  # negative control: something is put in
        f(X3)
    assert state() == before
    assert log.count == 1


def test_everything_is_put_back_after_an_exception():
    f = jax.jit(lambda x: x * 2)
    with count_compiles():
        f(X3)
    before = state()
    with pytest.raises(ValueError, match="mine"), count_compiles(cold=True) as log:
        with log.exactly(7, fail_fast=True), count_compiles():
            f(X3)
            raise ValueError("mine")
    assert state() == before
    with pytest.raises(CompileCountError), count_compiles(cold=True) as log, log.none():
        f(X3)
    assert state() == before
    with pytest.raises(KeyboardInterrupt), count_compiles():
        raise KeyboardInterrupt
    assert state() == before


def test_what_the_user_sets_meanwhile_stays():
    """Putting back what was before us must not undo what was done beside us."""
    logger = logging.getLogger("jax._src.interpreters.partial_eval")
    dispatch = logging.getLogger("jax._src.dispatch")
    levels = logger.level, dispatch.level
    try:
        with count_compiles():
            logger.setLevel(logging.ERROR)
            dispatch.setLevel(logging.ERROR)
            jax.config.update("jax_log_compiles", True)
        assert (logger.level, dispatch.level) == (logging.ERROR, logging.ERROR)
        assert jax.config.jax_log_compiles
        assert not jax.config.jax_explain_cache_misses
    finally:
        logger.setLevel(levels[0])
        dispatch.setLevel(levels[1])
        jax.config.update("jax_log_compiles", False)


# -- nothing is kept ---------------------------------------------------------------------


def test_nothing_that_the_user_dropped_is_alive():
    """Arrays, functions, jitted objects, static values, classes in trees, tracers and frames."""

    class Token:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self is other

    alive: dict[str, weakref.ref] = {}

    def make(log):
        token, held, seen = Token(), Token(), Token()
        array = jax.device_put(np.ones(5, np.float32))

        def body(x, k):
            local = Token()
            alive["a local of the body"] = weakref.ref(local)
            alive["a tracer"] = weakref.ref(x)
            return x * 2 if held else x

        jitted = jax.jit(body, static_argnums=1)
        marker = seen
        jitted(array, token)
        for name, value in {
            "a static value": token,
            "what a closure holds": held,
            "a local of the caller": marker,
            "an array": array,
            "the function": body,
            "the jitted object": jitted,
        }.items():
            alive[name] = weakref.ref(value)
        assert log.of(jitted).count == 1

    with count_compiles(cold=True) as log:
        make(log)
        jax.clear_caches()  # of JAX's own: its caches hold static values
        gc.collect()
        assert [name for name, ref in alive.items() if ref() is not None] == []
    assert log.count == 1
    keep = Token()
    alive["control"] = weakref.ref(keep)
    gc.collect()
    assert alive["control"]() is keep


def test_records_hold_text_and_numbers_only(log):
    jax.jit(lambda x, k: x * 2, static_argnums=1)({"w": X3}["w"], "k")
    (record,) = log
    plain = (str, int, float, bool, type(None))
    pending, seen = [record], set()
    while pending:
        value = pending.pop()
        if id(value) in seen or isinstance(value, plain):
            continue
        seen.add(id(value))
        if isinstance(value, tuple):
            pending.extend(value)
        else:
            assert type(value).__module__ == "pytest_jaxcompile.records", value
            pending.extend(getattr(value, name) for name in type(value).__slots__)


def test_memory_is_flat_over_recordings():
    """Twice as many recordings leave as much behind as half of them: nothing per recording."""
    f = jax.jit(lambda x: x * 2)
    f(X3)

    def record(times):
        for _ in range(times):
            with count_compiles() as log, log.none(of=f), log.exactly(0):
                f(X3)

    def growth(times):
        gc.collect()
        before = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
        record(times)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before[0], len(gc.get_objects()) - before[1]

    record(50)
    tracemalloc.start()
    try:
        growth(300)
        size, objects = growth(900)
    finally:
        tracemalloc.stop()
    assert objects < 90  # fewer than one for ten recordings
    assert size < 900 * 16


def test_memory_is_flat_over_compilations_of_functions_that_die():
    """Functions made anew and dropped: their records go with the recording, all else at once."""
    from pytest_jaxcompile.recording.functions import numbers

    def record(times):
        with count_compiles() as log:
            for _ in range(times):
                jax.jit(lambda x: x)(X3)
            assert log.count == times

    record(3)
    gc.collect()
    known = len(numbers._known)
    record(30)
    gc.collect()
    assert len(numbers._known) <= known + 3
