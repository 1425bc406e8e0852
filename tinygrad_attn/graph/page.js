"use strict";
const data = JSON.parse(document.getElementById("data").textContent), words = data.words;
const by = id => document.getElementById(id);
const vertexOf = new Map(data.vertices.map(v => [v.id, v])), boxOf = new Map(data.boxes.map(b => [b.id, b]));
const edgesInto = new Map(), edgesFrom = new Map();     // uses of a vertex, in the order of the walk: the latest op first
data.edges.forEach(e => { for (const [map, key] of [[edgesInto, e.target], [edgesFrom, e.source]])
  map.has(key) ? map.get(key).push(e) : map.set(key, [e]); });
const stepOf = new Map(data.steps.map((id, k) => [id, k + 1]));
for (const uses of edgesFrom.values()) uses.sort((a, b) => (stepOf.get(a.target) || 0) - (stepOf.get(b.target) || 0) || a.argument - b.argument);
const folded = new Set(data.folded);
let step = 0, chosen = null, playing = null, drawn = null;

// ------------------------------------------------------------------------------------------------ making elements
function svg(name, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}
function tag(name, className, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children.filter(child => child !== null && child !== ""));
  return element;
}
const ruler = document.createElement("canvas").getContext("2d");
function widthOf(text, size) { ruler.font = size + "px system-ui, sans-serif"; return ruler.measureText(text).width; }
function pressed(element, action) {
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "button");
  element.addEventListener("click", event => { if (!drag.moved) { event.stopPropagation(); action(); } });
  element.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); action(); } });
}

// ------------------------------------------------------------------------------------------------ what is visible
function foldedBox(box) {                   // the outermost closed box that this one is in, or is
  let found = null;
  for (let b = box; b; b = boxOf.get(b).outer) if (folded.has(b)) found = b;
  return found;
}
const shownAs = id => { const box = vertexOf.get(id).box; return (box && foldedBox(box)) || id; };
function visible() {
  const nodes = new Map(), edges = new Map();
  for (const v of data.vertices) {
    const id = shownAs(v.id);
    if (!nodes.has(id)) nodes.set(id, id === v.id ? v : { id, kind: "box", label: boxOf.get(id).name, box: boxOf.get(id).outer, inside: [] });
    if (id !== v.id) nodes.get(id).inside.push(v);
  }
  data.edges.forEach((e, k) => {
    const source = shownAs(e.source), target = shownAs(e.target);
    if (source === target) return;
    const key = nodes.get(target).inside ? e.source + " " + target : "e" + k;     // a box takes a value once
    if (!edges.has(key)) edges.set(key, { source, target, uses: [] });
    edges.get(key).uses.push(e);
  });
  return { nodes, edges };
}
const pathOf = box => { const names = []; for (let b = box; b; b = boxOf.get(b).outer) names.unshift(boxOf.get(b).name); return names.join(" / "); };
function nameOf(v) { return v.name || (v.kind === "op" || v.kind === "rest" || v.label ? v.label : v.shape); }
function linesOf(v) {
  if (v.inside) {
    const ops = v.inside.filter(u => u.kind === "op");
    const out = ops.filter(u => data.outputs.includes(u.id) || (edgesFrom.get(u.id) || []).some(e => shownAs(e.target) !== v.id));
    return [v.label, out.map(u => u.name || u.shape).join(", ")].filter(Boolean);
  }
  const title = [v.name, v.kind === "leaf" ? "" : v.label].filter(Boolean).join(" = ") || v.shape;
  const last = data.shapes && !edgesFrom.has(v.id) && v.kind !== "constant" && title !== v.shape && !v.scalar ? [v.shape] : [];
  const scalar = v.scalar && v.value && v.kind !== "constant" ? ["= " + short(v.value.rows[0][0])] : [];
  return [title, ...(v.params.length ? [v.params.join(", ")] : []), ...last, ...scalar].map(line => line.length > 44 ? line.slice(0, 43) + "…" : line);
}

// ------------------------------------------------------------------------------------------------ layout and drawing
function layout() {
  const { nodes, edges } = visible();
  const g = new dagre.graphlib.Graph({ compound: true, multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 36, edgesep: 12, marginx: 12, marginy: 12 });
  const open = new Set();
  for (const v of nodes.values()) {
    v.lines = linesOf(v);
    const wide = Math.max(...v.lines.map((line, k) => widthOf(line, k ? 11 : 13)));
    g.setNode(v.id, { width: Math.max(34, wide + 20), height: 15 * v.lines.length + 13 });
    for (let b = v.box; b && !open.has(b); b = boxOf.get(b).outer) open.add(b);
  }
  const alone = b => { const own = [...nodes.values()].filter(v => v.box === b);      // a box that repeats its one op
    return own.length === 1 && own[0].label === boxOf.get(b).name && !data.boxes.some(c => c.outer === b && open.has(c.id)); };
  for (const b of [...open]) if (alone(b)) open.delete(b);
  const around = b => { while (b && !open.has(b)) b = boxOf.get(b).outer; return b; };
  for (const b of open) g.setNode(b, { label: boxOf.get(b).name });
  for (const b of open) { const outer = around(boxOf.get(b).outer); if (outer) g.setParent(b, outer); }
  for (const v of nodes.values()) { const b = around(v.box); if (b) g.setParent(v.id, b); }
  for (const [key, e] of edges) {
    const text = data.shapes ? e.uses[0].shape : "";
    g.setEdge(e.source, e.target, { text, width: text ? widthOf(text, 10.5) + 6 : 0, height: text ? 14 : 0, labelpos: "r", labeloffset: 6 }, key);
  }
  dagre.layout(g);
  let right = 0;                            // arguments go from left to right, or else the picture is mirrored
  const latest = new Map();                 // of each target, the place of the last argument that is used there alone
  for (const e of edges.values()) {
    if (g.outEdges(e.source).length > 1) continue;
    const x = g.node(e.source).x;
    if (latest.has(e.target)) right += Math.sign(x - latest.get(e.target));
    latest.set(e.target, x);
  }
  if (right < 0) {
    const across = g.graph().width, mirror = at => { if (at.x !== undefined) at.x = across - at.x; };
    g.nodes().forEach(id => mirror(g.node(id)));
    g.edges().forEach(e => { mirror(g.edge(e)); g.edge(e).points.forEach(mirror); });
  }
  return { g, nodes, edges, open };
}
function path(points) {                     // straight between two points, rounded at those between
  let d = `M${points[0].x},${points[0].y}`;
  for (let k = 1; k < points.length - 1; k++) {
    const p = points[k], q = points[k + 1];
    d += `Q${p.x},${p.y} ${k === points.length - 2 ? q.x : (p.x + q.x) / 2},${k === points.length - 2 ? q.y : (p.y + q.y) / 2}`;
  }
  return points.length === 2 ? d + `L${points[1].x},${points[1].y}` : d;
}
function draw() {
  drawn = layout();
  const { g, nodes, edges, open } = drawn, view = by("view");
  view.replaceChildren();
  const depth = b => { let n = 0; for (let o = boxOf.get(b).outer; o; o = boxOf.get(o).outer) n++; return n; };
  for (const b of [...open].sort((a, c) => depth(a) - depth(c))) {
    const at = g.node(b), name = boxOf.get(b).name, left = at.x - at.width / 2, roof = 16;    // for the title
    const top = at.y - at.height / 2 - roof;
    const group = svg("g", { class: "cluster" }), title = svg("g", { class: "title", "aria-label": `${words.folds} ${name}`, "data-box": b });
    const shown = "▾ " + name;
    title.append(svg("rect", { x: left + 2, y: top + 2, width: widthOf(shown, 11) + 12, height: 18, rx: 3 }),
      svg("text", { x: left + 8, y: top + 15 }, shown), svg("title", {}, `${words.folds} ${name}`));
    pressed(title, () => { folded.add(b); redraw(`[data-vertex="${b}"]`); });
    group.append(svg("rect", { x: left, y: top, width: at.width, height: at.height + roof, rx: 8 }), title);
    view.append(group);
  }
  for (const [key, e] of edges) {
    const at = g.edge({ v: e.source, w: e.target, name: key }), group = svg("g", { class: "edge" });
    const end = at.points[at.points.length - 1], before = at.points[at.points.length - 2];
    const angle = Math.atan2(end.y - before.y, end.x - before.x) * 180 / Math.PI;
    e.line = svg("path", { d: path(at.points) });
    e.tip = svg("polygon", { points: "0,0 -8,-3.5 -8,3.5" });
    e.tip.dataset.at = `translate(${end.x} ${end.y}) rotate(${angle})`;
    group.append(e.line, e.tip);
    if (at.text) group.append(svg("text", { x: at.x - at.width / 2 + 3, y: at.y + 4 }, at.text));
    group.append(svg("title", {}, e.uses.map(u => u.rule || `${words.argument} ${u.argument}`).join("\n")));
    e.group = group;
    view.append(group);
  }
  for (const v of nodes.values()) {
    const at = g.node(v.id), round = v.kind === "op" || v.kind === "box" ? 9 : 2;
    const box = { x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height, rx: round };
    const group = svg("g", { class: "vertex " + v.kind + (data.outputs.some(o => shownAs(o) === v.id) ? " output" : ""), "data-vertex": v.id,
      "aria-label": v.inside ? `${words.unfolds} ${v.label}` : v.lines.join(", ") });
    if (v.inside) group.append(svg("rect", { x: box.x - 3, y: box.y - 3, width: box.width + 6, height: box.height + 6, rx: round + 2 }));
    group.append(svg("rect", { ...box, class: "body" }), svg("rect", { x: box.x + 0.6, y: box.y + 0.6, width: box.width - 1.2, height: box.height - 1.2, rx: round, class: "heat", opacity: 0 }));
    v.lines.forEach((line, k) => group.append(svg("text", { class: k ? "small" : "", x: at.x,
      y: at.y + 4.5 + 15 * (k - (v.lines.length - 1) / 2) }, line)));
    group.append(svg("title", {}, v.inside ? `${words.unfolds} ${v.label}` : [v.formula, ...new Set((edgesInto.get(v.id) || []).map(e => e.rule))].filter(Boolean).join("\n")));
    v.group = group;
    pressed(group, v.inside ? () => { folded.delete(v.id); redraw(`[data-box="${v.id}"], .vertex`); }
                            : () => { chosen = chosen === v.id ? null : v.id; show(); });
    view.append(group);
  }
}
function redraw(focus) {                    // after folding: the keyboard stays where it was
  draw();
  fit();
  show();
  if (focus) { const next = document.querySelector(focus); if (next) next.focus({ preventScroll: true }); }
}

// ------------------------------------------------------------------------------------------------ zoom and pan
const canvas = by("canvas"), place = { x: 0, y: 0, k: 1 }, drag = { moved: false, at: new Map() };
const apply = () => by("view").setAttribute("transform", `translate(${place.x} ${place.y}) scale(${place.k})`);
function fit() {
  const { width, height } = drawn.g.graph(), w = canvas.clientWidth, h = canvas.clientHeight;
  place.k = Math.min(1.15, w / width, h / height);
  const least = 0.7;                        // rather than letters too small to read, a part of the graph, at the output
  if (place.k < least) {
    place.k = least;
    const out = drawn.g.node(shownAs(data.outputs[0]));
    place.x = width * place.k <= w ? (w - width * place.k) / 2 : w / 2 - out.x * place.k;
    place.y = height * place.k <= h ? (h - height * place.k) / 2 : h - 40 - (out.y + out.height / 2) * place.k;
  } else {
    place.x = (w - width * place.k) / 2;
    place.y = (h - height * place.k) / 2;
  }
  apply();
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const k = Math.min(4, Math.max(0.08, place.k * factor));
  place.x = x - (x - place.x) * k / place.k;
  place.y = y - (y - place.y) * k / place.k;
  place.k = k;
  apply();
}
function follow(id) {                       // bring a vertex into view, if it is not
  const at = drawn.g.node(shownAs(id));
  if (!at) return;
  const x = at.x * place.k + place.x, y = at.y * place.k + place.y, w = canvas.clientWidth, h = canvas.clientHeight, edge = 50;
  if (x < edge || x > w - edge) place.x += w / 2 - x;
  if (y < edge || y > h - edge) place.y += h / 2 - y;
  apply();
}
canvas.addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.metaKey) return;       // a plain wheel scrolls the page
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * 0.002), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
canvas.addEventListener("pointerdown", event => { drag.at.set(event.pointerId, [event.clientX, event.clientY]); drag.moved = false; });
window.addEventListener("pointermove", event => {
  const last = drag.at.get(event.pointerId);
  if (!last) return;
  const dx = event.clientX - last[0], dy = event.clientY - last[1];
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  drag.moved = true;
  canvas.classList.add("moving");
  const others = [...drag.at].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  if (others.length) {                      // two fingers: their distance is the zoom
    const [ox, oy] = others[0], box = canvas.getBoundingClientRect();
    const was = Math.hypot(last[0] - ox, last[1] - oy), is = Math.hypot(event.clientX - ox, event.clientY - oy);
    if (was > 10 && is > 10) zoom(is / was, (event.clientX + ox) / 2 - box.left, (event.clientY + oy) / 2 - box.top);
  } else {
    place.x += dx;
    place.y += dy;
    apply();
  }
  drag.at.set(event.pointerId, [event.clientX, event.clientY]);
});
for (const type of ["pointerup", "pointercancel"]) window.addEventListener(type, event => {
  drag.at.delete(event.pointerId);
  canvas.classList.remove("moving");
  setTimeout(() => { drag.moved = false; });
});

// ------------------------------------------------------------------------------------------------ numbers and heat maps
function short(x) {
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e5) return String(x).replace("-", "−");
  const size = Math.abs(x);
  const text = size >= 0.001 && size < 1e5 ? x.toPrecision(3).replace(/e.*/, "") : x.toExponential(1);
  return (size >= 1000 && size < 1e5 ? x.toFixed(0) : text).replace(/-/g, "−");
}
function heatmap(a, label) {
  const most = Math.max(...a.rows.flat().map(x => typeof x === "number" && isFinite(x) ? Math.abs(x) : 0));
  const tiny = a.rows.length && a.rows[0].length > 6, table = tag("table");
  table.setAttribute("aria-label", `${label}, ${a.shape}`);
  for (const row of a.rows) {
    const line = tag("tr");
    for (const x of row) {
      const cell = tag("td", tiny ? "tiny" : "", tiny ? "" : short(x));
      const share = most && typeof x === "number" ? Math.abs(x) / most : 0;
      if (share) cell.style.background = `rgba(var(--${x > 0 ? "plus" : "minus"}), ${(0.08 + 0.5 * share).toFixed(3)})`;
      cell.title = String(x);
      cell.dataset.x = String(x);
      line.append(cell);
    }
    table.append(line);
  }
  const about = [a.part ? `${words[a.part]} ${a.shape}` : "", a.rows.length * (a.rows[0] || []).length > 1 || a.part ? `${words.norm} ${a.norm}` : ""];
  return tag("div", "heatmap", table, tag("div", "where-to", about.filter(Boolean).join(" · ")));
}
function part(title, a, label) { return [tag("h3", "", title), a ? heatmap(a, label || title) : tag("p", "soft", words.none)]; }

// ------------------------------------------------------------------------------------------------ the film
const isSent = (e, at = step) => e.grad !== null && (stepOf.get(e.target) || Infinity) <= at;
function got(v, at = step) {                // the uses that have sent their share by then
  return (edgesFrom.get(v.id) || []).filter(e => isSent(e, at));
}
function complete(v) { return v.grad !== null && (edgesFrom.get(v.id) || []).every(e => e.grad === null || isSent(e)); }
function levelNow(v) {
  if (v.grad === null) return null;
  if (complete(v)) return v.level;
  const sent = got(v);
  return sent.length ? sent[sent.length - 1].sum : null;
}
function paint() {
  const current = data.steps[step - 1];
  for (const v of drawn.nodes.values()) {
    const members = v.inside ? v.inside.filter(u => data.outputs.includes(u.id) || (edgesFrom.get(u.id) || []).some(e => shownAs(e.target) !== v.id)) : [v];
    const levels = members.map(levelNow).filter(level => level !== null), level = levels.length ? Math.max(...levels) : null;
    const heat = v.group.querySelector(".heat");
    heat.setAttribute("opacity", level === null ? 0 : 1);
    heat.style.fill = `color-mix(in srgb, rgb(var(--plus)) ${level ? 6 + 7 * level : 0}%, var(--paper))`;
    v.group.classList.toggle("zero", level === 0);
    v.group.classList.toggle("current", current !== undefined && shownAs(current) === v.id);
    v.group.classList.toggle("chosen", chosen === v.id);
  }
  for (const e of drawn.edges.values()) {
    const sent = e.uses.filter(u => isSent(u)), level = sent.length ? Math.max(...sent.map(u => u.level)) : null;
    e.group.classList.toggle("sent", sent.length > 0);
    e.group.classList.toggle("sending", e.uses.some(u => u.grad !== null && u.target === current));
    e.group.classList.toggle("zero", level === 0);
    const wide = level === null ? 1 : 1 + 0.6 * level;
    e.line.style.strokeWidth = wide;
    e.tip.setAttribute("transform", `${e.tip.dataset.at} scale(${0.9 + wide / 6})`);
  }
}
function titled(v) { return [v.name, v.label].filter(Boolean).join(" = ") || `${words[v.kind] || v.kind} ${v.shape}`; }
function explain() {
  const now = by("now"), current = vertexOf.get(data.steps[step - 1]);
  now.replaceChildren();
  if (chosen) return look(now, vertexOf.get(chosen));
  if (!data.steps.length) return now.append(tag("p", "", words.nothing));
  if (!current) {
    now.append(tag("h2", "", words.begin), tag("p", "", words.begin_text));
    for (const id of data.outputs) { const v = vertexOf.get(id); if (v.grad) now.append(...part(nameOf(v), v.grad)); }
    return;
  }
  const box = current.box ? `${words.inside} ${pathOf(current.box)}` : "";
  now.append(tag("h2", "", titled(current)), tag("p", "formula", current.formula), tag("p", "soft", [box, ...current.params].filter(Boolean).join(" · ")));
  now.append(...part(words.arrives, current.grad), ...part(words.made, current.value));
  let word = words.sends;
  for (const e of edgesInto.get(current.id) || []) {
    const source = vertexOf.get(e.source);
    if (e.grad === null) continue;
    now.append(tag("h3", "", `${word} ${nameOf(source)}`, " ", tag("span", "where-to", `(${words.argument} ${e.argument})`)));
    if (e.rule) now.append(tag("pre", "", e.rule));
    now.append(heatmap(e.grad, `${words.sends} ${nameOf(source)}`));
    if (e.total) now.append(tag("p", "soft", `${nameOf(source)}, ${words.adds}:`), heatmap(e.total, words.adds));
    word = words.and_to;
  }
}
function look(now, v) {                     // a vertex that was clicked
  now.append(tag("h2", "", titled(v)), tag("p", "formula", v.formula), tag("p", "soft", [v.shape, ...v.params].join(" · ")));
  if (v.value) now.append(...part(words.value, v.value));
  if (v.kind === "constant") return now.append(tag("p", "soft", words.constant));
  const sent = got(v), partial = sent.length && sent[sent.length - 1].total;
  if (complete(v)) now.append(...part(words.gradient, v.grad));
  else if (partial) now.append(...part(words.so_far, partial));
  else now.append(tag("p", "soft", words.not_yet));
  for (const e of edgesInto.get(v.id) || []) if (e.rule) now.append(tag("pre", "", e.rule));
}
function sums() {
  const list = by("sums");
  list.replaceChildren();
  for (const v of data.vertices) {
    const uses = (edgesFrom.get(v.id) || []).filter(e => e.grad !== null), sent = got(v);
    if (!sent.length || (v.kind !== "leaf" && uses.length < 2)) continue;
    const last = sent[sent.length - 1], so_far = complete(v) ? v.grad : last.total || last.grad;
    const items = sent.map(e => tag("li", stepOf.get(e.target) === step ? "latest" : "",
      `${words.from} ${titled(vertexOf.get(e.target))}: ${e.grad.shape === "()" ? short(e.grad.rows[0][0]) : `${words.norm} ${e.grad.norm}`}`));
    const entry = tag("div", "entry", tag("h3", "", nameOf(v), " ", tag("span", "where-to", `${v.box ? `${words.inside} ${pathOf(v.box)} · ` : ""}${sent.length} ${words.of} ${uses.length}`)),
      tag("ul", "", ...items), heatmap(so_far, nameOf(v)));
    entry.dataset.sum = v.id;
    list.append(entry);
  }
}
function show() {
  by("count").textContent = `${words.step} ${step} ${words.of} ${data.steps.length}`;
  by("step").value = step;
  const op = vertexOf.get(data.steps[step - 1]);
  by("said").textContent = by("count").textContent + (op ? ": " + titled(op) : "");
  for (const id of ["first", "back"]) by(id).disabled = step === 0;
  for (const id of ["next", "last"]) by(id).disabled = step === data.steps.length;
  by("play").textContent = playing ? words.pause : words.play;
  paint();
  explain();
  sums();
}
function go(to) {
  step = Math.max(0, Math.min(data.steps.length, to));
  chosen = null;
  if (playing && step === data.steps.length) stop();
  show();
  if (step) follow(data.steps[step - 1]);
}
function stop() { clearInterval(playing); playing = null; }
const actions = {
  first: () => go(0), back: () => go(step - 1), next: () => go(step + 1), last: () => go(data.steps.length),
  play: () => {
    if (playing) { stop(); return show(); }
    if (step === data.steps.length) step = 0;
    playing = setInterval(() => go(step + 1), 1500);
    go(step + 1);
  },
  larger: () => zoom(1.25), smaller: () => zoom(0.8), fit,
  fold: () => { for (const b of data.boxes) if (!b.outer) folded.add(b.id); redraw(); },
  unfold: () => { folded.clear(); redraw(); },
};
for (const id in actions) by(id).addEventListener("click", () => { if (playing && id !== "play") stop(); actions[id](); });
by("step").addEventListener("input", event => { if (playing) stop(); go(Number(event.target.value)); });
by("step").max = data.steps.length;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const name = { ArrowRight: "next", ArrowLeft: "back", Home: "first", End: "last", "+": "larger", "=": "larger", "-": "smaller", "0": "fit" }[event.key];
  if (!name || (event.target.type === "range" && /Arrow|Home|End/.test(event.key))) return;
  event.preventDefault();
  if (playing) stop();
  actions[name]();
});
for (const id of ["fold", "unfold"]) by(id).hidden = !data.boxes.length;
if (!data.steps.length) { by("controls").hidden = true; by("ledger").hidden = true; by("lead").hidden = true; }
else by("legend").textContent = words.legend.replace("{strongest}", data.strongest).replace("{weakest}", data.weakest);
window.addEventListener("resize", () => fit());
redraw();
