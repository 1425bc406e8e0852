"""The film of the backward pass, and the pictures, in a browser: what is read there is what the framework computes, and
nothing is cut off."""

import contextlib
import json
import re

import numpy as np
import pytest
from chrome import contrasts, opened, ratio, requests

import tinygrad_attn as ta
from tinygrad_attn import Tensor, examples, graph
from tinygrad_attn.graph import film, page, render, words
from tinygrad_attn.graph.dot import COLOURS, INK, SHADES

NASTY = ["</script><script>window.hacked = 1</script>", "$title ${data}", "<!-- <b>", "a\nb", 'quo"te\\', "日本",
         "&amp;", "ação α", "\u2028", ""]

# The shares of each op of the three words, as they are told: in the names of the graph, and not of the op.
RULES = {"output": ["g Vᵀ", "weightsᵀ g"], "weights": ["out * (g - (g * out).sum(axis=axis, keepdims=True))"],
         "scores": ["g swapaxesᵀ", "multiplyᵀ g"], "multiply": ["g * (1/√d_k)"],
         "swapaxes": ["g.swapaxes(axis1, axis2)"], "Q": ["Xᵀ g"], "K": ["Xᵀ g"], "V": ["Xᵀ g"]}
# The groups, of an SVG, a text of which reaches beyond their outline.
OUTSIDE = """
  return [...document.querySelectorAll(arguments[0])].filter(g => {
    const r = g.querySelector(arguments[1]).getBBox();
    return [...g.querySelectorAll(':scope > text')].some(t => {
      const b = t.getBBox();
      return b.width > 0 && (b.x < r.x - 0.5 || b.x + b.width > r.x + r.width + 0.5 || b.y < r.y - 2 ||
                             b.y + b.height > r.y + r.height + 2);
    });
  }).map(g => g.textContent)"""


def leaf(data, name=None):
    return Tensor(data, requires_grad=True, name=name)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Pages by name."""
    folder = tmp_path_factory.mktemp("films")
    three, heads = graph.draw(examples.three_words()), graph.draw(examples.heads(), collapse=1)
    films = {"attention": three.save(folder / "attention.html"), "pt": three.save(folder / "pt.html", lang="pt"),
             "scalar": graph.draw(examples.scalar()).save(folder / "scalar.html"),
             "heads": heads.save(folder / "heads.html"),
             "vanishing": examples.vanishing().save(folder / "vanishing.html")}
    total = leaf(0.0, "start")
    for name in NASTY:
        with graph.scope(name):
            total = total * leaf(2.0, name)
    films["nasty"] = graph.draw(total, collapse=None).save(folder / "nasty.html")
    films["constant"] = graph.draw(Tensor([1.0, 2.0], name="c")).save(folder / "constant.html")
    return films


def press(browser, key, target="#next"):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    browser.find_element(By.CSS_SELECTOR, target).send_keys(getattr(Keys, key, key))


def click(browser, name):
    browser.execute_script("document.getElementById(arguments[0]).click()", name)


def count(browser):
    return browser.execute_script("return document.getElementById('count').textContent")


def sums(browser):
    """The list of gradients that add up: by name, the lines of the shares, the sum of numbers, or the array."""
    found = browser.execute_script(
        "return [...document.querySelectorAll('[data-sum]')].map(e => [e.querySelector('h3').firstChild.textContent,"
        "[...e.querySelectorAll('li')].map(li => li.textContent), e.querySelector('p')?.textContent,"
        "[...e.querySelectorAll('tr')].map(tr => [...tr.cells].map(td => td.dataset.x))])")
    return {name.strip(): (lines, said or np.array(rows, float)) for name, lines, said, rows in found}


@pytest.mark.parametrize("name", ["attention", "pt", "scalar", "heads", "vanishing", "nasty", "constant"])
def test_no_console_error_and_no_request_but_for_the_page_itself(browser, films, name):
    browser.get_log("browser"), browser.get_log("performance")
    opened(browser, films[name])
    for button in ("last", "first", "next", "back", "fold", "unfold", "larger", "smaller", "fit", "play", "play"):
        click(browser, button)
    assert browser.get_log("browser") == []
    assert requests(browser) == {films[name].as_uri()}
    assert films[name].stat().st_size < 2_000_000


def test_the_gradients_at_the_end_are_those_of_backward(browser, films):
    opened(browser, films["attention"])
    click(browser, "last")
    shown, output = sums(browser), examples.three_words()
    leaves = {name: x for name, x in by_name(output).items() if x.requires_grad and not x.node}
    output.backward(np.ones(output.shape))
    assert set(shown) == {"W_q", "W_k", "W_v"} == set(leaves)
    for name, (lines, array) in shown.items():
        np.testing.assert_allclose(array, leaves[name].grad, rtol=1e-6)
        assert lines == []                  # a single use: there is nothing to add


def test_each_step_is_one_op_with_its_rule_and_what_it_sends(browser, films):
    opened(browser, films["attention"])
    traced = graph.trace(examples.three_words(), grads=True)
    ops, by_id = [v for v in reversed(traced.vertices) if v.kind == "op"], {v.id: v for v in traced.vertices}
    assert count(browser) == f"Step 0 of {len(ops)}"
    for k, op in enumerate(ops, 1):
        press(browser, "ARROW_RIGHT")
        assert count(browser) == f"Step {k} of {len(ops)}"
        now = browser.find_element("id", "now")
        assert op.label in now.find_element("tag name", "h2").text
        assert op.formula in now.text
        assert browser.find_element("id", "said").text.startswith(f"{op.name or op.label}")
        assert browser.execute_script("return document.querySelector('.vertex.current').dataset.vertex") == op.id
        sent = [e for e in traced.edges if e.target == op.id and e.grad is not None]
        tables = browser.execute_script(
            "return [...document.querySelectorAll('#now table')].map(t => [...t.rows].map(r => [...r.cells].map("
            "c => c.dataset.x)))")
        needed = [op.value] if any("out" in e.rule for e in sent) else []
        needed += [by_id[e.source].value for e in traced.edges if e.target == op.id and any(
            e.parameter in re.split(r"[^a-z]+", other.rule.partition(" = ")[2]) for other in sent)]
        for table, array in zip(tables, [op.grad, *needed, *(e.grad for e in sent)], strict=True):
            np.testing.assert_allclose(np.array(table, float), array, rtol=1e-6)
        assert [pre.text for pre in now.find_elements("tag name", "pre")] == RULES[op.name or op.label]


def test_shares_add_up_where_a_value_has_several_uses(browser, films):
    opened(browser, films["scalar"])
    seen = []
    for _ in range(4):
        press(browser, "ARROW_RIGHT")
        seen.append(sums(browser).get("x"))
    tanh, x = 0.46211715726, 2.0
    by_product, by_tanh = tanh, x * (1 - tanh ** 2) * -1.5
    assert [len(lines) for lines, _ in seen] == [1, 1, 1, 2]
    assert seen[0][1] == f"{by_product:.3f} = {by_product:.3f}"
    assert seen[3][1] == f"{by_product:.3f} − {-by_tanh:.2f} = −{-(by_product + by_tanh):.2f}"
    assert "x is used 2 times" in browser.find_element("id", "now").text
    click(browser, "first")
    assert sums(browser) == {}
    press(browser, "END")
    assert count(browser) == "Step 4 of 4"
    press(browser, "HOME")
    press(browser, "ARROW_LEFT")
    assert count(browser) == "Step 0 of 4"


def test_what_the_loss_itself_sends_is_one_of_the_shares(browser, tmp_path):
    x = leaf(1.0, "x")
    y = x * 2
    y.name = "y"
    opened(browser, graph.draw(y, y * 3).save(tmp_path / "both.html"))
    assert "the sum of all elements of y, multiply" in browser.find_element("id", "now").text
    seeds = "return [...document.querySelectorAll('#now td')].map(td => td.dataset.x)"
    assert browser.execute_script(seeds) == ["1", "1"]          # and not the complete gradient of y, which is 4
    click(browser, "last")
    lines, said = sums(browser)["y"]
    assert lines == ["from L itself: 1", "from multiply: 3"]
    assert said == "1 + 3 = 4"
    assert sums(browser)["x"][1] == [[8.0]]


def test_graphs_that_were_compared_without_gradients_get_them_on_the_page(browser, tmp_path):
    x = leaf(2.0, "x")
    both = graph.compare(graph.draw(x * x), graph.draw(x * 3.0))
    opened(browser, both.save(tmp_path / "both.html"))
    assert count(browser) == "Step 0 of 2"
    order = browser.execute_script("return [...document.querySelectorAll('.cluster')].map(r => +r.getAttribute('x'))")
    assert order == sorted(order)           # the first on the left
    click(browser, "last")
    assert browser.find_element("id", "said").text.startswith("a: multiply: g = 1; sends 2 to x, 2 to x")


def test_the_film_goes_on_where_several_values_leave_a_box_or_the_rest(browser, tmp_path):
    x, w = leaf(np.ones(2), "x"), leaf([1.0, 3.0], "w")
    with graph.scope("both"):
        a, b = x * 2.0, w * 3.0
    total = (a * b).sum() + (w * w).sum()
    y = x
    for _ in range(300):
        y = y * 1.001 + x
    zero = leaf([0.0, 1.0], "z")
    for k, drawn in enumerate([graph.draw(total, collapse=0, max_nodes=9), graph.draw(total, max_nodes=4),
                               graph.draw(y, max_nodes=60), graph.draw(y, x * 2, max_nodes=20),
                               graph.draw(zero.sqrt() * 2.0)]):
        browser.get_log("browser")
        opened(browser, drawn.save(tmp_path / f"{k}.html"))
        last = int(count(browser).split()[-1])
        assert last > 0
        for _ in range(min(last, 30)):
            click(browser, "next")
        click(browser, "last")
        assert browser.get_log("browser") == []
        assert count(browser) == f"Step {last} of {last}"
    assert "sends ‖g‖ = inf to z" in browser.find_element("id", "said").text


def test_rules_are_told_in_names_that_cannot_be_misread():
    def share(rule, **names):
        return film.told(rule, names)["share"]
    assert share("dL/dx = g * y", x="a", y="W_q") == "g * W_q"
    assert share("dL/dx = g / y", x="a", y="1/√d_k") == "g / (1/√d_k)"
    assert share("dL/dy = -g * out / y", x="a", y="b + c") == "-g * out / (b + c)"
    assert share("dL/dx = g yᵀ", x="Q", y="K") == "g Kᵀ"
    assert share("dL/dx = g yᵀ", x="Q", y="K @ V") == "g (K @ V)ᵀ"
    for clash in ("g", "out", "", "axis"):  # another word of the rule, or no name at all
        assert share("dL/dy = f(-g * out / y, axis=axis)", x="a", y=clash) == "f(-g * out / y, axis=axis)"
    assert share("dL/dx = g * y", x="a", y="out") == "g * y"    # out is what the op computed, everywhere on the page
    assert share("dL/dx = g * x * y", x="multiply", y="multiply") == "g * x * y"        # which of the two?
    assert share("dL/dx:\nx = x + x\nreturn 2 * g * x", x="a") == "x = x + x\nreturn 2 * g * x"
    assert share("dL/dx = np.einsum('xy,y->x', g, y)", x="a", y="b") == "np.einsum('xy,y->x', g, b)"
    assert share("dL/dα = g * β", α="a", β="b") == "g * b"
    assert share("dL/dx = sum((x * g for x in y))", x="a", y="b") == "sum((x * g for x in y))"
    assert film.told("dL/dy = -g * out / y", {"x": "a", "y": "b"}) == {
        "share": "-g * out / b", "needs": ["y", "out"], "own": False}

    @ta.primitive
    def xy(x, y):
        return x * y
    xy.defvjp(lambda g, out, y, x: g * x, lambda g, out, y, x: g * y)           # other letters than the op's
    t = graph.trace(xy(leaf(2.0, "a"), leaf(3.0, "b")), grads=True)
    assert [e["share"] for e in film.film(t)["edges"]] == ["g * b", "g * a"]


def test_what_older_ops_send_has_come_by_the_end(browser, tmp_path):
    h = leaf(2.0, "x")
    for k in range(60):
        h = h * 1.01
        if k == 5:
            early = h
    early.name = "early"
    opened(browser, graph.draw(early, h, grads=True, max_nodes=20).save(tmp_path / "cut.html"))
    click(browser, "last")
    lines, said = sums(browser)["early"]
    assert len(lines) == 2
    assert said == f"1 + {1.01 ** 54:.2f} = {1 + 1.01 ** 54:.2f}"


def test_the_seed_counts_where_an_output_is_inside_a_folded_box(browser, tmp_path):
    y = leaf(1.0, "x")
    with graph.scope("s"):
        for _ in range(20):
            y = y * 1.0
    opened(browser, graph.draw(y, y * 2.0 + y * 3.0, grads=True, max_nodes=9).save(tmp_path / "in.html"))
    click(browser, "last")
    assert sums(browser)["s"] == (["from L itself: 1", "from multiply: 3", "from multiply: 2"], "1 + 3 + 2 = 6")


def test_what_is_left_out_is_not_called_a_constant(browser, tmp_path):
    x = leaf(5.0, "x")
    h = x
    for _ in range(5):
        h = h * 2.0
    opened(browser, graph.draw(h, x, grads=True, max_nodes=2).save(tmp_path / "rest.html"))
    click(browser, "next")
    assert "older nodes" in browser.find_element("id", "now").text
    assert "a constant" not in browser.find_element("id", "now").text


def test_each_side_of_a_comparison_keeps_its_newest_part_and_its_name(browser, tmp_path):
    def long(factor):
        x = leaf(2.0, "x")
        for _ in range(400):
            x = x * factor
        return x
    both = graph.compare(long(1.001), long(1.002), titles=("d = 1", "d = 16"))
    opened(browser, both.save(tmp_path / "both.html"))
    assert browser.execute_script("return document.querySelectorAll('.vertex.rest').length") == 2
    assert int(count(browser).split()[-1]) > 100
    click(browser, "next")
    assert browser.find_element("id", "said").text.startswith("d = 16: multiply: g = 1")
    assert str(both).count("older nodes") == 2
    closed = graph.compare(ta.attention(*[leaf(np.eye(2))] * 3)[0], leaf(1.0) * 2, collapse=0)
    assert [box.name for box in closed.shown.boxes] == ["a", "b"]
    assert closed.with_look(collapse=0).shown == closed.shown


def test_without_shapes_no_shape_is_told(browser, tmp_path):
    q = leaf(np.eye(3))
    opened(browser, graph.draw(ta.attention(q, q, q)[0], shapes=False, collapse=1).save(tmp_path / "plain.html"))
    click(browser, "last")
    assert "(3" not in browser.find_element("id", "canvas").get_attribute("textContent")


def test_a_page_opens_with_little_enough_to_be_there_at_once(browser, tmp_path):
    x, total = leaf(np.ones(2), "x"), 0.0
    with graph.scope("all"):
        for _ in range(60):
            with graph.scope("part"):
                total = total + (x * 2.0).tanh()
    opened(browser, graph.draw(total).save(tmp_path / "large.html"))
    assert browser.execute_script("return document.querySelectorAll('.vertex').length") == 61
    assert count(browser) == "Step 0 of 180"                # x and 60 folded parts, with all of their ops
    click(browser, "unfold")
    assert browser.execute_script("return document.querySelectorAll('.vertex').length") == 242
    assert browser.get_log("browser") == []


def test_boxes_fold_and_unfold_by_mouse_and_keyboard_and_the_film_goes_on(browser, films):
    opened(browser, films["heads"])
    boxes = "return [...document.querySelectorAll('.vertex.box')].map(g => g.querySelector('text').textContent)"
    assert browser.execute_script(boxes) == ["project", "attention", "merge"]
    click(browser, "last")
    whole = {name: array for name, (_, array) in sums(browser).items()}
    press(browser, "ENTER", '.vertex[aria-label^="attention"][aria-expanded="false"]')
    assert browser.execute_script(boxes) == ["project", "scale", "scores", "weigh", "merge"]
    focused = "return document.activeElement.getAttribute('aria-label') + document.activeElement.ariaExpanded"
    assert browser.execute_script(focused) == "attentiontrue"
    press(browser, "ENTER", '.vertex[aria-label^="weigh"]')
    assert browser.execute_script(focused) == "weightrue"
    press(browser, "ENTER", '.title[aria-label="multi_head_attention"]')
    assert browser.execute_script(boxes) == ["multi_head_attention"]
    assert browser.execute_script(focused).startswith("multi_head_attention")
    click(browser, "last")
    assert browser.execute_script("return document.querySelector('.vertex.current').dataset.vertex") == "b0"
    assert {name: array.tolist() for name, (_, array) in sums(browser).items()} == {
        name: array.tolist() for name, array in whole.items()}
    click(browser, "unfold")
    assert browser.execute_script(boxes) == []
    traced = graph.trace(examples.heads())
    assert browser.execute_script("return document.querySelectorAll('.vertex').length") == len(traced.vertices)
    assert browser.execute_script("return document.querySelectorAll('.edge').length") == len(traced.edges)


def test_a_vertex_that_is_chosen_tells_its_value_and_gradient(browser, films):
    opened(browser, films["scalar"])
    press(browser, "ENTER", '.vertex[aria-label^="w"]')
    assert "No gradient has come yet." in browser.find_element("id", "now").text
    click(browser, "last")
    press(browser, "SPACE", '.vertex[aria-label^="w"]')
    now = browser.find_element("id", "now").text
    y = examples.scalar()
    w = by_name(y)["w"]
    y.backward()
    assert "Gradient, complete" in now
    assert f"{w.grad:.2f}" in now
    assert browser.find_element("id", "said").text == f"w: g = {w.grad:.2f}"
    press(browser, "ESCAPE")
    assert "multiply" in browser.find_element("id", "now").text
    click(browser, "next")                  # it is the last: nothing happens, and the focus stays
    assert count(browser) == "Step 4 of 4"


def by_name(output):
    return {x.name: x for node in ta.engine.topological_order(output) for x in node.inputs if x is not None and x.name}


def test_zoom_pan_and_fit(browser, films):
    opened(browser, films["attention"])
    at = "return document.getElementById('view').getAttribute('transform')"
    fitted = browser.execute_script(at)
    press(browser, "+")
    assert browser.execute_script(at) != fitted
    press(browser, "0")
    assert browser.execute_script(at) == fitted
    browser.execute_script(
        "const c = document.getElementById('canvas'), r = c.getBoundingClientRect();"
        "const go = (t, x, y) => c.dispatchEvent(new PointerEvent(t, {pointerId: 1, clientX: x, clientY: y, "
        "bubbles: true}));"
        "go('pointerdown', r.left + 5, r.top + 5); go('pointermove', r.left + 60, r.top + 25); go('pointerup', 0, 0)")
    moved = browser.execute_script(at)
    assert moved != fitted
    assert moved.split("scale")[1] == fitted.split("scale")[1]


@pytest.mark.parametrize("name", ["attention", "pt", "scalar", "heads", "nasty"])
@pytest.mark.parametrize("width", [400, 1300])
def test_nothing_is_wider_than_the_screen_and_no_text_is_cut_off(browser, films, name, width):
    opened(browser, films[name], width)
    for step in ("first", "last"):
        click(browser, step)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        cut = browser.execute_script(
            "return [...document.querySelectorAll('h1, h2, h3, p, li, pre, button')].filter(e => e.clientWidth > 0 && "
            "!e.classList.contains('unseen') && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)")
        assert cut == []
        assert browser.execute_script(OUTSIDE, ".vertex", "rect.body") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(browser, films, scheme):
    opened(browser, films["attention"], scheme=scheme)
    click(browser, "last")
    found = contrasts(browser, "h1, h2, h3, p, li, pre, label, button:not(:disabled), .where-to, .entry span")
    assert len(found) > 20
    for what, contrast in found:
        assert contrast > 4.5, what         # WCAG AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_and_labels_can_be_read_on_the_strongest_colours(browser, films, scheme):
    """Cells and vertices are tinted by mixing with what is behind; the browser tells the result, pixel by pixel."""
    opened(browser, films["attention"], scheme=scheme)
    click(browser, "last")
    ratios = browser.execute_script(
        "const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});"
        "const over = (...colours) => { c.clearRect(0, 0, 1, 1); for (const x of colours) { c.fillStyle = x; "
        "c.fillRect(0, 0, 1, 1); } return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };"
        "const css = (e, p) => getComputedStyle(e)[p];"
        "const card = css(document.querySelector('aside > section'), 'backgroundColor');"
        "return [...document.querySelectorAll('td')].map(e => [over(css(e, 'color')), over(card, css(e, "
        "'backgroundColor'))]).concat([...document.querySelectorAll('.vertex')].map(g => { const h = g.querySelector("
        "'.heat'), shown = h.getAttribute('opacity') === '1'; return [over(css(g.querySelector('text'), 'fill')), over("
        "css(shown ? h : g.querySelector('.body'), 'fill'))]; }))")
    assert len(ratios) > 50
    assert min(ratio(ink, paper) for ink, paper in ratios) > 4.5


def test_names_are_text_on_the_page(browser, films):
    opened(browser, films["nasty"])
    assert browser.execute_script("return window.hacked") is None
    shown = browser.execute_script("return [...document.querySelectorAll('.vertex title, .vertex text')].map(t => "
                                   "t.textContent)")
    for name in ("$title ${data}", "<!-- <b>", 'quo"te\\', "日本", "&amp;", "ação α"):
        assert any(text.startswith(name) for text in shown), name
    assert any(text.startswith("</script>") for text in shown)


def test_a_graph_without_gradients_has_nothing_to_step_through(browser, films):
    opened(browser, films["constant"])
    assert "there is no backward pass" in browser.find_element("id", "now").text
    assert not browser.find_element("id", "controls").is_displayed()


def test_the_page_speaks_portuguese(browser, films):
    opened(browser, films["pt"])
    assert browser.execute_script("return document.documentElement.lang") == "pt-BR"
    assert count(browser) == "Passo 0 de 8"
    click(browser, "next")
    assert words.say("pt")["arrives"] in browser.find_element("id", "now").text
    with pytest.raises(ValueError, match="one of en, pt"):
        graph.draw(leaf(1.0) * 2).page(lang="fr")


def test_the_data_of_a_page_is_json_whatever_the_numbers_are():
    x = leaf(np.array([[np.nan, np.inf], [-np.inf, 1.0]]), "x")
    with np.errstate(invalid="ignore"):
        y = x * np.array([True, False])
    shown = film.film(graph.trace(y, grads=True))
    json.dumps(shown, allow_nan=False)
    assert shown["vertices"][0]["value"]["rows"] == [["nan", "inf"], ["-inf", 1.0]]
    assert shown["vertices"][1]["value"]["rows"] == [[True, False]]


def test_huge_arrays_are_shown_in_part():
    big = leaf(np.ones((3, 40, 50)), "big")
    seen = film.film(graph.trace(big.sum(), grads=True))["vertices"][0]
    assert np.shape(seen["value"]["rows"]) == (film.LARGEST, film.LARGEST)
    assert (seen["value"]["part"], seen["value"]["shape"]) == ("slice", "(3, 40, 50)")
    assert film.excerpt(np.ones((2, 3, 4)), 12)["part"] == "slice"
    assert film.excerpt(np.ones((20, 4)), 12)["part"] == "cut"
    assert film.excerpt(np.ones((0, 4)), 12)["rows"] == []


def test_of_many_vertices_less_of_each_is_shown_and_deep_boxes_begin_closed():
    y = leaf(np.ones((20, 20)))
    for _ in range(film.MANY):
        y = y.tanh()
    seen = film.film(graph.trace(y))["vertices"]
    assert len(seen) == film.MANY + 1
    assert {np.shape(v["value"]["rows"]) for v in seen} == {(film.LARGEST // 3, film.LARGEST // 3)}
    y = leaf(1.0)
    with contextlib.ExitStack() as stack:
        for i in range(20):
            stack.enter_context(graph.scope(f"s{i}"))
            y = y.tanh()
    data = re.search(r'id="data">(.*?)</script>', graph.draw(y).page(), re.DOTALL)[1]
    assert json.loads(data)["folded"] == sorted(f"b{i}" for i in range(12, 20))


def test_a_page_needs_the_graph_or_its_gradients():
    x = leaf(2.0, "x")
    y = x * x
    drawn, later = graph.draw(y, grads=True), graph.draw(y)
    y.backward()
    assert '"x"' in drawn.page()
    with pytest.raises(ta.GraphFreedError, match="with grads=True"):
        later.page()


def test_a_page_lays_out_no_more_than_it_can():
    y = leaf(1.0)
    for _ in range(2_000):
        y = y.tanh()
    document = graph.draw(y, max_nodes=None).page()
    assert ("2,001 nodes, of which 499 are shown, the outputs and the newest others (a page lays out no more than 500)"
            in document)
    assert len(document) < 2_000_000


def test_a_frame_holds_the_page_and_lets_nothing_out(browser, films, tmp_path):
    outer = tmp_path / "outer.html"
    inner = page.Page(films["nasty"].read_text(encoding="utf-8"))._repr_html_()
    outer.write_text(f"<!doctype html><meta charset=utf-8><body>{inner}", encoding="utf-8")
    browser.get_log("browser")
    opened(browser, outer)
    browser.switch_to.frame(0)
    assert count(browser) == f"Step 0 of {len(NASTY)}"
    browser.switch_to.default_content()
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("program", ["graphviz", "wheel"])
@pytest.mark.parametrize("name", ["scalar", "attention", "heads", "vanishing"])
def test_no_text_of_a_picture_is_cut_off(browser, tmp_path, monkeypatch, name, program):
    if program == "wheel":
        monkeypatch.setenv("PATH", "")
    made = examples.EXAMPLES[name]()
    for k, options in enumerate([{"grads": True, "values": True}, {"collapse": 1}, {"collapse": 0}]):
        drawn = made if isinstance(made, graph.Graph) else graph.draw(made, **options)
        path = tmp_path / f"{k}.html"
        path.write_text(f"<!doctype html><meta charset=utf-8><body>{drawn.render().decode()}", encoding="utf-8")
        opened(browser, path, 1300)
        assert browser.execute_script(OUTSIDE, ".node, .cluster", "polygon, path") == []
        cut = browser.execute_script(
            "const box = document.querySelector('svg').getBoundingClientRect();"
            "return [...document.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect(); return "
            "b.left < box.left || b.right > box.right || b.top < box.top || b.bottom > box.bottom; })"
            ".map(t => t.textContent)")
        assert cut == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 1300


@pytest.mark.parametrize("scheme", [0, 1])
def test_the_colours_of_a_picture_leave_its_text_readable(scheme):
    def rgb(colour):
        return [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    ink = (INK, "#dfe5ec")[scheme]
    assert ink in (INK, render.for_a_page("<svg >"))[scheme]
    for fill in [both[scheme][0] for both in COLOURS.values()] + list(SHADES[scheme]):
        assert ratio(rgb(ink), rgb(fill)) > 4.5, fill
