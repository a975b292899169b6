/* The stacked bar against the card: what is empty is the headroom, the bracket is the interval. Also as a picture. */

import { colourOf } from "./colours.js";
import { h, s } from "./dom.js";
import { gib, interval, number, sizeText } from "./format.js";
import { composed, named, t } from "./i18n.js";

const WIDTH = 1000;
const MOST = 8;

export function peakOf(result) {
  const index = Math.max(0, result.phases.findIndex((one) => one.name === result.peak_phase));
  return { index, phase: result.phases[index] };
}

/* The largest terms, what is left of them as one; `path` leads to each in the answer. */
export function partsOf(phase, index) {
  const children = phase.components.children.map((one, i) => ({ node: one, path: `phases.${index}.components.children.${i}` }));
  const sorted = children.filter((one) => one.node.bytes > 0).sort((a, b) => b.node.bytes - a.node.bytes);
  const most = sorted.length === MOST + 1 ? MOST + 1 : MOST; // one that is left keeps its name
  const shown = sorted.slice(0, most).map(({ node, path }) => ({ name: node.name, bytes: node.bytes, low: node.low, high: node.high, path }));
  const rest = sorted.slice(most).reduce((sum, one) => sum + one.node.bytes, 0);
  return rest > 0 ? [...shown, { name: "other", bytes: rest, path: null }] : shown;
}

export function scaleOf(result) {
  const need = result.quantities.total_needed;
  const peak = Math.max(...result.phases.map((one) => one.bytes));
  return Math.max(result.capacity?.total_bytes ?? 0, need?.high ?? 0, peak) * 1.02;
}

export function bar(result) {
  const { index, phase } = peakOf(result);
  const parts = partsOf(phase, index);
  const whole = scaleOf(result);
  const need = result.quantities.total_needed;
  const x = (bytes) => Math.min(WIDTH, (bytes / whole) * WIDTH);
  let at = 0;
  const rects = parts.map((part) => {
    const rect = s("rect", { x: x(at), y: 14, width: Math.max(0.5, x(part.bytes) - 1), height: 40, class: `c${colourOf(part.name)}`, rx: 1.5,
      "data-term": part.name }, s("title", {}, `${named("term", part.name)} ${sizeText(part.bytes)}`));
    at += part.bytes;
    return rect;
  });
  const usable = result.capacity?.usable_bytes;
  const label = t("bar.label", { moment: named("moment", phase.name), parts: parts.map((one) => `${named("term", one.name)} ${sizeText(one.bytes)}`).join(", ") });
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} 74`, class: "bar", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    s("rect", { x: 0, y: 14, width: result.capacity ? x(result.capacity.total_bytes) : WIDTH, height: 40, class: "room", rx: 3 }),
    rects,
    need && need.high > need.low ? s("g", { class: "whisker" },
      s("path", { d: `M${x(need.low)} 64H${x(Math.min(need.high, whole))}M${x(need.low)} 59v10M${x(need.high)} 59v10` }),
      s("circle", { cx: x(need.expected), cy: 64, r: 3.5 })) : null,
    usable ? s("path", { class: "limit", d: `M${x(usable)} 4V60` }) : null);
  return h("figure", { class: "bar-figure" }, picture,
    h("div", { class: "axis", "aria-hidden": "true" }, usable ? flag(x(usable) / WIDTH, composed("bar.usable", { size: number("capacity.usable_bytes", usable, gib(usable)) })) : null),
    h("figcaption", { class: "caption" }, t("bar.caption", { moment: named("moment", phase.name) }), " ", number(`phases.${index}.bytes`, phase.bytes, gib(phase.bytes)), " GiB",
      need && phase.bytes > need.expected && "kv_cache_tokens" in result.quantities ? t("bar.pool") : "", need ? ` · ${t("bar.bracket")}` : ""));
}

function flag(share, text) {
  return h("span", { class: `flag ${share > 0.7 ? "left" : ""}`, style: share > 0.7 ? { right: `${(1 - share) * 100}%` } : { left: `${share * 100}%` } }, text);
}

export function legend(result, onterm) {
  const { index, phase } = peakOf(result);
  return h("ul", { class: "legend" }, partsOf(phase, index).map((part) =>
    h("li", { "data-term": part.name }, h("button", { type: "button", onclick: () => onterm(part.name), title: t("bar.to_term") },
      h("i", { class: `chip c${colourOf(part.name)}`, "aria-hidden": "true" }), h("span", { class: "name" }, named("term", part.name)),
      h("span", { class: "amount" }, number(part.path ? `${part.path}.bytes` : "", part.bytes, sizeText(part.bytes)),
        part.path ? interval(part.path, part.low, part.high, gib) : null)))));
}
