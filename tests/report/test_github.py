"""Annotations and the job summary: nothing in a name acts on GitHub, nothing is cut silently."""

import re

import pytest

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report import github
from pytest_jaxcompile.report.summary import Builder, Summary, pack

HOSTILE = (
    "a|b`c<img src=x onerror=alert(1)>*d*_e_[f](http://g)~~h~~\n# i\\| @someone #1 &amp; \u202e"
)


def compilation(name="step", size=8, seconds=1.0, reasons=(), **more):
    signature = Signature(("x",), (Leaf((size,), "float32"),))
    return Compilation(
        name,
        name,
        "app",
        "/r/app.py:3",
        "/r/test_app.py:9",
        signature,
        compile_seconds=seconds,
        reasons=reasons,
        **more,
    )


def summary_of(*tests, seconds=10.0) -> Summary:
    builder = Builder()
    for nodeid, records in tests:
        builder.test(nodeid, "passed", 2.0, pack(records, "/r", "") if records else None)
    builder.summary.seconds = seconds
    return builder.summary


def shape(before, after, hint=None):
    return (Reason("shape", "x", before, after, hint),)


# -- annotations ----------------------------------------------------------------------


def commands(output: str):
    """Workflow commands as the runner reads them: one a line, properties split before decoding."""

    def decode(text):
        for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r")):
            text = text.replace(code, character)
        return text.replace("%25", "%")

    found = []
    for line in re.split(r"\r\n|\r|\n", output):
        match = re.fullmatch(r"::(\w+)(?: (.*?))?::(.*)", line)
        if match:
            pairs = [p.split("=", 1) for p in (match[2] or "").split(",") if p]
            found.append((match[1], {k: decode(v) for k, v in pairs}, decode(match[3])))
    return found


def test_an_annotation_says_what_it_was_given():
    [(command, properties, message)] = commands(
        github.annotation("a,b:c/100%.py", 12, "two: a, b", "first\nsecond 50%\r\n::error::third")
    )
    assert command == "error"
    assert properties == {"file": "a,b:c/100%.py", "line": "12", "title": "two: a, b"}
    assert message == "first\nsecond 50%\r\n::error::third"


def test_the_reader_would_see_a_second_command():
    assert len(commands("::error file=a::first\n::error::third")) == 2
    assert len(commands(github.annotation("a", 1, "t", "first\n::error::third"))) == 1


def test_an_encoded_text_is_not_decoded_twice():
    [(_, properties, message)] = commands(github.annotation("%2C%0A", 1, "t", "%0A%3A"))
    assert properties["file"] == "%2C%0A"
    assert message == "%0A%3A"


@pytest.mark.parametrize(
    ("path", "line", "title", "expected"),
    [
        (None, None, "", "::error::m"),
        (None, None, "t", "::error title=t::m"),
        ("f.py", None, "t", "::error file=f.py,title=t::m"),
        ("f.py", 3, "t", "::error file=f.py,line=3,title=t::m"),
    ],
)
def test_what_is_not_known_is_left_out(path, line, title, expected):
    assert github.annotation(path, line, title, "m") == expected


# -- the job summary --------------------------------------------------------------------


def rows(markdown: str, title: str):
    """Cells of the table under a heading, as written."""
    section = markdown.split(f"### {title}\n", 1)[1].split("\n###", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_totals_reasons_and_tests_by_cost():
    summary = summary_of(
        ("t.py::cheap", [compilation(size=8, seconds=0.5)]),
        (
            "t.py::dear",
            [
                compilation(size=16, seconds=1.0, reasons=shape("f32[8]", "f32[16]", "pad")),
                compilation(size=32, seconds=1.0, reasons=shape("f32[16]", "f32[32]", "pad more")),
                compilation("add", seconds=0.5, eager_op=True, disk_hit=True),
            ],
        ),
        ("t.py::none", []),
        seconds=12.0,
    )
    text = github.step_summary(summary)
    # 0.5 + 1 + 1 + 0.5 = 3 s of 12 s.
    assert "Compiling took **3.0 s**, **25%** of the run's 12.0 s" in text
    assert "3 compilations of 1 function, 2 of them again; 1 eager op; 1 disk hit." in text
    [again] = rows(text, "Functions that compile again")
    assert again[0] == "<code>app&#46;step</code>"
    assert again[1:5] == ["3", "2", "2.0 s", "shape 2"]
    assert again[5] == "pad more"
    tests = rows(text, "Tests that cost most")
    assert [row[0] for row in tests] == [
        "<code>t&#46;py&#58;&#58;dear</code>",
        "<code>t&#46;py&#58;&#58;cheap</code>",
    ]
    assert tests[0][1:] == ["passed", "3", "2.5 s", "2.0 s"]


def test_the_share_is_of_all_processes():
    builder = Builder()
    for worker in ("gw0", "gw1"):
        builder.test(f"t.py::{worker}", "passed", 1.0, pack([compilation()], "/r", worker))
    builder.summary.seconds = 10.0
    # Twice 1 s in twice 10 s.
    assert "**10%** of the 10.0 s that 2 processes ran" in github.step_summary(builder.summary)


def test_nothing_compiled_and_an_incomplete_run():
    text = github.step_summary(Summary(complete=False))
    assert "No function compiled again." in text
    assert "**Incomplete:**" in text
    assert "Incomplete" not in github.step_summary(Summary())


def hostile_summary():
    reasons = shape("a", "b", HOSTILE)
    return summary_of(
        (HOSTILE, [compilation(HOSTILE), compilation(HOSTILE, size=9, reasons=reasons)])
    )


def parsed(markdown: str):
    markdown_it = pytest.importorskip("markdown_it", reason="reads the Markdown")
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    inline = [child for token in tokens for child in token.children or ()]
    return tokens, inline


def test_hostile_names_are_text():
    tokens, inline = parsed(github.step_summary(hostile_summary()))
    assert {t.content for t in inline if t.type == "html_inline"} == {"<code>", "</code>"}
    assert not [t for t in tokens if t.type == "html_block"]
    assert not {t.type for t in inline} & {"link_open", "em_open", "s_open", "image"}
    cells = [t for t in tokens if t.type == "td_open"]
    assert len(cells) == 6 + 5
    shown = "".join(t.content for t in inline if t.type in ("text", "text_special"))
    assert "<img src=x onerror=alert(1)>*d*_e_[f](http://g)~~h~~ # i\\| @someone" in shown
    assert "\\u202e" in shown


def test_the_reader_sees_what_hostile_names_could_do():
    _, inline = parsed(f"| a | b |\n|---|---|\n| {HOSTILE.splitlines()[0]} | x |\n")
    assert [t for t in inline if t.type == "html_inline" and "onerror" in t.content]
    assert {"em_open", "link_open"} <= {t.type for t in inline}


def test_a_lone_surrogate_can_be_written():
    name = "bad\udc80"
    github.step_summary(summary_of((name, [compilation(name)]))).encode("utf-8")
    with pytest.raises(UnicodeEncodeError):
        name.encode("utf-8")


def test_a_large_run_stays_below_the_limit():
    name = "|<&" * 2000
    tests = []
    for i in range(1500):
        again = compilation(f"{name}{i}", size=9, reasons=shape("a", "b", name))
        tests.append((f"{i}{name}", [compilation(f"{name}{i}"), again]))
    text = github.step_summary(summary_of(*tests))
    assert len(text.encode()) <= 1024 * 1024
    assert text.count("1,450 more are not shown.") == 2
    assert len(rows(text, "Functions that compile again")) == 50


def test_what_is_too_long_is_cut_at_a_line_and_says_so():
    lines = ["é" * 30] * 10  # 61 bytes each with the line break
    assert github._bounded(lines, 10_000) == "\n".join(lines) + "\n"
    cut = github._bounded(lines, 200)
    assert len(cut.encode()) <= 200
    assert cut.splitlines()[:2] == lines[:2]
    assert "Cut short" in cut
