"""The baseline: its file, and runs that make it, keep to it, exceed it or fall below it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_jaxcompile.plugin.baseline import HEADER, dumps, loads

# -- the file ----------------------------------------------------------------------------

NODEIDS = st.text(min_size=1, max_size=40).map(lambda text: f"tests/test_a.py::test_b[{text}]")
FUNCTIONS = st.from_regex(r"[a-z_][a-z0-9_.<>]{0,20}", fullmatch=True)
COUNTS = st.dictionaries(
    NODEIDS, st.dictionaries(FUNCTIONS, st.integers(1, 10**6), min_size=1, max_size=4), max_size=4
)


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(COUNTS)
def test_what_is_written_reads_the_same(counts):
    text = dumps(counts)
    assert loads(text) == counts
    assert dumps(loads(text)) == text


def test_the_file_is_sorted_text_a_person_can_read_and_merge():
    counts = {"b.py::t": {"m.g": 2, "m.f": 1, "m.zero": 0}, "a.py::t": {"m.h": 3}, "c.py::t": {}}
    assert dumps(counts) == (f"{HEADER}\na.py::t\n    3 m.h\nb.py::t\n    1 m.f\n    2 m.g\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1"),
        ("{}", "line 1"),
        (HEADER.replace("1:", "0:") + "\n", "line 1"),
        (HEADER.replace("1:", "2:") + "\n", "a newer pytest-jaxcompile wrote it"),
        (f"<<<<<<< HEAD\n{HEADER}\n=======\n{HEADER}\n>>>>>>> b\n", "line 1 is left of a merge"),
        (f"{HEADER}\n    1 m.f\n", "line 2"),
        (f"{HEADER}\na.py::t\n    m.f\n", "line 3"),
        (f"{HEADER}\na.py::t\n    one m.f\n", "line 3"),
        (f"{HEADER}\na.py::t\n    -1 m.f\n", "line 3"),
        (f"{HEADER}\na.py::t\n    1\n", "line 3"),
        pytest.param(
            f"{HEADER}\na.py::t\n    1 m.f\n<<<<<<< HEAD\n    2 m.f\n",
            "line 4 is left of a merge conflict",
        ),
    ],
)
def test_a_broken_file_is_an_error_that_names_the_line(text, told):
    with pytest.raises(ValueError, match=told):
        loads(text)


# -- runs --------------------------------------------------------------------------------

TESTS = """
import jax, numpy as np
import pytest
from lengths import LENGTHS

@jax.jit
def f(x): return x * 2

@jax.jit
def g(x): return x * 3

def test_f():
    for n in LENGTHS["f"]:
        f(np.ones(n, np.float32))

def test_g():
    for n in LENGTHS["g"]:
        g(np.ones(n, np.float32))
    assert LENGTHS.get("fine", True)

def test_nothing():
    pass
"""
BASELINE = "--jax-compile-baseline=counts.txt"
UPDATE = "--jax-compile-update-baseline"
FULL = f"{HEADER}\ntest_it.py::test_f\n    2 test_it.f\ntest_it.py::test_g\n    1 test_it.g\n"


@pytest.fixture
def kept(project):
    """A project whose baseline holds 2 compilations of f and 1 of g."""

    def lengths(**found):
        project.makepyfile(lengths=f"LENGTHS = {found!r}\n")

    project.makepyfile(test_it=TESTS)
    project.path.joinpath("counts.txt").write_text(FULL)
    project.lengths = lengths
    lengths(f=[3, 4], g=[3])
    project.read = lambda: project.path.joinpath("counts.txt").read_text()
    return project


def test_made_by_one_run_and_kept_by_the_next(kept):
    kept.path.joinpath("counts.txt").unlink()
    result = kept.run_tests(BASELINE, UPDATE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["baseline written: *counts.txt"])
    assert kept.read() == FULL
    result = kept.run_tests(BASELINE)
    result.assert_outcomes(passed=3)
    for word in ("lower than", "are gone", "Accept with"):
        assert word not in result.stdout.str()
    assert kept.read() == FULL


def test_more_fails_with_reasons_and_the_command_that_accepts(kept):
    kept.lengths(f=[3, 4, 5], g=[3])
    result = kept.run_tests(BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*compiles more than the baseline says: test_it.f: 2 recorded, 3 now",
            "*f(f32[[]5])*shape of x*",
            "*pytest --jax-compile-baseline=counts.txt --jax-compile-update-baseline",
        ]
    )
    assert kept.read() == FULL
    kept.run_tests(BASELINE, UPDATE).assert_outcomes(passed=3)
    assert kept.read() == FULL.replace("2 test_it.f", "3 test_it.f")


def test_fewer_is_told_and_passes(kept):
    kept.lengths(f=[3], g=[])
    result = kept.run_tests(BASELINE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "2 counts are lower than in the baseline:",
            "*test_it.py::test_f: test_it.f 2 -> 1",
            "*test_it.py::test_g: test_it.g 1 -> 0",
            "Accept with: pytest --jax-compile-baseline=counts.txt --jax-compile-update-baseline",
        ]
    )
    assert kept.read() == FULL


def test_a_test_that_is_gone_is_told_and_an_update_drops_it(kept):
    kept.makepyfile(test_it=TESTS.replace("def test_g", "def test_h"))
    result = kept.run_tests(BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["1 test of the baseline is gone:", "*test_it.py::test_g"])
    kept.run_tests(BASELINE, UPDATE).assert_outcomes(passed=3)
    assert kept.read() == FULL.replace("test_it.py::test_g", "test_it.py::test_h")


@pytest.mark.parametrize(
    "args", [("-k", "test_f"), ("test_it.py::test_f",), ("--deselect", "test_it.py::test_g")]
)
def test_a_partial_run_neither_misses_nor_drops_the_others(kept, args):
    kept.lengths(f=[3, 4, 5], g=[3])
    result = kept.run_tests(BASELINE, UPDATE, *args)
    assert result.ret == 0
    assert "gone" not in result.stdout.str()
    assert kept.read() == FULL.replace("2 test_it.f", "3 test_it.f")


def test_a_failed_test_keeps_its_counts(kept):
    kept.lengths(f=[3, 4], g=[], fine=False)
    kept.run_tests(BASELINE, UPDATE).assert_outcomes(passed=2, failed=1)
    assert kept.read() == FULL


def test_eager_operations_and_setup_are_not_in_it(kept):
    kept.makepyfile(
        test_it="""
        import jax, jax.numpy as jnp, numpy as np, pytest
        f = jax.jit(lambda x: x * 2)
        @pytest.fixture
        def warm():
            f(np.ones(9, np.float32))
        def test_f(warm):
            f(np.ones(3, np.float32))
            jnp.arange(37) + 5
        """
    )
    kept.run_tests(BASELINE, UPDATE).assert_outcomes(passed=1)
    assert kept.read() == f"{HEADER}\ntest_it.py::test_f\n    1 test_it.<lambda>\n"


def test_the_same_with_workers(kept):
    kept.path.joinpath("counts.txt").unlink()
    result = kept.run_tests(BASELINE, UPDATE, "-n2", plugins=("xdist",))
    result.assert_outcomes(passed=3)
    assert kept.read() == FULL
    kept.lengths(f=[3, 4, 5], g=[])
    result = kept.run_tests(BASELINE, "-n2", plugins=("xdist",))
    result.assert_outcomes(passed=2, failed=1)
    text = result.stdout.str()
    assert "2 recorded, 3 now" in text
    assert "test_it.py::test_g: test_it.g 1 -> 0" in text
    assert kept.read() == FULL.replace("2 test_it.f", "2 test_it.f")


def test_usage_errors(kept):
    """A file that is missing, broken or not asked for: nothing runs, and the remedy is told."""
    kept.path.joinpath("counts.txt").write_text("<<<<<<< HEAD\n")
    result = kept.run_tests(BASELINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*counts.txt cannot be read: line 1 is left of a merge conflict*", "*update-baseline"]
    )
    kept.path.joinpath("counts.txt").unlink()
    result = kept.run_tests(BASELINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no baseline at *counts.txt: make one with", "*update-baseline"])
    result = kept.run_tests(UPDATE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*needs --jax-compile-baseline=PATH"])
    result = kept.run_tests("--jax-compile-baseline=nowhere/counts.txt", UPDATE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_the_file_lies_where_it_is_asked_for(kept):
    """A path on the command line counts from the current folder, one in the ini file from there."""
    kept.makeini("[pytest]\njax_compile_baseline = counts.txt\n")
    below = kept.mkdir("below")
    kept.lengths(f=[3, 4, 5], g=[3])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        result = kept.run_tests("..")
    result.assert_outcomes(passed=2, failed=1)
    assert "2 recorded, 3 now" in result.stdout.str()
    assert "--jax-compile-baseline=../counts.txt" in result.stdout.str()
