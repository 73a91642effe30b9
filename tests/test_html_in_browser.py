"""The page in a real browser: what it shows and does, and that it runs and loads nothing else."""

import json
import re
import shutil

import pytest

from pytest_jaxcompile.records import Compilation, Leaf, Reason, Signature
from pytest_jaxcompile.report import html
from pytest_jaxcompile.report.summary import Builder, Summary, pack

HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=2>"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --window-size=1280,1000"
)
T0 = 1_754_000_000.0


def compilation(name, size, start, seconds, reasons=(), **more):
    return Compilation(
        name,
        name,
        "app",
        "/r/app.py:3",
        more.pop("called_from", "/r/test_app.py:9"),
        Signature(("x",), (Leaf((size,), "float32"),)),
        compile_seconds=seconds,
        reasons=reasons,
        start=T0 + start,
        **more,
    )


def shape(before, after, hint=None):
    return (Reason("shape", "x", f"f32[{before}]", f"f32[{after}]", hint),)


def summary_of(*tests, seconds=20.0) -> Summary:
    builder = Builder()
    builder.summary.started = T0
    for nodeid, records in tests:
        builder.test(nodeid, "passed", 2.0, pack(records, "/r", "") if records else None)
    builder.summary.seconds = seconds
    return builder.summary


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


# -- the browser --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


class Page:
    """One page in the browser, read and used through what a person has."""

    def __init__(self, chrome, path, text):
        path.write_text(text, encoding="utf-8")
        self.chrome, self.address = chrome, path.as_uri()
        chrome.get_log("browser")
        chrome.get_log("performance")
        chrome.get(self.address)

    def js(self, script, *arguments):
        return self.chrome.execute_script(f"return {script}", *arguments)

    def texts(self, selector):
        return self.js(
            "[...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector
        )

    def text(self, selector):
        return self.texts(selector)[0]

    def find(self, selector):
        return self.chrome.find_element("css selector", selector)

    def click(self, selector):
        element = self.find(selector)
        self.chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def type(self, selector, keys):
        self.find(selector).send_keys(keys)

    def column(self, number):
        return self.texts(f"#table tbody tr.row td:nth-child({number})")

    def nodes(self):
        return self.js("document.querySelectorAll('*').length")

    def emulate(self, width, scheme):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def console(self):
        return [entry["message"] for entry in self.chrome.get_log("browser")]

    def requests(self):
        """Addresses that the page asked for."""
        found = []
        for entry in self.chrome.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found


@pytest.fixture
def show(chrome, tmp_path):
    yield lambda text: Page(chrome, tmp_path / "page.html", text)
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


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
    property_ = {"shape": "--orange", "first": "--first"}[kind]
    colour = page.js(
        "getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()",
        property_,
    )
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    pixels, width = page.js(
        "(() => { const c = document.querySelectorAll('.lane canvas')[arguments[0]];"
        "const y = Math.round(c.height * 0.36);"
        "return [[...c.getContext('2d').getImageData(0, y, c.width, 1).data], c.width]; })()",
        lane,
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
    assert page.texts("#legend button") == ["1first compilation", "Sshape", "Eevicted"]
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


def test_a_phone_shows_it_without_scrolling_sideways(page):
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
def test_texts_are_readable_in_light_and_dark(page, scheme):
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
