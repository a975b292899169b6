/* A timeline of memory on a canvas: the smallest and the largest value of every pixel's samples are drawn, so that a
   peak of one sample stays visible at any zoom. Wheel and drag, or the keys + − ← → 0; what is pointed at is said below. */

import { fill, h } from "./dom.js";
import { count, number, sizeText } from "./format.js";
import { t } from "./i18n.js";

const HEIGHT = 240;
const BLOCK = 256;
const LINES = 4;

/* series: [{name, values: Float64Array}]; the first one is filled. */
export function timeline(series, label) {
  const length = series[0].values.length;
  const blocks = series.map((one) => summary(one.values));
  const top = Math.max(1, ...blocks.map(({ high }) => high.reduce((most, one) => Math.max(most, one), 0))) * 1.05;
  let from = 0;
  let to = length;
  const canvas = h("canvas", { class: "timeline", height: HEIGHT, tabindex: 0, role: "img", "aria-label": `${label}. ${t("timeline.keys")}` });
  const readout = h("p", { class: "readout" });
  const pointed = h("p", { class: "pointed" });
  const cursor = h("i", { class: "cursor", hidden: true, "aria-hidden": "true" });
  const box = h("figure", { class: "timeline-figure" }, canvas, cursor, readout, pointed);

  const draw = () => {
    const began = performance.now();
    const width = Math.max(200, canvas.clientWidth);
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    grid(pen, width, top, style);
    series.forEach((one, k) => {
      const colour = style.getPropertyValue(k === 0 ? "--c0" : "--c3").trim();
      pen.fillStyle = colour;
      const per = (to - from) / width;
      let before = null;
      for (let x = 0; x < width; x++) {
        const start = Math.floor(from + x * per);
        const [low, high] = extremes(one.values, blocks[k], start, Math.max(start + 1, Math.min(length, Math.floor(from + (x + 1) * per))));
        const y = HEIGHT - (high / top) * HEIGHT;
        const joined = before === null ? low : Math.min(low, before);
        pen.globalAlpha = 1;
        pen.fillRect(x, y, 1, Math.max(1.5, ((high - joined) / top) * HEIGHT));
        if (k === 0) {
          pen.globalAlpha = 0.18;
          pen.fillRect(x, y, 1, HEIGHT - y);
        }
        before = high;
      }
    });
    const most = extremes(series[0].values, blocks[0], Math.floor(from), Math.ceil(to))[1];
    fill(readout, series.map((one, k) => h("span", {}, h("i", { class: `chip ${k === 0 ? "c0" : "c3"}`, "aria-hidden": "true" }), " ", one.name, " · ")),
      t("timeline.range", { from: count(Math.floor(from)), to: count(Math.ceil(to)), all: count(length) }), " · ", t("timeline.peak"), " ", number("timeline.peak", most, sizeText(most)));
    box.dataset.redrawMs = (performance.now() - began).toFixed(2);
  };
  const point = (x) => {
    const at = Math.min(length - 1, Math.floor(from + (x / canvas.clientWidth) * (to - from)));
    const end = Math.max(at + 1, Math.min(length, Math.floor(from + ((x + 1) / canvas.clientWidth) * (to - from))));
    cursor.hidden = false;
    cursor.style.setProperty("left", `${x}px`);
    fill(pointed, t("timeline.here", { at: count(at + 1) }), series.map((one, k) => ` · ${one.name} ${sizeText(extremes(one.values, blocks[k], at, end)[1])}`));
  };
  const zoom = (by, at = 0.5) => {
    const centre = from + (to - from) * at;
    const span = Math.min(length, Math.max(8, (to - from) * by));
    from = Math.max(0, Math.min(length - span, centre - span * at));
    to = from + span;
    draw();
  };
  const move = (by) => {
    const span = to - from;
    from = Math.max(0, Math.min(length - span, from + by * span));
    to = from + span;
    draw();
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    point(event.offsetX);
    if (held === null) return;
    move((held - event.clientX) / canvas.clientWidth);
    held = event.clientX;
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointerleave", () => { cursor.hidden = true; fill(pointed); });
  canvas.addEventListener("keydown", (event) => {
    const does = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: () => zoom(length) }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  new ResizeObserver(draw).observe(canvas);
  return box;
}

/* Lines at round sizes, each with its size. */
function grid(pen, width, top, style) {
  const unit = 1024 ** Math.floor(Math.log2(top) / 10);
  const least = top / LINES / unit;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((one) => one * power >= least) * power * unit;
  pen.font = `11px ${style.getPropertyValue("font-family") || "sans-serif"}`;
  for (let size = step; size < top; size += step) {
    const y = Math.round(HEIGHT - (size / top) * HEIGHT) + 0.5;
    pen.fillStyle = style.getPropertyValue("--line").trim();
    pen.fillRect(0, y, width, 1);
    pen.fillStyle = style.getPropertyValue("--soft").trim();
    pen.fillText(sizeText(size), 4, y - 4);
  }
}

/* Smallest and largest value of every block, so that a redraw reads few values however many there are. */
function summary(values) {
  const blocks = Math.ceil(values.length / BLOCK);
  const low = new Float64Array(blocks).fill(Infinity);
  const high = new Float64Array(blocks).fill(-Infinity);
  for (let i = 0; i < values.length; i++) {
    const block = Math.floor(i / BLOCK);
    if (values[i] < low[block]) low[block] = values[i];
    if (values[i] > high[block]) high[block] = values[i];
  }
  return { low, high };
}

export function extremes(values, blocks, start, end) {
  let low = Infinity;
  let high = -Infinity;
  let i = start;
  while (i < end) {
    if (i % BLOCK === 0 && i + BLOCK <= end) {
      const block = i / BLOCK;
      low = Math.min(low, blocks.low[block]);
      high = Math.max(high, blocks.high[block]);
      i += BLOCK;
    } else {
      low = Math.min(low, values[i]);
      high = Math.max(high, values[i]);
      i++;
    }
  }
  return [low, high];
}

/* base64 of little-endian float64 as the API packs a column. */
export function unpacked(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float64Array(bytes.buffer);
}
