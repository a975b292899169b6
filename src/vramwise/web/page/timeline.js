/* A timeline of memory, drawn by uPlot. Wheel and drag, or the keys + − ← → 0; what is pointed at is said below. */

import { fill, h } from "./dom.js";
import { drawn, extremesOf, isCondensed } from "./extremes.js";
import { count, number, sizeText } from "./format.js";
import { t } from "./i18n.js";

const HEIGHT = 240;
const LEAST_WIDTH = 200;
const LINES = 4;
const LEAST_SHOWN = 8;
const COLOURS = ["c0", "c3"];
const FAINT = "2e"; // behind a colour #rrggbb: 18 % of it

/* named: [{name, values: Float64Array}]; the first one is filled. uPlot comes with the first timeline that is shown. */
export function timeline(named, label) {
  const series = named.map((one) => ({ ...one, extremes: extremesOf(one.values) }));
  const length = series[0].values.length;
  const top = Math.max(1, ...series.map(({ extremes }) => extremes(0, length)[1])) * 1.05;
  let [from, to] = [0, length];
  let chart = null;
  const plot = h("div", { class: "timeline", tabindex: 0, role: "img", "aria-label": `${label}. ${t("timeline.keys")}` });
  const readout = h("p", { class: "readout" });
  const pointed = h("p", { class: "pointed" });

  const tell = () => {
    const most = series[0].extremes(Math.floor(from), Math.ceil(to))[1];
    fill(readout, series.map((one, k) => h("span", {}, h("i", { class: `chip ${COLOURS[k]}`, "aria-hidden": "true" }), " ", one.name, " · ")),
      t("timeline.range", { from: count(Math.floor(from)), to: count(Math.ceil(to)), all: count(length) }), " · ", t("timeline.peak"), " ", number("timeline.peak", most, sizeText(most)));
  };
  const point = ({ cursor: { left }, over }) => {
    if (left < 0) return fill(pointed);
    const sample = (x) => Math.floor(from + (x / over.clientWidth) * (to - from));
    const at = Math.min(length - 1, sample(left));
    const end = Math.max(at + 1, sample(left + 1));
    fill(pointed, t("timeline.here", { at: count(at + 1) }), series.map((one) => ` · ${one.name} ${sizeText(one.extremes(at, end)[1])}`));
  };
  const data = () => drawn(series, from, to, Math.ceil(plot.clientWidth * devicePixelRatio));
  const draw = () => chart?.batch(() => {
    chart.setData(data(), false);
    chart.setScale("x", { min: from, max: to });
  });
  const show = (start, span) => {
    from = Math.max(0, Math.min(length - span, start));
    to = from + span;
    draw();
  };
  const zoom = (by, at = 0.5) => {
    const span = Math.min(length, Math.max(LEAST_SHOWN, (to - from) * by));
    show(from + (to - from - span) * at, span);
  };
  const move = (by) => show(from + by * (to - from), to - from);

  const steer = ({ over }) => {
    let held = null;
    over.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / over.clientWidth);
    }, { passive: false });
    over.addEventListener("pointerdown", (event) => { held = event.clientX; over.setPointerCapture(event.pointerId); });
    over.addEventListener("pointermove", (event) => {
      if (held === null) return;
      move((held - event.clientX) / over.clientWidth);
      held = event.clientX;
    });
    for (const end of ["pointerup", "pointercancel"]) over.addEventListener(end, () => { held = null; });
  };
  plot.addEventListener("keydown", (event) => {
    const does = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: () => show(0, length) }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  whileShown(plot, (uPlot, size) => {
    const scales = { x: { time: false, min: from, max: to }, y: { range: [0, top] } };
    const hooks = { ready: [steer], draw: [tell], setCursor: [point] };
    chart = new uPlot({ ...looks(uPlot, series.length, top), ...size, scales, hooks }, data(), plot);
    return chart;
  }, draw);
  return h("figure", { class: "timeline-figure" }, plot, readout, pointed);
}

/* Makes a chart when `plot` stands on the page and ends it when it no longer does: uPlot listens to the window. */
function whileShown(plot, make, resized) {
  let chart = null;
  const repaint = () => chart?.redraw(false);
  const theme = new MutationObserver(repaint);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  new ResizeObserver(async () => {
    const { default: uPlot } = await import("./vendor/uPlot.esm.js");
    const size = { width: Math.max(LEAST_WIDTH, plot.clientWidth), height: HEIGHT };
    if (chart && plot.isConnected) {
      chart.setSize(size);
      return resized();
    }
    chart?.destroy();
    chart = plot.isConnected ? make(uPlot, size) : null;
    theme.disconnect();
    scheme.removeEventListener("change", repaint);
    if (!chart) return;
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    scheme.addEventListener("change", repaint);
  }).observe(plot);
}

/* How it looks, in the colours of the page at the time; memory goes in steps where there is room for them. */
function looks(uPlot, many, top) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const lines = uPlot.paths.linear();
  const steps = uPlot.paths.stepped({ align: 1, extend: true });
  const paths = (u, ...which) => (isCondensed(u.data) ? lines : steps)(u, ...which);
  const line = (_, k) => ({ stroke: () => colour(COLOURS[k]), fill: k === 0 ? () => colour(COLOURS[k]) + FAINT : undefined, fillTo: 0, width: 1.5, paths, points: { show: false } });
  return {
    series: [{}, ...Array.from({ length: many }, line)],
    axes: [{ show: false }, {
      stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false }, gap: 4, font: `11px ${getComputedStyle(document.body).fontFamily}`,
      splits: () => sizes(top), values: (_, all) => all.map(sizeText), size: (_, texts) => 8 + 6.5 * Math.max(0, ...(texts ?? []).map((one) => one.length)),
    }],
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    legend: { show: false },
    padding: [8, 0, 8, 0], // half a line of text, so that the sizes at both ends are whole
  };
}

/* Round sizes for the lines behind it. */
function sizes(top) {
  const unit = 1024 ** Math.floor(Math.log2(top) / 10);
  const least = top / LINES / unit;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((one) => one * power >= least) * power * unit;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, i) => i * step);
}

/* base64 of little-endian float64 as the API packs a column. */
export function unpacked(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float64Array(bytes.buffer);
}
