"""The trace file, read by rules of its format and not by the code that wrote it."""

import json
import random

import pytest

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report import chrome_trace
from pytest_jaxcompile.report.summary import Builder, Summary, pack

T0 = 1_754_000_000.0


def compilation(name, start, seconds, **more):
    """``seconds``: of trace, lowering and compiling; ``start``: since the start of the run."""
    traced, lowered, compiled = seconds
    return Compilation(
        name,
        f"Model.{name}",
        "app",
        "/r/app.py:3",
        "/r/test_app.py:9",
        Signature(("x",), (Leaf((8,), "float32"),)),
        trace_seconds=traced,
        lower_seconds=lowered,
        compile_seconds=compiled,
        start=T0 + start,
        **more,
    )


def build(*tests, outside=(), worker="") -> Builder:
    builder = Builder()
    builder.summary.started = T0
    builder.summary.seconds = 60.0
    for nodeid, records in tests:
        builder.test(nodeid, "passed", 5.0, pack(records, "/r", worker) if records else None)
    if outside:
        builder.outside(pack(outside, "/r", worker, ["import"] * len(outside)))
    return builder


def events(builder) -> list[dict]:
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(chrome_trace.render(builder.summary), parse_constant=refuse)["traceEvents"]


def spans(found, category=None):
    return [e for e in found if e["ph"] == "X" and category in (None, e["cat"])]


def by_name(found, name):
    [one] = [e for e in spans(found) if e["name"] == name]
    return one


def parents(found):
    """Each span's parent on its track. Raises ``AssertionError`` if two overlap in part."""
    above = {}
    tracks: dict[tuple, list[dict]] = {}
    for event in spans(found):
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        # Python sorts stably: of equal spans the one written first is around the other.
        track.sort(key=lambda e: (e["ts"], -e["dur"]))
        stack: list[dict] = []
        for event in track:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            if stack:
                end = stack[-1]["ts"] + stack[-1]["dur"]
                assert event["ts"] + event["dur"] <= end, (stack[-1], event)
            above[id(event)] = stack[-1] if stack else None
            stack.append(event)
    return above


def check(found):
    """What every trace must be."""
    parents(found)
    named_processes, named_threads = set(), set()
    for event in found:
        assert event["ph"] in {"X", "M"}
        assert type(event["pid"]) is int
        if event["ph"] == "X":
            assert type(event["tid"]) is type(event["ts"]) is type(event["dur"]) is int
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"] in {"test", "function", "phase"}
        elif event["name"] == "process_name":
            named_processes.add(event["pid"])
        else:
            named_threads.add((event["pid"], event["tid"]))
    names = [e for e in found if e["ph"] == "M"]
    assert len(names) == len(named_processes) + len(named_threads)
    assert {e["pid"] for e in spans(found)} <= named_processes
    assert {(e["pid"], e["tid"]) for e in spans(found)} <= named_threads


def times(event):
    return event["ts"], event["dur"]


def test_a_test_holds_its_functions_and_they_their_phases():
    found = events(
        build(
            ("t.py::a", [compilation("f", 1.5, (0.2, 0.1, 0.4)), compilation("g", 3, (0, 0, 1))]),
            ("t.py::nothing", []),
        )
    )
    check(found)
    # From 1.5 s to 4 s.
    assert times(by_name(found, "t.py::a")) == (1_500_000, 2_500_000)
    assert times(by_name(found, "f")) == (1_500_000, 700_000)
    assert times(by_name(found, "trace")) == (1_500_000, 200_000)
    assert times(by_name(found, "lower")) == (1_700_000, 100_000)
    assert [times(e) for e in spans(found) if e["name"] == "compile"] == [
        (1_800_000, 400_000),
        (3_000_000, 1_000_000),
    ]
    above = parents(found)
    assert {above[id(e)]["cat"] for e in spans(found, "phase")} == {"function"}
    assert {above[id(e)]["name"] for e in spans(found, "function")} == {"t.py::a"}
    assert [e["name"] for e in spans(found, "test")] == ["t.py::a"]


def test_what_is_known_of_a_compilation_is_in_its_arguments():
    reason = Reason("shape", "x", "f32[4]", "f32[8]", "pad x")
    record = compilation("f", 0, (0.1, 0, 0.1), disk_hit=True, reasons=(reason,))
    found = events(build(("t.py::a", [record, compilation("g", 1, (0, 0, 1))])))
    args = by_name(found, "f")["args"]
    assert args["signature"] == "(f32[8])"
    assert args["reasons"] == ["shape of x: f32[4] -> f32[8]"]
    assert args["hints"] == ["pad x"]
    assert args["called_from"] == "test_app.py:9"
    assert args["qualname"] == "app.Model.f"
    assert args["disk_hit"] is True
    assert by_name(found, "g")["args"]["reasons"] == ["first compilation"]
    assert by_name(found, "disk load")["args"] == {"function": "f"}
    assert by_name(found, "t.py::a")["args"]["compilations"] == 2


def test_what_compiled_inside_a_trace_lies_inside_it():
    outer = compilation("outer", 1.0, (0.5, 0.25, 1.0))
    inner = compilation("inner", 1.25, (0.125, 0, 0.125))
    deep = compilation("deep", 1.3, (0, 0, 0.0625))
    found = events(build(("t.py::a", [deep, inner, outer])))
    check(found)
    above = parents(found)
    # Times are own times: what lies around another lasts its own time and the other's.
    assert times(by_name(found, "deep")) == (1_300_000, 62_500)
    assert times(by_name(found, "inner")) == (1_250_000, 250_000 + 62_500)
    assert times(by_name(found, "outer")) == (1_000_000, 1_750_000 + 250_000 + 62_500)
    assert above[id(by_name(found, "deep"))]["name"] == "trace"
    assert above[id(by_name(found, "inner"))]["args"]["function"] == "outer"
    [lowering] = [e for e in spans(found) if e["name"] == "lower"]
    assert times(lowering) == (1_000_000 + 500_000 + 312_500, 250_000)
    assert len({e["tid"] for e in spans(found)}) == 1


def test_what_overlaps_a_build_gets_a_track_of_its_own():
    one = compilation("one", 1.0, (0, 0, 1.0))
    two = compilation("two", 1.5, (0, 0, 1.0))
    found = events(build(("t.py::a", [one, two])))
    check(found)
    assert by_name(found, "one")["tid"] != by_name(found, "two")["tid"]
    assert [times(e) for e in spans(found, "test")] == [
        (1_000_000, 1_000_000),
        (1_500_000, 1_000_000),
    ]
    labels = [e["args"]["name"] for e in found if e["name"] == "thread_name"]
    assert labels == ["MainThread", "MainThread (overlapping, 2)"]


def test_the_reader_sees_partial_overlap():
    one = {"ph": "X", "cat": "test", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    with pytest.raises(AssertionError):
        parents([one, one | {"ts": 5}])
    parents([one, one | {"ts": 5, "dur": 5}, one | {"ts": 10}, one | {"ts": 5, "tid": 2}])


def test_the_reader_sees_a_track_without_a_name():
    found = events(build(("t.py::a", [compilation("f", 1, (0, 0, 1))])))
    check(found)
    with pytest.raises(AssertionError):
        check([e for e in found if e["name"] != "thread_name"])


def test_workers_are_processes_and_threads_are_threads():
    builder = build(
        (
            "t.py::a",
            [
                compilation("f", 1, (0, 0, 1)),
                compilation("g", 1.5, (0, 0, 1), thread="pool_0"),
            ],
        ),
        worker="gw0",
    )
    builder.test("t.py::b", "failed", 1, pack([compilation("h", 1.2, (0, 0, 1))], "/r", "gw1"))
    found = events(builder)
    check(found)
    f, g, h = (by_name(found, name) for name in "fgh")
    assert f["pid"] == g["pid"] != h["pid"]
    assert f["tid"] != g["tid"]
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {f["pid"]: "JAX compilations gw0", h["pid"]: "JAX compilations gw1"}
    # A test on two threads has a span on each.
    assert sorted(times(e) for e in spans(found, "test") if e["pid"] == f["pid"]) == [
        (1_000_000, 1_000_000),
        (1_500_000, 1_000_000),
    ]


def test_outside_tests_nothing_is_invented_around_a_compilation():
    found = events(
        build(
            ("t.py::a", [compilation("f", 5, (0, 0, 1))]),
            outside=[
                compilation("late", 8, (0.5, 0, 0.5)),
                compilation("in_late", 8.25, (0, 0, 1)),
                compilation("early", 1, (0, 0, 1)),
            ],
        )
    )
    check(found)
    above = parents(found)
    assert above[id(by_name(found, "early"))] is None
    assert above[id(by_name(found, "late"))] is None
    assert above[id(by_name(found, "in_late"))]["args"]["function"] == "late"
    assert len({e["tid"] for e in spans(found)}) == 1


def test_times_count_from_the_start_of_the_run_or_the_first_compilation():
    builder = build(("t.py::a", [compilation("f", -2.0, (0, 0, 1))]))
    data = json.loads(chrome_trace.render(builder.summary))
    assert times(by_name(data["traceEvents"], "f")) == (0, 1_000_000)
    assert data["otherData"]["started_unix_seconds"] == T0 - 2
    builder.summary.started = 0.0  # not known
    assert times(by_name(events(builder), "f"))[0] == 0


def test_an_empty_run_is_a_trace():
    assert json.loads(chrome_trace.render(Summary()))["traceEvents"] == []


@pytest.mark.parametrize("seed", range(20))
def test_any_times_give_a_valid_trace(seed):
    dice = random.Random(seed)
    number = iter(range(10_000))

    def some(n):
        return [
            compilation(
                f"f{next(number)}",
                dice.choice([dice.uniform(0, 3), round(dice.uniform(0, 3), 1)]),
                [dice.choice([0.0, 0.1, dice.uniform(0, 0.8), 3e-7]) for _ in range(3)],
                thread=dice.choice(["MainThread", "pool"]),
            )
            for _ in range(n)
        ]

    tests = [(f"t.py::{i}", some(dice.randrange(8))) for i in range(6)]
    builder = build(*tests, outside=some(6))
    found = events(builder)
    check(found)
    above = parents(found)
    functions = spans(found, "function")
    assert len(functions) == builder.summary.compilations
    inside: dict[str, int] = {}
    for event in functions:
        holder = above[id(event)]
        while holder is not None and holder["cat"] == "phase":
            holder = above[id(holder)]
        if holder is not None and holder["cat"] == "function":
            inside[holder["name"]] = inside.get(holder["name"], 0) + event["dur"]
    for event in functions:
        own = event["dur"] - inside.get(event["name"], 0)
        # Each of three phases is rounded to a whole microsecond.
        assert abs(own - event["args"]["own_seconds"] * 1e6) <= 1.5 + 1e-6
