"""One self-contained page about the thesis: plots, tables, and a slider over d_k. It needs no network and no server."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..attention import attention
from ..engine import grad
from ..graph.dot import write_whole
from ..plots import INK, SERIES, figure
from ..tensor import Tensor
from .measure import PANELS, SCALES, SYMBOLS, Sweep, jacobian_norms, sweep
from .training import Map

STOPS = tuple(sorted({round(2 ** (k / 2)) for k in range(25)}))     # of the slider: 1 … 4096
N_KEYS, CANDIDATES = 64, 101

TEXT = {
    "title": ("Why attention scores are divided by √d_k", "Por que a atenção divide as pontuações por √d_k"),
    "lead": ("A query and a key with independent components of mean 0 and variance 1 have a dot product of variance d_k. "
             "Undivided, the scores of long vectors are so far apart that the softmax puts all its weight on one key, and "
             "hardly any gradient gets through. Move the slider and watch one draw.",
             "O produto escalar de uma consulta e uma chave, com componentes independentes de média 0 e variância 1, tem "
             "variância d_k. Sem a divisão, as pontuações de vetores longos ficam tão distantes umas das outras que o "
             "softmax põe todo o peso em uma única chave, e quase nenhum gradiente passa. Mova o controle e observe um "
             "sorteio."),
    "draw": ("One draw", "Um sorteio"),
    "draw_note": ("One query, {n} keys and their values, standard normal; at each d_k the first d_k components of the same "
                  "vectors. Of {m} draws it is the one whose norm at d_k = {top}, unscaled, is the median. The loss L is the "
                  "attention's output. Gradients below 1e-16 are the rounding of 1: noise.",
                  "Uma consulta, {n} chaves e seus valores, da normal padrão; para cada d_k, os primeiros d_k componentes dos "
                  "mesmos vetores. Entre {m} sorteios, é aquele cuja norma em d_k = {top}, sem escala, é a mediana. A perda L "
                  "é a saída da atenção. Gradientes abaixo de 1e-16 são o arredondamento de 1: ruído."),
    "slider": ("Length of the vectors, d_k", "Comprimento dos vetores, d_k"),
    "weights": ("attention weights, one bar per key", "pesos de atenção, uma barra por chave"),
    "gradient": ("|∂L/∂score|, logarithmic", "|∂L/∂pontuação|, logarítmico"),
    "spread": ("spread of the scores", "dispersão das pontuações"),
    "largest": ("largest weight", "maior peso"),
    "norm": ("norm of the Jacobian", "norma da jacobiana"),
    "arrives": ("‖∂L/∂Q‖", "‖∂L/∂Q‖"),
    "many": ("Many draws", "Muitos sorteios"),
    "many_note": ("Lines are medians over {draws} draws against {n} keys, dotted lines are means, bands hold 90 % of the "
                  "draws, dashed lines are the limits that theory gives, with no free parameter.",
                  "As linhas são medianas de {draws} sorteios contra {n} chaves; as pontilhadas, médias; as faixas contêm "
                  "90 % dos sorteios; as tracejadas são os limites dados pela teoria, sem parâmetro livre."),
    "claims": ("Theory, measurement and differences", "Teoria, medição e diferenças"),
    "agrees": ("agrees", "concorda"), "off": ("off", "diverge"),
    "table": ("The numbers", "Os números"),
    "limit": ("theory, near a limit", "teoria, perto de um limite"),
    "columns": (("d_k", "spread", "entropy, mean", "largest weight, mean", "‖J‖ median", "‖J‖ mean", "‖∂L/∂scores‖ median",
                 "‖∂L/∂Q‖ median", "‖∂L/∂Q‖ mean"),
                ("d_k", "dispersão", "entropia, média", "maior peso, média", "‖J‖ mediana", "‖J‖ média",
                 "‖∂L/∂pontuações‖ mediana", "‖∂L/∂Q‖ mediana", "‖∂L/∂Q‖ média")),
    "training": ("What it does to training", "O que isso faz com o treino"),
    "honest": ("What popular accounts leave out", "O que os relatos populares omitem"),
    "footnotes": (
        ("The norm first <em>rises</em> with d_k: the softmax of tiny scores is nearly flat.",
         "Its <em>median</em> collapses exponentially in √d_k; its <em>mean</em> falls only like 1/√d_k, because now and "
         "then the two largest scores nearly tie.",
         "The gradient that reaches Q is multiplied by the keys, whose length grows with √d_k: its mean does not vanish at "
         "all. Nearly all queries get nothing; a few get as much more as they are fewer.",
         "Dividing by d_k instead of √d_k flattens: the weights come near 1/n, and the gradient at Q falls like 1/√d_k.",
         "All of this is about random vectors, as at the start of training; what training does with it depends on the task, "
         "the optimiser and the learning rate."),
        ("A norma primeiro <em>sobe</em> com d_k: o softmax de pontuações minúsculas é quase plano.",
         "A <em>mediana</em> despenca exponencialmente em √d_k; a <em>média</em> cai apenas como 1/√d_k, porque de vez em "
         "quando as duas maiores pontuações quase empatam.",
         "O gradiente que chega a Q é multiplicado pelas chaves, cujo comprimento cresce com √d_k: sua média não "
         "desaparece. Quase todas as consultas não recebem nada; umas poucas recebem tanto mais quanto menos são.",
         "Dividir por d_k em vez de √d_k achata: os pesos se aproximam de 1/n, e o gradiente em Q cai como 1/√d_k.",
         "Tudo isso vale para vetores aleatórios, como no início do treino; o que o treino faz com isso depende da tarefa, "
         "do otimizador e da taxa de aprendizado.")),
}
LANGUAGES = {"en": "en", "pt": "pt-BR"}


def report(path: str | Path, *, lang: str = "en", measured: Sweep | None = None, trained: Map | None = None,
           progress: Callable[[int, int], None] | None = None) -> Path:
    """Write the page to `path`, which ends in .html, and return it. Extra `[plot]`.

    `measured` is a `Sweep`, measured now if it is not given, with `progress(done, total)`; `trained` the map of
    `training_map`, left out if not given. `lang` is "en" or "pt" (Brazilian Portuguese). Why: what can be moved is
    understood sooner than what is told. Nothing is written before all is computed, and nothing half.

    >>> import tempfile
    >>> from tinygrad_attn import saturation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = saturation.report(f"{folder}/page.html", measured=saturation.sweep([16, 256], draws=20))
    ...     "<svg" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"report: {path.name}: the name of a page ends in .html")
    if lang not in LANGUAGES:
        raise ValueError(f"report: lang={lang!r}; it is one of {', '.join(LANGUAGES)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"report: the folder {path.parent} does not exist")
    figure(1, 1, size=(1, 1))               # if matplotlib is missing, say so before the work
    measured = sweep(progress=progress) if measured is None else measured
    write_whole(path, _page(measured, trained, lang).encode())
    return path


def one_draw(stops: tuple[int, ...] = STOPS, seed: int = 0) -> dict[str, Any]:
    """For each stop and scale: weights, |∂L/∂scores|, and the four numbers, of the draw described on the page."""
    draws = [_vectors(max(stops), [seed, k]) for k in range(CANDIDATES)]
    norms = [float(jacobian_norms((k @ q[0])[None])[0]) for q, k, _ in draws]
    q, k, v = draws[int(np.argsort(norms)[len(norms) // 2])]
    found: dict[str, Any] = {"d_k": list(stops), "keys": N_KEYS}
    for scale in ("none", "sqrt"):
        found[scale] = [_look(q[:, :d], k[:, :d], v, SCALES[scale](d)) for d in stops]
    return found


def _vectors(d: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, d)), rng.standard_normal((N_KEYS, d)), rng.standard_normal((N_KEYS, 1))


def _look(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> dict[str, Any]:
    query = Tensor(q, requires_grad=True)
    output, weights = attention(query, k, v, scale=scale)
    assert weights.node is not None
    scores = weights.node.inputs[0]
    at_scores, at_query = grad(output.sum(), [scores, query])
    return {"weights": [float(f"{w:.4g}") for w in weights.numpy()[0]],
            "gradient": [float(f"{abs(g):.3g}") for g in at_scores.numpy()[0]],
            "numbers": [float(f"{x:.3g}") for x in (scores.numpy().std(), weights.numpy().max(),
                                                    jacobian_norms(scores.numpy())[0], np.linalg.norm(at_query.numpy()))]}


def inline_svg(picture: Any, label: str) -> str:
    """A matplotlib figure as an <svg> that scales, takes the page's text colour, and is named for those who hear it."""
    import matplotlib
    with matplotlib.rc_context({"svg.hashsalt": label, "savefig.transparent": True}):
        picture.savefig(text := io.StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()[text.getvalue().index("<svg"):]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', rf'\1 role="img" aria-label="{html.escape(label)}"', svg)
    prefix = re.sub(r"\W+", "-", label)     # ids are the page's: two pictures may not share one
    svg = re.sub(r'id="([^"]*)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", svg)
    return re.sub(re.escape(INK), "currentColor", re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL))


def _panel(measured: Sweep, name: str, lang: str) -> str:
    picture, ax = figure(1, 1, size=(5.2, 3.9))
    measured.draw_panel(ax, name, lang)
    return f"<figure>{inline_svg(picture, PANELS[name][lang])}</figure>"


def _table(measured: Sweep, lang: str, say: Callable[[str], Any]) -> str:
    parts = []
    for scale in measured.scales:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in say("columns"))
        lines = []
        for row in (row for row in measured.rows if row.scale == scale):
            said = measured.theory(row.d_k, scale)
            cells = [(f"{row.spread:.3f}", said["spread"].get("all"), ".3f"),
                     (f"{row.entropy.mean:.3f}", said["mean"].get("entropy"), ".3f"),
                     (f"{row.largest_weight.mean:.3f}", said["mean"].get("largest_weight"), ".3f"),
                     (f"{row.jacobian.median:.1e}", said["median"].get("jacobian"), ".1e"),
                     (f"{row.jacobian.mean:.4f}", said["mean"].get("jacobian"), ".4f"),
                     (f"{row.grad_scores.median:.1e}", None, ""), (f"{row.grad_query.median:.1e}", None, ""),
                     (f"{row.grad_query.mean:.2f}", said["mean"].get("grad_query"), ".2f")]
            lines.append(f"<tr><th>{row.d_k}</th>" + "".join(
                f"<td>{shown}{'' if limit is None else f'<br><small>{limit:{spec}}</small>'}</td>"
                for shown, limit, spec in cells) + "</tr>")
        parts.append(f'<h3>{html.escape(SYMBOLS[scale])}</h3><div class="wide" tabindex="0"><table><thead><tr>{head}</tr>'
                     f"</thead><tbody>{''.join(lines)}</tbody></table></div>")
    return "".join(parts) + f"<p><small>{html.escape(say('limit'))}</small></p>"


def _page(measured: Sweep, trained: Map | None, lang: str) -> str:
    def say(key: str) -> Any:
        return TEXT[key][list(LANGUAGES).index(lang)]
    draw = one_draw()
    note = say("draw_note").format(n=N_KEYS, m=CANDIDATES, top=max(STOPS))
    many = say("many_note").format(draws=measured.draws, n=measured.n_keys)
    claims = "".join(f'<li class="{"ok" if c["ok"] else "off"}">{html.escape(c["claim"])} '
                     f'<b>{say("agrees" if c["ok"] else "off")}</b></li>' for c in measured.claims())
    training = "" if trained is None else (
        f"<section><h2>{say('training')}</h2>{trained.as_html(lang)}</section>")
    charts = "".join(
        f'<div class="chart {scale}"><h3>{html.escape(SYMBOLS[scale])}</h3>'
        + "".join(f'<svg viewBox="0 0 384 150" role="img" id="{scale}-{what}" aria-label="{html.escape(say(what))}, '
                  f'{html.escape(SYMBOLS[scale])}"></svg><p class="axis">{html.escape(say(what))}</p>'
                  for what in ("weights", "gradient"))
        + "<dl>" + "".join(f'<div><dt>{html.escape(say(name))}</dt><dd id="{scale}-{name}"></dd></div>'
                           for name in ("spread", "largest", "norm", "arrives")) + "</dl></div>"
        for scale in ("none", "sqrt"))
    return f"""<!doctype html>
<html lang="{LANGUAGES[lang]}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<title>{html.escape(say("title"))}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{html.escape(say("title"))}</h1>
<p class="lead">{html.escape(say("lead"))}</p>
<section>
<h2>{say("draw")}</h2>
<div class="control"><label for="d_k">{html.escape(say("slider"))} = <output id="value" for="d_k"></output></label>
<input type="range" id="d_k" min="0" max="{len(STOPS) - 1}" step="1" value="{STOPS.index(64)}"></div>
<div class="charts">{charts}</div>
<p class="note">{html.escape(note)}</p>
</section>
<section><h2>{say("many")}</h2><div class="panels">{"".join(_panel(measured, name, lang) for name in PANELS)}</div>
<p class="note">{html.escape(many)}</p></section>
<section><h2>{say("claims")}</h2><ul class="claims">{claims}</ul><pre>{html.escape(measured.testimony())}</pre></section>
{training}
<section><h2>{say("honest")}</h2><ul>{"".join(f"<li>{line}</li>" for line in say("footnotes"))}</ul></section>
<section><h2>{say("table")}</h2>{_table(measured, lang, say)}</section>
</main>
<script type="application/json" id="data">{json.dumps(draw, separators=(",", ":"))}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


STYLE = """
:root { color-scheme: light dark; --ink: #24303d; --soft: #5f6b7a; --paper: #ffffff; --card: #f4f6f8; --line: #d8dee5;
  --none: %s; --sqrt: %s; --ok: #1d7a43; --off: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --soft: #a7b1bd; --paper: #14181d; --card: #1d232a;
  --line: #38424e; --none: #f0717f; --sqrt: #63a9ea; --ok: #5fce8b; --off: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { line-height: 1.2; font-size: clamp(1.5rem, 5vw, 2.2rem); margin: .5rem 0 1rem; }
h2 { margin: 2.5rem 0 .8rem; } h3 { margin: .2rem 0 .6rem; }
.lead { max-width: 46rem; font-size: 1.06rem; } .note { color: var(--soft); font-size: .9rem; max-width: 46rem; }
.control { position: sticky; top: 0; background: var(--paper); padding: .6rem 0; z-index: 1; }
.control label { display: block; font-weight: 600; } .control input { width: 100%%; margin: .4rem 0 0; accent-color: var(--sqrt); }
.charts, .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(21rem, 100%%), 1fr)); gap: 1rem; }
.chart, figure { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem; margin: 0; }
.chart svg, figure svg { display: block; width: 100%%; height: auto; } figure { color: var(--ink); }
.none h3, .none rect { color: var(--none); fill: var(--none); } .sqrt h3, .sqrt rect { color: var(--sqrt); fill: var(--sqrt); }
.chart line { stroke: var(--line); } .chart text { fill: var(--soft); font-size: 10px; }
.axis { margin: .1rem 0 .8rem; color: var(--soft); font-size: .85rem; text-align: center; }
dl { display: grid; grid-template-columns: 1fr 1fr; gap: .3rem 1rem; margin: 0; font-size: .9rem; }
dl div { display: flex; justify-content: space-between; gap: .5rem; } dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } }
.claims li.ok b { color: var(--ok); } .claims li.off b { color: var(--off); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem; white-space: pre-wrap;
  font-size: .85rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { vertical-align: bottom; } small { color: var(--soft); }
""" % SERIES[:2]

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svg = (name, attributes, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
};
const left = 34, right = 380, top_ = 8, bottom = 142, lowest = -20;
const linear = { ticks: [0, 0.5, 1], label: String, at: y => y };
const logarithmic = { ticks: [-20, -16, -12, -8, -4, 0], label: y => "1e" + y,
  at: y => y > 0 ? Math.max(0, Math.log10(y) / -lowest + 1) : 0 };
function bars(id, heights, scale) {
  const chart = document.getElementById(id), height = bottom - top_, step = (right - left) / heights.length;
  chart.replaceChildren();
  for (const tick of scale.ticks) {
    const y = bottom - height * (scale === linear ? tick : tick / -lowest + 1);
    chart.append(svg("line", { x1: left, x2: right, y1: y, y2: y }),
      svg("text", { x: left - 4, y: y + 3, "text-anchor": "end" }, scale.label(tick)));
  }
  heights.forEach((value, key) => {
    const tall = height * Math.min(1, scale.at(value));
    const bar = svg("rect", { x: left + key * step + 0.5, width: step - 1, y: bottom - tall, height: tall });
    bar.append(svg("title", {}, "key " + key + ": " + value));
    chart.append(bar);
  });
}
const slider = document.getElementById("d_k");
function show() {
  const stop = Number(slider.value), d = data.d_k[stop];
  document.getElementById("value").textContent = d;
  slider.setAttribute("aria-valuetext", "d_k = " + d);
  for (const scale of ["none", "sqrt"]) {
    const seen = data[scale][stop];
    bars(scale + "-weights", seen.weights, linear);
    bars(scale + "-gradient", seen.gradient, logarithmic);
    ["spread", "largest", "norm", "arrives"].forEach((name, k) => {
      const x = seen.numbers[k];
      document.getElementById(scale + "-" + name).textContent = x >= 0.01 && x < 1000 ? x.toPrecision(3) : x.toExponential(1);
    });
  }
}
slider.addEventListener("input", show);
show();
"""
