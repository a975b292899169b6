/* The answer as a picture of its own, with colours written into it: SVG and PNG. */

import { partsOf, peakOf, scaleOf } from "./bar.js";
import { s } from "./dom.js";
import { colourOf, gib } from "./format.js";
import { named, t } from "./i18n.js";

const COLOURS = ["#3a5f9e", "#d08a2e", "#2b8a84", "#c0533b", "#5d8b52", "#8064a8", "#b4578b", "#d8b265", "#8b929c", "#a3957f"];
const VERDICTS = { fits: "#1c6b3f", tight: "#855400", "does not fit": "#a3261f" };
const FONT = "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif";

export function picture(result) {
  const { index, phase } = peakOf(result);
  const parts = partsOf(phase, index);
  const need = result.quantities.total_needed?.expected ?? phase.bytes;
  const whole = scaleOf(result);
  const x = (bytes) => 30 + (bytes / whole) * 840;
  let at = 0;
  const rects = parts.map((one) => {
    const rect = s("rect", { x: x(at), y: 92, width: Math.max(0.5, x(one.bytes) - 31), height: 44, fill: COLOURS[colourOf(one.name)] });
    at += one.bytes;
    return rect;
  });
  const rows = Math.ceil(parts.length / 3);
  const height = 172 + rows * 24;
  const text = (px, py, words, more = {}) => s("text", { x: px, y: py, "font-size": 14, fill: "#22282d", ...more }, words);
  const verdict = result.verdict?.word;
  const usable = result.capacity?.usable_bytes;
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 900 ${height}`, width: 900, height, "font-family": FONT },
    s("rect", { width: 900, height, fill: "#ffffff" }),
    text(30, 36, `${result.model.id.split("/").pop()} · ${named("task", result.scenario.task)}${result.capacity?.gpu ? ` · ${result.capacity.gpu}` : ""}`, { "font-size": 15 }),
    text(30, 70, `${gib(need)} GiB ${t("answer.needed")}`, { "font-size": 22, "font-weight": 600 }),
    verdict ? text(870, 70, named("word", verdict), { "font-size": 18, "font-weight": 600, "text-anchor": "end", fill: VERDICTS[verdict] }) : "",
    s("rect", { x: 30, y: 92, width: result.capacity ? x(result.capacity.total_bytes) - 30 : 840, height: 44, fill: "#eceae5" }), rects,
    usable ? s("path", { d: `M${x(usable)} 84V144`, stroke: "#22282d", "stroke-width": 2, "stroke-dasharray": "5 3" }) : "",
    usable ? text(Math.min(870, x(usable)), 160, t("bar.usable", { size: gib(usable) }), { "font-size": 12, "text-anchor": x(usable) > 600 ? "end" : "start" }) : "",
    parts.map((one, i) => [s("rect", { x: 30 + (i % 3) * 285, y: 176 + Math.floor(i / 3) * 24 - 11, width: 12, height: 12, fill: COLOURS[colourOf(one.name)] }),
      text(48 + (i % 3) * 285, 176 + Math.floor(i / 3) * 24, `${named("term", one.name)} ${gib(one.bytes)}`, { "font-size": 13 })]));
}

export const svgBlob = (svg) => new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });

export async function pngBlob(svg) {
  const address = URL.createObjectURL(svgBlob(svg));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * Number(svg.getAttribute("width"));
    canvas.height = 2 * Number(svg.getAttribute("height"));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
