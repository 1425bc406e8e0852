"""The site is whole in both languages: links lead somewhere, nothing is asked of another host, and in a browser
formulas are typeset, pictures described and no wider than a phone, quizzes answer, the search finds, and the language
can be changed. And what is wrong is told by its file and line before anything is replaced."""

import html.parser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import chrome
import pytest

from tinygrad_attn.languages import LANGUAGES, speaking
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.learn.lessons import Cell, Lesson, lessons
from tinygrad_attn.site import build, executed, reference, serve, sources

ROOT = Path(__file__).parents[1]
each_language = pytest.mark.parametrize("lang", LANGUAGES)
each_lesson = pytest.mark.parametrize("name", [one.path.stem for one in lessons()])


def command(*arguments, home, cwd=ROOT, **options):
    return subprocess.Popen([sys.executable, "-m", "tinygrad_attn", "site", *map(str, arguments)], cwd=cwd, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "TINYGRAD_ATTN_HOME": str(home), "PYTHONPATH": str(cwd)}, **options)


def ran(*arguments, **options):
    process = command(*arguments, **options)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Where lessons that ran are kept, for all tests."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def site(tmp_path_factory, home):
    """The site, as the command builds it."""
    out = tmp_path_factory.mktemp("made") / "site"
    code, said, err = ran("--out", out, "--json", home=home)
    assert code == 0, err
    report = json.loads(said)
    assert report["lessons_run"] == 2 * len(lessons())
    assert report["pages"] == len(list(out.glob("*/**/*.html")))
    return out


@pytest.fixture(scope="module")
def address(site):
    server = serve.server(site, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Read(html.parser.HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.headings, self.language = set(), [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "html":
            self.language = given.get("lang")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source", "video", "audio") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.fixture(scope="module")
def read(site):
    return {path: Read(path.read_text(encoding="utf-8")) for path in site.glob("*/**/*.html")}


# -------------------------------------------------------------------------------------------------- the files

def test_both_languages_have_the_same_pages(site):
    one, other = ({path.relative_to(site / lang).as_posix() for path in (site / lang).rglob("*.html")}
                  for lang in LANGUAGES)
    assert one == other
    assert {f"lessons/{each.path.stem}.html" for each in lessons()} <= one
    assert {f"reference/{room.file}.html" for room in reference.rooms()} <= one
    assert {path.name for path in site.iterdir()} == {"en", "pt", "index.html", build.MARK}


def test_every_link_leads_to_a_place_that_exists(site, read):
    broken = []
    for page, found in read.items():
        for link in [*found.links, *found.loads]:
            url = urllib.parse.urlsplit(link)
            if url.scheme in ("http", "https", "data", "mailto"):
                continue
            target = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            if not target.is_file() or (url.fragment and target.suffix == ".html" and
                                        urllib.parse.unquote(url.fragment) not in read[target].ids):
                broken.append((page.relative_to(site).as_posix(), link))
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site, read):
    assert not [(page, link) for page, found in read.items() for link in found.loads if re.match(r"(\w+:)?//", link)]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(?:\w+:)?//", styles)
    assert not re.search(r"@import ['\"]?\w+:", styles)


def test_pages_say_their_language_and_have_headings_in_order(site, read):
    for page, found in read.items():
        assert found.language.replace("_", "-") == LANGUAGES[page.relative_to(site).parts[0]], page
        if page.parent.name == "lessons" or page.name == "index.html":
            assert found.headings.count(1) == 1, page
            assert all(b <= a + 1 for a, b in zip(found.headings, found.headings[1:])), page


@each_language
def test_a_lesson_has_all_its_exercises_and_questions_in_its_language(site, lang):
    for one in lessons():
        text = (site / lang / "lessons" / f"{one.path.stem}.html").read_text(encoding="utf-8")
        with speaking(lang):
            asked, found = quiz(one.number), exercises(one.number).found
        assert text.count("<fieldset>") == len(asked.questions)
        assert text.count('type="radio"') == sum(len(question.options) for question in asked.questions)
        for each in found:
            assert f"<h3>{each.id}: " in text
        assert ("Sim." in text, "Yes." in text) == (lang == "pt", lang == "en")


@each_language
def test_the_notebook_of_a_page_can_be_downloaded(site, lang):
    for one in lessons():
        page = site / lang / "lessons" / f"{one.path.stem}.html"
        link = re.search(r'href="([^"]+\.ipynb)" download', page.read_text(encoding="utf-8").replace(
            'download="" href="', 'href="').replace('.ipynb">', '.ipynb" download'))
        book = json.loads((page.parent / urllib.parse.unquote(link[1])).resolve().read_text(encoding="utf-8"))
        with speaking(lang):
            assert book == json.loads(one.notebook() if lang == "en" else _there(one).notebook())


def _there(one):
    return next(other for other in lessons() if other.number == one.number)


def test_cells_ran_in_both_languages(site):
    for lang, word in (("en", "expected"), ("pt", "esperado")):
        text = (site / lang / "lessons" / "03_softmax_and_its_jacobian.html").read_text(encoding="utf-8")
        assert "exponentials [7.3891 2.7183 0.3679], their sum 10.475" in text
        assert word in text
        assert "temperat" in re.search(r'role="img" aria-label="([^"]*)"', text)[1]


def test_the_numbers_of_the_first_page_are_those_of_the_laboratory(site):
    from tinygrad_attn import saturation
    sweep = saturation.sweep(sources.LENGTHS[-1:], scales=("none", "sqrt"), draws=sources.DRAWS, n_keys=sources.KEYS)
    for lang, mark in (("en", "."), ("pt", ",")):
        text = (site / lang / "index.html").read_text(encoding="utf-8")
        for scale, digits in (("none", 5), ("sqrt", 2)):
            number = sweep[sources.LENGTHS[-1], scale].jacobian.median
            assert f" {number:.{digits}f}".replace(".", mark) in text


def test_the_code_of_the_first_page_runs():
    code = re.search(r"```python\n(.*?)```", sources.FIRST.read_text(encoding="utf-8"), re.DOTALL)[1]
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert "gradcheck passed" in result.stdout


# -------------------------------------------------------------------------------------------------- the reference

def test_the_reference_lists_every_public_name():
    import tinygrad_attn
    listed = {(room.module, name) for room in reference.rooms() for name in room.public}
    modules = {"functional", "graph", "learn", "nn", "optim", "saturation", "serialize"}
    assert set(tinygrad_attn.__all__) - modules <= {name for module, name in listed if module == "tinygrad_attn"}
    assert modules <= {room.module.rpartition(".")[2] for room in reference.rooms()}


def test_a_docstring_is_shown_as_it_is_written(site):
    text = (site / "en" / "reference" / "operations.html").read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]+>", "", text)
    assert "tinygrad_attn.softmax" in plain
    assert "Undocumented" not in plain
    for path in (site / "en" / "reference").glob("*.html"):
        shown = re.sub(r"<(code|pre|script|style)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        shown = re.sub(r"<[^>]+>", "", shown)
        assert not re.findall(r"``|\\[*_|`]|:(?:func|class|ref|math):", shown), path


@pytest.mark.parametrize(("line", "markup"), [
    ("`x` is an input, y_ another", "``x`` is an input, y\\_ another"), ("a * b | c", "a \\* b \\| c"),
    ("*few* rivals, and *args", "*few* rivals, and \\*args"), ("∂L/∂x, xᵢ²", "∂L/∂x, xᵢ²"),
    ("no \\alpha", "no \\\\alpha")])
def test_prose_of_a_docstring_means_itself(line, markup):
    assert reference.as_markup([line]) == [markup]


def test_formulas_and_examples_of_a_docstring_are_kept():
    lines = ["Prose.", "", "    a = b * c", "    d", "", ">>> 1 + 1", "2", ""]
    assert reference.as_markup(lines) == ["Prose.", "", "::", "", "    a = b * c", "    d", "", ">>> 1 + 1", "2"]


# -------------------------------------------------------------------------------------------------- in a browser

def errors(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def wait(browser, script, *arguments, seconds=20):
    end = time.monotonic() + seconds
    while not (value := browser.execute_script(script, *arguments)) and time.monotonic() < end:
        time.sleep(0.05)
    return value


TYPESET = """
const places = [...document.querySelectorAll('article .math')];
return places.every(place => place.querySelector('mjx-container svg')) && places.length + 1"""
PICTURES = """
return [...document.querySelectorAll('article img, article figure svg, article iframe')].map(picture => {
  const box = picture.getBoundingClientRect();
  const said = picture.getAttribute('alt') || picture.getAttribute('aria-label') || picture.title || '';
  return [said, box.width, box.right];
})"""


@each_language
@each_lesson
def test_a_lesson_in_a_browser(browser, address, name, lang):
    """At a desk and on a phone: no error, no request elsewhere, formulas, pictures, and nothing beyond the screen."""
    one = next(one for one in lessons() if one.path.stem == name)
    formulas = sum(cell.text.count("$$") // 2 for cell in one.cells if cell.kind == "markdown")
    errors(browser)
    chrome.requests(browser)
    for width, scheme in ((1280, "light"), (390, "dark")):
        chrome.opened(browser, f"{address}/{lang}/lessons/{name}.html", width=width, scheme=scheme)
        assert wait(browser, TYPESET) > formulas
        assert not browser.execute_script("return document.querySelectorAll('mjx-merror, [data-mjx-error]').length")
        pictures = browser.execute_script(PICTURES)
        assert len(pictures) >= 1
        for text, shown, right in pictures:
            assert len(text) > 10, (name, text)
            assert 40 < shown <= width
            assert right <= width + 1
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert errors(browser) == []
    assert {url for url in chrome.requests(browser) if not url.startswith((address, "blob:", "about:"))} == set()


@each_language
@pytest.mark.parametrize("page", ["index", "lessons/index", "reference/index", "reference/tensor", "reference/nn",
                                  "search", "genindex", "_modules/tinygrad_attn/engine"])
def test_other_pages_in_a_browser(browser, address, page, lang):
    errors(browser)
    for width, scheme in ((1280, "dark"), (390, "light")):
        chrome.opened(browser, f"{address}/{lang}/{page}.html", width=width, scheme=scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        for text, shown, right in browser.execute_script(PICTURES):
            assert len(text) > 10
            assert 40 < shown <= width
            assert right <= width + 1
    assert errors(browser) == []


@each_language
def test_a_page_opened_from_the_disk_shows_its_formulas(browser, site, lang):
    chrome.opened(browser, site / lang / "lessons" / "03_softmax_and_its_jacobian.html")
    assert wait(browser, TYPESET) > 5


@each_language
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index", "lessons/03_softmax_and_its_jacobian", "lessons/10_seeing_the_graph",
                                  "reference/attention"])
def test_all_text_can_be_read(browser, address, page, scheme, lang):
    chrome.opened(browser, f"{address}/{lang}/{page}.html", scheme=scheme)
    wait(browser, TYPESET)
    found = chrome.contrasts(browser, "article p, article li, article h1, article h2, article h3, article code, "
                             "article pre span, article a, article small, article label, article td, article dt, "
                             ".sidebar-tree a, .tg-languages a, footer a")
    assert len(found) > 10
    assert [(what, round(ratio, 1)) for what, ratio in found if ratio < 4.5] == []


@each_language
def test_a_quiz_says_why_by_mouse_and_by_keyboard(browser, address, lang):
    from selenium.webdriver.common.keys import Keys
    with speaking(lang):
        first, second = quiz("03").questions[:2]
    chrome.opened(browser, f"{address}/{lang}/lessons/03_softmax_and_its_jacobian.html")
    shown = ("return [...document.querySelectorAll('.tg-quiz fieldset')].map(set => [...set.querySelectorAll('p')]"
             ".filter(p => getComputedStyle(p).display != 'none').map(p => p.textContent))")
    assert browser.execute_script(shown) == [[] for _ in quiz("03").questions]
    plain = {text: re.sub(r"[`*]", "", text) for question in (first, second) for option in question.options
             for text in (option.text, option.reason)}
    verdicts = {"en": ("No.", "Yes."), "pt": ("Não.", "Sim.")}[lang]
    labels = browser.find_elements("css selector", ".tg-quiz fieldset:first-of-type label")
    for label, option in zip(labels, first.options):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", label)
        label.click()
        (said,) = browser.execute_script(shown)[0]
        assert said == f"{verdicts[option.right]} {plain[option.reason]}"
    radios = browser.find_elements("css selector", ".tg-quiz fieldset:nth-of-type(2) input")
    radios[0].send_keys(Keys.SPACE)
    assert browser.execute_script(shown)[1][0].endswith(plain[second.options[0].reason])
    radios[0].send_keys(Keys.ARROW_DOWN)
    assert browser.execute_script(shown)[1][0].endswith(plain[second.options[1].reason])
    assert browser.execute_script("return document.activeElement.matches('.tg-quiz input:focus-visible')")


def test_a_picture_that_was_made_smaller_can_be_enlarged(browser, address):
    """By its button, and then it scrolls in its place; the page does not."""
    chrome.opened(browser, f"{address}/pt/lessons/10_seeing_the_graph.html", width=390)
    wide = "[...document.querySelectorAll('.tg-graph')].find(f => parseFloat(f.style.getPropertyValue('--wide')) > 800)"
    button = wait(browser, f"return {wide}.querySelector('button')")
    width = f"return {wide}.querySelector('svg').getBoundingClientRect().width"
    before = browser.execute_script(width)
    assert button.text == "Ampliar"
    button.send_keys("\n")
    assert browser.execute_script(width) > 800 > 390 >= before
    assert button.text == "Ajustar"
    assert button.get_attribute("aria-pressed") == "true"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    button.send_keys("\n")
    assert browser.execute_script(width) == before
    hidden = browser.execute_script("return [...document.querySelectorAll('figure button')].map(b => b.hidden)")
    assert True in hidden


@pytest.mark.parametrize("width", [1100, 390])
def test_the_contents_open_by_keyboard(browser, address, width):
    chrome.opened(browser, f"{address}/en/lessons/03_softmax_and_its_jacobian.html", width=width)
    box = browser.find_element("id", "__toc")
    left = "return document.querySelector('.toc-drawer').getBoundingClientRect().left"
    assert browser.execute_script(left) >= width - 20
    seen = "return getComputedStyle(document.querySelector('.toc-drawer')).visibility"
    assert browser.execute_script(seen) == "hidden"
    browser.execute_script("arguments[0].focus()", box)
    browser.switch_to.active_element.send_keys(" ")
    assert wait(browser, f"{left} < {width - 100}")
    assert browser.execute_script(seen) == "visible"


@pytest.mark.parametrize(("lang", "word", "wanted"), [
    ("en", "softmax", "03_softmax"), ("pt", "softmax", "03_softmax"), ("en", "saturation", "05_why"),
    ("pt", "máscara", "07_masks"), ("pt", "cabeças", "08_many_heads"), ("en", "gradcheck", "gradcheck")])
def test_the_search_finds(browser, address, lang, word, wanted):
    errors(browser)
    chrome.opened(browser, f"{address}/{lang}/search.html?q={urllib.parse.quote(word)}")
    links = wait(browser, "const found = [...document.querySelectorAll('#search-results li a')].map(a => a.href);"
                 f"return found.some(href => href.includes('{wanted}')) && found")
    assert links
    assert all(link.startswith(f"{address}/{lang}/") for link in links)
    assert errors(browser) == []


def test_the_search_field_of_a_page_leads_to_the_search(browser, address):
    chrome.opened(browser, f"{address}/pt/index.html")
    field = browser.find_element("css selector", ".sidebar-search")
    field.send_keys("softmax\n")
    assert wait(browser, "return location.pathname == '/pt/search.html' && "
                "document.querySelector('#search-results li a')")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_language_can_be_changed_and_the_page_stays(browser, address, width):
    for page in ("index", "lessons/07_masks", "reference/graph", "search", "_modules/tinygrad_attn/ops"):
        chrome.opened(browser, f"{address}/en/{page}.html", width=width)
        nav = browser.execute_script("return [...document.querySelectorAll('.tg-languages a')].filter(a => {"
                                     "const box = a.getBoundingClientRect();"
                                     "return box.width && box.right > 0 && box.left < innerWidth; })")
        there = [link for link in nav if link.get_attribute("hreflang") == "pt-BR"]
        assert len(there) == 1
        assert there[0].text == "Português"
        there[0].click()
        assert wait(browser, f"return location.pathname == '/pt/{page}.html'")
        assert browser.execute_script("return document.documentElement.lang").replace("_", "-") == "pt-BR"
        here = browser.execute_script("return document.querySelector('.tg-languages [aria-current]').textContent")
        assert here == "Português"


def test_the_entrance_leads_to_a_language(browser, address):
    chrome.opened(browser, f"{address}/")
    assert wait(browser, "return /^.(en|pt).index.html$/.test(location.pathname)")


def test_the_theme_can_be_chosen_and_graphs_follow(browser, address):
    """Whatever the system's colours are."""
    chrome.opened(browser, f"{address}/en/lessons/10_seeing_the_graph.html", scheme="light")
    paper = "return getComputedStyle(document.querySelector('.tg-graph .graph > polygon')).fill"
    before = browser.execute_script(paper)
    browser.execute_script("document.body.dataset.theme = 'dark'")
    after = browser.execute_script(paper)
    assert before != after
    chrome.opened(browser, f"{address}/en/lessons/10_seeing_the_graph.html", scheme="dark")
    browser.execute_script("document.body.dataset.theme = 'auto'")
    assert browser.execute_script(paper) == after
    browser.execute_script("document.body.dataset.theme = 'light'")
    assert browser.execute_script(paper) == before
    browser.execute_script("localStorage.clear()")


def test_the_film_of_lesson_10_steps(browser, address):
    chrome.opened(browser, f"{address}/pt/lessons/10_seeing_the_graph.html")
    frame = browser.find_element("css selector", "article iframe")
    assert frame.get_attribute("title") == "A retropropagação, operação por operação"
    browser.switch_to.frame(frame)
    assert wait(browser, "return document.querySelectorAll('svg g').length > 5")
    assert browser.execute_script("return document.documentElement.lang") == "pt-BR"
    browser.switch_to.default_content()


# -------------------------------------------------------------------------------------------------- the command

def test_it_is_served_on_this_machine_alone(site, home):
    """The command, with a site that is built already in place of the building."""
    code = ("from tinygrad_attn.site import build\nfrom tinygrad_attn.cli import main\n"
            "build.build = lambda out, *args, **options: {'pages': 142, 'lessons_run': 0, 'seconds': 1.0}\n"
            f"raise SystemExit(main(['site', '--out', {str(site)!r}, '--serve', '--port', '0']))")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=ROOT)
    try:
        lines = iter(process.stderr.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r"serving: (http://127\.0\.0\.1:\d+/)", line)))
        with urllib.request.urlopen(f"{url}en/index.html") as answer:
            assert answer.status == 200
            assert b"Understand attention" in answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err.strip()) == (0, "")
        assert out == f"written: {site / 'index.html'} (142 pages, 0 lessons run, 1 s)\n"
    finally:
        process.kill()


@pytest.fixture
def copy(tmp_path):
    """The package and its tutorials, to be broken."""
    for folder in ("tinygrad_attn", "tutorials"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def broken(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[:text.index(old)].count("\n") + 1


def test_a_cell_that_raises_is_told_with_its_file_and_line(copy, home):
    path = copy / "tutorials" / "12_a_transformer_that_trains.py"
    line = broken(path, "N, MARK, LETTERS =", "1 / 0\nN, MARK, LETTERS =")
    code, out, err = ran("--out", copy / "site", home=home, cwd=copy)
    assert (code, out) == (1, "")
    assert f"in the cell at {path}, line {line}: ZeroDivisionError: division by zero" in err
    assert "Traceback" not in err
    assert sorted(os.listdir(copy)) == ["tinygrad_attn", "tutorials"]


def test_a_cross_reference_that_leads_nowhere_is_told_with_its_file_and_line(copy, home, site):
    """Wherever it is: in the first cell, in another, in one behind the exercises, or in an exercise."""
    path, nowhere = copy / "tutorials" / "13_your_own_op.py", "[this](11_nowhere.ipynb)"
    broken(path, "# ## Read on", f"# ## Read on\n#\n# See {nowhere}.")
    broken(path, "# ## 2. ", f"# See {nowhere}.\n#\n# ## 2. ")
    broken(path, "# %%\n", f"#\n# See {nowhere}.\n\n# %%\n")
    exercise = copy / "tutorials" / "exercises" / "13_swish.py"
    broken(exercise, "\n\n", f"\n\nSee {nowhere}.\n\n")
    lines = [i for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if nowhere in line]
    code, out, err = ran("--out", copy / "with space" / "site", "--languages", "en", home=home, cwd=copy)
    assert (code, out) == (1, "")
    told = [line.partition(": WARNING: ") for line in err.splitlines() if "11_nowhere.ipynb" in line]
    assert len(lines) == 3
    assert sorted(place for place, mark, text in told) == sorted([*(f"{path}:{line}" for line in lines), str(exercise)])
    assert "Traceback" not in err
    assert os.listdir(copy / "with space") == []


def test_a_missing_translation_is_told_with_its_catalogue_and_the_message(copy, home):
    path = copy / "tinygrad_attn" / "locale" / "pt_BR" / "LC_MESSAGES" / "03.po"
    broken(path, 'msgid "Softmax and its Jacobian"', '#, fuzzy\nmsgid "Softmax and its Jacobian"')
    code, out, err = ran("--out", copy / "site", home=home, cwd=copy)
    assert (code, out) == (1, "")
    assert ("tinygrad_attn/locale/pt_BR/LC_MESSAGES/03.po: no translation of 'Softmax and its Jacobian', in "
            "tutorials/03_softmax_and_its_jacobian.py") in err
    assert not (copy / "site").exists()


@pytest.mark.parametrize(("file", "text", "said"), [
    ("tutorials/quizzes/06.toml", "not = [toml", "TOMLDecodeError: "),
    ("tutorials/quizzes/06.toml", '[[question]]\ntext = "no options"', "KeyError: 'option'"),
    ("tutorials/exercises/06_shapes.py", "1 / 0", "ZeroDivisionError: division by zero"),
    ("tutorials/exercises/06_shapes.py", "def (", "SyntaxError: "),
    ("tinygrad_attn/locale/pt_BR/LC_MESSAGES/06.po", 'msgid "a"\nmsgstr "\\w"', "a backslash is wrong")])
def test_a_broken_file_is_told_by_its_name(file, text, said, copy, home):
    (copy / file).write_text(text + "\n", encoding="utf-8")
    code, out, err = ran("--out", copy / "site", home=home, cwd=copy)
    assert (code, out) == (1, "")
    assert said in err
    assert str(copy / file) in err
    assert "Traceback" not in err
    assert not (copy / "site").exists()


def test_a_cell_that_exits_or_is_no_python_is_told_with_its_line(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path))
    for code, said in (("import sys\nsys.exit(3)", r"in the cell at .*03_x\.py, line 7: SystemExit: 3"),
                       ("x = 1\ndef (", r"SyntaxError: .*03_x\.py, line 8")):
        one = Lesson("03", tmp_path / "03_x.py", (Cell("code", code, 7),))
        monkeypatch.setattr(executed, "lesson", lambda number, one=one: one)
        with pytest.raises(build.SiteError, match=said):
            build._execute("03", "en", fresh=True)


@pytest.mark.parametrize(("tag", "asks"), [
    ('<img alt="x" src="https://example.com/x.png">', True), ('<script async src="//cdn.example.com/x.js">', True),
    ('<link rel="stylesheet" href="http://example.com/x.css">', True), ('<a href="https://example.com">', False),
    ('<img src="../_images/x.png">', False), ('<link rel="icon" href="data:,">', False)])
def test_a_page_that_would_ask_another_host_is_refused(tag, asks):
    assert bool(build.ELSEWHERE.search(tag)) == asks


def test_a_label_that_nobody_has_translated_is_told_with_its_cell(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path))
    code = 'from tinygrad_attn.plots import heatmap\nheatmap({"never told": [[1]]})'
    one = Lesson("03", tmp_path / "03_x.py", (Cell("code", code, 7),))
    with speaking("pt"), pytest.raises(LookupError, match=r"03\.po: no translation of 'never told'.*03_x\.py, line 7"):
        executed._run(one)


def test_a_lesson_is_kept_until_it_changes(copy, tmp_path):
    """What it depends on, and nothing else: 13 and its quiz, the package, and in Portuguese all catalogues."""
    code = ("from tinygrad_attn.site.executed import kept\n"
            "print(*(kept(number, lang).name for number in ('03', '13') for lang in ('en', 'pt')))")

    def names():
        return subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(copy)}).stdout.split()

    def changed(path, old, new):
        before = names()
        broken(copy / path, old, new)
        return [a != b for a, b in zip(before, names())]

    assert names() == names()
    assert changed("tutorials/quizzes/13.toml", "?", "??") == [False, False, True, True]
    assert changed("tutorials/13_your_own_op.py", "# ", "#  ") == [False, False, True, True]
    assert changed("tutorials/exercises/03_softmax.py", "scores", "points") == [True, True, False, False]
    assert changed("tinygrad_attn/locale/pt_BR/LC_MESSAGES/05.po", "softmax", "Softmax") == [False, True, False, True]
    assert changed("tinygrad_attn/site/static/site.css", "margin", "padding") == [False] * 4
    assert changed("tinygrad_attn/ops.py", "def ", "def  ") == [True] * 4


@pytest.mark.parametrize("damage", ["", "[]", '{"cells": []}', '{"cells": [{}]}', "{", "null", "\x00"])
def test_a_damaged_file_is_not_taken(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path))
    assert executed.found("13", "en") is None
    executed.kept("13", "en").parent.mkdir(parents=True)
    executed.kept("13", "en").write_text(damage)
    assert executed.found("13", "en") is None


def test_what_is_kept_is_taken(home, site, tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(home))
    monkeypatch.setattr(executed, "_run", lambda one: pytest.fail("it ran again"))      # what `site` has made
    assert executed.executed("13", "pt")["cells"]


@pytest.mark.parametrize(("after", "number", "code"), [(1, signal.SIGINT, 130), (4, signal.SIGINT, 130),
                                                       (4, signal.SIGTERM, 143)])
def test_a_build_that_is_ended_leaves_no_mess(after, number, code, tmp_path):
    process = command("--out", tmp_path / "site", home=tmp_path / "home")
    time.sleep(after)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert not (tmp_path / "site").exists()


def test_files_beside_a_site_stay_and_a_site_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    out, made = tmp_path / "out", tmp_path / "made"
    for folder, text in ((out, "old"), (made, "new")):
        for name in ("en", "pt"):
            (folder / name).mkdir(parents=True)
            (folder / name / "index.html").write_text(text)
        (folder / "index.html").write_text(text)
        (folder / build.MARK).write_text("")
    (out / "CNAME").write_text("mine")

    def state():
        return {path.relative_to(out).as_posix(): path.read_text() for path in out.rglob("*") if path.is_file()}
    before = state()
    replace = os.replace
    calls = iter(range(100))
    monkeypatch.setattr(os, "replace", lambda *paths: replace(*paths) if next(calls) != 5 else sys.exit("full"))
    with pytest.raises(SystemExit):
        build._put(made, out)
    assert state() == before
    monkeypatch.setattr(os, "replace", replace)
    shutil.rmtree(made / "old")
    shutil.rmtree(made / "pt")
    build._put(made, out)
    assert state() == {"en/index.html": "new", "index.html": "new", build.MARK: "", "CNAME": "mine"}


def test_files_that_are_not_a_site_are_left_alone(tmp_path, home):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, out, err = ran("--out", tmp_path / "mine", home=home)
    assert (code, out) == (2, "")
    assert "there are other files in it" in err
    assert "minute" not in err
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]
    code, out, err = ran("--out", tmp_path / "mine" / "thesis.txt", home=home)
    assert (code, "that is a file" in err) == (2, True)


def test_a_port_that_is_taken_is_told_before_the_work(tmp_path, home):
    taken = serve.server(tmp_path, 0)
    try:
        code, out, err = ran("--out", tmp_path / "site", "--serve", "--port", taken.server_port, home=home)
    finally:
        taken.server_close()
    assert (code, out) == (2, "")
    assert f"--port {taken.server_port}: Address already in use" in err


def test_what_is_missing_says_which_extra_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"the site needs sphinx, myst-nb, furo, .*'tinygrad_attn\[site\]'"):
        build.build(tmp_path / "site")


@pytest.mark.parametrize(("text", "made"), [
    ("see tutorial 05 and tutoriais 05", "see [tutorial 05](05_why_divide_by_sqrt_d_k.ipynb) and "
     "[tutoriais 05](05_why_divide_by_sqrt_d_k.ipynb)"),
    ("this is tutorial 03, not tutorial 99", "this is tutorial 03, not tutorial 99"),
    ("# Tutorial 05\n`tutorial 05`\n```\ntutorial 05\n```", "# Tutorial 05\n`tutorial 05`\n```\ntutorial 05\n```"),
    ("`tinygrad_attn/ops.py`", '<a href="../_modules/tinygrad_attn/ops.html"><code class="literal">'
     "tinygrad_attn/ops.py</code></a>"), ("`tinygrad_attn/kernels.py`", "`tinygrad_attn/kernels.py`"),
    ("tutorials 05, 06 and 03", "[tutorials 05](05_why_divide_by_sqrt_d_k.ipynb), "
     "[06](06_self_and_cross_attention.ipynb) and 03"),
    ("[see tutorial 05](x.html) $\\text{tutorial 05}$\n    tutorial 05",
     "[see tutorial 05](x.html) $\\text{tutorial 05}$\n    tutorial 05")])
def test_lessons_and_files_that_a_text_names_are_links(text, made):
    assert sources.linked(text, "03") == made
