"use strict";
// Figures are JSON inside the page; a colour in them is the name of a CSS variable, with an opacity where wanted.

function resolved(name, style) {
  const [variable, opacity] = name.split("/");
  const value = style.getPropertyValue(variable).trim();
  return opacity ? value + Math.round(255 * opacity).toString(16).padStart(2, "0") : value;
}

function coloured(value, key, style) {
  if (Array.isArray(value)) return value.map((item) => coloured(item, key, style));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, name, style)]));
  return typeof value === "string" && key.endsWith("color") && value.startsWith("--") ? resolved(value, style) : value;
}

function draw(chart) {
  if (!chart.offsetWidth) return; // inside a closed <details>: drawn when that opens
  const figure = coloured(chart.figure, "", getComputedStyle(document.documentElement));
  if (chart.offsetWidth < 500 && !chart.classList.contains("small")) figure.layout.font.size = 11;
  Plotly.react(chart, figure.data, figure.layout, { displayModeBar: false, responsive: true });
}

const charts = [...document.querySelectorAll(".chart")];
for (const chart of charts) {
  const script = chart.querySelector("script");
  chart.figure = JSON.parse(script.textContent);
  script.remove();
}

// One figure a turn of the event loop, from the top on: the page can be scrolled meanwhile.
function drawAll(left) {
  if (!left.length) return;
  draw(left[0]);
  setTimeout(drawAll, 0, left.slice(1));
}
drawAll(charts);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(charts));
for (const details of document.querySelectorAll("details"))
  details.addEventListener("toggle", () => drawAll([...details.querySelectorAll(".chart")]));
