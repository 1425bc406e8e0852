"""What learners read can be read in Portuguese: every message is translated, none is a guess, and what is code in it is
still that code."""

import json
import os
import re
import string
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn import languages
from tinygrad_attn.languages import LANGUAGES, _, asking, folder, language, speaking, translations
from tinygrad_attn.learn import check, exercises, quiz
from tinygrad_attn.learn.exercise import exercise, ids
from tinygrad_attn.learn.lessons import cells, lesson, lessons
from tinygrad_attn.learn.prose import mapped
from tinygrad_attn.learn.terminal import filled
from tinygrad_attn.plots import curves, described, figure, heatmap, inline_svg
from tinygrad_attn.site import catalogues

ROOT = Path(__file__).parents[1]
NAMES = ["code", "site", *(f"{n:02}" for n in range(1, 15))]
each_catalogue = pytest.mark.parametrize("name", NAMES)


def told(*command, **env):
    return subprocess.run([sys.executable, "-W", "error", "-m", "tinygrad_attn", *command], capture_output=True,
                          text=True, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "utf-8", **env}, timeout=100)


@pytest.fixture(scope="module")
def templates():
    """All messages, as they are now. The lessons run for it."""
    return dict(catalogues.templates())


@pytest.fixture(scope="module")
def pages():
    """All translations, by catalogue, as gettext's own tools read them."""
    pofile = pytest.importorskip("babel.messages.pofile")
    found = {}
    for path in folder("pt").iterdir():
        with open(path, "rb") as file:
            found[path.stem] = pofile.read_po(file, locale="pt_BR", abort_invalid=True)
    return found


# -------------------------------------------------------------------------------------------------- the catalogues

def test_there_is_a_catalogue_for_each_lesson_for_the_code_and_for_the_site(templates, pages):
    assert set(templates) == set(pages) == set(NAMES)


@each_catalogue
def test_every_message_is_translated_and_none_is_left_over(name, templates, pages):
    """A message that has changed is new. `sphinx-intl update` brings the catalogues up to date; CONTRIBUTING.md."""
    entries = [entry for entry in pages[name] if entry.id]
    fuzzy = [entry.id for entry in entries if entry.fuzzy]
    empty = [entry.id for entry in entries if not entry.string.strip()]
    assert (fuzzy, empty) == ([], [])
    assert not pages[name].obsolete
    assert {entry.id for entry in entries} == set(templates[name])


@each_catalogue
def test_our_reader_reads_what_gettexts_does(name, pages):
    assert translations(folder("pt") / f"{name}.po") == {entry.id: entry.string for entry in pages[name] if entry.id}


def test_the_reader_knows_what_is_not_done(tmp_path):
    (tmp_path / "x.po").write_text('msgid ""\nmsgstr "Language: pt_BR"\n\n'
                                   '# said\n#: file.py\nmsgid "a"\nmsgstr "á"\n\n'
                                   '#, fuzzy\nmsgid "b"\nmsgstr "bê"\n\n'
                                   '#, python-format, fuzzy\nmsgid "c"\nmsgstr "cê"\n\n'
                                   'msgid "d"\nmsgstr ""\n\n'
                                   'msgid ""\n"two "\n"lines\\n\\"quoted\\" \\\\ # end"\n'
                                   'msgstr ""\n"duas "\n"linhas"\n\n'
                                   '#~ msgid "e"\n#~ msgstr "é"\n', encoding="utf-8")
    assert translations(tmp_path / "x.po") == {"a": "á", 'two lines\n"quoted" \\ # end': "duas linhas"}


@pytest.mark.parametrize("wrong", ['msgstr "a "quoted" word"', 'msgstr "\\sqrt"', 'msgstr "open'])
def test_a_slip_of_a_translator_names_its_file_and_line(wrong, tmp_path):
    (tmp_path / "x.po").write_text(f'msgid "a"\n{wrong}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.po: a quotation mark or a backslash is wrong in \"") as told:
        translations(tmp_path / "x.po")
    assert wrong.removeprefix("msgstr ") in str(told.value)


def test_entries_need_no_line_between_them_and_a_file_may_have_a_mark(tmp_path):
    (tmp_path / "x.po").write_bytes(b'\xef\xbb\xbfmsgid "a"\nmsgstr "b"\n#, fuzzy\nmsgid "c"\nmsgstr "d"\n'
                                    b'msgid "e"\nmsgstr "f"')
    assert translations(tmp_path / "x.po") == {"a": "b", "e": "f"}


@each_catalogue
def test_code_formulas_links_and_places_are_as_they_were(name, pages):
    for entry in pages[name]:
        if not entry.id:
            continue
        for what, pattern in (("code", r"`[^`]+`"), ("link", r"\]\(([^)]+)\)|https?://\S+"), ("TeX", r"\\[a-z]+"),
                              ("exercise", r"\b\d\d-(?!bit)[a-z][a-z-]+"), ("place", r"\$[a-z_]+\b(?![^$]*\$)")):
            ours, theirs = (Counter(re.findall(pattern, text)) for text in (entry.id, entry.string))
            if what == "code" and name == "site":           # the Portuguese page names its own option
                ours += Counter(["`--lang pt`"] if "`--lang pt`" in theirs else [])
            assert ours == theirs, (what, entry.id, entry.string)
        assert entry.id.count("**") == entry.string.count("**"), entry.id
        assert ("\n" in entry.id) == ("\n" in entry.string), entry.id
        assert entry.string.strip() == entry.string or entry.id != entry.id.strip(), entry.id


def test_the_words_of_the_code_take_the_same_values(pages):
    for entry in pages["code"]:
        ours, theirs = ({field for _text, field, *_rest in string.Formatter().parse(text) if field is not None}
                        for text in (entry.id, entry.string))
        assert ours == theirs, entry.id


def test_a_message_has_one_translation_wherever_it_is(pages):
    known = {}
    for name, catalogue in pages.items():
        for entry in catalogue:
            if entry.id:
                assert known.setdefault(entry.id, entry.string) == entry.string, (name, entry.id)


@each_catalogue
def test_it_is_portuguese(name, pages):
    """Few sentences stay as they are: names, symbols, answers that are graded letter by letter."""
    same = [entry.id for entry in pages[name] if entry.id and entry.id == entry.string and len(entry.id.split()) > 2]
    assert all(re.search(r"[`$=→>←·…]|\d|^[\w ]+ / ", text) or text.startswith('"') for text in same), same
    english = re.compile(r"\b(the|with|which|weights|scores|queries|keys|values|heads|and|not)\b")
    for entry in (entry for entry in pages[name] if entry.id):
        left = re.sub(r"`[^`]*`|“[^”]*”|\"[^\"]*\"|\*[^*]*\*|\([^)]*\)|\$[^$]+\$", "", entry.string)
        assert len(english.findall(left)) <= 2, (entry.id, entry.string)


@pytest.mark.parametrize(("english", "portuguese"), [
    ("query", "consulta"), ("key", "chave"), ("value", "valor"), ("weights", "pesos"),
    ("heads", "cabeças"), ("scores", "pontuações")])
def test_the_words_of_the_field_are_the_usual_ones(english, portuguese):
    found = [text for message, text in languages.catalogue("pt").items() if re.search(rf"\b{english}\b", message)
             and "`" not in message]
    assert found
    assert sum(portuguese[:5] in text.lower() for text in found) > 0.6 * len(found)


# -------------------------------------------------------------------------------------------------- markdown

TEXT = """\
# A title

A paragraph
of two lines, with `code`.
- an item that
  goes on
- another
1. first

$$x = y$$

So
$$\\text{out} = x$$

| a | b |
|---|---|
| **c** | 1 |

    f(x) = y
    f(x)        if x is large
    def f(a number):

```bash
do it       # now
```
"""


def test_messages_are_paragraphs_titles_items_cells_and_formulas_with_words():
    assert catalogues.within(TEXT) == [
        "A title", "A paragraph of two lines, with `code`.", "an item that goes on", "another", "first", "So",
        "$$\\text{out} = x$$", "a", "b", "**c**", "f(x)        if x is large"]


def test_what_is_no_message_stays_where_it_was():
    changed = mapped(TEXT, lambda message: "§")
    assert changed.splitlines() == [
        "# §", "", "§", "- §", "- §", "1. §", "", "$$x = y$$", "", "§", "§", "", "| § | § |", "|---|---|", "| § | 1 |",
        "", "    f(x) = y", "    §", "    def f(a number):", "", "```bash", "do it       # now", "```"]


@pytest.mark.parametrize("one", lessons(), ids=lambda one: one.number)
def test_a_text_that_is_mapped_to_itself_reads_the_same(one):
    texts = [cell.text for cell in cells(one.path.read_text(encoding="utf-8")) if cell.kind == "markdown"]
    texts += [found.statement for found in exercises(one.number).found]
    for text in texts:
        assert filled(mapped(text, str)) == filled(text)


@pytest.mark.parametrize("text", ["", "\n\n", "```\nnever closed", "$$ never closed", "|", "    ", "-", "#", "* * *",
                                  "a\n\n\n\nb", "- a\n\n  b", "# a\n# b", "\ttab", "$$a$$ and more"])
def test_odd_markdown_loses_nothing(text):
    assert re.sub(r"\s", "", mapped(text, str)) == re.sub(r"\s", "", text)


# -------------------------------------------------------------------------------------------------- the choice

def test_english_is_the_language_unless_another_is_chosen(monkeypatch):
    monkeypatch.delenv("TINYGRAD_ATTN_LANG", raising=False)
    assert (language(), _("hint")) == ("en", "hint")
    with speaking("pt"):
        assert (language(), _("hint")) == ("pt", "dica")
        with speaking("en"):
            assert _("hint") == "hint"
        assert _("hint") == "dica"
    assert language() == "en"


@pytest.mark.parametrize(("value", "chosen"), [("pt", "pt"), ("pt_BR.UTF-8", "pt"), ("PT", "pt"), ("en", "en"),
                                               ("", "en"), ("xx", "en"), ("português", "en")])
def test_the_environment_chooses(value, chosen, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_LANG", value)
    assert language() == chosen
    with speaking("en"):
        assert language() == "en"


def test_the_choice_ends_with_an_error_and_is_a_threads_own():
    with pytest.raises(KeyError), speaking("pt"):
        raise KeyError
    assert language() == "en"
    seen = []
    with speaking("pt"):
        thread = threading.Thread(target=lambda: seen.append(language()))
        thread.start()
        thread.join()
    assert seen == ["en"]


def test_an_unknown_language_is_an_error_that_names_those_there_are():
    with pytest.raises(ValueError, match="'fr'; it is one of en, pt"), speaking("fr"):
        pass


def test_what_nobody_has_translated_is_shown_as_it_is_and_told_to_whom_asks():
    with asking() as asked:
        assert _("never written") == "never written"
        assert not asked
        with speaking("pt"):
            assert (_("never written"), _("hint")) == ("never written", "dica")
        assert asked == {"never written", "hint"}
    with speaking("pt"):
        assert _("never asked") == "never asked"
    assert "never asked" not in asked


# -------------------------------------------------------------------------------------------------- what is read

def test_lessons_exercises_and_quizzes_share_their_code():
    for one in lessons():
        with speaking("pt"):
            other, theirs, asked = lesson(one.number), exercises(one.number).found, quiz(one.number)
        assert other.title != one.title
        assert [cell.kind for cell in other.cells] == [cell.kind for cell in one.cells]
        assert [cell.line for cell in other.cells] == [cell.line for cell in one.cells]
        for mine, its in zip(one.cells, other.cells):
            assert mine.text == its.text if mine.kind == "code" else mine.text != its.text or mine.text == "## Quiz"
        for mine, its in zip(exercises(one.number).found, theirs):
            assert (mine.id, mine.starter, len(mine.checks), len(mine.mistakes)) == (
                its.id, its.starter, len(its.checks), len(its.mistakes))
            assert mine.statement != its.statement
            assert all(a.hint != b.hint for a, b in zip(mine.checks + mine.mistakes, its.checks + its.mistakes))
        assert [[o.right for o in q.options] for q in quiz(one.number).questions] == [
            [o.right for o in q.options] for q in asked.questions]


@pytest.mark.parametrize("id", ids())
def test_no_hint_in_portuguese_says_the_solution(id):
    with speaking("pt"):
        found = exercise(id)
    lines = {line.strip() for line in found.solution_text.splitlines() if len(line.strip()) > 25} - {
        line.strip() for line in found.starter.splitlines()}
    for hint in (*found.hints, *(one.hint for one in (*found.checks, *found.mistakes))):
        assert not [line for line in lines if line in hint]


def test_the_grader_speaks_portuguese(capsys):
    with speaking("pt"):
        report = check("03-softmax", lambda x: x / x.sum())
    assert not report
    said = capsys.readouterr().out
    assert "03-softmax: Um softmax que resiste" in said
    for word in ("poucas pontuações", "esperado", "obtido", "dica", "entradas; a menor:", "Ainda não."):
        assert word in said
    assert not re.search(r"\b(expected|got|hint|inputs|Not yet)\b", said)


def test_mutants_are_counted_in_portuguese_too(capsys):
    with speaking("pt"):
        check("03-axis", lambda softmax: None)
    said = capsys.readouterr().out
    assert "aceita o que está certo" in said
    assert "rejeita o mutante 1" in said
    assert re.search(r"Ainda não: 0 de \d+ mutantes rejeitados\.", said)


def test_learn_speaks_portuguese_by_its_option_and_by_the_environment(tmp_path):
    home = {"TINYGRAD_ATTN_HOME": str(tmp_path)}
    for command in (["--lang", "pt", "show", "03-softmax"], ["show", "03-softmax", "--lang", "pt"],
                    ["--lang", "pt", "03-softmax"], ["03-softmax", "--lang", "pt"]):
        result = told("learn", *command, **home)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Um softmax que resiste a pontuações grandes (escrever)" in result.stdout
        assert "Para começar: " in result.stdout
    assert "learn 01 --lang pt\n" in told("learn", "--lang", "pt", **home).stdout
    assert "learn 01\n" in told("learn", TINYGRAD_ATTN_LANG="pt", **home).stdout
    assert "feitos" in told("learn", TINYGRAD_ATTN_LANG="pt", **home).stdout
    assert "solved" in told("learn", "--lang", "en", TINYGRAD_ATTN_LANG="pt", **home).stdout
    refused = told("learn", "--lang", "fr", **home)
    assert refused.returncode == 2
    assert "invalid choice: 'fr'" in refused.stderr


def test_learn_reads_a_lesson_in_portuguese(tmp_path):
    result = told("learn", "13", "--lang", "pt", "--out", str(tmp_path / "pictures"), TINYGRAD_ATTN_HOME=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    assert "Sua própria operação" in result.stdout
    assert "figura: " in result.stdout
    prose = re.sub(r"^  │.*$", "", result.stdout, flags=re.MULTILINE)
    assert not re.search(r"\bYou need\b|\bThe problem\b|\bRead on\b", prose)


def test_json_has_the_same_keys_in_both_languages(tmp_path):
    home = {"TINYGRAD_ATTN_HOME": str(tmp_path)}
    english, portuguese = (json.loads(told("learn", "--json", "--lang", lang, **home).stdout)["lessons"]
                           for lang in LANGUAGES)
    assert [row["lesson"] for row in english] == [row["lesson"] for row in portuguese]
    assert [set(row) for row in english] == [set(row) for row in portuguese]
    assert all(a["title"] != b["title"] for a, b in zip(english, portuguese))


def test_a_notebook_of_a_lesson_stays_in_its_language():
    """Its cells are the same, but for one in front, by which `check` and the plots speak it as well."""
    with speaking("pt"):
        theirs = json.loads(lesson("03").notebook())
    ours = json.loads(lesson("03").notebook())
    code = [["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
            for book in (ours, theirs)]
    assert code[1][1:] == code[0]
    assert theirs["cells"][0]["source"][0].startswith("# O softmax")
    exec(code[1][0], {})
    try:
        assert language() == "pt"
    finally:
        del os.environ["TINYGRAD_ATTN_LANG"]


# -------------------------------------------------------------------------------------------------- plots

def test_labels_of_plots_are_translated_and_data_are_not():
    with speaking("pt"):
        picture = heatmap({"weights": [[0.25, 0.75]]}, rows=["cat"], columns=["the", "last word"])
        lines = curves({"hard": ([0, 1], [0, 1]), "β = 2": ([0, 1], [0, 2])}, xlabel="step", ylabel="loss")
    axes = picture.axes[0]
    assert axes.get_title() == "pesos"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["the", "última palavra"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cat"]
    assert [text.get_text() for text in lines.axes[0].get_legend().get_texts()] == ["exata", "β = 2"]
    assert (lines.axes[0].get_xlabel(), lines.axes[0].get_ylabel()) == ("passo", "perda")


def test_a_picture_is_described_by_what_it_shows():
    table = heatmap({"weights": [[0.25, 0.75], [0.5, 0.5]]})
    assert described(table) == "weights, a table of 2 rows and 2 columns, from 0.25 to 0.75"
    named = heatmap({"weights": [[0.25, 0.75], [0.5, 0.25]]}, rows=["it", "cat"], columns=["the", "mat"])
    assert described(named).endswith("from 0.25 to 0.75, it: most at mat, cat: most at the")
    lines = curves({"hard": ([0, 1], [3, 1]), "soft": ([0, 1], [2, 2])}, xlabel="step", ylabel="loss")
    assert described(lines) == "loss against step, hard goes from 3 to 1, soft goes from 2 to 2"
    with speaking("pt"):
        assert described(lines) == "loss em função de step, hard vai de 3 a 1, soft vai de 2 a 2"
    assert lines._repr_png_()[1] == {"alt": described(lines)}


@pytest.mark.parametrize("drawn", [
    lambda ax: ax.plot([0, 1], ["low", "high"], label="kinds"), lambda ax: ax.set_xlabel(r"$\sqrt{d_k}$ \g<1> \s"),
    lambda ax: ax.imshow(np.ma.masked_all((2, 2))), lambda ax: ax.imshow([[np.nan, np.inf], [1.0, 2.0]]),
    lambda ax: ax.imshow(np.zeros((2, 2, 3))), lambda ax: ax.plot([], [], label="nothing")])
def test_whatever_is_drawn_can_be_described(drawn):
    picture, ax = figure(1, 1, size=(2, 2))
    drawn(ax)
    assert isinstance(described(picture), str)
    assert "aria-label" in inline_svg(picture, described(picture))


def test_labels_may_be_numbers():
    drawn = curves({4: ([0, 1], [0, 1]), 16: ([0, 1], [0, 2])}, xlabel="x", ylabel="y")
    assert [line.get_label() for line in drawn.axes[0].lines] == ["4", "16"]
    assert heatmap({0: [[1.0]]}, rows=[1], columns=[2]).axes[0].get_title() == "0"
