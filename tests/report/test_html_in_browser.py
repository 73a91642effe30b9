"""The page in a real browser: what it shows and does, and that it runs and loads nothing else."""

import re

import pytest
from pages import compilation, shape, summary_of

from pytest_jaxcompile.records import Reason
from pytest_jaxcompile.report import html
from pytest_jaxcompile.report.summary import Summary

pytest_plugins = ["chromium"]


def small() -> Summary:
    return summary_of(
        (
            "t.py::lengths",
            [
                compilation("encode", 8, 1.0, 1.0),
                compilation("encode", 16, 3.0, 2.0, shape(8, 16)),
                compilation("encode", 32, 6.0, 4.0, shape(16, 32, "pad x to 32")),
                compilation("encode", 8, 11.0, 0.5, (Reason("evicted"),)),
            ],
        ),
        ("t.py::other", [compilation("decode", 3, 13.0, 3.0), compilation("loss", 4, 17.0, 0.25)]),
        ("t.py::quiet", []),
        ("t.py::op", [compilation("add", 2, 18.0, 0.125, eager_op=True)]),
    )


@pytest.fixture
def page(show):
    page = show(html.render(small()))
    yield page
    assert page.console() == []


def test_the_page_loads_itself_alone_and_says_nothing_to_the_console(show):
    page = show(html.render(small()))
    for table in ("tests", "compilations", "functions"):
        page.click(f"#tab-{table}")
    assert page.console() == []
    assert set(page.requests()) == {page.address}


def test_the_log_would_show_what_is_loaded_and_what_fails(show):
    page = show(html.render(small()) + "<img src='other.png'>")
    # The policy stops the request and says so.
    assert any("other.png" in line for line in page.console())
    page = show("<script>console.error('no')</script><img src='other.png'>")
    assert any("no" in line for line in page.console())
    assert [url for url in page.requests() if url.endswith("other.png")]


# -- the picture ----------------------------------------------------------------------------


def test_each_function_has_a_lane_and_a_text_that_says_the_same(page):
    assert page.texts(".lane button") == ["encode", "decode", "loss"]
    assert page.texts(".lane .sum")[:4] == [
        "4, 3 again · 7.5 s",
        "1 · 3.0 s",
        "1 · 250 ms",
        "1 · 125 ms",
    ]
    assert page.js("document.querySelector('.lane canvas').getAttribute('aria-label')") == (
        "encode: 4 compilations in 7.5 s, from 1.0 s to 11.5 s of the run; "
        "first 1, shape 2, evicted 1"
    )


def coloured(page, lane, kind):
    """Widths, as parts of the lane, of what is painted in the colour of a kind."""
    # Above the glyph, which splits a block; a first compilation is lower and has none.
    property_, height = {"shape": ("--orange", 0.22), "first": ("--first", 0.36)}[kind]
    colour = page.js(
        "getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()",
        property_,
    )
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    pixels, width = page.js(
        "(() => { const c = document.querySelectorAll('.lane canvas')[arguments[0]];"
        "const copy = document.createElement('canvas'); copy.width = c.width; copy.height = 1;"
        "const context = copy.getContext('2d', {willReadFrequently: true});"
        "context.drawImage(c, 0, -Math.round(c.height * arguments[1]));"
        "return [[...context.getImageData(0, 0, c.width, 1).data], c.width]; })()",
        lane,
        height,
    )
    runs = "".join("x" if pixels[i * 4 : i * 4 + 3] == wanted else " " for i in range(width))
    return [len(run) / width for run in runs.split()], width


def test_a_block_is_as_wide_as_the_compilation_took(page):
    page.js("chooseFunction(functions[1], false)")  # a lane that is not selected
    # Compilations of 2 s and of 4 s in a run of 20 s; a block leaves a pixel to the next.
    widths, pixels = coloured(page, 0, "shape")
    assert widths == pytest.approx([0.1, 0.2], abs=3 / pixels)
    widths, pixels = coloured(page, 1, "first")
    assert widths == pytest.approx([0.15], abs=3 / pixels)


def test_a_closer_look_makes_blocks_wider(page):
    before, pixels = coloured(page, 1, "first")
    page.click("[data-zoom=in]")  # 5 s to 15 s
    page.click("[data-zoom=on]")  # 8.33 s to 18.33 s
    after, _ = coloured(page, 1, "first")
    assert after == pytest.approx([2 * before[0]], abs=4 / pixels)
    page.click("[data-zoom=all]")
    assert coloured(page, 1, "first")[0] == before


def test_the_legend_names_the_kinds_that_occur_and_narrows_to_one(page):
    legend = [" ".join(label.split()) for label in page.texts("#legend button")]
    assert legend == ["1 first compilation", "S shape", "E evicted"]
    page.click("#tab-compilations")
    page.click("#legend li:nth-child(2) button")
    assert len(page.column(2)) == 2
    assert page.texts("#chips button") == ["why: shape ✕"]
    page.click("#chips button")
    assert len(page.column(2)) == 6


def test_versions_are_rows_and_compilations_columns(page):
    page.click(".lane button")
    assert page.text("#versions-title") == "Versions of app.encode"
    assert page.texts(".grid tbody th") == ["x: f32[8]", "x: f32[16]", "x: f32[32]"]
    filled = page.js(
        "[...document.querySelectorAll('.grid tbody tr')].map(r =>"
        " [...r.cells].map((c, i) => c.querySelector('button') ? i : 0).filter(Boolean))"
    )
    assert filled == [[1, 4], [2], [3]]
    assert "as far as the record knows" in page.text("#versions-note")
    assert "pad x to 32" in page.text("#versions-advice")
    page.click(".grid tbody tr:nth-child(3) button")
    assert page.js("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert "f32[16] → f32[32]" in page.text("tr.detail").replace("\n", " ")


def test_the_pointer_over_a_block_tells_and_opens_it(page):
    actions = pytest.importorskip("selenium.webdriver").ActionChains(page.chrome)
    lane = page.find(".lane canvas")
    page.js("arguments[0].scrollIntoView({block: 'center'})", lane)
    width = lane.size["width"]
    # From 6 s to 10 s of 20 s; offsets count from the middle, which is at 10 s.
    actions.move_to_element_with_offset(lane, int(-2 / 20 * width), 0).perform()
    assert "shape of x: f32[16] → f32[32]\n4.0 s, at 6.0 s\nt.py::lengths" in page.text("#tip")
    actions.move_to_element_with_offset(lane, int(5 / 20 * width), 0).perform()
    assert page.js("document.getElementById('tip').hidden")
    actions.move_to_element_with_offset(lane, int(-2 / 20 * width), 0).click().perform()
    assert "pad x to 32" in page.text("tr.detail")


# -- the tables -----------------------------------------------------------------------------


def test_a_table_sorts_by_the_column_that_is_chosen(page):
    names = ["encode", "decode", "loss"]
    assert page.texts("#table tbody .name") == names
    page.click("[data-sort=seconds]")
    assert page.texts("#table tbody .name") == names[::-1]
    assert page.js("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == (
        "ascending"
    )
    page.click("[data-sort=name]")
    assert page.texts("#table tbody .name") == sorted(names)
    page.click("[data-sort=compilations]")
    assert page.column(2) == ["4", "1", "1"]


def test_a_table_filters_by_all_words(page):
    page.type("#filter", "APP shape")
    assert page.texts("#table tbody .name") == ["encode"]
    assert page.text("#shown") == "1 function, 7.5 s of compiling"
    page.type("#filter", " nothing")
    assert page.column(1) == []
    page.click("#tab-tests")
    assert len(page.column(1)) == 4
    assert page.text("#shown") == "4 tests, 10.9 s of compiling"


def test_eager_ops_are_shown_when_asked_for(page):
    assert "add" not in page.texts("#table tbody .name")
    page.click("#eager")
    assert "add" in page.texts("#table tbody .name")


def test_a_test_leads_to_its_compilations(page):
    page.click("#tab-tests")
    assert page.column(5) == ["7.5 s", "3.3 s", "125 ms", "0 ms"]
    page.click("#table tbody tr:nth-child(2) .link")
    assert [re.split(r"\(", text)[0] for text in page.column(2)] == ["decode", "loss"]
    assert page.texts("#chips button") == ["test t.py::other ✕"]


def test_a_compilation_opens_to_what_is_known(page):
    page.click("#tab-compilations")
    assert page.texts("tr.detail") == []
    page.click("#table tbody tr:nth-child(3)")
    detail = page.text("tr.detail")
    for known in ("shape", "f32[16]", "f32[32]", "pad x to 32", "test_app.py:9", "app.py:3"):
        assert known in detail
    assert "x: f32[32]" in detail
    assert "compile 4.0 s" in detail
    assert "t.py::lengths" in detail


def test_the_keyboard_is_enough(page):
    page.type("#tab-functions", "\ue014")  # right
    page.type("#tab-tests", "\ue014")
    assert page.js("document.activeElement.id") == "tab-compilations"
    page.type("tr:nth-child(2) .opener", "\ue007")  # enter
    assert page.js("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert len(page.texts("tr.detail")) == 1
    page.type("tr:nth-child(2) .opener", "\ue007")
    assert page.texts("tr.detail") == []
    page.type("[data-sort=seconds]", "\ue007")
    assert page.js("document.activeElement.dataset.sort") == "seconds"
    unreachable = page.js(
        "[...document.querySelectorAll('button, input')].filter(e => e.offsetParent"
        " && e.tabIndex < 0 && e.role !== 'tab').length"
    )
    assert unreachable == 0
