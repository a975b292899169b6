/* A profiler trace: per rank where its time went, why the GPU idled, its longest kernels and collectives. */

import { h } from "../dom.js";
import { count, number, sizeText } from "../format.js";
import { t } from "../i18n.js";

const PARTS = { compute: "c0", exposed_comm: "c3", exposed_memory: "c4", other: "c8", idle: "room" };
const CAUSES = ["cpu_late", "launch_latency", "waiting", "unknown"];
const MOST_KERNELS = 10;

const ms = (us) => `${(us / 1000).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ms`;
const share = (pct) => `${pct.toFixed(2)} %`;

export function trace({ report, picture }) {
  return [Object.entries(report.ranks).map(([rank, one]) => rankOf(rank, one)), across(report.across),
    h("details", { class: "raw" }, h("summary", {}, t("trace.picture")),
      h("img", { class: "strips", src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`, alt: t("trace.picture") }))];
}

function rankOf(rank, one) {
  const path = `report.ranks.${rank}`;
  const own = one.classified;
  const title = h("h4", {}, t("files.rank", { rank }), one.gpu ? ` · ${one.gpu}` : "");
  if (!own?.span_us) return h("article", {}, title, h("p", {}, t("trace.no_gpu", { events: count(one.window.events) })));
  return h("article", { class: "rank" }, title,
    h("p", { class: "lead" }, t("trace.window", { events: count(one.all_events.gpu_events), all: count(one.window.events), steps: count(one.window.steps.length) }), " ",
      number(`${path}.classified.span_us`, own.span_us, ms(own.span_us))),
    parts(own, `${path}.classified`), said(one, path), memory(one.memory ?? [], path), kernels(one.kernels, path), collectives(one.collectives, path));
}

/* What ran, and what nothing else hid: the parts add up to the window. */
function parts(own, path) {
  const shown = Object.entries(PARTS).filter(([key]) => own[`${key}_us`] > 0);
  const pct = (key) => (100 * own[`${key}_us`]) / own.span_us;
  return [h("div", { class: "strip", "aria-hidden": "true" }, shown.map(([key, colour]) => h("i", { class: colour, style: { width: `${pct(key)}%` } }))),
    h("table", { class: "list parts" }, h("tbody", {}, shown.map(([key, colour]) => h("tr", {},
      h("th", { scope: "row" }, h("i", { class: `chip ${colour}`, "aria-hidden": "true" }), " ", t(`trace.${key}`)),
      h("td", {}, number(`${path}.${key}_us`, own[`${key}_us`], ms(own[`${key}_us`]))), h("td", {}, share(pct(key)))))))];
}

function said(one, path) {
  const causes = one.idle_causes;
  const rows = CAUSES.filter((key) => causes[`${key}_us`] > 0).map((key) => [t(`trace.${key}`), `${path}.idle_causes.${key}_us`, causes[`${key}_us`], ms(causes[`${key}_us`])]);
  if (one.tensor_cores.yes_pct !== null) rows.push([t("trace.tensor_cores"), `${path}.tensor_cores.yes_pct`, one.tensor_cores.yes_pct, share(one.tensor_cores.yes_pct)]);
  if (one.products) rows.push([t("trace.products"), `${path}.products.tflops`, one.products.tflops, `${one.products.tflops.toFixed(1)} TFLOP/s`]);
  return h("dl", { class: "counters" }, rows.map(([name, place, value, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, number(place, value, text)))));
}

function memory(devices, path) {
  const rows = devices.flatMap((one, i) => ["allocated", "reserved"].filter((key) => one[`${key}_bytes`]).map((key) =>
    h("div", {}, h("dt", {}, `${one.device}, ${t(`timeline.${key}`)}, ${t("trace.peak")}`),
      h("dd", {}, number(`${path}.memory.${i}.${key}_bytes.peak`, one[`${key}_bytes`].peak, sizeText(one[`${key}_bytes`].peak))))));
  return rows.length ? h("dl", { class: "counters" }, rows) : null;
}

function table(title, heads, rows) {
  return rows.length ? [h("h4", {}, t(title)), h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, t(one))))), h("tbody", {}, rows)))] : null;
}

function kernels(all, path) {
  return table("trace.kernels", ["trace.name", "trace.time", "trace.share", "trace.count"], all.slice(0, MOST_KERNELS).map((one, i) => h("tr", {},
    h("th", { scope: "row", class: "kernel", lang: "en" }, h("span", { class: "clamp", title: one.name }, one.name), h("small", {}, one.category)),
    h("td", {}, number(`${path}.kernels.${i}.sum_us`, one.sum_us, ms(one.sum_us))), h("td", {}, share(one.pct)), h("td", {}, count(one.count)))));
}

function collectives(all, path) {
  return table("trace.collectives", ["trace.name", "trace.time", "trace.hidden", "trace.bus"], all.map((one, i) => h("tr", {},
    h("th", { scope: "row", lang: "en" }, one.kind, h("small", {}, `× ${count(one.count)}`)),
    h("td", {}, number(`${path}.collectives.${i}.sum_us`, one.sum_us, ms(one.sum_us))),
    h("td", {}, one.overlap_pct === null ? "–" : share(one.overlap_pct)), h("td", {}, one.bus_gb_s === null ? "–" : `${one.bus_gb_s} GB/s`))));
}

function across(found) {
  if (!found) return null;
  return h("p", { class: "finding" }, t(found.stragglers.length ? "trace.late" : "trace.none_late", { ranks: found.stragglers.join(", "), skew: ms(found.worst_skew_us) }));
}
