"use strict";
const data = JSON.parse(document.getElementById("data").textContent),
  words = data.words;
const by = id => document.getElementById(id);
const put = (text, parts) => text.replace(/\{(\w+)\}/g, (_, key) => parts[key]);
const vertexOf = new Map(data.vertices.map(v => [v.id, v])),
  boxOf = new Map(data.boxes.map(b => [b.id, b]));
const edgesInto = new Map(),
  edgesFrom = new Map(); // uses of a vertex, in the order of the walk: the latest op first
data.edges.forEach(e => {
  for (const [map, key] of [
    [edgesInto, e.target],
    [edgesFrom, e.source]
  ])
    map.has(key) ? map.get(key).push(e) : map.set(key, [e]);
});
const into = v => edgesInto.get(v.id) || [],
  uses = v => edgesFrom.get(v.id) || [];
const stepOf = new Map(data.steps.map((id, k) => [id, k + 1]));
data.vertices.forEach(v => {
  if (v.kind === "rest") stepOf.set(v.id, data.steps.length);
}); // it comes after all others
for (const list of edgesFrom.values())
  list.sort((a, b) => (stepOf.get(a.target) || 0) - (stepOf.get(b.target) || 0) || a.order - b.order);
const folded = new Set(data.folded);
let step = 0,
  chosen = null,
  playing = null,
  drawn = null;

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
function widthOf(text, size) {
  ruler.font = size + "px system-ui, sans-serif";
  return ruler.measureText(text).width;
}
function pressed(element, id, action) {
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "button");
  element.addEventListener("click", event => {
    if (!drag.moved) {
      event.stopPropagation();
      action();
    }
  });
  element.addEventListener("focus", () => {
    if (element.matches(":focus-visible")) follow(id);
  });
  element.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      action();
    }
  });
}

// ------------------------------------------------------------------------------------------------ what is visible
function around(box) {
  // the box itself, if there is one, and those that it is in, the innermost first
  const found = [];
  for (let b = box; b; b = boxOf.get(b).outer) found.push(b);
  return found;
}
const shownAs = id => around(vertexOf.get(id).box).findLast(b => folded.has(b)) || id; // the outermost closed box
const pathOf = box =>
  around(box)
    .map(b => boxOf.get(b).name)
    .reverse()
    .join(" / ");
function visible() {
  const nodes = new Map(),
    edges = new Map();
  for (const v of data.vertices) {
    const id = shownAs(v.id);
    if (!nodes.has(id))
      nodes.set(
        id,
        id === v.id ? v : { id, kind: "box", label: boxOf.get(id).name, box: boxOf.get(id).outer, inside: [] }
      );
    if (id !== v.id) nodes.get(id).inside.push(v);
  }
  data.edges.forEach((e, k) => {
    const source = shownAs(e.source),
      target = shownAs(e.target);
    if (source === target) return;
    const key = nodes.get(target).inside ? e.origin + " " + target : "e" + k; // a box takes a value once
    if (!edges.has(key)) edges.set(key, { source, target, uses: [] });
    edges.get(key).uses.push(e);
  });
  return { nodes, edges };
}
const leaves = v => data.outputs.includes(v.id) || uses(v).some(e => shownAs(e.target) !== shownAs(v.id)); // its box
function nameOf(v) {
  return v.name || (v.kind === "op" || v.kind === "rest" || v.label ? v.label : shapeOf(v));
}
const kindOf = v => words[v.kind === "constant" ? "constant_kind" : v.kind] || v.kind;
const shapeOf = v => (data.shapes ? v.shape : kindOf(v));
const titled = v => [v.name, v.label].filter(Boolean).join(" = ") || kindOf(v) + (data.shapes ? " " + v.shape : "");
const frameOf = v => {
  const frame = around(v.box).find(b => boxOf.get(b).frame);
  return frame ? boxOf.get(frame).name + ": " : "";
};
const insideOf = v => (v.box ? `${words.inside} ${pathOf(v.box)}` : "");
function linesOf(v) {
  if (v.inside)
    return [
      v.label,
      v.inside
        .filter(u => (u.kind === "op" || u.kind === "box") && leaves(u))
        .map(u => u.name || (data.shapes ? u.shape : u.label))
        .join(", ")
    ].filter(Boolean);
  const title = [v.name, v.kind === "leaf" ? "" : v.label].filter(Boolean).join(" = ") || shapeOf(v);
  const last =
    data.shapes && !uses(v).length && v.kind !== "constant" && title !== v.shape && !v.scalar ? [v.shape] : [];
  const scalar = v.scalar && v.value && v.kind !== "constant" ? ["= " + short(v.value.rows[0][0])] : [];
  return [title, ...(v.params.length ? [v.params.join(", ")] : []), ...last, ...scalar].map(line =>
    line.length > 44 ? line.slice(0, 43) + "…" : line
  );
}
const gradientOf = a => (a.scalar ? "g = " + short(a.rows[0][0]) : "‖g‖ = " + short(a.norm));

// ------------------------------------------------------------------------------------------------ layout and drawing
function layout() {
  const { nodes, edges } = visible();
  const g = new dagre.graphlib.Graph({ compound: true, multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 36, edgesep: 12, marginx: 12, marginy: 12 });
  const open = new Set();
  for (const v of nodes.values()) {
    v.lines = linesOf(v);
    const room = v.grad ? [gradientOf(v.grad)] : []; // for the line that says the gradient, once it has come
    const wide = Math.max(...[...v.lines, ...room].map((line, k) => widthOf(line, k ? 11 : 13)));
    g.setNode(v.id, { width: Math.max(34, wide + 20), height: 15 * (v.lines.length + room.length) + 13 });
    around(v.box).forEach(b => open.add(b));
  }
  const alone = b => {
    const own = [...nodes.values()].filter(v => v.box === b); // a box that repeats its one op
    return (
      own.length === 1 && own[0].label === boxOf.get(b).name && !data.boxes.some(c => c.outer === b && open.has(c.id))
    );
  };
  for (const b of [...open]) if (alone(b)) open.delete(b);
  const shownIn = box => around(box).find(b => open.has(b));
  for (const b of open) g.setNode(b, { label: boxOf.get(b).name });
  for (const b of open) {
    const outer = shownIn(boxOf.get(b).outer);
    if (outer) g.setParent(b, outer);
  }
  for (const v of nodes.values()) {
    const b = shownIn(v.box);
    if (b) g.setParent(v.id, b);
  }
  for (const [key, e] of edges) {
    const text = data.shapes ? e.uses[0].shape : "";
    g.setEdge(
      e.source,
      e.target,
      { text, width: text ? widthOf(text, 10.5) + 6 : 0, height: text ? 14 : 0, labelpos: "r", labeloffset: 6 },
      key
    );
  }
  dagre.layout(g);
  straighten(g, nodes, edges, open);
  return { g, nodes, edges, open };
}
function straighten(g, nodes, edges, open) {
  // arguments, and graphs that are compared, go from left to right
  const parts = new Map(),
    root = id => {
      while (parts.get(id) !== id) id = parts.get(id);
      return id;
    };
  for (const id of [...nodes.keys(), ...open]) parts.set(id, id);
  const join = (a, b) => parts.set(root(a), root(b));
  for (const e of edges.values()) join(e.source, e.target);
  for (const id of parts.keys()) if (g.parent(id)) join(id, g.parent(id));
  const votes = new Map(),
    latest = new Map(); // of each target, the place of the last argument that is used there alone
  for (const e of edges.values()) {
    if (g.outEdges(e.source).length > 1) continue;
    const x = g.node(e.source).x;
    if (latest.has(e.target))
      votes.set(root(e.target), (votes.get(root(e.target)) || 0) + Math.sign(x - latest.get(e.target)));
    latest.set(e.target, x);
  }
  const extents = new Map();
  for (const id of parts.keys()) {
    const at = g.node(id),
      [low, high] = extents.get(root(id)) || [Infinity, -Infinity];
    extents.set(root(id), [Math.min(low, at.x - at.width / 2), Math.max(high, at.x + at.width / 2)]);
  }
  const places = [...extents].sort((a, b) => a[1][0] - b[1][0]),
    apart = places.every((p, k) => !k || p[1][0] >= places[k - 1][1][1]);
  const starts = new Map(),
    gap = 24; // in the order in which they were made, if they stand side by side
  let x = places[0][1][0];
  for (const [part, [low, high]] of apart ? extents : []) {
    starts.set(part, x);
    x += high - low + gap;
  }
  const move = (at, part) => {
    const [low, high] = extents.get(part),
      mirrored = (votes.get(part) || 0) < 0 ? low + high - at.x : at.x;
    if (at.x !== undefined) at.x = mirrored + (starts.has(part) ? starts.get(part) - low : 0);
  };
  for (const id of parts.keys()) move(g.node(id), root(id));
  g.edges().forEach(e => {
    const part = root(e.v);
    move(g.edge(e), part);
    g.edge(e).points.forEach(p => move(p, part));
  });
  if (apart) g.graph().width = x - gap + 12;
}
function path(points) {
  // straight between two points, rounded at those between
  let d = `M${points[0].x},${points[0].y}`;
  for (let k = 1; k < points.length - 1; k++) {
    const p = points[k],
      q = points[k + 1],
      last = k === points.length - 2;
    d += `Q${p.x},${p.y} ${last ? q.x : (p.x + q.x) / 2},${last ? q.y : (p.y + q.y) / 2}`;
  }
  return points.length === 2 ? d + `L${points[1].x},${points[1].y}` : d;
}
function pointAt(line, y) {
  // of a path that goes down, where it is at height y
  let low = 0,
    high = line.getTotalLength();
  for (let k = 0; k < 12; k++) {
    const middle = (low + high) / 2;
    if (line.getPointAtLength(middle).y < y) low = middle;
    else high = middle;
  }
  return line.getPointAtLength(low);
}
const tipAt = (end, before) =>
  `translate(${end.x} ${end.y}) rotate(${(Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI})`;
function draw() {
  drawn = layout();
  const { g, nodes, edges, open } = drawn,
    view = by("view"),
    titles = [];
  view.replaceChildren();
  for (const b of [...open].sort((a, c) => around(a).length - around(c).length)) {
    const at = g.node(b),
      name = boxOf.get(b).name,
      left = at.x - at.width / 2,
      roof = 16; // for the title
    const top = at.y - at.height / 2 - roof,
      shown = "▾ " + (name.length > 40 ? name.slice(0, 39) + "…" : name);
    const title = svg("g", { class: "title", "aria-label": name, "aria-expanded": "true", "data-box": b });
    title.append(
      svg("rect", { x: left + 2, y: top + 2, width: widthOf(shown, 11) + 12, height: 18, rx: 3 }),
      svg("text", { x: left + 8, y: top + 15 }, shown)
    );
    pressed(title, b, () => {
      folded.add(b);
      redraw(b, `[data-vertex="${b}"]`);
    });
    view.append(svg("rect", { class: "cluster", x: left, y: top, width: at.width, height: at.height + roof, rx: 8 }));
    titles.push(title);
  }
  for (const [key, e] of edges) {
    const at = g.edge({ v: e.source, w: e.target, name: key }),
      group = svg("g", { class: "edge", "aria-hidden": "true" });
    const points = at.points,
      n = points.length;
    e.line = svg("path", { d: path(points) });
    e.tip = svg("polygon", { points: "0,0 -8,-3.5 -8,3.5" });
    [e.forth, e.back] = [tipAt(points[n - 1], points[n - 2]), tipAt(points[0], points[1])];
    group.append(e.line, e.tip);
    view.append(group);
    if (at.text) group.append(svg("text", { x: pointAt(e.line, at.y).x + 7, y: at.y + 4 }, at.text));
    group.append(svg("title", {}, [...new Set(e.uses.map(u => u.rule || u.parameter))].join("\n")));
    e.group = group;
  }
  view.append(...titles);
  for (const v of nodes.values()) {
    const at = g.node(v.id),
      round = v.kind === "op" || v.kind === "box" ? 9 : 2;
    const box = { x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height, rx: round };
    const group = svg("g", {
      class: "vertex " + v.kind + (data.outputs.some(o => shownAs(o) === v.id) ? " output" : ""),
      "data-vertex": v.id
    });
    group.setAttribute("aria-label", (v.inside ? [v.label] : v.lines).join(", "));
    if (v.inside) group.setAttribute("aria-expanded", "false");
    if (v.inside)
      group.append(
        svg("rect", { x: box.x - 3, y: box.y - 3, width: box.width + 6, height: box.height + 6, rx: round + 2 })
      );
    group.append(
      svg("rect", { ...box, class: "body" }),
      svg("rect", {
        x: box.x + 0.6,
        y: box.y + 0.6,
        width: box.width - 1.2,
        height: box.height - 1.2,
        rx: round,
        class: "heat",
        opacity: 0
      })
    );
    const all = v.lines.length + (v.grad ? 1 : 0);
    [...v.lines, ...(v.grad ? [""] : [])].forEach((line, k) =>
      group.append(
        svg(
          "text",
          {
            class: k < v.lines.length ? (k ? "small" : "") : "small g",
            x: at.x,
            y: at.y + 4.5 + 15 * (k - (all - 1) / 2)
          },
          line
        )
      )
    );
    group.append(
      svg(
        "title",
        {},
        v.inside ? v.label : [v.formula, ...new Set(into(v).map(e => e.rule))].filter(Boolean).join("\n")
      )
    );
    v.group = group;
    pressed(
      group,
      v.id,
      v.inside
        ? () => {
            folded.delete(v.id);
            redraw(v.id, `[data-box="${v.id}"]`, v.inside[0].id);
          }
        : () => {
            stop();
            chosen = chosen === v.id ? null : v.id;
            show();
          }
    );
    view.append(group);
  }
}
const placeOf = id => drawn.g.node(drawn.g.hasNode(id) ? id : shownAs(id));
function redraw(box, focus, otherwise) {
  // after folding: what was clicked stays where it was, and so does the keyboard
  const before = box && drawn ? { ...placeOf(box) } : null,
    top = at => at.y - at.height / 2;
  draw();
  const after = before && (drawn.g.hasNode(box) ? drawn.g.node(box) : placeOf(otherwise));
  if (after) {
    place.x += (before.x - after.x) * place.k;
    place.y += (top(before) - top(after)) * place.k;
    apply();
  } else begin();
  show();
  const next =
    focus && (document.querySelector(focus) || document.querySelector(`[data-vertex="${shownAs(otherwise)}"]`));
  if (next) next.focus({ preventScroll: true });
}

// ------------------------------------------------------------------------------------------------ zoom and pan
const canvas = by("canvas"),
  place = { x: 0, y: 0, k: 1, touched: false },
  drag = { moved: false, at: new Map() };
const apply = () => by("view").setAttribute("transform", `translate(${place.x} ${place.y}) scale(${place.k})`);
const size = () => [drawn.g.graph().width, drawn.g.graph().height, canvas.clientWidth, canvas.clientHeight];
function clamp() {
  // no more empty canvas than there must be
  const [width, height, w, h] = size(),
    within = (x, room, long) => (long <= room ? (room - long) / 2 : Math.min(8, Math.max(room - long - 8, x)));
  place.x = within(place.x, w, width * place.k);
  place.y = within(place.y, h, height * place.k);
}
function fit(least = 0) {
  const [width, height, w, h] = size();
  place.k = Math.max(least, Math.min(1.15, w / width, h / height));
  clamp();
  apply();
}
const LEAST = data.boxes.some(b => b.frame) ? 0.45 : 0.62; // graphs that are compared are seen both
function begin() {
  // all, or, where the letters would be too small, the part that comes first
  place.touched = false;
  fit(LEAST);
  if (data.outputs.length) follow(data.steps[Math.max(step, 1) - 1] || data.outputs[0]);
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const k = Math.min(4, Math.max(0.08, place.k * factor));
  place.x = x - ((x - place.x) * k) / place.k;
  place.y = y - ((y - place.y) * k) / place.k;
  place.k = k;
  place.touched = true;
  apply();
}
function follow(id) {
  // bring a vertex into view, by no more than it takes
  const at = placeOf(id),
    [, , w, h] = size(),
    margin = 6;
  if (!at) return;
  const move = (middle, long, room) => {
    const half = Math.min(long * place.k, room - 2 * margin) / 2;
    return Math.max(0, margin + half - middle) + Math.min(0, room - margin - half - middle);
  };
  place.x += move(at.x * place.k + place.x, at.width, w);
  place.y += move(at.y * place.k + place.y, at.height, h);
  apply();
}
canvas.addEventListener(
  "wheel",
  event => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.002), event.clientX - box.left, event.clientY - box.top);
  },
  { passive: false }
);
canvas.addEventListener("pointerdown", event => {
  if (event.button) return;
  drag.at.set(event.pointerId, [event.clientX, event.clientY]);
  drag.moved = false;
});
window.addEventListener("pointermove", event => {
  const last = drag.at.get(event.pointerId);
  if (!last) return;
  if (event.pointerType === "mouse" && !event.buttons) return released(event);
  const dx = event.clientX - last[0],
    dy = event.clientY - last[1];
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  drag.moved = place.touched = true;
  canvas.classList.add("moving");
  const others = [...drag.at].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  if (others.length) {
    // two fingers: their distance is the zoom, their middle the place
    const [ox, oy] = others[0],
      box = canvas.getBoundingClientRect();
    const was = Math.hypot(last[0] - ox, last[1] - oy),
      is = Math.hypot(event.clientX - ox, event.clientY - oy);
    place.x += dx / 2;
    place.y += dy / 2;
    if (was > 10 && is > 10) zoom(is / was, (event.clientX + ox) / 2 - box.left, (event.clientY + oy) / 2 - box.top);
  } else {
    place.x += dx;
    place.y += event.pointerType === "touch" ? 0 : dy; // with one finger, up and down scroll the page
  }
  apply();
  drag.at.set(event.pointerId, [event.clientX, event.clientY]);
});
function released(event) {
  drag.at.delete(event.pointerId);
  canvas.classList.remove("moving");
  setTimeout(() => {
    drag.moved = false;
  });
}
for (const type of ["pointerup", "pointercancel"]) window.addEventListener(type, released);
canvas.addEventListener("click", () => {
  if (chosen && !drag.moved) {
    chosen = null;
    show();
  }
});

// ------------------------------------------------------------------------------------------------ numbers and heat maps
function short(x) {
  if (typeof x !== "number") return String(x).replace("-", "−");
  const r = Number(x.toPrecision(3)),
    least = Math.abs(r);
  const text =
    (Number.isInteger(x) && least < 1e5) || (least >= 1000 && least < 1e5)
      ? x.toFixed(0)
      : least >= 0.001 && least < 1e5
        ? r.toPrecision(3)
        : x.toExponential(1);
  return text.replace(/-/g, "−");
}
function heatmap(a, label) {
  const numbers = a.rows.flat().filter(x => typeof x === "number" && isFinite(x)),
    most = Math.max(0, ...numbers.map(Math.abs));
  const tiny = a.rows.length && a.rows[0].length > 6,
    table = tag("table");
  table.setAttribute("aria-label", `${label}, ${a.shape}`);
  if (tiny) {
    table.setAttribute("role", "img");
    table.setAttribute(
      "aria-label",
      `${label}, ${a.shape}, ${words.least} ${short(Math.min(...numbers))}, ${words.most} ${short(Math.max(...numbers))}, ${words.norm} ${short(a.norm)}`
    );
  }
  for (const row of a.rows) {
    const line = tag("tr");
    for (const x of row) {
      const cell = tag("td", tiny ? "tiny" : "", tiny ? "" : short(x));
      const share = most && typeof x === "number" ? Math.abs(x) / most : 0;
      if (share)
        cell.style.background = `rgba(var(--${x > 0 ? "plus" : "minus"}), ${(0.08 + 0.47 * share).toFixed(3)})`;
      cell.title = String(x);
      cell.dataset.x = String(x);
      line.append(cell);
    }
    table.append(line);
  }
  const about = [
    a.part ? `${words[a.part]} ${a.shape}` : "",
    a.scalar || !a.rows.length ? "" : `${words.norm} ${short(a.norm)}`
  ];
  return tag("div", "heatmap", table, tag("div", "where-to", about.filter(Boolean).join(" · ")));
}
function part(title, a) {
  return [tag("h3", "", title), a ? heatmap(a, title) : tag("p", "soft", words.none)];
}

// ------------------------------------------------------------------------------------------------ the film
const isSent = e => e.seed || (e.grad !== null && (stepOf.get(e.target) || Infinity) <= step);
const seedOf = new Map(data.seeds.map(s => [s.id, { grad: s.grad, level: s.level, sum: s.level, seed: true }]));
const sharesOf = v =>
  v.grad === null ? [] : [...(seedOf.has(v.id) ? [seedOf.get(v.id)] : []), ...uses(v).filter(e => e.grad !== null)];
const got = v => sharesOf(v).filter(isSent); // of all shares those that have come by now
const complete = v => v.grad !== null && got(v).length === sharesOf(v).length;
const latest = v => got(v).at(-1);
// The gradient as it has come by now, or nothing, and its level
const soFar = v => (complete(v) ? v.grad : latest(v) ? latest(v).total || latest(v).grad : null);
const levelNow = v => (complete(v) ? v.level : latest(v) ? latest(v).sum : null);
function paint() {
  const current = data.steps[step - 1];
  for (const v of drawn.nodes.values()) {
    const levels = (v.inside ? v.inside.filter(leaves) : [v]).map(levelNow).filter(level => level !== null),
      level = levels.length ? Math.max(...levels) : null;
    const heat = v.group.querySelector(".heat"),
      line = v.group.querySelector(".g"),
      now = current !== undefined && shownAs(current) === v.id;
    heat.setAttribute("opacity", level === null ? 0 : 1);
    heat.style.fill = `color-mix(in srgb, rgb(var(--heat)) ${level ? 6 + 7 * level : 0}%, var(--paper))`;
    if (line) {
      const a = soFar(v);
      line.textContent = a ? gradientOf(a) + (complete(v) ? "" : " …") : "";
      v.group.classList.toggle("bare", !a);
    }
    v.group.classList.toggle("zero", level === 0);
    v.group.classList.toggle("current", now);
    v.group.classList.toggle("chosen", chosen === v.id);
    if (now) v.group.setAttribute("aria-current", "step");
    else v.group.removeAttribute("aria-current");
    if (!v.inside) v.group.setAttribute("aria-pressed", chosen === v.id);
  }
  for (const e of drawn.edges.values()) {
    const sent = e.uses.filter(isSent),
      level = sent.length ? Math.max(...sent.map(u => u.level)) : null;
    e.group.classList.toggle("sent", sent.length > 0);
    e.group.classList.toggle(
      "sending",
      e.uses.some(u => u.grad !== null && u.target === current)
    );
    e.group.classList.toggle("zero", level === 0);
    const wide = level === null ? 1 : 1 + 0.6 * level;
    e.line.style.strokeWidth = wide;
    e.tip.setAttribute("transform", `${sent.length ? e.back : e.forth} scale(${0.9 + wide / 6})`);
  }
}
function summed(v, label) {
  // what has come: of single numbers with several uses the sum itself, term by term
  const total = soFar(v);
  if (!total.scalar || sharesOf(v).length < 2) return heatmap(total, label);
  const terms = got(v).map(e => short(e.grad.rows[0][0]));
  const signed = terms.slice(1).map(term => (term.startsWith("−") ? ` − ${term.slice(1)}` : ` + ${term}`));
  return tag("p", "", `${terms[0]}${signed.join("")} = ${short(total.rows[0][0])}`);
}
function added(v) {
  // what is said of a value whose shares add up
  const all = sharesOf(v),
    sent = got(v),
    parts = { name: nameOf(v), done: sent.length, all: all.length };
  if (all.length < 2) return [];
  if (sent.length < 2) return [tag("p", "soft", put(words.waits, parts))];
  const text = put(sent.length === all.length ? words.adds : words.adds_some, parts);
  return [tag("p", "soft", text), summed(v, text)];
}
function explain() {
  const now = by("now"),
    current = vertexOf.get(data.steps[step - 1]);
  now.replaceChildren();
  if (chosen) return look(now, vertexOf.get(chosen));
  if (!data.steps.length) return now.append(tag("p", "", words.nothing));
  if (!current) {
    now.append(
      tag("h2", "", words.begin),
      tag("p", "", put(words["begin_" + data.seed], { outputs: data.called })),
      tag("p", "", words.means)
    );
    for (const s of data.seeds)
      now.append(...part(vertexOf.has(s.id) ? frameOf(vertexOf.get(s.id)) + s.name : s.name, s.grad));
    return;
  }
  const inputs = into(current),
    sends = inputs.filter(e => e.grad !== null),
    needed = new Set(sends.flatMap(e => e.needs)),
    own = sends.some(e => e.own);
  now.append(
    tag("h2", "", titled(current)),
    tag("p", "formula", current.formula),
    tag("p", "soft", [insideOf(current), ...current.params].filter(Boolean).join(" · "))
  );
  if (current.grad) now.append(...part(words.arrives, current.grad));
  if (needed.has("out")) now.append(...part(words.made, current.value));
  for (const e of inputs) {
    const source = vertexOf.get(e.source);
    const name = own ? `${e.parameter}, ${words.here} ${nameOf(source)}` : nameOf(source),
      number = source.kind === "constant" && source.label && !source.name;
    if (source.value && needed.has(e.parameter) && (own || !number))
      now.append(...part(`${words.its_input} ${name}`, source.value));
  }
  for (const e of inputs) {
    const source = vertexOf.get(e.source);
    if (e.grad === null) {
      if (source.kind !== "rest") now.append(tag("p", "soft apart", `${nameOf(source)}: ${words.constant}`));
      continue;
    }
    now.append(tag("h3", "apart", `${words.sends} ${nameOf(source)}`));
    if (e.rule) now.append(tag("pre", "", own ? e.rule : e.share));
    now.append(heatmap(e.grad, `${words.sends} ${nameOf(source)}`));
    if (e === inputs.findLast(other => other.source === e.source && other.grad !== null)) now.append(...added(source));
  }
}
function look(now, v) {
  // a vertex that was clicked
  const back = tag("button", "", `${words.return} ${step}`);
  back.addEventListener("click", () => {
    chosen = null;
    show();
  });
  now.append(
    tag("h2", "", titled(v)),
    tag("p", "formula", v.formula),
    tag("p", "soft", [insideOf(v), data.shapes ? v.shape : "", ...v.params].filter(Boolean).join(" · "))
  );
  if (v.value) now.append(...part(words.value, v.value));
  const a = soFar(v);
  if (v.kind === "constant") now.append(tag("p", "soft", `${nameOf(v)}: ${words.constant}`));
  else if (a) now.append(...part(complete(v) ? words.gradient : words.so_far, a), ...added(v));
  else now.append(tag("p", "soft", words.not_yet));
  for (const rule of new Set(into(v).map(e => e.rule))) if (rule) now.append(tag("pre", "", rule));
  if (data.steps.length) now.append(tag("p", "apart", back));
}
function sums() {
  const list = by("sums");
  list.replaceChildren();
  for (const v of data.vertices) {
    const all = sharesOf(v),
      sent = got(v);
    if (
      !sent.length ||
      (v.kind !== "leaf" && all.length < 2) ||
      (v.kind === "leaf" && sent.every(e => e.seed) && all.length > 1)
    )
      continue;
    const line = e => {
      const size = e.grad.scalar ? short(e.grad.rows[0][0]) : `${words.norm} ${short(e.grad.norm)}`;
      const from = e.seed ? words.itself : titled(vertexOf.get(e.target));
      return tag("li", stepOf.get(e.target) === step ? "latest" : "", `${words.from} ${from}: ${size}`);
    };
    const several = all.length > 1,
      fresh = !several && stepOf.get(sent[0].target) === step;
    const about = [insideOf(v), several ? `${sent.length} ${words.of} ${all.length} ${words.shares}` : ""];
    const entry = tag(
      "div",
      fresh ? "entry latest" : "entry",
      tag("h3", "", nameOf(v), " ", tag("span", "where-to", about.filter(Boolean).join(" · "))),
      several ? tag("ul", "", ...sent.map(line)) : "",
      summed(v, nameOf(v))
    );
    entry.dataset.sum = v.id;
    list.append(entry);
  }
}
function said() {
  // one line on what has happened, to be seen and heard
  const v = vertexOf.get(chosen),
    op = vertexOf.get(data.steps[step - 1]);
  if (v)
    return `${titled(v)}: ${soFar(v) ? gradientOf(soFar(v)) : v.kind === "constant" ? words.constant_kind : words.not_yet}`;
  if (!op) return data.steps.length ? words.begin : "";
  const shares = into(op)
    .filter(e => e.grad !== null)
    .map(e => `${gradientOf(e.grad).replace(/^g = /, "")} ${words.to} ${nameOf(vertexOf.get(e.source))}`);
  const hidden =
    shownAs(op.id) !== op.id ? ` (${words.inside} ${drawn.nodes.get(shownAs(op.id)).label}, ${words.folded})` : "";
  return `${frameOf(op)}${titled(op)}${hidden}: ${op.grad ? gradientOf(op.grad) + "; " : ""}${words.sent} ${shares.join(", ")}`;
}
function show() {
  by("count").textContent = `${words.step} ${step} ${words.of} ${data.steps.length}`;
  by("said").textContent = said();
  by("step").value = step;
  by("step").setAttribute("aria-valuetext", `${by("count").textContent}: ${by("said").textContent}`);
  for (const id of ["first", "back"]) by(id).setAttribute("aria-disabled", step === 0);
  for (const id of ["next", "last"]) by(id).setAttribute("aria-disabled", step === data.steps.length);
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
  if (!step) return;
  const op = vertexOf.get(data.steps[step - 1]);
  for (const e of into(op)) if (e.grad !== null) follow(e.source);
  follow(op.id);
}
function stop() {
  clearInterval(playing);
  playing = null;
}
const actions = {
  first: () => go(0),
  back: () => go(step - 1),
  next: () => go(step + 1),
  last: () => go(data.steps.length),
  play: () => {
    if (playing) {
      stop();
      return show();
    }
    if (step === data.steps.length) step = 0;
    playing = setInterval(() => go(step + 1), 3000);
    go(step + 1);
  },
  larger: () => zoom(1.25),
  smaller: () => zoom(0.8),
  fit: () => {
    place.touched = false;
    fit();
  },
  fold: () => {
    for (const b of data.boxes) if (!b.frame) folded.add(b.id);
    redraw();
  },
  unfold: () => {
    folded.clear();
    redraw();
  }
};
for (const id in actions)
  by(id).addEventListener("click", () => {
    if (playing && id !== "play") stop();
    actions[id]();
  });
by("step").addEventListener("input", event => {
  if (playing) stop();
  go(Number(event.target.value));
});
by("step").max = data.steps.length;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && chosen) {
    chosen = null;
    return show();
  }
  const name = {
    ArrowRight: "next",
    ArrowLeft: "back",
    Home: "first",
    End: "last",
    "+": "larger",
    "=": "larger",
    "-": "smaller",
    0: "fit"
  }[event.key];
  if (!name || (event.target.type === "range" && /Arrow|Home|End/.test(event.key))) return;
  if (!/^Arrow/.test(event.key) && !event.target.closest("#stage, #controls")) return; // elsewhere they are the browser's
  event.preventDefault();
  if (playing) stop();
  actions[name]();
});
for (const id of ["fold", "unfold"]) by(id).hidden = !data.boxes.some(b => !b.frame);
if (!data.steps.length) for (const id of ["controls", "ledger", "lead", "legend", "swatches"]) by(id).hidden = true;
else by("legend").textContent = `${data.legend} ${words.turned}`;
let width = canvas.clientWidth;
window.addEventListener("resize", () => {
  // a phone's address bar changes the height alone
  if (canvas.clientWidth !== width && !place.touched) fit(LEAST);
  width = canvas.clientWidth;
});
redraw();
