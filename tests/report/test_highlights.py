"""What a reader is told first: the share, what compiled again, what to do."""

import pytest

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report import highlights
from pytest_jaxcompile.report.summary import Builder, Summary, pack


def compilation(name="step", size=8, seconds=1.0, reasons=(), **more):
    signature = Signature(("x",), (Leaf((size,), "float32"),))
    return Compilation(
        name, name, "app", None, None, signature, compile_seconds=seconds, reasons=reasons, **more
    )


def shape(before, after, hint=None):
    return (Reason("shape", "x", before, after, hint),)


def summary_of(nodeid, records, seconds=10.0) -> Summary:
    builder = Builder()
    builder.test(nodeid, "passed", 2.0, pack(records, "/r", ""))
    builder.summary.seconds = seconds
    return builder.summary


def test_advice_is_ranked_by_what_it_can_save_and_is_the_latest():
    summary = summary_of(
        "t.py::a",
        [
            compilation("f", 2, 1.0, shape("a", "b", "2 lengths"), start=5.0),
            compilation("f", 3, 1.0, shape("b", "c", "3 lengths"), start=6.0),
            compilation("f", 1, 9.0),
            compilation("g", 2, 3.0, (Reason("tree", "x", "a", "b", "one structure"),)),
            compilation("h", 2, 7.0, (Reason("unknown"),)),
            compilation("i", 2, 8.0, shape("a", "b", "no advice on ops"), eager_op=True),
        ],
    )
    assert [(a.hint, a.times, a.seconds) for a in highlights.advice(summary)] == [
        ("one structure", 1, 3.0),
        ("3 lengths", 2, 2.0),
    ]
    assert [(summary.functions[a.function].name, a.times) for a in highlights.again(summary)] == [
        ("h", 1),
        ("g", 1),
        ("f", 2),
    ]


def test_the_share_is_of_the_time_of_all_processes():
    summary = summary_of("t.py::a", [compilation(seconds=4.0)], seconds=10.0)
    assert highlights.share(summary) == pytest.approx(0.4)
    summary.environment["workers"] = 2
    assert highlights.share(summary) == pytest.approx(0.2)
    summary.seconds = 0.0
    assert highlights.share(summary) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (119.6, "2 min 00 s"),
        (3605, "60 min 05 s"),
    ],
)
def test_durations(seconds, text):
    assert highlights.duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0%"), (0.004, "less than 1%"), (0.25, "25%"), (1.5, "150%")]
)
def test_percentages(part, text):
    assert highlights.percent(part) == text
