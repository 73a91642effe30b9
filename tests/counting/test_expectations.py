"""Expectations: what passes, what raises where, and what is an error instead of a number."""

# ruff: noqa: PT012, SIM117 -- blocks that fail, and where in them, are what is tested here

from __future__ import annotations

import functools
import inspect
import re
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxcompile import (
    CompileCountError,
    CountUnavailableError,
    UnknownFunctionError,
    count_compiles,
)


def x(n):
    return np.ones(n, np.float32)


@jax.jit
def f(a):
    return a * 2


@jax.jit
def g(a):
    return a * 3


# -- bounds ------------------------------------------------------------------------------

# expectation, how often f compiles, whether it holds
BOUNDS = [
    ("exactly", 2, 2, True),
    ("exactly", 2, 1, False),
    ("exactly", 2, 3, False),
    ("exactly", 0, 0, True),
    ("exactly", 0, 1, False),
    ("at_most", 2, 1, True),
    ("at_most", 2, 2, True),
    ("at_most", 2, 3, False),
    ("at_least", 2, 1, False),
    ("at_least", 2, 2, True),
    ("at_least", 2, 3, True),
]


@pytest.mark.parametrize(("name", "n", "times", "holds"), BOUNDS)
def test_bounds(log, name, n, times, holds):
    """Each bound, met and missed; without ``of=`` and with it."""
    for of in (None, f):
        block = getattr(log, name)(n, of=of)
        with count_compiles(cold=True):
            pass
        if holds:
            with block as seen:
                for length in range(3, 3 + times):
                    f(x(length))
            assert seen.count == times
        else:
            with pytest.raises(CompileCountError) as failed, block:
                for length in range(3, 3 + times):
                    f(x(length))
            first = str(failed.value).splitlines()[0]
            assert first.startswith("expected ")
            assert first.endswith(f"got {times}")


def test_a_failure_is_an_assertion(log):
    with pytest.raises(AssertionError, match=r"\Aexpected exactly 2 compilations of f, got 1\n"):
        with log.exactly(2, of=f):
            f(x(3))


def test_none_watches_eager_operations_and_of_narrows_it(log):
    a = jax.device_put(x(23))
    f(a)
    with log.none():
        f(a)
    with log.none(of=f):
        a * 17.5 - 3  # compiles, but not as f
    with pytest.raises(CompileCountError, match="expected no compilation"), log.none():
        with jax.default_matmul_precision("highest"):
            a * 17.5


def test_exactly_counts_users_functions_only(log):
    with log.exactly(1):
        jnp.cumsum(f(x(29))) + jnp.arange(29)


# -- fail fast ---------------------------------------------------------------------------


def test_none_raises_at_the_call_that_compiles(log):
    f(x(3))
    reached = []
    with pytest.raises(CompileCountError) as failed, log.none():
        f(x(3))
        reached.append("warm call")
        f(x(4))  # the guilty line
        reached.append("never")
    assert reached == ["warm call"]
    frames = list(traceback.extract_tb(failed.value.__traceback__))
    mine = [frame for frame in frames if frame.filename == __file__]
    assert mine[-1].line == "f(x(4))  # the guilty line"
    f(x(4))  # JAX is sound after it
    assert log.of(f).count in (2, 3)


def test_fail_fast_raises_past_the_bound(log):
    reached = []
    with pytest.raises(CompileCountError, match="at most 2"):
        with log.at_most(2, of=f, fail_fast=True):
            for n in (3, 4, 3, 5, 6):
                f(x(n))
                reached.append(n)
    assert reached == [3, 4, 3]


def test_fail_fast_also_says_too_few(log):
    with pytest.raises(CompileCountError, match=r"exactly 3 .* got 1"):
        with log.exactly(3, of=f, fail_fast=True):
            f(x(3))


def test_fail_fast_leaves_other_functions_alone(log):
    with log.at_most(1, of=f, fail_fast=True):
        f(x(3))
        g(x(3))
        g(x(4))


def test_a_watch_ends_with_its_block(log):
    with log.none(of=f):
        pass
    f(x(3))
    block = log.none(of=f)
    with pytest.raises(CompileCountError), block:
        f(x(4))
    f(x(5))  # nobody watches any more


# -- nesting -----------------------------------------------------------------------------


def test_nested_blocks_each_count_their_own_stretch(log):
    with log.exactly(3, of=f) as outer:
        f(x(3))
        with log.exactly(1, of=f) as inner:
            f(x(4))
        with log.none(of=f):
            f(x(3))
        f(x(5))
        assert (outer.count, inner.count) == (3, 1)
    f(x(6))
    assert (outer.count, inner.count) == (3, 1)


def test_an_inner_failure_is_the_one_that_is_told(log):
    with pytest.raises(CompileCountError, match="exactly 5"):
        with log.exactly(7, of=f), log.exactly(5, of=f):
            f(x(3))


def test_one_expectation_entered_again(log):
    once = log.exactly(1, of=f)
    for n in (3, 4):
        with once as seen:
            f(x(n))
        assert seen.count == 1
    with pytest.raises(CompileCountError), once:
        f(x(3))


def test_one_expectation_entered_inside_itself(log):
    two = log.at_most(2, of=f, fail_fast=True)
    with two:
        f(x(3))
        with two as inner:
            f(x(4))
        assert inner.count == 1
    with pytest.raises(CompileCountError), two:
        f(x(5))
        with two:
            f(x(6))
            f(x(7))  # the third of the outer block


# -- what the body raises ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["exactly", "at_most", "at_least", "none"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, pytest.skip.Exception])
def test_the_exception_of_the_body_wins(log, name, error):
    block = log.none(of=f) if name == "none" else getattr(log, name)(7, of=f)
    with pytest.raises(error, match="mine"), block:
        raise error("mine")


def test_an_exception_leaves_the_log_usable(log):
    with pytest.raises(ValueError, match="mine"), log.exactly(9):
        f(x(3))
        raise ValueError("mine")
    with log.exactly(1):
        f(x(4))
    assert log.count == 2


# -- per_call ----------------------------------------------------------------------------


def test_per_call(log):
    assert log.per_call(f, [x(3), x(4), x(3)]) == [1, 1, 0]

    @functools.partial(jax.jit, static_argnames="k")
    def h(a, k=1):
        return a * k

    assert log.per_call(h, [(x(3), 2), (x(3), 2), x(3), (x(4), 2)]) == [1, 0, 1, 1]
    assert log.per_call(functools.partial(h, k=5), [x(3), x(3)]) == [1, 0]

    def uses_both(a):
        return f(a) + g(a)

    assert log.per_call(uses_both, [x(8), x(8)]) == [2, 0]
    assert log.per_call(uses_both, [x(9), x(9)], of=g) == [1, 0]
    assert log.per_call(f, []) == []
    with pytest.raises(TypeError, match="no function"):
        log.per_call(3, [x(3)])


def test_per_call_wants_a_list_of_calls(log):
    for one_array in (x(3), jnp.ones(3)):
        with pytest.raises(TypeError, match="calls is one array"):
            log.per_call(f, one_array)


def test_per_call_raises_what_the_function_raises(log):
    @jax.jit
    def bad(a):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        log.per_call(bad, [x(3)])


# -- wrong arguments ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exactly", "at_most", "at_least"])
@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_a_number_must_be_a_number(log, name, n):
    with pytest.raises(TypeError, match="non-negative int"):
        getattr(log, name)(n)


@pytest.mark.parametrize("of", [3, 3.5, object(), np.ones(3), [f, 3], {"a": f}])
def test_of_must_be_a_function(log, of):
    with pytest.raises(TypeError, match="no function"):
        log.exactly(1, of=of)
    with pytest.raises(TypeError):
        log.of(of)


def test_unknown_arguments_are_errors(log):
    with pytest.raises(TypeError):
        log.exactly(1, function=f)
    with pytest.raises(TypeError):
        log.none(1)
    with pytest.raises(TypeError):
        log.exactly()


def test_an_unknown_name_is_an_error_with_a_suggestion(log):
    @jax.jit
    def normalise_batch(a):
        return a / 2

    normalise_batch(x(3))
    with pytest.raises(UnknownFunctionError, match=r"Did you mean.*'normalise_batch'"):
        _ = log.of("normalize_batch").count
    with pytest.raises(UnknownFunctionError), log.exactly(0, of="nowhere_to_be_found"):
        pass
    with pytest.raises(UnknownFunctionError), log.none(of="nowhere_to_be_found"):
        pass
    assert log.of("normalise_batch").count == 1  # negative control


def test_each_unknown_name_of_several_is_an_error(log):
    fresh = jax.jit(lambda a: a + 1)
    with pytest.raises(UnknownFunctionError, match="nowhere_to_be_found"):
        with log.exactly(1, of=[fresh, "nowhere_to_be_found"]):
            fresh(x(3))


@pytest.mark.parametrize("of", [[], ()])
def test_of_nothing_is_an_error(log, of):
    with pytest.raises(TypeError, match="of= is empty"):
        log.exactly(1, of=of)


def test_an_expectation_that_is_never_entered_is_a_failure():
    with pytest.raises(CompileCountError, match=r"test_expectations.py:\d+ was never entered"):
        with count_compiles() as log:
            log.exactly(99)
    with count_compiles() as log:
        prepared = log.exactly(0)
        with prepared:
            pass
        log.per_call(jax.jit(lambda a: a), [x(3)])


def test_an_expectation_that_is_never_entered_hides_no_error_of_the_body():
    with pytest.raises(ValueError, match="of the body"), count_compiles() as log:
        log.exactly(99)
        raise ValueError("of the body")


def test_too_few_says_where_the_others_may_be(log):
    @jax.jit
    def inner(a):
        return a + 1

    inner(x(3))
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(CompileCountError) as before, log.exactly(1, of=inner):
        inner(x(3))
    told = rf"Compiled before this block: 1, the last time at \S*test_expectations.py:{line}\n"
    assert re.search(told, f"{before.value}\n")

    plain = lambda a: a  # noqa: E731
    with pytest.raises(CompileCountError, match=r"Nothing jitted .*give what jax\.jit returned"):
        with log.exactly(1, of=plain):
            plain(x(3))
    unused = jax.jit(plain)
    with pytest.raises(CompileCountError, match=r"Nothing jitted from \S* was traced .* so far$"):
        with log.exactly(1, of=unused):
            pass

    @jax.jit
    def other(a):
        return a * 2

    with pytest.raises(CompileCountError, match=r"Traced as a part of other programs.*: 1"):
        with log.exactly(1, of=other):
            jax.jit(lambda a: other(a) + 1)(x(3))


def test_only_first_compilations_ask_for_a_warm_up(log):
    fresh = jax.jit(lambda a: a + 1)
    with pytest.raises(CompileCountError, match="a test starts cold, after its fixtures"):
        with log.at_most(0, of=fresh):
            fresh(x(3))
    with pytest.raises(CompileCountError) as again, log.at_most(0, of=fresh):
        fresh(x(4))
    assert "starts cold" not in str(again.value)


def test_a_known_function_that_did_not_compile_counts_zero(log):
    f(x(3))
    assert log.of(g).count == log.of("g").count == 0
    assert log.of(f).count == 1


# -- views -------------------------------------------------------------------------------


def test_a_log_is_a_read_only_sequence(log):
    assert (len(log), bool(log), list(log)) == (0, False, [])
    f(x(3))
    g(x(4))
    f(x(5))
    assert len(log) == log.count == 3
    assert [record.function for record in log] == ["f", "g", "f"]
    assert log[0].function == "f"
    assert log[-1].signature.leaves[0].shape == (5,)
    assert [r.function for r in log[1:]] == ["g", "f"]
    assert log[0] in log
    with pytest.raises(IndexError):
        log[3]
    with pytest.raises(TypeError):
        log[0] = log[1]
    with pytest.raises(AttributeError):
        log.count = 3


def test_of_several_and_of_globs(log):
    f(x(3))
    g(x(3))
    jax.jit(lambda a: a - 1)(x(3))
    assert log.of(f, g).count == 2
    assert log.of(f, "g").count == 2
    assert log.of("f", "f").count == 1
    assert log.of(f"{__name__}.f").count == 1
    assert log.of(f"{__name__}.*").count == 3
    assert log.of("*<lambda>*").count == 1
    with log.exactly(2, of=[f, g]) as seen:
        f(x(4))
        g(x(4))
    assert seen.of(f).count == 1
    with log.exactly(2, of=(f, "g")):
        f(x(5))
        g(x(5))


def test_views_of_views(log):
    a = jax.device_put(x(31))
    f(a)
    a - 5.25
    assert log.all.count == log.count + log.ops.count
    assert log.all.of(f).count == 1
    assert {r.function for r in log.ops} >= {"subtract"} or log.ops.count == 0
    assert log.all.lowerings >= log.lowerings == 1
    assert log.all.traces >= log.traces == 1


def test_a_view_is_live_until_its_block_ends(log):
    view = log.of(f)
    assert view.count == 0
    f(x(3))
    assert view.count == 1
    with log.at_most(9) as seen:
        assert seen.count == 0
        f(x(4))
        assert seen.count == 1
    f(x(5))
    assert (seen.count, view.count) == (1, 3)


def test_after_the_recording(log):
    with count_compiles() as ended:
        f(x(3))
    f(x(4))
    assert ended.count == 1
    assert "f(f32[3])" in ended.explain()
    with pytest.raises(CountUnavailableError), ended.exactly(0):
        pass


def test_explain_and_repr(log):
    assert log.explain() == "nothing compiled"
    f(x(3))
    f(x(4))
    first, second = log.explain().splitlines()
    assert "f(f32[3])" in first
    assert "first compilation" in first
    assert "f(f32[4])" in second
    assert "shape of a: (3,) -> (4,)" in second
    assert f"{__file__.rpartition('/')[2]}:" in first
    assert "2 compilations" in repr(log)


def test_the_message_says_what_compiled_beside(log):
    with pytest.raises(CompileCountError) as failed, log.exactly(2, of=f):
        f(x(3))
        g(x(3))
    assert "not asked for: g (1)" in str(failed.value)
    with pytest.raises(CompileCountError) as failed, log.exactly(0, of=f):
        f(x(4))
        f(x(5))
    text = str(failed.value)
    assert "f(f32[4])" in text
    assert "f(f32[5])" in text
    assert "shape of a" in text
