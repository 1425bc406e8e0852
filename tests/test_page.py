"""The laboratory's page, opened in a browser: no error, no request anywhere, a slider that changes what is seen."""

import re

import numpy as np
import pytest
from chrome import contrasts, opened, requests

from tinygrad_attn import saturation
from tinygrad_attn.saturation import page, words


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    measured = saturation.sweep([4, 256, 1024], draws=40)
    trained = saturation.training_map([4, 64], scales=["none", "sqrt"], optimizers=["sgd"], rates={"sgd": [1.0, 10.0]},
                                      seeds=[0], steps=40)
    controls = {"tied start": saturation.training_map([1024], scales=["none"], optimizers=["sgd"], rates={"sgd": [1.0]},
                                                      seeds=[0], steps=20, task=saturation.CONTROLS["tied start"])}
    written = {lang: saturation.report(folder / f"{lang}.html", lang=lang, measured=measured, trained=trained,
                                       controls=controls) for lang in ("en", "pt")}
    return written, measured


def seen(browser):
    """What the slider's section shows: the heights of the bars, and the texts."""
    return browser.execute_script(
        "const of = (id) => [...document.querySelectorAll('#' + id + ' rect')].map(r => +r.getAttribute('height'));"
        "return {d_k: document.getElementById('value').textContent, raw: of('none-weights'), scaled: "
        "of('sqrt-weights'), dead: of('none-gradient'), alive: of('sqrt-gradient'),"
        " spread: document.getElementById('none-spread').textContent,"
        " largest: document.getElementById('none-largest').textContent}")


def slide(browser, stop):
    browser.execute_script("const s = document.getElementById('d_k'); s.value = arguments[0];"
                           "s.dispatchEvent(new Event('input'))", stop)


@pytest.mark.parametrize("lang", ["en", "pt"])
def test_no_console_error_and_no_request_but_for_the_page_itself(browser, pages, lang):
    browser.get_log("browser"), browser.get_log("performance")
    opened(browser, pages[0][lang])
    slide(browser, 3)
    assert browser.get_log("browser") == []
    assert requests(browser) == {pages[0][lang].as_uri()}


def test_the_slider_changes_the_picture_to_what_the_framework_computes(browser, pages):
    opened(browser, pages[0]["en"])
    stops = page.one_draw()
    first = seen(browser)
    assert first["d_k"] == "64"
    for stop in (0, len(stops["d_k"]) - 1):
        slide(browser, stop)
        now = seen(browser)
        assert now != first
        assert now["d_k"] == str(stops["d_k"][stop])
        assert len(now["raw"]) == len(now["scaled"]) == 64
        for shown, scale in (("raw", "none"), ("scaled", "sqrt")):
            weights = np.array(stops[scale][stop]["weights"])
            np.testing.assert_allclose(now[shown], weights * 134, atol=0.01)            # of 134 units for a weight of 1
        for shown, scale in (("dead", "none"), ("alive", "sqrt")):
            gradient = np.array(stops[scale][stop]["gradient"])
            height = np.clip(np.log10(np.maximum(gradient, 1e-300)) / 20 + 1, 0, 1) * 134
            np.testing.assert_allclose(now[shown], np.where(gradient > 0, height, 0), atol=0.01)
        assert float(now["spread"]) == pytest.approx(stops["none"][stop]["numbers"][0], rel=0.01)
    assert float(now["largest"]) > 0.9
    assert max(now["scaled"]) < 60          # scaled, no key has taken all
    assert np.median(now["alive"]) > 80 > 40 > np.median(now["dead"])


def test_the_arrow_keys_move_it_and_a_reader_hears_the_value(browser, pages):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    opened(browser, pages[0]["en"])
    slider = browser.find_element(By.ID, "d_k")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert seen(browser)["d_k"] == "128"
    assert slider.get_attribute("aria-valuetext") == "d_k = 128"
    assert browser.find_element(By.CSS_SELECTOR, "label[for=d_k]").text == "Length of the vectors, d_k = 128"


@pytest.mark.parametrize("lang", ["en", "pt"])
@pytest.mark.parametrize("width", [360, 1100])
def test_nothing_is_wider_than_the_screen_and_no_text_is_cut_off(browser, pages, lang, width):
    opened(browser, pages[0][lang], width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = browser.execute_script(
        "return [...document.querySelectorAll('main h1, main h2, main h3, main p, main li, main dt, main dd, main "
        "pre')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map(e => e.textContent)")
    assert cut == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(browser, pages, scheme):
    opened(browser, pages[0]["en"], scheme=scheme)
    for what, ratio in contrasts(browser, "h1, h2, h3, p, li, li b, dt, dd, th, td, small, label"):
        assert ratio > (3 if what.startswith("H3") else 4.5), what          # WCAG AA; H3 is large


def test_pictures_scale_and_are_named(pages):
    for lang, path in pages[0].items():
        text = path.read_text(encoding="utf-8")
        tags = re.findall(r"<svg[^>]*>", text)
        assert len(tags) == 4 + 2 + 2 + 4   # panels of the sweep, of the map, loss curves, and the bars
        assert all('role="img"' in tag and "aria-label=" in tag and "viewBox=" in tag for tag in tags)
        assert not any(re.search(r'\s(width|height)="', tag) for tag in tags)
        ids = re.findall(r'\sid="([^"]*)"', text)
        assert len(ids) == len(set(ids))
        links = re.findall(r'(?:href="|url\()#([^")]*)', text)
        assert set(links) <= set(ids)
        assert f'<html lang="{words.LANGUAGES[lang]}">' in text
        assert "$" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_has_every_number_of_the_table_and_every_claim(pages):
    written, measured = pages
    for lang, path in written.items():
        text = path.read_text(encoding="utf-8")
        for row in measured.rows:
            assert f"<td>{row.spread:.3f}<" in text
            assert f"{row.jacobian.median:.1e}" in text
        assert all(claim["claim"] in text for claim in measured.claims(lang))
        assert str(words.say("title", lang)) in text
        assert ("W_k begins" in text) == (lang == "en")


def test_the_draw_is_near_the_median_of_all_along_the_slider():
    draw = page.one_draw()
    norms = {d: draw["none"][k]["numbers"][2] for k, d in enumerate(draw["d_k"])}
    measured = saturation.sweep(draw["d_k"][::2], scales="none", draws=100)
    for d in draw["d_k"][::2]:
        stat = measured[d, "none"].jacobian
        assert stat.low <= norms[d] <= stat.high                    # among the 90 % in the middle, everywhere
    assert norms[1] < norms[16] > norms[4096]                       # it rises, and then collapses, as the medians do
    assert all(sum(look["weights"]) == pytest.approx(1, abs=1e-3) for look in draw["sqrt"])


def test_bad_requests_leave_nothing_behind(tmp_path, monkeypatch):
    for bad, options, error in (("page.txt", {}, ValueError), ("page.html", {"lang": "fr"}, ValueError),
                                ("missing/page.html", {}, FileNotFoundError),
                                ("page.html", {"measured": {}}, TypeError),
                                ("page.html", {"controls": {"a": 1}}, TypeError)):
        with pytest.raises(error, match="report: "):
            saturation.report(tmp_path / bad, **options)
    measured = saturation.sweep([4], draws=3)
    monkeypatch.setattr(page, "_table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        saturation.report(tmp_path / "page.html", measured=measured)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"tinygrad_attn\[plot\]"):
        saturation.report(tmp_path / "page.html", measured=measured)
    assert list(tmp_path.iterdir()) == []
