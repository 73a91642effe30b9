"""A headless Chromium, and one page in it."""

import json
import shutil

import pytest

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --window-size=1280,1000"
)


def start(profile):
    """The browser, with ``profile`` as its folder; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(driver))


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
            # The browser's own pages ask for things, too.
            if (
                message["method"] == "Network.requestWillBeSent"
                and message["params"]["documentURL"] == self.address
            ):
                found.append(message["params"]["request"]["url"])
        return found


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    browser = start(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def show(chrome, tmp_path):
    yield lambda text: Page(chrome, tmp_path / "page.html", text)
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
