"""Pictures from DOT text: where a `dot` program is found, how it is run, what an SVG needs to be at home on a page."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from .dot import CLASS, COLOURS, LINES, SHADES

PATIENCE = 60                               # seconds
WHOLE = {"svg": (b"<svg", b"</svg>"), "png": (b"\x89PNG", b"IEND"), "pdf": (b"%PDF", b"%%EOF")}
MISSING = ("no `dot` program was found to draw with: python3 -m pip install graphviz-pure brings one (the extra "
           "[graph]), as does Graphviz itself. A page (.html) and DOT text (.dot) need none")


def find_dot() -> str | None:
    """A `dot` program: Graphviz's own on PATH, else the one of the `graphviz-pure` wheel, also where its folder of
    scripts is not on PATH, as in a virtual environment that was not activated."""
    folders = [Path(sys.executable).parent, *(Path(sysconfig.get_path("scripts", scheme)) for scheme in
                                              (sysconfig.get_default_scheme(), f"{os.name}_user")
                                              if scheme in sysconfig.get_scheme_names())]
    return (shutil.which("dot") or shutil.which("graphviz-pure")
            or shutil.which("graphviz-pure", path=os.pathsep.join(map(str, folders))))


def render(source: str, format: str, title: str = "") -> bytes:
    """The picture as bytes; an SVG has the title, for those who hear it. If no `dot` program is found, if it fails, or
    if it takes longer than a minute, a RuntimeError says what to do."""
    if format not in WHOLE:
        raise ValueError(f"graph: no picture has the format {format!r}; it is one of {', '.join(WHOLE)}")
    binary = find_dot()
    if binary is None:
        raise RuntimeError(MISSING)
    if format == "pdf" and Path(binary).stem == "graphviz-pure":
        raise RuntimeError("graph: the wheel graphviz-pure draws .svg and .png, but no .pdf; install Graphviz itself "
                           "(https://graphviz.org/download), or print the page, .html, to a PDF")
    try:
        run = subprocess.run([binary, f"-T{format}"], input=source.encode(), capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"graph: {binary} was still at its layout after {PATIENCE} seconds; draw less (collapse=, "
                           "max_nodes=), or save the page, .html") from None
    picture, said = run.stdout, run.stderr.decode(errors="replace").strip()
    begins, ends = WHOLE[format]
    if run.returncode or begins not in picture[:2000] or ends not in picture[-2000:]:
        raise RuntimeError(f"graph: {binary} gave no picture (exit code {run.returncode})"
                           + (f": {said[:500]}" if said else ""))
    return for_a_page(picture.decode(), title).encode() if format == "svg" else picture


def for_a_page(svg: str, title: str = "") -> str:
    """An SVG that shrinks to its place and is not clipped there, follows light and dark, and shows tooltips as a page's
    own: without the XML prolog, so that it can stand in a page as it is."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    label = html.escape("".join(c if c.isprintable() else " " for c in title))
    svg = re.sub(r'<svg width="([\d.]+)pt" height="([\d.]+)pt"', lambda size: (
        f'<svg class="{CLASS}" width="{size[1]}" height="{size[2]}" style="max-width: 100%; height: auto" role="img" '
        f'aria-label="{label}"'), svg, count=1)
    # The tooltip of a part is the <title> that it begins with; dot writes ids there, and the tooltip into a link.
    svg = re.sub(r'(class="graph"[^>]*>)\s*<title>[^<]*</title>', r"\1", svg)
    svg = re.sub(r'<title>[^<]*</title>\s*<g id="a_[^"]*"><a xlink:title="([^"]*)">(.*?)</a>\s*</g>',
                 r"<title>\1</title>\2", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[^"]*"', "", svg)    # nothing refers to one, and two pictures on a page may not share any
    svg = re.sub(r'<g class="node.*?</g>', _centred, svg, flags=re.DOTALL)
    head, tail = svg.split(">", 1)
    return f"{head}>\n<style>{_style()}</style>{tail}"


def _centred(node: re.Match[str]) -> str:
    """The text of a node in its middle, whatever the font of who looks at it; dot gives the left end in its own."""
    outline = re.search(r' (?:d|points)="([^"]*)"', text := node[0])
    if not outline:
        return text
    across = [float(x) for x in re.findall(r"(-?[\d.]+),-?[\d.]+", outline[1])]
    middle = (min(across) + max(across)) / 2
    return re.sub(r'text-anchor="start" x="[^"]*"', f'text-anchor="middle" x="{middle:.2f}"', text)


def _style() -> str:
    rules = [f".{CLASS} .graph > polygon {{ fill: #14181d }}", f".{CLASS} text {{ fill: #dfe5ec }}",
             f".{CLASS} .graph > text, .{CLASS} .cluster text, .{CLASS} .edge text {{ fill: #a7b1bd }}",
             f".{CLASS}-cluster path {{ fill: #1a2027; stroke: #38424e }}",
             f".{CLASS} .edge path {{ stroke: #8a96a3 }}",
             f".{CLASS} .edge polygon {{ fill: #8a96a3; stroke: #8a96a3 }}"]
    for kind, (_, (fill, line)) in COLOURS.items():
        shapes = ", ".join(f".{CLASS}-{kind} {shape}" for shape in ("path", "polygon"))
        rules.append(f"{shapes} {{ fill: {fill}; stroke: {line} }}")
    for level, (shade, line) in enumerate(zip(SHADES[1], LINES[1])):
        rules.append(f".node.{CLASS}-shade{level} path, .node.{CLASS}-shade{level} polygon {{ fill: {shade} }}")
        rules.append(f".{CLASS} .{CLASS}-line{level} path {{ stroke: {line} }}")
        rules.append(f".{CLASS} .{CLASS}-line{level} polygon {{ fill: {line}; stroke: {line} }}")
    return ("\n@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}\n")
