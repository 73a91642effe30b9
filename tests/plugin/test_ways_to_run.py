"""Counts are right however the tests are run: workers, reruns, threads, async, devices."""

from __future__ import annotations

import importlib.util
import json

import pytest

F = """
import jax, jax.numpy as jnp, numpy as np
import pytest

def x(n):
    return np.ones(n, np.float32)

@jax.jit
def f(a):
    return a * 2
"""


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def report(project, name="found.json"):
    return json.loads((project.path / name).read_text())


def counts(data):
    """Compilations of users' functions per test."""
    operations = [f["eager_op"] for f in data["functions"]]
    return {
        test["id"].partition("::")[2]: sum(
            not operations[c["function"]] for c in test["compilations"]
        )
        for test in data["tests"]
    }


JSON = "--jax-compile-json=found.json"
FOUR = F + "".join(
    f"""
def test_{name}(jax_compiles):
    for n in range({n}):
        f(x(3 + n))
    assert jax_compiles.count == {n}
"""
    for name, n in [("a", 1), ("b", 2), ("c", 3), ("d", 0)]
)


# -- workers -----------------------------------------------------------------------------


@needs("xdist")
@pytest.mark.parametrize("dist", ["load", "loadfile", "worksteal"])
def test_workers(project, dist):
    project.makepyfile(test_it=FOUR)
    result = project.run_tests(JSON, "-n2", f"--dist={dist}", plugins=("xdist",))
    result.assert_outcomes(passed=4)
    data = report(project)
    assert counts(data) == {"test_a": 1, "test_b": 2, "test_c": 3, "test_d": 0}
    assert data["complete"] is True
    assert data["totals"]["compilations"] == 6
    workers = {c["worker"] for test in data["tests"] for c in test["compilations"]}
    assert workers <= {"gw0", "gw1"}


@needs("xdist")
def test_a_worker_that_crashes(project):
    """Its test is lost, the others count, and the report says that it is incomplete."""
    project.makepyfile(test_it=FOUR + "\ndef test_crash():\n    import os\n    os._exit(3)\n")
    result = project.run_tests("--jax-compile-report", JSON, "-n2", plugins=("xdist",))
    assert result.parseoutcomes() == {"passed": 4, "failed": 1}
    result.stdout.fnmatch_lines(["*JAX compilations*", "*ncomplete*"])
    data = report(project)
    assert data["complete"] is False
    found = counts(data)
    assert {name: found[f"test_{name}"] for name in "abcd"} == {"a": 1, "b": 2, "c": 3, "d": 0}


@needs("pytest_forked")
def test_forked(project):
    """Each test in a forked child: what it asserts holds, and the parent counts nothing twice."""
    project.makepyfile(test_it="def test_it(): pass\n")
    if project.runpytest_subprocess("--forked", "-p", "pytest_forked").ret != 0:
        pytest.skip("pytest-forked does not work with this pytest")
    project.makepyfile(test_it=FOUR)
    result = project.run_tests("--forked", plugins=("pytest_forked",))
    result.assert_outcomes(passed=4)


# -- plugins that run tests otherwise ----------------------------------------------------


@needs("pytest_randomly")
def test_random_order(project):
    project.makepyfile(test_it=FOUR)
    for seed in ("1", "2"):
        result = project.run_tests(
            JSON, "-p", "no:cacheprovider", f"--randomly-seed={seed}", plugins=("pytest_randomly",)
        )
        result.assert_outcomes(passed=4)
        assert counts(report(project)) == {"test_a": 1, "test_b": 2, "test_c": 3, "test_d": 0}


@needs("pytest_rerunfailures")
def test_a_rerun_starts_cold_and_counts_anew(project):
    project.makepyfile(
        test_it=F
        + """
runs = []
def test_flaky(jax_compiles):
    runs.append(1)
    f(x(3)), f(x(4))
    assert jax_compiles.count == 2
    assert len(runs) == 3

@pytest.mark.jax_compiles(exactly=1)
def test_wrong_each_time():
    f(x(3)), f(x(4))
"""
    )
    result = project.run_tests(JSON, "--reruns=2", plugins=("pytest_rerunfailures",))
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, "rerun": 4}
    data = report(project)
    assert counts(data) == {"test_flaky": 2, "test_wrong_each_time": 2}
    assert data["totals"]["compilations"] == 4


@needs("pytest_asyncio", "anyio")
def test_async_tests(project):
    project.makepyfile(
        test_asyncio=F
        + """
import asyncio

@pytest.mark.asyncio
@pytest.mark.jax_compiles(exactly=3)
async def test_tasks(jax_compiles):
    async def call(n):
        await asyncio.sleep(0)
        f(x(n))
    await asyncio.gather(call(3), call(4))
    await asyncio.to_thread(f, x(5))
    assert jax_compiles.count == 3

@pytest.mark.asyncio
@pytest.mark.jax_compiles(exactly=0)
async def test_wrong():
    f(x(3))
""",
        test_anyio=F
        + """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_it(jax_compiles):
    f(x(3))
    with jax_compiles.none():
        f(x(3))
    assert jax_compiles.count == 1
""",
    )
    result = project.run_tests(
        JSON,
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        plugins=("pytest_asyncio.plugin", "anyio.pytest_plugin"),
    )
    result.assert_outcomes(passed=2, failed=1)
    assert counts(report(project)) == {"test_tasks": 3, "test_wrong": 1, "test_it": 1}


def test_hypothesis(project):
    """``@given`` on a test with the fixture or the marker: all examples are one test."""
    project.makepyfile(
        test_it=F
        + """
from hypothesis import HealthCheck, given, settings, strategies as st
SETTINGS = settings(max_examples=8, deadline=None, database=None, derandomize=True,
                    suppress_health_check=list(HealthCheck))

seen = set()

@SETTINGS
@given(n=st.integers(1, 3))
def test_fixture(jax_compiles, n):
    seen.add(n)
    f(x(n))
    assert jax_compiles.of(f).count == len(seen)

@SETTINGS
@given(n=st.integers(1, 2))
@pytest.mark.jax_compiles(at_most=2, of=f)
def test_marker(n):
    f(x(n))

@SETTINGS
@given(n=st.integers(1, 3))
def test_blocks(jax_compiles, n):
    with jax_compiles.at_most(1, of=f):
        f(x(n))
    with jax_compiles.none():
        f(x(n))

@SETTINGS
@given(n=st.integers(1, 3))
@pytest.mark.jax_compiles(exactly=0)
def test_wrong(n):
    f(x(n))
"""
    )
    result = project.run_tests(plugins=("_hypothesis_pytestplugin",))
    result.assert_outcomes(passed=3, failed=1)


@needs("pytest_timeout", "pytest_cov", "pytest_benchmark", "coverage")
def test_timeout_cov_and_benchmark(project):
    project.makepyfile(
        test_it=F
        + """
@pytest.mark.timeout(300)
def test_timed(jax_compiles):
    f(x(3))
    assert jax_compiles.count == 1

def test_benchmark(benchmark, jax_compiles):
    benchmark.pedantic(f, args=(x(3),), rounds=5, warmup_rounds=1)
    assert jax_compiles.count == 1
    with jax_compiles.none():
        benchmark._mode = None
        f(x(3))
"""
    )
    result = project.run_tests(
        JSON,
        "--cov=test_it",
        "--timeout=300",
        plugins=("pytest_timeout", "pytest_cov.plugin", "pytest_benchmark.plugin"),
    )
    result.assert_outcomes(passed=2)
    assert counts(report(project)) == {"test_timed": 1, "test_benchmark": 1}
    result.stdout.fnmatch_lines(["*test_it.py*%*"])


# -- options of pytest -------------------------------------------------------------------


def test_options_of_pytest(project):
    """``-x``, ``--lf``, ``--setup-show``, ``--strict-markers``, doctests, ``--pdb`` and more."""
    project.makepyfile(
        test_it=F
        + '''
@pytest.mark.jax_compiles(exactly=1)
def test_right():
    f(x(3))

@pytest.mark.jax_compiles(exactly=0)
def test_wrong():
    f(x(3))

def test_after(jax_compiles):
    f(x(3))
    assert jax_compiles.count == 1

def documented():
    """
    >>> f(x(3)).tolist()
    [2.0, 2.0, 2.0]
    """
'''
    )
    result = project.run_tests("-x", "--strict-markers", "--jax-compile-report", JSON)
    result.assert_outcomes(passed=1, failed=1)
    assert report(project)["complete"] is False
    project.run_tests("--lf").assert_outcomes(failed=1)
    result = project.run_tests("--setup-show", "--strict-markers", "-W", "error")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*SETUP    F jax_compiles*"])
    result = project.run_tests("--doctest-modules", JSON, "--deselect", "test_it.py::test_wrong")
    result.assert_outcomes(passed=3, deselected=1)
    assert counts(report(project))["test_it.documented"] == 1
    result = project.run_tests("--collect-only", "-q", "--jax-compile-report")
    assert result.ret == 0
    result = project.run_tests("--runxfail", "-k", "right")
    result.assert_outcomes(passed=1, deselected=2)


def test_pdb_stops_at_the_users_line(project):
    project.makepyfile(
        test_it=F + "def test_it(jax_compiles):\n    with jax_compiles.none():\n        f(x(3))\n"
    )
    project.makepyfile(
        stub="""
        import pdb
        class Stub(pdb.Pdb):
            def interaction(self, frame, traceback, *args):
                while getattr(traceback, "tb_next", None):
                    traceback = traceback.tb_next
                frame = getattr(traceback, "tb_frame", frame)
                print("STOPPED in", frame and frame.f_code.co_name)
        """
    )
    result = project.run_tests("--pdb", "--pdbcls=stub:Stub", "-s")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*STOPPED in test_it*"])


def test_without_the_plugin(project):
    """``-p no:jaxcompile``: tests that do not use it run as ever."""
    project.makepyfile(test_it="def test_it(): pass\n")
    result = project.runpytest_subprocess("-p", "no:jaxcompile")
    result.assert_outcomes(passed=1)
    assert "jax-compile" not in project.runpytest_subprocess("--help").stdout.str()


# -- threads -----------------------------------------------------------------------------


def test_threads(project):
    """Threads of a test count to it; one that outlives it is told as such, and to no test."""
    project.makepyfile(
        test_it=F
        + """
import threading
from concurrent.futures import ThreadPoolExecutor

POOL = ThreadPoolExecutor(4)
go, done = threading.Event(), threading.Event()

def test_pool(jax_compiles):
    list(POOL.map(lambda n: f(x(n)), range(3, 7)))
    assert jax_compiles.count == 4

def test_the_same_pool_again(jax_compiles):
    list(POOL.map(lambda n: f(x(n)), range(3, 7)))
    assert jax_compiles.count == 4

def late():
    go.wait()
    f(x(20)), f(x(21))
    done.set()

def test_leaves_a_thread(jax_compiles):
    threading.Thread(target=late, name="stray", daemon=True).start()
    f(x(3))
    assert jax_compiles.count == 1

@pytest.mark.jax_compiles(exactly=1)
def test_is_not_disturbed(jax_compiles):
    go.set()
    done.wait()
    f(x(3))
    assert jax_compiles.count == 1
"""
    )
    result = project.run_tests("--jax-compile-report", JSON)
    result.assert_outcomes(passed=4)
    data = report(project)
    assert counts(data) == {
        "test_pool": 4,
        "test_the_same_pool_again": 4,
        "test_leaves_a_thread": 1,
        "test_is_not_disturbed": 1,
    }
    strays = [place for place in data["outside"] if "test_leaves_a_thread" in place["place"]]
    assert [len(place["compilations"]) for place in strays] == [2]
    assert {c["thread"] for c in strays[0]["compilations"]} == {"stray"}


# -- devices and processes ---------------------------------------------------------------


def test_several_devices(project, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    project.makepyfile(
        test_it=F
        + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def test_it(jax_compiles):
    devices = jax.devices()
    assert len(devices) == 4
    mesh = Mesh(np.array(devices), ("d",))
    a = x(8)
    spread, copied = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    for place in (devices[0], devices[1], spread, copied, devices[0]):
        f(jax.device_put(a, place))
    assert jax_compiles.of(f).count == 4
    kinds = [{reason.kind for reason in record.reasons} for record in jax_compiles]
    assert kinds[0] == set()
    assert "device" in kinds[1]
    assert "sharding" in kinds[2]
    assert "sharding" in kinds[3]
"""
    )
    result = project.run_tests(JSON)
    result.assert_outcomes(passed=1)
    assert report(project)["environment"]["devices"] == [f"cpu:{n}" for n in range(4)]


def test_two_processes_of_jax_distributed(project):
    """Each process counts its own."""
    project.makepyfile(
        program="""
        import sys
        import jax, numpy as np
        jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
        from pytest_jaxcompile import count_compiles
        f = jax.jit(lambda x: x * 2)
        with count_compiles(cold=True) as log:
            for n in range(3, 4 + int(sys.argv[2])):
                f(np.ones(n, np.float32))
        print("COUNT", log.of(f).count, jax.process_count())
        jax.distributed.shutdown()
        """
    )
    import socket
    import subprocess
    import sys

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "program.py", str(port), str(index)],
            cwd=project.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    found = [out.partition("COUNT ")[2].split() for out, _ in outputs]
    assert found == [["1", "2"], ["2", "2"]], outputs


# -- runs inside runs --------------------------------------------------------------------


def test_runs_in_process_leave_no_state_behind(project):
    """pytester in process: an inner run counts for itself, and the outer goes on as before."""
    project.makepyfile(
        test_it=F
        + '''
pytest_plugins = ["pytester"]
INNER = """
def test_inner(jax_compiles, request):
    import jax, numpy as np
    g = jax.jit(lambda a: a - 1)
    g(np.ones(3, np.float32))
    assert jax_compiles.count == 1
"""

def test_outer(jax_compiles, pytester):
    f(x(3))
    pytester.makepyfile(INNER)
    result = pytester.runpytest_inprocess("-p", "pytest_jaxcompile.plugin", "--jax-compile-report")
    result.assert_outcomes(passed=1)
    f(x(3))  # the inner test started cold
    f(x(4))
    assert jax_compiles.of(f).count >= 2

def test_after(jax_compiles):
    f(x(3))
    assert jax_compiles.count == 1
    assert jax_compiles[0].phase == "call"
'''
    )
    result = project.run_tests(JSON, "-W", "ignore", plugins=("pytester",))
    result.assert_outcomes(passed=2)


def test_faults_in_tests_do_not_break_others(project):
    """Traces interrupted, blocks never ended, listeners cleared, JAX deleted: the next counts."""
    project.makepyfile(
        test_it=F
        + """
import sys

def test_clears_listeners(jax_compiles):
    f(x(3))
    jax.monitoring.clear_event_listeners()
    f(x(4))
    assert jax_compiles.of(f).count == 2

def test_never_ends_a_block(jax_compiles):
    jax_compiles.none(of=f).__enter__()

def test_next_1(jax_compiles):
    f(x(3)), f(x(4))
    assert jax_compiles.count == jax_compiles.traces == 2

def test_deletes_jax(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax")

def test_next_2(jax_compiles):
    f(x(3)), f(x(4))
    assert jax_compiles.count == jax_compiles.traces == 2

def test_clears_in_no_recording():
    jax.monitoring.clear_event_listeners()
    jax.clear_caches()

def test_next_3(jax_compiles):
    f(x(3)), f(x(4))
    assert jax_compiles.count == jax_compiles.traces == 2

def test_exits_in_a_trace(jax_compiles):
    @jax.jit
    def g(a):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        g(x(3))
    assert jax_compiles.count == 0

def test_next_4(jax_compiles):
    f(x(3)), f(x(4))
    assert jax_compiles.count == jax_compiles.traces == 2
"""
    )
    project.run_tests().assert_outcomes(passed=9)
    result = project.run_tests("--jax-compile-report", JSON)
    result.assert_outcomes(passed=9)
    found = counts(report(project))
    assert [found[f"test_next_{n}"] for n in range(1, 5)] == [2] * 4
