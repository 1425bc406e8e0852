"""A browser for the tests of pages: opened at a width and in a colour scheme, and asked what it shows."""

import json
import os
import shutil

import numpy as np
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
OPTIONS = ("--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
           "--disable-component-update --disable-sync --disable-dev-shm-usage").split()


def missing(what):
    """A machine without it skips the test, and says so; with BROWSER_TESTS=required in the environment, as in
    `.ci/run`, that is a failure."""
    (pytest.fail if os.environ.get("BROWSER_TESTS") == "required" else pytest.skip)(f"needs {what}")


def started(profile):
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def opened(browser, path, width=1100, scheme="light", height=900):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme",
                                                                         "value": scheme}]})
    browser.get(path if isinstance(path, str) else path.as_uri())
    return browser


def requests(browser):
    """What was asked for since this was last called, but for what the browser's own first page asks for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith(("chrome:", "chrome-untrusted:", "data:"))}


def contrasts(browser, selector):
    """The text of each such element, and the ratio of its colour's luminance to that of what is behind it."""
    found = browser.execute_script(
        "const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);"
        "const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;"
        " if (!/, 0\\)$/.test(c)) return rgb(c); } return [255, 255, 255]; };"
        "return [...document.querySelectorAll(arguments[0])].filter(e => e.textContent.trim() && e.offsetParent)"
        ".map(e => [rgb(getComputedStyle(e).color), paper(e), e.tagName + ' ' + e.textContent.slice(0, 40)])", selector)
    return [(what, ratio(ink, paper)) for ink, paper, what in found]


def ratio(ink, paper):
    """The contrast of two colours, from 1 to 21. (WCAG 2.2, relative luminance.)"""
    def luminance(colour):
        c = np.array(colour) / 255
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    high, low = sorted((luminance(ink), luminance(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)
