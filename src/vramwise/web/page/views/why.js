/* Why: the moments as columns to hover or step through, then every term of the chosen moment on demand. */

import { counters } from "../answer.js";
import { scaleOf } from "../bar.js";
import { colourOf } from "../colours.js";
import { fill, h, s } from "../dom.js";
import { interval, number, percent, size, sizeText, gib, count } from "../format.js";
import { named, sentence, t } from "../i18n.js";

const HEIGHT = 120;
let chosen = null;
let opened = new Set();

export const needs = "result";

export function render(root, { result }) {
  const peak = result.phases.findIndex((one) => one.name === result.peak_phase);
  const kept = result.phases.findIndex((one) => one.name === chosen);
  const at = kept >= 0 ? kept : Math.max(0, peak);
  const terms = h("div", { class: "terms" });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const columns = result.phases.map((phase, i) => column(result, phase, i, i === peak));
  const show = (i, lasting) => {
    if (lasting) chosen = result.phases[i].name;
    columns.forEach((one, j) => one.setAttribute("aria-pressed", String(j === i)));
    fill(readout, h("strong", {}, named("moment", result.phases[i].name)), " ", size(`phases.${i}.bytes`, result.phases[i].bytes),
      i === peak ? h("span", { class: "tag" }, t("why.peak")) : null);
    fill(terms, result.phases[i].components.children.map((node, j) => ({ node, j })).sort((a, b) => b.node.bytes - a.node.bytes)
      .map(({ node, j }) => term(node, `phases.${i}.components.children.${j}`, result.phases[i].bytes, node.name)));
  };
  columns.forEach((one, i) => {
    one.addEventListener("mouseenter", () => show(i, false));
    one.addEventListener("focus", () => show(i, false));
    one.addEventListener("click", () => show(i, true));
  });
  const moments = h("div", { class: "moments", role: "group", "aria-label": t("why.moments"), onmouseleave: () => show(
    Math.max(0, result.phases.findIndex((one) => one.name === chosen) >= 0 ? result.phases.findIndex((one) => one.name === chosen) : peak), false) }, columns);
  show(at, false); // before the focus comes back to the moment that had it
  fill(root, h("h2", {}, t("why.moments")), h("p", { class: "lead" }, t("why.moments_help")), h("div", { class: "scroll" }, moments), readout,
    h("h2", {}, t("why.terms")), terms, ranks(result),
    h("h2", {}, t("why.counters")), h("p", { class: "lead" }, t("why.counters_help")),
    counters(result, Object.keys(result.quantities).filter((name) => !["params", "oom", "total_needed"].includes(name))), notes(result));
}

function column(result, phase, i, isPeak) {
  const whole = scaleOf(result);
  let y = HEIGHT;
  const rects = phase.components.children.filter((one) => one.bytes > 0).sort((a, b) => b.bytes - a.bytes).map((one) => {
    const tall = (one.bytes / whole) * HEIGHT;
    y -= tall;
    return s("rect", { x: 0, y, width: 40, height: Math.max(0.3, tall - 0.6), class: `c${colourOf(one.name)}`, "data-term": one.name });
  });
  const usable = result.capacity?.usable_bytes;
  return h("button", { type: "button", class: `moment ${isPeak ? "peak" : ""}`, "aria-pressed": "false", "data-focus": `moment-${i}` },
    s("svg", { viewBox: `0 0 40 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, rects,
      usable ? s("path", { class: "limit", d: `M0 ${HEIGHT - (usable / whole) * HEIGHT}H40` }) : null),
    h("span", { class: "size" }, number(`phases.${i}.bytes`, phase.bytes, gib(phase.bytes))), h("span", { class: "name" }, named("moment", phase.name)));
}

/* A term with what it is made of; the inside is built when it is opened. */
function term(node, path, whole, key) {
  const row = h("summary", { "data-focus": `term-${key}` },
    h("i", { class: `chip c${colourOf(node.name)}`, "aria-hidden": "true" }),
    h("span", { class: "name" }, named("term", node.name)),
    h("span", { class: "part", "aria-hidden": "true" }, h("i", { class: `c${colourOf(node.name)}`, style: { width: `${whole ? (100 * node.bytes) / whole : 0}%` } })),
    h("span", { class: "amount" }, number(`${path}.bytes`, node.bytes, sizeText(node.bytes)), interval(path, node.low, node.high, sizeText)),
    h("span", { class: `kind ${node.kind}` }, named("kind", node.kind)));
  const inside = h("div", { class: "inside" });
  const box = h("details", { class: "term", "data-term": node.name }, row, inside);
  const build = () => fill(inside, node.formula ? h("p", { class: "formula" }, h("code", { lang: "en" }, node.formula)) : null,
    Object.keys(node.inputs).length ? h("p", { class: "inputs" }, Object.entries(node.inputs).map(([name, value], i) =>
      h("span", {}, `${i ? ", " : ""}${name} = `, number(`${path}.inputs.${name}`, value, typeof value === "number" ? count(value) : String(value))))) : null,
    h("p", { class: "known" }, t(`known.${node.kind}`), whole ? ` · ${percent(node.bytes / whole)}` : ""),
    node.source ? h("p", { class: "source", lang: "en" }, t("why.source"), " ", node.source) : null,
    node.children.map((child, i) => ({ child, i })).sort((a, b) => b.child.bytes - a.child.bytes)
      .map(({ child, i }) => term(child, `${path}.children.${i}`, node.bytes, `${key}/${child.name}`)));
  box.addEventListener("toggle", () => {
    if (box.open) opened.add(key);
    else opened.delete(key);
    if (box.open && !inside.hasChildNodes()) build();
  });
  if (opened.has(key)) {
    build();
    box.open = true;
  }
  return box;
}

/* Opens the term of this name and goes there; it stays open when scrolling puts another moment under the pointer. */
export function openTerm(root, name) {
  opened.add(name);
  const found = [...root.querySelectorAll(".terms > details")].find((one) => one.dataset.term === name);
  if (!found) return;
  found.open = true;
  found.querySelector("summary").focus();
  found.scrollIntoView({ block: "nearest" });
}

function ranks(result) {
  if (result.ranks.length < 2) return null;
  const most = Math.max(...result.ranks.map((one) => one.bytes), result.capacity?.usable_bytes ?? 0);
  return [h("h2", {}, t("why.ranks")), h("ol", { class: "ranks" }, result.ranks.map((one, i) =>
    h("li", {}, h("span", { class: "name" }, one.name), h("span", { class: "part", "aria-hidden": "true" },
      h("i", { class: "c0", style: { width: `${(100 * one.bytes) / most}%` } })), h("span", { class: "amount" }, size(`ranks.${i}.bytes`, one.bytes)))))];
}

export function showNotes(root) {
  const heading = root.querySelector(".notes-heading");
  heading?.focus({ preventScroll: true });
  heading?.scrollIntoView({ block: "start" });
}

function notes(result) {
  return result.notes.length ? [h("h2", { class: "notes-heading", tabindex: -1 }, t("why.notes")), h("ul", { class: "notes" }, result.notes.map((one) => sentence("li", {}, one)))] : null;
}
