// Two small charts, drawn anew whenever their numbers change.

import { element, svg } from "./dom.js";
import { duration } from "./measure.js";

const WIDTH = 200;
const HEIGHT = 27;
const MOST_POSITIONS = 16;

/** Bars by position: the share of drafts whose candidate there was committed. One bar a place for each measure. */
export function drawAcceptance(container, measures) {
  const shown = measures.filter((measure) => measure.drafted.length);
  const places = Math.min(MOST_POSITIONS, Math.max(0, ...shown.map((measure) => measure.drafted.length)));
  if (!places) {
    container.replaceChildren(element("p", { className: "fine", textContent: "Nothing has been drafted yet." }));
    return;
  }
  const columns = Array.from({ length: places }, (_, index) => column(index, shown));
  const chart = element("div", { className: "bars", role: "img" }, ...columns);
  chart.ariaLabel = columns.map((made) => made.title).join("; ");
  container.replaceChildren(chart);
}

function column(index, measures) {
  const shares = measures.map((measure) => (measure.accepted[index] ?? 0) / (measure.drafted[index] || 1));
  const percents = shares.map((share) => `${Math.round(100 * share)}`);
  const bars = shares.map((share, lane) => {
    const bar = element("i", { className: lane ? "bar second" : "bar" });
    bar.style.setProperty("--share", share);
    bar.style.setProperty("--position", index + 1);
    return bar;
  });
  const track = element("div", { className: "track" }, ...bars);
  const value = element("span", { className: "value", textContent: percents.join(" ") });
  const place = element("span", { className: "place", textContent: index + 1 });
  const made = element("div", { className: "column" }, value, track, place);
  made.title = `position ${index + 1}: ${percents.join(" and ")} %`;
  return made;
}

const ROWS = [
  ["first token", (measure) => measure.firstToken()],
  ["between commits", (measure) => measure.betweenCommits()],
  ["whole reply", (measure) => measure.total()],
];

/** A line each for the latest replies' times, oldest left. */
export function drawLatency(container, measures) {
  container.replaceChildren(...ROWS.map(([name, of]) => latencyRow(name, measures.map(of))));
}

function latencyRow(name, values) {
  const known = values.filter((value) => value !== null);
  const latest = known.at(-1) ?? null;
  const row = element("div", { className: "series" });
  row.append(element("span", { className: "name", textContent: name }));
  row.append(sparkline(name, values), element("span", { className: "value", textContent: duration(latest) }));
  return row;
}

function sparkline(name, values) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(...known, 1e-9);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const points = values
    .map((value, index) => [values.length === 1 ? WIDTH : index * step, value])
    .filter(([, value]) => value !== null)
    .map(([x, value]) => [x, HEIGHT - 4 - (HEIGHT - 8) * (value / top)]);
  const label = `${name}: ${known.length ? known.map(duration).join(", ") : "none yet"}`;
  const chart = svg("svg", { viewBox: `-4 0 ${WIDTH + 8} ${HEIGHT}`, role: "img", "aria-label": label });
  chart.append(svg("line", { class: "floor", x1: 0, x2: WIDTH, y1: HEIGHT - 4, y2: HEIGHT - 4 }));
  chart.append(svg("polyline", { points: points.map((point) => point.join(",")).join(" ") }));
  points.forEach(([x, y], index) => {
    chart.append(svg("circle", { cx: x, cy: y, r: index === points.length - 1 ? 3 : 1.5 }));
  });
  return chart;
}
