"""Drawn sequences of calls compile as often as there are distinct keys.

The keys are computed here, from what a caller passes: shapes, dtypes, weak types,
static values and the structure of arguments. Nothing is taken from JAX or from us.
"""

from __future__ import annotations

import functools
import os
from collections import Counter

import jax
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_jaxcompile import count_compiles

EXAMPLES = int(os.environ.get("JAXCOMPILE_MODEL_EXAMPLES", "12"))
MODEL = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 100,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

BODIES: Counter[str] = Counter()


@functools.partial(jax.jit, static_argnames="k")
def scaled(tree, k):
    BODIES["scaled"] += 1
    leaves = jax.tree_util.tree_leaves(tree)
    return sum(leaf.sum() for leaf in leaves) * k if leaves else k


@functools.partial(jax.jit, static_argnames="k")
def twin(tree, k):
    """The same work under another name."""
    BODIES["twin"] += 1
    leaves = jax.tree_util.tree_leaves(tree)
    return sum(leaf.sum() for leaf in leaves) * k if leaves else k


SHAPES = st.sampled_from([(), (1,), (2,), (2, 2)])
DTYPES = st.sampled_from(["float32", "int32", "bool"])
ARRAYS = st.builds(lambda shape, dtype: ("array", shape, dtype), SHAPES, DTYPES)
SCALARS = st.sampled_from([("scalar", 1), ("scalar", 2.0), ("scalar", True)])
LEAVES = ARRAYS | SCALARS
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.just("list"), st.lists(inner, max_size=2))
        | st.tuples(st.just("tuple"), st.lists(inner, max_size=2))
        | st.tuples(st.just("dict"), st.dictionaries(st.sampled_from("ab"), inner, max_size=2))
        | st.just(("none",))
    ),
    max_leaves=3,
)
STATICS = st.sampled_from([1, 2, 1.5, (1, 2)])
CALLS = st.tuples(
    st.sampled_from(["scaled", "twin"]), TREES, st.integers(0, 2), st.sampled_from([1, 2, 3, 5])
)


def value(tree, content):
    """The argument that a drawn tree stands for, filled with a number that must not matter."""
    match tree:
        case ("array", shape, dtype):
            return np.full(shape, content, dtype)
        case ("scalar", number):
            return type(number)(content)
        case ("list", parts):
            return [value(part, content) for part in parts]
        case ("tuple", parts):
            return tuple(value(part, content) for part in parts)
        case ("dict", parts):
            return {name: value(part, content) for name, part in parts.items()}
        case ("none",):
            return None
    raise AssertionError(tree)


def key(tree):
    """What an executable depends on, of one argument."""
    match tree:
        case ("array", shape, dtype):
            return (shape, dtype, "strong")
        case ("scalar", bool()):
            return ((), "bool", "strong")  # a Python bool has one type only
        case ("scalar", int()):
            return ((), "int32", "weak")
        case ("scalar", float()):
            return ((), "float32", "weak")
        case ("list" | "tuple" as kind, parts):
            return (kind, *(key(part) for part in parts))
        case ("dict", parts):
            return ("dict", *((name, key(parts[name])) for name in sorted(parts)))
        case ("none",):
            return ("none",)
    raise AssertionError(tree)


@MODEL
@given(st.lists(CALLS, min_size=1, max_size=8))
def test_counts_are_the_number_of_distinct_keys(calls):
    functions = {"scaled": scaled, "twin": twin}
    BODIES.clear()
    seen: dict[str, set] = {"scaled": set(), "twin": set()}
    with count_compiles(cold=True) as log:
        for name, tree, content, k in calls:
            new = (key(tree), k) not in seen[name]
            before = log.of(functions[name]).count
            functions[name](value(tree, content), k=k)
            seen[name].add((key(tree), k))
            assert log.of(functions[name]).count - before == new
    for name, function in functions.items():
        view = log.of(function)
        assert view.count == view.lowerings == view.traces == len(seen[name]) == BODIES[name]
        first, *again = view or [None]
        assert first is None or first.reasons == ()
        assert all(record.reasons for record in again)
    assert log.count == sum(map(len, seen.values()))


@MODEL
@given(st.lists(CALLS, min_size=2, max_size=6))
def test_reasons_of_drawn_calls(calls):
    """A function that compiles again is told only differences that there are."""
    kinds_of = {"shape", "dtype", "weak_type", "tree", "static_value"}
    statics: list = []
    with count_compiles(cold=True) as log:
        for _, tree, content, k in calls:
            statics.append(k)
            scaled(value(tree, content), k=k)
    for record in log.of(scaled):
        kinds = {reason.kind for reason in record.reasons}
        assert kinds <= kinds_of
        if len(set(statics)) == 1:
            assert "static_value" not in kinds


CONTEXTS = st.sampled_from(["default", "float32", "highest"])


@MODEL
@given(st.lists(st.tuples(CONTEXTS, st.sampled_from([2, 3])), min_size=1, max_size=6))
def test_contexts_are_part_of_the_key(calls):
    seen = set()
    with count_compiles(cold=True) as log:
        for context, n in calls:
            x = np.ones(n, np.float32)
            if context == "default":
                scaled(x, k=1)
            else:
                with jax.default_matmul_precision(context):
                    scaled(x, k=1)
            seen.add((context, n))
    assert log.of(scaled).count == log.of(scaled).traces == len(seen)


@MODEL
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=6), st.booleans())
def test_functions_made_anew(makers, keep):
    """Each new function object compiles once; the objects that are kept, once in all."""

    def make(k):
        return jax.jit(lambda x: x * k)

    functions = [make(k) for k in range(3)]
    x = np.ones(3, np.float32)
    with count_compiles(cold=True) as log:
        for k in makers:
            (functions[k] if keep else make(k))(x)
    assert log.count == (len(set(makers)) if keep else len(makers))
    if keep:
        assert [log.of(f).count for f in functions] == [int(k in makers) for k in range(3)]


def test_the_model_can_be_wrong():
    """A key that leaves out the weak type would not agree: so the comparison above can fail."""
    with count_compiles(cold=True) as log:
        scaled(np.float32(1), k=1)
        scaled(1.0, k=1)
    coarse = {key(("array", (), "float32"))[:2], key(("scalar", 1.0))[:2]}
    fine = {key(("array", (), "float32")), key(("scalar", 1.0))}
    assert log.of(scaled).count == len(fine) == 2
    assert len(coarse) == 1
