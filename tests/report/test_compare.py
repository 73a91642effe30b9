"""Adding summaries up, and holding one against another."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from summaries import ENVIRONMENT, SHAPE, compiled, summary, usual

from pytest_jaxcompile.records import Reason
from pytest_jaxcompile.report import compare, merge
from pytest_jaxcompile.report.compare import diff, diff_markdown, diff_text
from pytest_jaxcompile.report.summary import Summary

DTYPE = Reason("dtype", "x", "float32", "int32", None)


def again(n: int, reason: Reason = SHAPE, name: str = "step") -> list[Any]:
    """A first compilation and ``n`` further ones."""
    return [compiled(name), *(compiled(name, reason) for _ in range(n))]


def process(index: int, names: list[str], **fields: Any) -> Summary:
    environment = {**ENVIRONMENT, "process_index": index, "process_count": 3}
    records = [compiled(name) for name in names]
    return summary({"t::a": records}, environment=environment, **fields)


# -- merge --------------------------------------------------------------------------------


def test_shards_add_up() -> None:
    one = summary({"t::a": again(2)}, seconds=30.0, started=500.0)
    two = summary({"t::b": again(1)}, {"script": [compiled("step")]}, seconds=20.0)
    merged = merge.merge([one, two])
    (step,) = merged.functions
    assert (step.compilations, step.again, step.reasons["shape"]) == (6, 3, 3)
    assert step.seconds == pytest.approx(6 * 0.5)
    assert [t.id for t in merged.tests] == ["t::a", "t::b"]
    assert (merged.started, merged.seconds, merged.complete) == (500.0, 30.0, True)
    assert merged.environment["workers"] == 2
    assert "only_in" not in merged.notes


def test_inputs_stay_as_they_were() -> None:
    inputs = [usual(), usual()]
    before = [s.to_json() for s in inputs]
    merge.merge(inputs)
    assert [s.to_json() for s in inputs] == before


def test_merging_one_changes_nothing_and_none_is_empty() -> None:
    assert merge.merge([usual()]).to_json() == usual().to_json()
    assert merge.merge([]).to_json()["totals"]["compilations"] == 0


def test_order_of_shards_changes_no_number() -> None:
    one, two = summary({"t::a": again(2)}), summary({"t::b": again(1, DTYPE, "loss")})
    first, second = merge.merge([one, two]).to_json(), merge.merge([two, one]).to_json()
    for data in (first, second):
        for test in data["tests"]:
            for found in test["compilations"]:
                assert found.pop("worker") in ("1 main", "2 main")
    assert first == second


def test_a_test_of_two_inputs_adds_up_and_keeps_the_worst_outcome() -> None:
    one, two = summary({"t::a": again(1)}), summary({"t::a": again(2)})
    two.tests[0].outcome = "failed"
    for inputs in ([one, two], [two, one]):
        (test,) = merge.merge(inputs).tests
        assert (len(test.compilations), test.outcome, test.seconds) == (5, "failed", 4.0)


def test_one_incomplete_input_makes_the_whole_incomplete() -> None:
    assert not merge.merge([usual(), summary(complete=False)]).complete


def test_environments_and_notes_that_differ_are_kept() -> None:
    other = {**ENVIRONMENT, "jax": "0.7.2", "devices": ["cpu:0", "cpu:1"], "mine": 5}
    one = summary({"t::a": []}, notes={"same": 1, "here": 2, "both": "x"})
    two = summary({"t::b": []}, notes={"same": 1, "both": "y"}, environment=other)
    merged = merge.merge([one, two], ["one.json", "two.json"])
    assert merged.environment["jax"] == "0.10.2, 0.7.2"
    assert merged.environment["devices"] == ["cpu:0", "cpu:1"]
    assert merged.environment["mine"] == 5
    both = {"one.json": "x", "two.json": "y"}
    assert merged.notes == {"same": 1, "here": 2, "both": both}


def test_workers_of_one_name_are_told_apart() -> None:
    one = summary({"t::a": [compiled()]}, worker="gw0")
    two = summary({"t::b": [compiled()]}, worker="gw0")
    three = summary({"t::c": [compiled()]}, worker="gw5")
    merged = merge.merge([one, two, three])
    assert [item.worker for item in merged.items()] == ["1 gw0", "2 gw0", "gw5"]


def test_what_one_process_compiled_alone_is_pointed_out() -> None:
    parts = [process(0, ["step", "log"]), process(1, ["step"]), process(2, ["step", "log"])]
    found = merge.merge(parts).notes["only_in"]
    assert found == [
        {
            "function": "app.model.log",
            "defined_at": "app/model.py:10",
            "in": ["process 0", "process 2"],
            "not_in": ["process 1"],
        }
    ]
    named = merge.merge(parts, ["a", "b", "c"]).notes["only_in"]
    assert (named[0]["in"], named[0]["not_in"]) == (["a", "c"], ["b"])


def test_processes_that_compile_the_same_have_nothing_pointed_out() -> None:
    parts = [process(0, ["step"]), process(1, ["step", "step"]), process(2, ["step"])]
    assert merge.merge(parts).notes["only_in"] == []


def test_hosts_keep_their_files_in_different_folders() -> None:
    for line, expected in ((10, []), (11, ["app.model.step", "app.model.step"])):
        one = summary({"t": [compiled(file="/a/app/model.py")]})
        two = summary({"t": [compiled(file="/b/app/model.py", line=line)]})
        found = merge.merge([one, two], processes=True).notes["only_in"]
        assert [each["function"] for each in found] == expected


def test_eager_operations_are_not_pointed_out() -> None:
    one = summary({"t": [compiled(), compiled("add", eager_op=True)]})
    assert merge.merge([one, summary({"t": [compiled()]})]).notes["only_in"] == []


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([usual()], False),
        ([process(0, []), process(1, [])], True),
        ([process(1, []), process(1, [])], False),
        ([summary({"a": [], "b": []}), summary({"a": [], "b": []})], True),
        ([summary({"a": [], "b": []}), summary({"a": [], "c": []})], False),
        ([summary({"a": []}), summary({"b": []})], False),
        ([summary(outside={"script": [compiled()]}), summary()], True),
    ],
)
def test_processes_are_told_from_shards(inputs: list[Summary], expected: bool) -> None:
    assert merge.are_processes(inputs) is expected
    assert ("only_in" in merge.merge(inputs).notes) is expected
    assert "only_in" in merge.merge(inputs, processes=True).notes
    assert "only_in" not in merge.merge(inputs, processes=False).notes


# -- diff ---------------------------------------------------------------------------------


def test_more_less_new_and_gone() -> None:
    old = summary({"t::a": [*again(1), *again(3, DTYPE, "loss"), compiled("gone")]})
    new = summary({"t::a": [*again(4), *again(1, DTYPE, "loss"), compiled("fresh")]})
    found = diff(old, new)
    (more,), (less,), (fresh,), (gone,) = found.more, found.less, found.new, found.gone
    assert (more.function, more.before, more.after) == ("app.model.step", 2, 5)
    assert (more.why, more.example) == ({"shape": 3}, SHAPE)
    assert more.called_from == "tests/test_model.py:7"
    assert (less.function, less.before, less.after, less.why) == (
        "app.model.loss",
        4,
        2,
        {"dtype": 2},
    )
    assert (fresh.function, fresh.before, fresh.after) == ("app.model.fresh", 0, 1)
    assert (fresh.why, fresh.example) == ({compare.FIRST: 1}, None)
    assert (gone.function, gone.before, gone.after) == ("app.model.gone", 1, 0)
    assert found.before[:2] == (7, 0)
    assert found.after[:2] == (8, 0)
    assert found.warnings == []


def test_the_same_run_has_no_difference() -> None:
    found = diff(usual(), usual())
    assert (found.more, found.less, found.new, found.gone) == ([], [], [], [])
    assert diff_text(found).startswith("No function compiles more or less. ")
    assert diff_text(found).count("\n") == 1
    changed = diff(usual(), summary({"t.py::b": again(1)}))
    assert "No function" not in diff_text(changed)


def test_more_of_one_reason_hides_no_less_of_another() -> None:
    old = summary({"t::a": again(2, DTYPE)})
    new = summary({"t::a": again(3, SHAPE)})
    assert diff(old, new).more[0].why == {"shape": 3}


def test_a_moved_line_is_no_change_and_another_file_is() -> None:
    old = summary({"t::a": [compiled(line=10)]})
    assert diff(old, summary({"t::a": [compiled(line=99)]})).new == []
    other = diff(old, summary({"t::a": [compiled(file="/root/app/other.py")]}))
    assert (len(other.new), len(other.gone)) == (1, 1)


def test_a_library_may_be_installed_elsewhere() -> None:
    places = ("/usr/lib/python3/dist-packages/lib/f.py", r"C:\venv\Lib\site-packages\lib\f.py")
    old, new = (summary({"t::a": [compiled(file=place)]}) for place in places)
    found = diff(old, new)
    assert (found.new, found.gone) == ([], [])


def test_where_it_changed() -> None:
    old = summary({"t::a": again(0), "t::b": again(1), "t::c": []})
    new = summary({"t::a": again(1), "t::b": again(1), "t::c": again(4)})
    (change,) = diff(old, new).more
    assert change.places == (("t::c", 0, 5), ("t::a", 1, 2))


def test_eager_operations_are_only_added_up() -> None:
    new = summary({"t::a": [compiled("add", eager_op=True)] * 3})
    found = diff(summary({"t::a": []}), new)
    assert found.new == []
    assert found.after.eager_ops == 3
    assert "eager operations 0 -> 3" in diff_text(found)


def test_runs_that_cannot_be_compared_say_so() -> None:
    old = summary({"t::a": [], "t::x": []}, environment={**ENVIRONMENT, "jax": "0.7.2"})
    new = summary({"t::a": [], "t::y": []}, complete=False)
    assert diff(old, new).warnings == [
        "the new run is incomplete: it stopped early or lost a worker",
        "jax differs: 0.7.2 -> 0.10.2",
        "1 test not run now, such as t::x",
        "1 test not run before, such as t::y",
    ]


# -- as text ------------------------------------------------------------------------------


def test_text() -> None:
    new = summary({"t::a": again(2), "t::b": again(1)})
    text = diff_text(diff(summary({"t::a": again(0), "t::b": []}), new))
    assert text.splitlines() == [
        "Compilations 1 -> 5 (+4), eager operations 0 -> 0, 0.50 s -> 2.50 s",
        "",
        "Compile more (1):",
        "  +4  1 -> 5  app.model.step  app/model.py:10",
        "      why: shape +3, first compilation +1",
        "      such as shape of x: (3,) -> (4,)  tests/test_model.py:7",
        "      pad x",
        "      in t::a 1 -> 3; t::b 0 -> 2",
    ]


def cells(markdown: str) -> list[list[str]]:
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[html.unescape(cell.strip()) for cell in row.strip("|").split("|")] for row in rows]


def test_markdown() -> None:
    found = diff_markdown(diff(summary({"t::a": again(0)}), summary({"t::a": again(3)})))
    head, _, row = cells(found)
    assert head == ["Function", "Before", "After", "Why", "Such as", "Where"]
    assert row == [
        "<code>app.model.step</code>",
        "1",
        "4",
        "shape +3",
        "shape of x: (3,) -> (4,)<br>pad x",
        "t::a 1 -> 4",
    ]


def test_hostile_names_stay_text_in_one_cell() -> None:
    name = "f|`<script>alert(1)</script>`\n| @team #1 [x](http://y) **b** _i_ &amp;"
    reason = Reason("shape", name, "a|b", "c\nd", "do `this` | <b>now</b>")
    new = summary({f"t::{name}": [compiled(name), compiled(name, reason)]})
    markdown = diff_markdown(diff(summary(), new))
    (row,) = cells(markdown)[2:]
    assert len(row) == 6
    assert row[0] == f"<code>app.model.{name}</code>".replace("\n", " ")
    bare = re.sub(r"&#\d+;", "", markdown.replace("**Compile newly**", ""))
    assert not re.search(r"<(?!/?code>|br>)|[`@\[]|\*", bare)


def test_a_huge_difference_fits_a_comment() -> None:
    many = [compiled(f"function_{i}" + "|" * 300, SHAPE) for i in range(2000)]
    few = [compiled(f"function_{i}") for i in range(2000)]
    markdown = diff_markdown(diff(summary(), summary({f"t::{'|' * 300}": many})))
    assert 60_000 < len(markdown) < 65_536
    assert markdown.endswith("Cut short: a comment holds no more.\n")
    assert "1950 more are not shown" in diff_markdown(diff(summary(), summary({"t": few})))
    assert "... and 1950 more" in diff_text(diff(summary(), summary({f"t::{'|' * 300}": many})))
