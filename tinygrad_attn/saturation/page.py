"""One self-contained page about the thesis: plots, tables, and a slider over d_k. It needs no network and no server."""

from __future__ import annotations

import html
import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..files import write_whole
from ..languages import LANGUAGES, language
from ..pages import document
from ..plots import figure, inline_svg
from ..tensor import Tensor
from .measure import Sweep, drawn, jacobian_norms, sweep, walked
from .panels import COLOURS, PANELS, SYMBOLS, draw_panel
from .theory import SCALES
from .training import Map
from .words import TEXT, say

STOPS = tuple(2 ** k for k in range(13))     # of the slider
N_KEYS, CANDIDATES = 64, 500


def report(path: str | Path, *, lang: str | None = None, measured: Sweep | None = None, trained: Map | None = None,
           controls: Mapping[str, Map] = MappingProxyType({}),
           progress: Callable[[int, int], None] | None = None) -> Path:
    """Write the page to `path`, which ends in .html, and return it. Extra `[plot]`.

    `measured` is a `Sweep`, measured now if it is not given, with `progress(done, total)`; `trained` what
    `training_map` returned, and `controls` what `controls` did; without them the page is silent about training. `lang`
    is "en" or "pt", Brazilian Portuguese, or that of now. Why: what can be moved is understood sooner than what is
    told. Nothing is written before all is computed, and nothing half. A name that does not end in .html, a folder that
    is not there, an unknown language, or matplotlib missing is an error before the work.

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
    if (lang := lang or language()) not in LANGUAGES:
        raise ValueError(f"report: lang={lang!r}; it is one of {', '.join(LANGUAGES)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"report: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"report: {path} is a folder; give the name of a file")
    if not (isinstance(measured, (Sweep, type(None))) and isinstance(trained, (Map, type(None)))
            and all(isinstance(found, Map) for found in controls.values())):
        raise TypeError("report: measured= is a Sweep, trained= a Map, and controls= Maps by name")
    figure(1, 1, size=(1, 1))               # if matplotlib is missing, say so before the work
    measured = sweep(progress=progress) if measured is None else measured
    write_whole(path, _page(measured, trained, controls, lang).encode())
    return path


def one_draw(stops: tuple[int, ...] = STOPS, seed: int = 0) -> dict[str, Any]:
    """For each stop and scale: weights, |∂L/∂scores|, and the four numbers, of the draw described on the page."""
    scores = []
    for candidate in range(CANDIDATES):
        q, k, _ = (array[0] for array in drawn(max(stops), N_KEYS, 1, [seed, candidate]))
        scores.append(np.cumsum(k * q, axis=1)[:, np.array(stops) - 1].T)               # (stops, keys)
    norms = np.array([jacobian_norms(at_stop) for at_stop in np.swapaxes(scores, 0, 1)])    # (stops, candidates)
    places = norms.argsort(axis=1).argsort(axis=1) / (CANDIDATES - 1)                       # 0 the least, 1 the largest
    best = int(np.argmin(np.abs(places - 0.5).max(axis=0)))
    q, k, v = drawn(max(stops), N_KEYS, 1, [seed, best])
    found: dict[str, Any] = {"d_k": list(stops)}
    for scale in ("none", "sqrt"):
        found[scale] = [_look(q[..., :d], k[..., :d], v, SCALES[scale](d)) for d in stops]
    return found


def _look(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> dict[str, Any]:
    """Of arrays with one draw in each."""
    scores, weights, (at_scores, at_query, _) = walked(Tensor(q, requires_grad=True), Tensor(k, requires_grad=True), v,
                                                       scale)
    s, p = scores.numpy()[0], weights.numpy()[0]            # (1, keys)
    numbers = (s.std(), p.max(), jacobian_norms(s)[0], np.linalg.norm(at_query.numpy()))
    return {"weights": [float(f"{w:.4g}") for w in p[0]],
            "gradient": [float(f"{abs(g):.3g}") for g in at_scores.numpy()[0, 0]],
            "numbers": [float(f"{x:.3g}") for x in numbers]}


def _panel(measured: Sweep, name: str, lang: str) -> str:
    picture, ax = figure(1, 1, size=(4.2, 3.3))
    draw_panel(measured, ax, name, lang)
    return f"<figure>{inline_svg(picture, say(f'panel {name}', lang))}</figure>"


def _table(measured: Sweep, lang: str) -> str:
    parts = []
    for scale in measured.scales:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in say("columns", lang))
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
        parts.append(f'<h3>{html.escape(SYMBOLS[scale])}</h3>'
                     f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr>'
                     f"</thead><tbody>{''.join(lines)}</tbody></table></div>")
    return "".join(parts) + f"<p><small>{html.escape(say('limit', lang))}</small></p>"


def _map(found: Map, lang: str) -> str:
    """The table of a map, and its claims."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in say("map columns", lang))
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                   for row in found.cells_as_text(lang))
    return (f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
            + _claims(found.claims(lang), lang, "holds"))


def _claims(claims: list[dict[str, Any]], lang: str, yes: str = "agrees") -> str:
    return '<ul class="claims">' + "".join(
        f'<li class="{"ok" if c["ok"] else "off"}">{html.escape(c["claim"])} '
        f'<b>{say(yes if c["ok"] else "off", lang)}</b></li>' for c in claims) + "</ul>"


def _training(trained: Map | None, controls: Mapping[str, Map], lang: str) -> str:
    parts = []
    if trained is not None:
        optimizers, lengths = trained.axis("optimizer"), trained.axis("d_k")
        grid = [_drawn(trained.draw_panel, optimizer, d_k, lang) for optimizer in optimizers for d_k in lengths]
        curves = [_drawn(trained.draw_loss, optimizer, d_k, lang) for optimizer in optimizers
                  for d_k in dict.fromkeys((min(lengths), max(lengths)))]
        note = say("training_note", lang, keys=trained.task.keys, tokens=trained.task.tokens,
                   steps=max(run.steps[-1] for run in trained.runs), seeds=len(trained.axis("seed")))
        key = "".join(f'<span style="--mark: {colour}">{html.escape(SYMBOLS[scale])}</span>'
                      for scale, colour in COLOURS.items() if scale in trained.axis("scale"))
        parts = [f"<h2>{say('training', lang)}</h2>", f'<p class="key">{key}</p>',
                 f'<div class="panels small">{"".join(grid)}</div>', f'<p class="note">{html.escape(note)}</p>',
                 f'<div class="panels small">{"".join(curves)}</div>',
                 f'<p class="note">{html.escape(say("curves_note", lang))}</p>', _map(trained, lang)]
    if controls:
        parts.append(f"<h2>{say('controls', lang)}</h2>")
    for name, found in controls.items():
        title = say(name, lang) if name in TEXT else name
        parts.append(f"<h3>{html.escape(title)}</h3>{_map(found, lang)}")
    return f"<section>{''.join(parts)}</section>" if parts else ""


def _drawn(draw: Callable[..., None], optimizer: str, d_k: int, lang: str) -> str:
    """One small panel of a map."""
    picture, ax = figure(1, 1, size=(3.3, 2.6))
    draw(ax, optimizer, d_k, lang)
    return f"<figure>{inline_svg(picture, f'{ax.get_ylabel()}, {ax.get_title()}')}</figure>"


def _charts(lang: str) -> str:
    """The empty bar charts that the script fills, a card for each scale."""
    cards = []
    for scale in ("none", "sqrt"):
        symbol, parts = html.escape(SYMBOLS[scale]), []
        for what in ("weights", "gradient"):
            label = html.escape(say(what, lang))
            parts.append(f'<svg viewBox="0 0 384 150" role="img" id="{scale}-{what}" aria-label="{label}, '
                         f'{symbol}"></svg><p class="axis">{label}</p>')
        numbers = "".join(f'<div><dt>{html.escape(say(name, lang))}</dt><dd id="{scale}-{name}"></dd></div>'
                          for name in ("spread", "largest", "norm", "arrives"))
        cards.append(f'<div class="chart {scale}"><h3>{symbol}</h3>{"".join(parts)}<dl>{numbers}</dl></div>')
    return "".join(cards)


def _page(measured: Sweep, trained: Map | None, controls: Mapping[str, Map], lang: str) -> str:
    template, style, script = (Path(__file__).with_suffix(kind).read_text(encoding="utf-8")
                               for kind in (".html", ".css", ".js"))
    words = {key: html.escape(say(key, lang))
             for key in ("title", "lead", "draw", "slider", "many", "claims", "honest", "table")}
    notes = {"draw_note": say("draw_note", lang, n=N_KEYS, m=CANDIDATES),
             "many_note": say("many_note", lang, draws=measured.draws, n=measured.n_keys)}
    body = string.Template(template).substitute(
        words, **{key: html.escape(note) for key, note in notes.items()}, script=script,
        last=len(STOPS) - 1, first=STOPS.index(64), charts=_charts(lang),
        panels="".join(_panel(measured, name, lang) for name in PANELS), agreement=_claims(measured.claims(lang), lang),
        testimony=html.escape(measured.testimony(lang)), training=_training(trained, controls, lang),
        footnotes="".join(f"<li>{line}</li>" for line in say("footnotes", lang)), tables=_table(measured, lang),
        data=json.dumps(one_draw(), separators=(",", ":")))
    return document(lang, say("title", lang), style, body)
