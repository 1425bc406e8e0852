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
