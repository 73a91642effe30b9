"""The page as a text: what it says without its script, and that nothing in it can run or load."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from pytest_jaxcompile.records import KINDS, Compilation, Leaf, Reason, Signature, Static
from pytest_jaxcompile.report import html
from pytest_jaxcompile.report.summary import Builder, Summary, pack

HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=2><!--<script>&amp;"


def compilation(name="step", size=8, seconds=1.0, reasons=(), **more):
    return Compilation(
        name,
        more.pop("qualname", name),
        "app",
        more.pop("defined_at", "/r/app.py:3"),
        more.pop("called_from", "/r/test_app.py:9"),
        more.pop("signature", None) or Signature(("x",), (Leaf((size,), "float32"),)),
        compile_seconds=seconds,
        reasons=reasons,
        **more,
    )


def shape(before, after, hint=None):
    return (Reason("shape", "x", before, after, hint),)


def summary_of(*tests, seconds=10.0, worker="") -> Summary:
    builder = Builder()
    for nodeid, records in tests:
        builder.test(nodeid, "passed", 2.0, pack(records, "/r", worker) if records else None)
    builder.summary.seconds = seconds
    return builder.summary


class Reader(HTMLParser):
    """Elements with their attributes, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "input", "link"}:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if tag in {"dt", "dd"}:
            self.handle_data(" ")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def count(self, tag):
        return sum(1 for name, _ in self.elements if name == tag)

    def words(self, tag="main"):
        return " ".join(" ".join(self.texts[tag]).split())


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )


# -- the answer -------------------------------------------------------------------------


def test_the_answer_is_there_without_any_script():
    page = html.render(
        summary_of(
            (
                "t.py::a",
                [
                    compilation(size=8, seconds=0.5),
                    compilation(size=16, seconds=1.0, reasons=shape("f32[8]", "f32[16]", "pad x")),
                    compilation("g", seconds=0.25, trace_seconds=0.25, disk_hit=True),
                    compilation("add", seconds=0.5, eager_op=True),
                ],
            ),
            seconds=10.0,
        )
    )
    words = Reader(page).words()
    # 0.5 + 1 + 0.25 + 0.25 + 0.5 = 2.5 s of 10 s.
    assert "Compiling took 2.5 s, 25% of the run's 10.0 s." in words
    assert "trace 250 ms" in words
    assert "compile 2.0 s" in words
    assert "load from disk 250 ms" in words
    assert "everything else 7.5 s" in words
    assert "compilations 3 of 2 functions again 1 1.0 s eager ops 1" in words
    assert "step 1 time, 1.0 s" in words
    assert "shape 1" in words
    assert "pad x step up to 1.0 s in 1 compilation" in words


def test_the_share_is_of_the_time_of_all_processes():
    summary = summary_of(("t.py::a", [compilation(seconds=4.0)]), seconds=10.0)
    assert "40% of the run's 10.0 s" in Reader(html.render(summary)).words()
    summary.environment["workers"] = 2
    assert "20% of the 10.0 s that 2 processes ran" in Reader(html.render(summary)).words()


def test_nothing_compiled():
    reader = Reader(html.render(Summary()))
    assert "Nothing compiled." in reader.words()
    assert reader.count("script") == 0


@pytest.mark.parametrize("complete", [True, False])
def test_an_incomplete_run_says_so(complete):
    words = Reader(html.render(Summary(complete=complete))).words()
    assert ("Incomplete." in words) is not complete


# -- one file, nothing from outside -------------------------------------------------------


def references(page):
    return re.findall(r"https?:|[\"'(]//\w|\ssrc=|\shref=[\"']?[^#\"']|@import|url\(|fetch\(", page)


def test_the_page_refers_to_nothing_outside_itself():
    page = html.render(summary_of(("t.py::a", [compilation()])))
    assert references(page) == []
    assert references(page + '<img src="a.png">')
    assert references(page + '<link rel="stylesheet" href="a.css">')


def test_the_policy_allows_this_script_alone():
    page = html.render(summary_of(("t.py::a", [compilation()])))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none';")

    def allowed(script):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return f"script-src 'sha256-{digest}'" in policy

    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    assert allowed(script)
    assert not allowed(script + " ")


def test_the_script_makes_no_markup_of_texts():
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    script = re.search(
        r"<script>(.*?)</script>", html.render(summary_of(("t", [compilation()]))), re.DOTALL
    )[1]
    assert not re.search(sinks, script)
    assert re.search(sinks, script + "x.innerHTML = name")


def test_jinja2_is_needed_for_the_page_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pytest-jaxcompile\[html\]"):
        html.render(Summary())


@pytest.mark.parametrize(("then", "loaded"), [("", "False"), ("html.render(Summary())", "True")])
def test_importing_the_module_does_not_import_jinja2(then, loaded):
    code = (
        "import sys; from pytest_jaxcompile.report import html; "
        f"from pytest_jaxcompile.report.summary import Summary; {then}\n"
        "print('jinja2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loaded


# -- hostile names ------------------------------------------------------------------------


def hostile_summary():
    static = (("n", Static(HOSTILE, "str", "value", 1)),)
    signature = Signature((HOSTILE,), (Leaf((8,), "float32"),), static=static)
    record = compilation(
        HOSTILE,
        reasons=(Reason("shape", HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        signature=signature,
        defined_at=f"/r/{HOSTILE}:1",
        called_from=f"/r/{HOSTILE}:2",
        thread=HOSTILE,
    )
    summary = summary_of((HOSTILE, [record]), worker=HOSTILE)
    summary.environment = {HOSTILE: HOSTILE}
    summary.notes = {HOSTILE: [HOSTILE]}
    return summary


def test_hostile_names_stay_text():
    page = html.render(hostile_summary())
    reader = Reader(page)
    assert reader.count("script") == 2
    assert reader.count("img") == 0
    assert not [n for _, attributes in reader.elements for n in attributes if n.startswith("on")]
    assert HOSTILE in reader.texts["main"][0]
    data = data_of(page)
    assert data["functions"][0][0] == HOSTILE
    assert data["owners"][0][0] == HOSTILE
    assert f"static n = {HOSTILE}" in data["texts"]


def test_the_reader_sees_what_unescaped_data_would_do():
    page = html.render(hostile_summary())
    block = re.search(r'id="data">(.*?)</script>', page)[1]
    reader = Reader(page.replace(block, json.dumps(json.loads(block))))
    assert reader.count("script") > 2
    assert reader.count("img") > 0


def test_data_holds_no_character_that_markup_needs():
    value = {HOSTILE: ["\u2028", "<>&", None, 1.5]}
    text = html.embeddable(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


def test_a_name_that_is_no_unicode_can_be_written():
    page = html.render(summary_of(("bad\udc80", [compilation("f\udc80", reasons=shape("a", "b"))])))
    page.encode("utf-8")
    assert data_of(page)["owners"][0][0] == "bad\udc80"
    with pytest.raises(UnicodeEncodeError):
        "bad\udc80".encode()


# -- what the script reads ------------------------------------------------------------------


def test_every_kind_has_a_look_of_its_own():
    assert set(html.KINDS) == set(KINDS)
    assert len({look.glyph for look in html.KINDS.values()}) == len(KINDS)
    assert len({(look.colour, look.texture) for look in html.KINDS.values()}) == len(KINDS)
    style = (files("pytest_jaxcompile.report") / "templates" / "report.css").read_text()
    for look in html.KINDS.values():
        assert f".{look.colour} {{" in style
        assert look.texture == "solid" or f".swatch.{look.texture} {{" in style


def test_compilations_are_in_the_order_of_time_from_the_start_of_the_run():
    summary = summary_of(
        ("a", [compilation("late", start=107.5)]), ("b", [compilation("early", start=102.25)])
    )
    summary.started = 100.0
    data = data_of(html.render(summary))
    names = [data["functions"][row[0]][0] for row in data["items"]]
    assert names == ["early", "late"]
    assert [row[3] for row in data["items"]] == [2.25, 7.5]
    assert [data["owners"][row[2]][0] for row in data["items"]] == ["b", "a"]


def test_large_signatures_are_kept_once_and_cut():
    leaves = tuple(Leaf((n,), "float32") for n in range(1000))
    paths = tuple(f"p[{n}]" for n in range(1000))
    record = compilation(signature=Signature(paths, leaves))
    one = html.render(summary_of(("a", [record])))
    _, shown, _, more = data_of(one)["signatures"][0]
    assert (len(shown), more) == (200, 800)
    many = html.render(summary_of(("a", [record] * 101)))
    # A hundred more of them cost a row each, not a signature each.
    assert len(many) - len(one) < 100 * 100


def test_an_argument_says_what_the_cache_keys_on():
    leaf = Leaf((2, 3), "bfloat16", True, "P('x')", "cpu:0", True)
    record = compilation(signature=Signature(("w",), (leaf,), options=(("donate_argnums", "0"),)))
    texts = data_of(html.render(summary_of(("a", [record]))))["texts"]
    assert "w: bf16[2,3] weak on cpu:0, P('x')" in texts
    assert "jit option donate_argnums = 0" in texts
