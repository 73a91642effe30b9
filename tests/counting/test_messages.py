"""What a failed expectation says, to one who reads nothing else."""

from __future__ import annotations

import os

import pytest

from pytest_jaxcompile.counting import messages
from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature, Static


def compilation(function: str = "f", *shape: int, **more: object) -> Compilation:
    leaf = Leaf(shape or (3,), "float32")
    fields: dict[str, object] = {
        "function": function,
        "qualname": function,
        "module": "m",
        "defined_at": None,
        "called_from": "/elsewhere/test_m.py:7",
        "signature": Signature(("x",), (leaf,)),
    }
    return Compilation(**(fields | more))  # type: ignore[arg-type]


SHAPE = Reason("shape", "x", "(3,)", "(4,)", "pad x")


@pytest.mark.parametrize(
    ("actual", "least", "most", "named", "line"),
    [
        (2, 1, 1, "f", "expected exactly 1 compilation of f, got 2"),
        (1, 2, 2, "f", "expected exactly 2 compilations of f, got 1"),
        (2, None, 1, "", "expected at most 1 compilation, got 2"),
        (3, None, 2, "f, g", "expected at most 2 compilations of f, g, got 3"),
        (0, 1, None, "f", "expected at least 1 compilation of f, got 0"),
        (1, 3, None, "", "expected at least 3 compilations, got 1"),
        (1, None, 0, "f", "expected no compilation of f, got 1"),
        (1, 0, 0, "", "expected no compilation, got 1"),
    ],
)
def test_the_first_line(
    actual: int, least: int | None, most: int | None, named: str, line: str
) -> None:
    text = messages.message([compilation()] * actual, [], least, most, named)
    assert text.splitlines()[0] == line


def test_a_whole_message() -> None:
    again = compilation("f", 4, reasons=(SHAPE,))
    text = messages.message([compilation(), again], [compilation("g")], 1, 1, "f")
    assert text == (
        "expected exactly 1 compilation of f, got 2\n"
        "  1. f(f32[3])  /elsewhere/test_m.py:7  first compilation\n"
        "  2. f(f32[4])  /elsewhere/test_m.py:7  shape of x: (3,) -> (4,)\n"
        "Compiled too, but not asked for: g (1)\n"
        "What to do:\n"
        "  - pad x"
    )


def test_one_line_for_each_compilation_whatever_it_holds() -> None:
    static = (("text", Static("Box(\n  a,\n)", "m.Box", "value", 1)),)
    records = [compilation(signature=Signature(static=static)) for _ in range(5)]
    lines = list(messages.lines(records))
    assert len(lines) == 5
    assert lines[0].startswith("  1. f(text=Box( a, ))  ")


def test_numbers_stand_in_a_column() -> None:
    lines = list(messages.lines([compilation()] * 12))
    assert lines[0].startswith("   1. f(")
    assert lines[11].startswith("  12. f(")


def test_more_than_can_be_read_are_counted() -> None:
    lines = list(messages.lines([compilation()] * 25))
    assert len(lines) == 21
    assert lines[-1] == "  ... and 5 more"


# -- a line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transform", "call"),
    [
        ((), "f(f32[3,2])"),
        (("vmap",), "vmap of f(f32[3,2])"),
        (("linearize", "vmap"), "linearize of vmap of f(f32[3,2])"),
    ],
)
def test_a_transformation_reads_as_words(transform: tuple[str, ...], call: str) -> None:
    signature = Signature(("x",), (Leaf((3, 2), "float32"),), transform=transform)
    record = compilation(signature=signature)
    assert record.call == call
    assert messages.line(record) == f"{call}  /elsewhere/test_m.py:7  first compilation"
    assert str(record) == f"{call} at /elsewhere/test_m.py:7"


def test_a_call_shows_a_few_arguments_and_the_static_ones() -> None:
    leaves = (Leaf((), "int32", True), *[Leaf((3,), "bfloat16")] * 7)
    static = (("k", Static("1", "builtins.int", "value", 1)),)
    signature = Signature(tuple("abcdefgh"), leaves, static=static)
    assert compilation(signature=signature).call == (
        "f(i32[]{weak_type=True}, bf16[3], bf16[3], bf16[3], bf16[3], bf16[3], ... 2 more, k=1)"
    )


def test_a_long_static_value_is_cut() -> None:
    static = (("k", Static("x" * 200, "m.Config", "value", 1)),)
    assert compilation(signature=Signature(static=static)).call == f"f(k={'x' * 37}...)"


def test_what_a_line_says_beside_the_call() -> None:
    record = compilation(disk_hit=True, eager_op=True, thread="worker-1", called_from=None)
    assert messages.line(record) == (
        "eager op f(f32[3]) [from disk] on thread worker-1  first compilation"
    )
    assert str(record) == "f(f32[3]) [from disk]"


def test_places_below_the_current_folder_are_relative() -> None:
    here = os.getcwd()
    assert messages.shown_path(os.path.join(here, "tests", "a.py:3")) == f"tests{os.sep}a.py:3"
    assert messages.shown_path("/elsewhere/a.py:3") == "/elsewhere/a.py:3"
    assert messages.shown_path(f"{here}-other/a.py:3") == f"{here}-other/a.py:3"


@pytest.mark.parametrize(
    ("number", "rest"), [(4, ""), (5, "; 1 more difference"), (7, "; 3 more differences")]
)
def test_many_reasons_are_counted(number: int, rest: str) -> None:
    text = messages.why([SHAPE] * number)
    assert text == "; ".join([str(SHAPE)] * 4) + rest


def test_reasons_read_with_and_without_an_argument() -> None:
    reasons = [
        Reason("transform", None, "a plain call", "vmap"),
        Reason("evicted"),
        Reason("dtype", "8 more arguments"),
    ]
    assert messages.why(reasons) == (
        "transform: a plain call -> vmap; evicted; dtype of 8 more arguments"
    )


# -- beside and after -------------------------------------------------------------------


def test_what_compiled_too_is_told_the_most_frequent_first() -> None:
    others = [compilation("g"), compilation("h"), compilation("h")]
    text = messages.message([compilation()], others, None, 0, "f")
    assert "Compiled too, but not asked for: h (2), g (1)" in text.splitlines()


def test_eager_operations_matter_only_where_something_is_missing() -> None:
    ops = [compilation("add", eager_op=True), compilation("mul", eager_op=True)]
    line = "Eager operations that compiled, counted only by .ops and .all: 2"
    assert line in messages.message([], ops, 1, None, "f").splitlines()
    assert line in messages.message([compilation()], ops, 2, 2, "f").splitlines()
    assert line not in messages.message([compilation()] * 2, ops, 1, 1, "f")
    assert line not in messages.message([compilation()], [], 2, None, "f")


def test_hints_are_given_once_and_a_few_of_them() -> None:
    hints = [Reason("shape", f"x{n}", "(3,)", "(4,)", f"pad {n}") for n in (1, 1, 2, 3, 4, 5, 6)]
    text = messages.message([compilation(reasons=tuple(hints))], [], None, 0, "f")
    assert text.partition("What to do:\n")[2].splitlines() == [
        *(f"  - pad {n}" for n in (1, 2, 3, 4, 5)),
        "  - and 1 more",
    ]


def test_the_last_of_several_hints_about_one_argument_is_given() -> None:
    hints = [Reason("shape", "x", "(3,)", "(4,)", f"{n} lengths so far") for n in (2, 3, 4)]
    records = [compilation(reasons=(hint,)) for hint in hints]
    text = messages.message(records, [], None, 0, "f")
    assert text.partition("What to do:\n")[2].splitlines() == ["  - 4 lengths so far"]


def test_no_advice_against_compiling_where_more_was_expected() -> None:
    again = compilation("f", 4, reasons=(SHAPE,))
    assert "What to do" not in messages.message([again], [], 2, None, "f")
    assert "What to do" not in messages.message([again], [], 2, 2, "f")


def test_no_section_of_hints_without_hints() -> None:
    again = compilation(reasons=(Reason("unknown", None, "one program", "another"),))
    assert "What to do" not in messages.message([again], [], None, 0, "f")


def test_an_unknown_name_proposes_near_ones() -> None:
    live = [("summed", "summed", "app"), ("other", "other", "app"), ("sum", "sum", "jax.numpy")]
    assert messages.unknown_name("sumed", live) == (
        "of='sumed' names no function that this process has jitted, so a count of it would say "
        "nothing. Did you mean 'summed'?"
    )
    assert messages.unknown_name("zzz", live).endswith("would say nothing.")


def test_users_functions_are_proposed_before_those_of_jax() -> None:
    live = [("tan", "tan", "jax.numpy"), ("triu", "triu", "jax.numpy"), ("train", "train", "app")]
    assert messages.unknown_name("trian*", live).endswith("Did you mean 'train'?")
    assert messages.unknown_name("triuu", live[:2]).endswith("Did you mean 'triu'?")
