"""The page where it is hard: hostile names, ten thousand rows, a phone, the dark."""

import re

import pytest
from pages import compilation, shape, summary_of

from pytest_jaxcompile.records import Reason
from pytest_jaxcompile.report import html
from pytest_jaxcompile.report.summary import Summary

pytest_plugins = ["chromium"]

HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=2>"


# -- hostile names --------------------------------------------------------------------------


def hostile_page():
    reasons = (Reason("shape", HOSTILE, HOSTILE, HOSTILE, HOSTILE),)
    records = [compilation(HOSTILE, 8, 1, 1), compilation(HOSTILE, 9, 3, 1, reasons)]
    summary = summary_of((HOSTILE, records))
    summary.environment = {"name": HOSTILE}
    return html.render(summary)


def test_hostile_names_are_shown_and_do_not_run(show):
    page = show(hostile_page())
    page.click(".lane button")
    page.click(".grid tbody tr:nth-child(2) button")
    for table in ("tests", "functions", "compilations"):
        page.click(f"#tab-{table}")
        assert HOSTILE in page.text("#table")
    assert HOSTILE in page.text("#versions-title")
    assert HOSTILE in page.text("tr.detail")
    assert page.js("window.ran") is None
    assert page.js("document.querySelectorAll('img').length") == 0
    assert page.console() == []


def test_as_markup_the_same_name_would_run(show):
    page = show(f"<p>{HOSTILE}</p>")
    assert page.js("window.ran") in (1, 2)


# -- large, small, dark ---------------------------------------------------------------------


def plain() -> Summary:
    evicted = (Reason("evicted"),)
    records = [
        compilation("encode", 8, 1.0, 1.0),
        compilation("encode", 16, 3.0, 2.0, shape(8, 16, "pad x to 16")),
        compilation("encode", 8, 6.0, 1.0, evicted),
    ]
    return summary_of(("t.py::a_test_with_a_rather_long_name[and-parameters]", records))


def test_ten_thousand_compilations_keep_the_page_small(show):
    tests = []
    for t in range(1000):
        records = []
        for i in range(10):
            n = t * 10 + i
            reasons = shape(n - 200, n) if n >= 200 else ()
            records.append(compilation(f"f{n % 200}", n, n * 0.1, 0.05, reasons))
        tests.append((f"t.py::test_{t}", records))
    page = show(html.render(summary_of(*tests, seconds=1100.0)))
    bound = 3000
    assert page.nodes() < bound
    page.click("#tab-compilations")
    assert page.text("#shown").startswith("10,000 compilations, 8 min 20 s of compiling")
    assert len(page.column(1)) == 50
    page.click("#more-rows")
    assert len(page.column(1)) == 100
    assert page.nodes() < bound
    page.type("#filter", "f32[4321]")
    # As the signature of one compilation, and as what another differs from.
    assert [re.search(r"\[(\d+)\]", text)[1] for text in page.column(2)] == ["4321", "4521"]
    page.click(".lane button")
    assert len(page.texts(".grid tbody tr")) == 24
    assert "The first 24 versions and 48 compilations are shown" in page.text("#versions-note")
    assert page.nodes() < bound
    assert page.console() == []


def overflow(page):
    return page.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_a_phone_shows_it_without_scrolling_sideways(show):
    page = show(html.render(plain()))
    page.emulate(360, "light")
    for table in ("functions", "tests", "compilations"):
        page.click(f"#tab-{table}")
        assert overflow(page) <= 0
    page.js(
        "document.querySelector('main').append(make('div', {style: 'width: 700px', text: 'x'}))"
    )
    assert overflow(page) > 0


def luminance(colour):
    def linear(value):
        value /= 255
        return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(n)) for n in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_the_guidelines_do():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_readable_in_light_and_dark(show, scheme):
    page = show(html.render(plain()))
    page.emulate(1280, scheme)
    colour = "getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    panel = page.js(colour, "section", "backgroundColor")
    assert (luminance(panel) < 0.1) is (scheme == "dark")
    for selector in (
        ".headline",
        ".lead",
        ".again .link",
        ".figures dt",
        "#table td",
        ".lane .sum",
    ):
        assert contrast(page.js(colour, selector, "color"), panel) >= 4.5, selector
    chosen = "[role=tab][aria-selected=true]"
    background = page.js(colour, chosen, "backgroundColor")
    assert contrast(page.js(colour, chosen, "color"), background) >= 4.5
    for kind in ("S", "E"):
        glyph = f"[...document.querySelectorAll('.swatch')].find(e => e.textContent === '{kind}')"
        style = page.js(f"(s => [s.color, s.backgroundColor])(getComputedStyle({glyph}))")
        assert contrast(*style) >= 4.5, kind
