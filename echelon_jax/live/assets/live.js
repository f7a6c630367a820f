// The live page of a run: curves and the newest validation game, from the server's stream of events. Everything that comes from the
// run is shown as text or as numbers, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [300, 76];
const percent = (value) => `${Math.round(100 * value)}%`;
const decimal = (value) => value.toPrecision(3);
const whole = (value) => Math.round(value).toLocaleString("en");
// Title, [metric, its name, its class], how a value is written, and the range of the axis (null: that of the values).
const CURVES = [
  ["win rate", [["win_rate", "training", "own"], ["validation/win_rate", "validation", "held"]], percent, [0, 1]],
  ["return of a mech", [["return_per_mech", "training", "own"]], decimal, null],
  ["zone share", [["zone_share", "training", "own"]], percent, [0, 1]],
  ["explained variance of the critic", [["update/explained_variance", "", "own"]], decimal, null],
  ["entropy", [["update/entropy", "", "own"]], decimal, null],
  ["environment steps a second", [["env_steps_per_second", "", "own"]], whole, null],
];

const byId = (id) => document.getElementById(id);
const state = { rows: [], about: {}, game: null, over: false };
globalThis.live = state; // for tests

function make(parent, name, text = "", kind = "") {
  const element = document.createElement(name);
  element.textContent = text;
  if (kind) element.className = kind;
  parent.append(element);
  return element;
}

const charts = CURVES.map(([title, series, write, bounds]) => {
  const figure = make(byId("curves"), "figure");
  const caption = make(figure, "figcaption");
  make(caption, "strong", title);
  const last = make(caption, "span");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  figure.append(svg);
  const range = make(figure, "div", "", "range");
  return { series, write, bounds, last, svg, range };
});

function draw(chart) {
  const points = chart.series.map(([metric]) =>
    state.rows.filter((row) => row[metric] !== null).map((row) => [row.env_steps, row[metric]]));
  const values = points.flat().map((point) => point[1]);
  chart.svg.replaceChildren();
  chart.last.replaceChildren();
  chart.range.replaceChildren();
  if (!values.length) return;
  const [low, high] = chart.bounds ?? [Math.min(...values), Math.max(...values)];
  const end = Math.max(1, state.rows.at(-1).env_steps);
  const place = ([x, y]) => [(x / end) * WIDTH, HEIGHT - 3 - ((y - low) / (high - low || 1)) * (HEIGHT - 6)];
  chart.series.forEach(([, name, kind], number) => {
    if (!points[number].length) return;
    const placed = points[number].map(place);
    if (placed.length === 1) placed.push([placed[0][0] + 3, placed[0][1]]); // a line of one point would not be seen
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", placed.map((point) => point.map((n) => n.toFixed(1)).join()).join(" "));
    line.setAttribute("class", kind);
    chart.svg.append(line);
    if (name) chart.last.append(` ${name} `);
    make(chart.last, "b", chart.write(points[number].at(-1)[1]), kind);
  });
  make(chart.range, "span", `${chart.write(low)} to ${chart.write(high)}`);
  make(chart.range, "span", `${whole(end)} steps`);
}

function show() {
  const [done, planned] = [state.rows.at(-1)?.update ?? 0, state.about.updates ?? 0];
  byId("progress").max = Math.max(1, planned);
  byId("progress").value = done;
  byId("count").textContent = `update ${whole(done)} of ${whole(planned)}`;
  charts.forEach(draw);
}

function say(text, lost = false) {
  byId("state").textContent = text;
  byId("state").className = lost ? "lost" : "";
}

const source = new EventSource("events");
const on = (name, act) => source.addEventListener(name, (event) => { act(JSON.parse(event.data)); show(); });
on("run", (about) => { // a connection begins, or begins again: everything comes once more
  state.rows = [];
  state.about = about;
  byId("name").textContent = about.name;
  byId("what").textContent = about.what;
  document.title = `${about.name} – Echelon run`;
  if (!about.validates) byId("title").textContent = "This run plays no validation games (validation_every is 0).";
  say("training");
});
on("rows", (rows) => { state.rows.push(...rows); });
on("game", ({ update }) => {
  if (state.game === update) return;
  state.game = update;
  byId("title").textContent = `Validation game of update ${update}`;
  byId("frame").src = `game?update=${update}#speed=2`;
  byId("frame").hidden = false;
});
on("over", () => { state.over = true; source.close(); say("the run is over"); });
source.onerror = () => { if (!state.over) say("connection lost; trying again", true); };
