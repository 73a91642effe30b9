"""The plugin as a project uses it: fixture, marker, report, flags and their ini twins."""

from __future__ import annotations

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

@jax.jit
def g(a):
    return a * 3
"""


# -- the fixture -------------------------------------------------------------------------


def test_the_fixture(project):
    """Passing and failing uses in one project; failures read as they should."""
    project.makepyfile(
        F
        + """
@pytest.fixture
def warmed(jax_compiles):
    f(x(3))
    assert jax_compiles.all.count == 0  # setup is no part of the test
    return jax_compiles

def test_passes(jax_compiles):
    with jax_compiles.exactly(2, of=f) as seen:
        for n in (3, 4, 3):
            f(x(n))
    assert seen.count == jax_compiles.count == 2
    assert jax_compiles.per_call(g, [x(3), x(4), x(3)]) == [1, 1, 0]
    with jax_compiles.none():
        f(x(4))

def test_is_cold_again(jax_compiles):
    f(x(3))
    assert jax_compiles.count == 1

def test_is_cold_after_setup(warmed):
    f(x(3))
    assert warmed.count == 1

def test_without_the_fixture():
    f(x(3))

def test_asked_for_late(request):
    f(x(3))
    found = request.getfixturevalue("jax_compiles")
    f(x(3))
    assert found.count == 1

def test_phases(jax_compiles):
    f(x(3))
    assert {record.phase for record in jax_compiles} == {"call"}

def test_fails(jax_compiles):
    with jax_compiles.exactly(1, of=f):
        for n in (3, 4):
            f(x(n))  # two lengths

def test_fails_fast(jax_compiles):
    with jax_compiles.none():
        f(x(3))  # guilty
        raise ValueError("never reached")

def test_body_wins(jax_compiles):
    with jax_compiles.exactly(7):
        raise ValueError("the body's own")
"""
    )
    result = project.run_tests("-p", "no:cacheprovider")
    result.assert_outcomes(passed=6, failed=3)
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "E*expected exactly 1 compilation of f, got 2",
            "E*1. f(f32[[]3]) *test_the_fixture.py:*first compilation",
            "E*2. f(f32[[]4]) *test_the_fixture.py:*shape of a: (3,) -> (4,)",
            "E*What to do:",
            "*f(x(3))  # guilty",
            "E*expected no compilation, got 1",
        ]
    )
    assert "never reached" not in text.replace('raise ValueError("never reached")', "")
    result.stdout.re_match_lines([r"E +ValueError: the body's own"])
    assert "expected exactly 7" not in text
    assert "jax/_src" not in text, "the traceback ends on the user's line"
    assert "pytest_jaxcompile/" not in text


def test_fixtures_help_and_markers(project):
    """What pytest itself tells about the plugin teaches its use."""
    result = project.run_tests("--fixtures", "-v")
    result.stdout.fnmatch_lines(["jax_compiles*", "*starts cold*", "*with jax_compiles.exactly*"])
    result = project.run_tests("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.jax_compiles(*exactly=N, at_most=N, at_least=N*"])
    result = project.run_tests("--help")
    text = result.stdout.str()
    for flag in ("report", "json=PATH", "html=PATH", "trace=PATH", "baseline=PATH", "limit=N"):
        assert f"--jax-compile-{flag}" in text
    for name in INI_TWINS:
        assert name in text


# -- the marker --------------------------------------------------------------------------


def test_the_marker_everywhere(project):
    """On functions, methods, classes, modules, parametrized tests, unittest and absltest."""
    pytest.importorskip("absl.testing")
    project.makepyfile(
        test_functions=F
        + """
@pytest.mark.jax_compiles(exactly=2, of=f)
def test_right():
    f(x(3)), f(x(4)), g(x(3))

@pytest.mark.jax_compiles(exactly=1, of=f)
def test_wrong_1():
    f(x(3)), f(x(4))

@pytest.mark.jax_compiles(at_most=1)
@pytest.mark.jax_compiles(at_least=1, of="f")
def test_both():
    f(x(3))

@pytest.mark.jax_compiles(at_most=3)
@pytest.mark.jax_compiles(at_least=3, of="f")
def test_wrong_2_of_both():
    f(x(3))

@pytest.mark.jax_compiles(exactly=2, of=[f, "g"])
def test_of_several():
    f(x(3)), g(x(3))

@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.jax_compiles(exactly=2)
def test_parametrized(n):  # 1 and 3 are wrong
    for length in range(n):
        f(x(3 + length))

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.jax_compiles(exactly=1)), 2])
def test_on_a_parameter(n):
    f(x(n))

@pytest.mark.jax_compiles(at_most=1, fail_fast=True)
def test_wrong_fails_fast():
    f(x(3))
    f(x(4))  # guilty
    raise ValueError("never reached")

@pytest.mark.jax_compiles(exactly=1)
def test_with_the_fixture(jax_compiles):
    f(x(3))
    assert jax_compiles.count == 1

@pytest.mark.xfail(strict=True)
@pytest.mark.jax_compiles(exactly=5)
def test_expected_to_fail():
    f(x(3))

@pytest.mark.jax_compiles(exactly=5)
def test_skipped():
    pytest.skip("not today")

@pytest.mark.jax_compiles(exactly=5)
def test_wrong_with_an_error_of_its_own():
    raise KeyError("the body's own")
""",
        test_classes=F
        + """
import unittest
from absl.testing import absltest, parameterized

@pytest.mark.jax_compiles(exactly=1)
class TestClass:
    def test_of_the_class(self):
        f(x(3))

    def test_wrong_of_the_class(self):
        f(x(3)), f(x(4))

    @pytest.mark.jax_compiles(exactly=2)
    def test_the_closer_one_holds(self):
        f(x(3)), f(x(4))

class TestMethods:
    @pytest.mark.jax_compiles(exactly=1, of=f)
    def test_right(self):
        f(x(3))

class TestUnittest(unittest.TestCase):
    @pytest.mark.jax_compiles(exactly=1)
    def test_right(self):
        f(x(3))

    @pytest.mark.jax_compiles(exactly=0)
    def test_wrong(self):
        f(x(3))

@pytest.mark.jax_compiles(exactly=1, of=f)
class TestAbsl(parameterized.TestCase):
    @parameterized.parameters(1, 2)
    def test_each(self, n):  # 2 is wrong
        for length in range(n):
            f(x(3 + length))
""",
        test_module=F
        + """
pytestmark = pytest.mark.jax_compiles(exactly=1)

def test_of_the_module():
    f(x(3))

def test_wrong_of_the_module():
    pass

class TestHere:
    @pytest.mark.jax_compiles(exactly=0)
    def test_the_closer_one_holds(self):
        pass
""",
    )
    result = project.run_tests("-rA", "--strict-markers")
    text = result.stdout.str()
    failed = {
        line.split()[1].split("::", 1)[1] for line in result.outlines if line.startswith("FAILED ")
    }
    assert failed == {
        "test_wrong_1",
        "test_wrong_2_of_both",
        "test_parametrized[1]",
        "test_parametrized[3]",
        "test_wrong_fails_fast",
        "test_wrong_with_an_error_of_its_own",
        "TestClass::test_wrong_of_the_class",
        "TestUnittest::test_wrong",
        "TestAbsl::test_each1",
        "test_wrong_of_the_module",
    }
    result.assert_outcomes(passed=14, failed=10, xfailed=1, skipped=1)
    assert "never reached" not in text.replace('raise ValueError("never reached")', "")
    assert 'KeyError: "the body\'s own"' in text
    assert "expected exactly 5" not in text
    assert "jax/_src" not in text


MALFORMED = {
    "": "give one of",
    "2": "positional",
    "exactly='two'": "exactly must be a non-negative int",
    "exactly=-1": "exactly must be a non-negative int",
    "exactly=True": "exactly must be a non-negative int",
    "exactly=1, at_most=2": "exactly= excludes",
    "at_least=3, at_most=2": "at_least= is more than at_most=",
    "exactly=1, off='f'": "it has no off=, but exactly=, at_most=, at_least=, of=, ",
    "none=True": "exactly=0 is no compilation, and only the fixture's none() counts eager ops too",
    "exactly=1, of=3": "is no function",
    "exactly=1, of=[]": "of= is empty",
    "limit=1.5": "limit must be",
    "exactly=1, fail_fast=1": "fail_fast",
}


def test_malformed_markers_are_usage_errors(project):
    """Collection stops with exit code 4, the test's name and what is wrong, in one run each."""
    for arguments, told in MALFORMED.items():
        project.makepyfile(
            test_it=f"""
            import pytest
            @pytest.mark.jax_compiles({arguments})
            def test_marked(): pass
            """
        )
        result = project.inline_run_tests()
        assert result.ret == pytest.ExitCode.USAGE_ERROR, arguments
        text = result.stderr.str() + result.stdout.str()
        assert "test_it.py::test_marked: malformed marker @pytest.mark.jax_compiles" in text
        assert told in text, (arguments, text)


def test_a_marker_that_is_right_is_no_usage_error(project):
    """Negative control of the run above; and an unknown name is an error of the test."""
    project.makepyfile(
        test_it=F
        + """
@pytest.mark.jax_compiles(exactly=1, of="f")
def test_right(): f(x(3))

@pytest.mark.jax_compiles(exactly=0, of="no_such_function")
def test_unknown(): f(x(3))

@pytest.mark.jax_compiles(limit=0)
def test_limit(): pass
"""
    )
    result = project.run_tests()
    result.assert_outcomes(passed=2, failed=1)
    assert "no_such_function" in result.stdout.str()


# -- the report --------------------------------------------------------------------------

REPORTED = (
    F
    + """
f(x(90))

@pytest.fixture(scope="session")
def shared():
    g(x(91))

@pytest.fixture
def own():
    g(x(92))

def test_one():
    for n in (3, 4, 3, 5, 6):
        f(x(n))

def test_two(shared, own):
    g(x(4))
    jnp.linspace(0, 1, 77)
"""
)


def section(result):
    """The lines of the report, times left out."""
    import re

    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if "JAX compilations" in line and "==" in line)
    found = []
    for line in lines[start + 1 :]:
        if line.startswith("=="):
            break
        found.append(re.sub(r"\s+\d+(\.\d+)? m?s\b|\s*\d+\.\d+( s)?|\d+%", " N ", line))
    return found


def test_the_report(project):
    project.makepyfile(test_it=REPORTED)
    quiet = project.run_tests()
    quiet.assert_outcomes(passed=2)
    assert "JAX compilations" not in quiet.stdout.str()
    result = project.run_tests("--jax-compile-report")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*= JAX compilations =*"])
    text = "\n".join(section(result))
    assert "8 compilations of 2 functions" in text
    for told in ("test_it.f", "test_it.g", "shape", "eager", "import of test_it.py", "shared"):
        assert told in text, told
    assert "\x1b[" not in text


def test_the_report_is_the_same_with_workers(project):
    """From records to lines one code path: only times and the order of equals may differ."""
    project.makepyfile(test_it=REPORTED.replace("f(x(90))\n", "", 1))
    flags = "--jax-compile-report", "--jax-compile-json=found.json"
    varies = {"started", "seconds", "start", "worker", "thread", "workers", "environment"}

    def run(*args, plugins=()):
        result = project.run_tests(*flags, *args, plugins=plugins)
        result.assert_outcomes(passed=2)
        data = json.loads((project.path / "found.json").read_text())
        return without(data, varies), sorted(filter(None, section(result)))

    plain = run()
    assert plain == run("-n2", "--dist=loadfile", plugins=("xdist",))
    assert plain[0]["totals"]["compilations"] == 7


def without(value, names):
    """``value`` without what may differ between two runs: times, and the names given."""
    if isinstance(value, dict):
        return {
            k: without(v, names)
            for k, v in value.items()
            if k not in names and not k.endswith("_seconds")
        }
    if isinstance(value, list):
        return [without(part, names) for part in value]
    return value


def test_a_project_that_never_imports_jax(project):
    project.makepyfile("import sys\ndef test_it(): assert 'jax' not in sys.modules\n")
    result = project.run_tests("--jax-compile-report")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*JAX was not imported*"])
    result = project.run_tests()
    assert "JAX" not in result.stdout.str().replace(str(project.path), "")


def test_a_fixture_in_a_test_that_imports_jax_itself(project):
    """Nothing imports JAX before the body does, and the body is counted all the same."""
    project.makepyfile(
        """
        import os, sys
        def test_it(jax_compiles):
            assert "jax" not in sys.modules
            os.environ["JAX_ENABLE_X64"] = "1"
            import jax, numpy as np
            f = jax.jit(lambda x: x * 2)
            assert f(np.ones(3)).dtype == "float64"
            assert jax_compiles.of(f).count == 1
            with jax_compiles.exactly(1):
                f(np.ones(4))
        """
    )
    project.run_tests().assert_outcomes(passed=1)
    project.run_tests("--jax-compile-report").assert_outcomes(passed=1)


def test_a_conftest_that_configures_jax_keeps_its_effect(project):
    """Variables set in a conftest, before it imports JAX, with the report and a check on."""
    project.makeconftest(
        """
        import os
        os.environ["JAX_ENABLE_X64"] = "1"
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        """
    )
    project.makepyfile(
        F
        + """
def test_it(jax_compiles):
    assert jnp.ones(3).dtype == "float64"
    assert jax.device_count() == 3
    f(x(3))
    assert jax_compiles.count == 1
"""
    )
    project.run_tests("--jax-compile-report", "--jax-compile-limit=9").assert_outcomes(passed=1)
    project.makeconftest("")  # negative control
    project.run_tests("--jax-compile-report").assert_outcomes(failed=1)


def test_silent_where_nobody_asks(project):
    """Without a flag, fixture or marker nothing listens and nothing is said."""
    project.makepyfile(
        F
        + """
import sys
from jax._src import monitoring
def test_it():
    assert "pytest_jaxcompile.recording.recorder" not in sys.modules
    assert not [l for l in monitoring._event_duration_secs_listeners if "jaxcompile" in repr(l)]
    f(x(3))
"""
    )
    result = project.run_tests("-v", "-W", "error")
    result.assert_outcomes(passed=1)
    assert "ompil" not in result.stdout.str()
    project.run_tests("--jax-compile-report").assert_outcomes(failed=1)  # negative control


# -- flags, their ini twins, and the limit -----------------------------------------------

INI_TWINS = {
    "jax_compile_report": "true",
    "jax_compile_json": "out/found.json",
    "jax_compile_html": "out/found.html",
    "jax_compile_trace": "out/found.trace",
    "jax_compile_baseline": "out/counts.txt",
    "jax_compile_update_baseline": "true",
    "jax_compile_limit": "2",
}


def test_ini_twins_of_every_flag(project):
    """One run with flags, one with an ini file, from another folder: the same files."""
    pytest.importorskip("jinja2")
    project.makepyfile(test_it=F + "def test_it():\n    f(x(3)), f(x(4))\n")
    out = project.mkdir("out")

    def written():
        found = sorted(path.name for path in out.iterdir())
        for path in out.iterdir():
            assert path.stat().st_size > 50
            path.unlink()
        return found

    flags = [
        f"--{name.replace('_', '-')}" + ("" if value == "true" else f"={value}")
        for name, value in INI_TWINS.items()
    ]
    result = project.run_tests(*flags)
    result.assert_outcomes(passed=1)
    assert "JAX compilations" in result.stdout.str()
    by_flags = written()
    assert by_flags == ["counts.txt", "found.html", "found.json", "found.trace"]
    lines = [f"{name} = {value}" for name, value in INI_TWINS.items()]
    project.makeini("[pytest]\n" + "\n".join(lines) + "\n")
    below = project.mkdir("below")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        result = project.run_tests("..")
    result.assert_outcomes(passed=1)
    assert "JAX compilations" in result.stdout.str()
    assert written() == by_flags
    # A flag wins over its twin.
    assert project.run_tests("--jax-compile-limit=1").parseoutcomes() == {"failed": 1}


def test_the_limit(project):
    project.makepyfile(
        F
        + """
def test_two():
    f(x(3)), f(x(4)), g(x(3))

def test_three():
    f(x(3)), f(x(4)), f(x(5))

@pytest.mark.jax_compiles(limit=3)
def test_three_are_allowed():
    f(x(3)), f(x(4)), f(x(5))

@pytest.mark.jax_compiles(limit=0)
def test_none_is_allowed():
    f(x(3))

def test_operations_have_no_limit():
    for n in range(40, 45):
        jnp.arange(n)
"""
    )
    result = project.run_tests("--jax-compile-limit=2")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*at most 2 compilations of f (the limit*got 3"])
    project.run_tests().assert_outcomes(passed=4, failed=1)  # the marker's own limit holds


def test_wrong_flags_are_usage_errors(project):
    project.makepyfile("def test_it(): pass")
    for args, told in [
        (["--jax-compile-limit=-1"], "0 or more"),
        (["--jax-compile-limit=many"], "must be a number"),
        (["--jax-compile-json=nowhere/a.json"], "nowhere"),
        (["--jax-compile-update-baseline"], "needs --jax-compile-baseline"),
        (["-o", "jax_compile_cold=maybe"], "jax_compile_cold"),
    ]:
        result = project.inline_run_tests(*args)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, args
        assert told in result.stderr.str(), args


@pytest.mark.parametrize(("cold", "counts"), [("functions", 1), ("all", 1), ("none", 0)])
def test_how_cold_a_test_starts(project, cold, counts):
    project.makeini(f"[pytest]\njax_compile_cold = {cold}\n")
    project.makepyfile(
        F
        + f"""
def test_warm_up(jax_compiles):
    f(x(3)), jnp.arange(47) + 5

def test_it(jax_compiles):
    f(x(3)), jnp.arange(47) + 5
    assert jax_compiles.count == {counts}
    assert (jax_compiles.ops.count > 0) is {cold == "all"}
"""
    )
    project.run_tests().assert_outcomes(passed=2)


# -- the same count everywhere -----------------------------------------------------------


def test_the_same_counts_alone_reversed_random_and_spread(project):
    """Tests that share functions, in every order and process: each asserts its own count."""
    project.makepyfile(
        test_it=F
        + """
def shared(a):
    return a + 1

kept = jax.jit(shared)

def test_a(jax_compiles):
    f(x(3)), f(x(4)), jax.jit(shared)(x(3))
    assert jax_compiles.count == 3

def test_b(jax_compiles):
    f(x(3)), kept(x(3)), jax.jit(shared)(x(4))
    assert jax_compiles.count == 3

def test_c():
    f(x(3)), kept(x(3))

def test_d(jax_compiles):
    jax.grad(lambda a: f(a).sum())(x(3)), jax.vmap(f)(np.ones((2, 3), np.float32))
    assert jax_compiles.of(f).count == 3

@pytest.mark.jax_compiles(exactly=1, of=f)
def test_e():
    f(x(3))
"""
    )
    ids = [f"test_it.py::test_{name}" for name in "abcde"]
    project.run_tests(*ids).assert_outcomes(passed=5)
    project.run_tests(*reversed(ids)).assert_outcomes(passed=5)
    project.run_tests(ids[3]).assert_outcomes(passed=1)
    project.run_tests("-n2", plugins=("xdist",)).assert_outcomes(passed=5)


def test_hooks(project):
    project.makeconftest(
        """
        found = []
        def pytest_jaxcompile_compilation(config, compilation, nodeid):
            found.append((nodeid, compilation.function, compilation.phase))
        def pytest_jaxcompile_summary(config, summary):
            summary.notes["seen"] = [list(map(str, row)) for row in found]
        """
    )
    project.makepyfile(test_it=F + "f(x(90))\ndef test_it():\n    f(x(3))\n")
    project.run_tests("--jax-compile-json=found.json").assert_outcomes(passed=1)
    notes = json.loads((project.path / "found.json").read_text())["notes"]
    assert notes["seen"] == [
        ["None", "f", "import of test_it.py"],
        ["test_it.py::test_it", "f", "call"],
    ]


def test_junit_properties(project):
    project.makepyfile(test_it=F + "def test_it(jax_compiles):\n    f(x(3)), f(x(4))\n")
    project.run_tests("--junitxml=junit.xml").assert_outcomes(passed=1)
    text = (project.path / "junit.xml").read_text()
    assert 'name="jax_compilations" value="2"' in text
    assert 'name="jax_compile_seconds"' in text


def test_a_failure_without_jax_imports_none(project):
    """Nor waits for it: once the failure's own report asked for JAX, under a lock."""
    project.makepyfile(
        test_it="""
        import sys

        def helper():
            pass

        def test_fails(jax_compiles):
            with jax_compiles.exactly(1):
                pass

        def test_of(jax_compiles):
            with jax_compiles.exactly(0, of=helper):
                pass

        def test_last():
            assert "jax" not in sys.modules
        """
    )
    result = project.run_tests("--jax-compile-report")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*JAX was not imported: nothing was compiled"])
