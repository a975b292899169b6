/* A file or a pasted text: what it is, and what the command for it says. Nothing of it leaves the machine. */

import { word } from "../answer.js";
import { ask } from "../api.js";
import { fill, h } from "../dom.js";
import { interval, isBytes, number, quantityText, signedPercent, sizeText } from "../format.js";
import { named, sentence, t } from "../i18n.js";
import { setScenario, state } from "../state.js";
import { timeline, unpacked } from "../timeline.js";
import { trace } from "./trace.js";

const LONGEST_HEAD = 32 * 2 ** 20; // of a GGUF file: vocabularies of 256,000 tokens with their merges take about 12 MiB
let last = null;
let told = null;

export const needs = "result";

/* Files dropped anywhere on the page; `opened` shows this view. */
export function listen(cover, opened) {
  let depth = 0;
  window.addEventListener("dragenter", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    depth += 1;
    cover.hidden = false;
  });
  window.addEventListener("dragleave", () => { depth = Math.max(0, depth - 1); cover.hidden = depth === 0; });
  window.addEventListener("dragover", (event) => event.preventDefault());
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    cover.hidden = true;
    const file = event.dataTransfer.files[0];
    if (file) {
      opened();
      take(file.name, file);
    }
  });
}

export function render(root, { anew }) {
  if (!anew) return;
  const report = h("div", { class: "report", "aria-live": "polite" });
  told = report;
  const pick = h("input", { type: "file", id: "file", onchange: () => pick.files[0] && take(pick.files[0].name, pick.files[0]) });
  const text = h("textarea", { id: "pasted", rows: 5, spellcheck: "false", placeholder: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …" });
  fill(root, h("h2", {}, t("view.files")), h("p", { class: "lead" }, t("files.help")),
    h("div", { class: "take" }, h("label", { for: "file", class: "pick" }, t("files.pick")), pick),
    h("div", { class: "field" }, h("label", { for: "pasted" }, t("files.paste")), text,
      h("button", { type: "button", onclick: () => text.value.trim() && take("pasted.txt", new Blob([text.value])) }, t("files.read"))), report);
  if (last) fill(report, shown(last.name, last.answer));
}

async function take(name, blob) {
  fill(told, h("p", { class: "waiting", role: "status" }, t("files.reading", { name })));
  const isLong = name.toLowerCase().endsWith(".gguf") && blob.size > LONGEST_HEAD;
  const bytes = await (isLong ? blob.slice(0, LONGEST_HEAD) : blob).arrayBuffer();
  const body = { ...(state.scenario.gpu ? { gpu: state.scenario.gpu } : {}), ...(isLong ? { size: blob.size } : {}) };
  const answer = await ask("read", body, { name, bytes });
  last = { name, answer };
  fill(told, shown(name, answer));
}

function shown(name, answer) {
  if (answer.error) {
    const isNamed = answer.error.message.includes(name);
    return h("p", { class: "error", role: "alert" }, isNamed ? "" : `${name}: `, answer.error.message);
  }
  return [h("h3", {}, `${name} · ${t(`kind_of_file.${answer.kind}`)}`),
    (answer.timelines ?? []).map((one) => [h("h4", {}, one.device), timeline(["allocated", "reserved"].map((key) => ({ name: t(`timeline.${key}`), values: unpacked(one[key]) })), `${name} ${one.device}`)]),
    KINDS[answer.kind](answer)];
}

const FIRST = "total_needed"; // what is asked for, before all that stands beside it

const KINDS = {
  oom: (answer) => failures(answer.report),
  snapshot: (answer) => failures(answer.report),
  log: (answer) => [said(answer.report), raw(answer.report)],
  trace: (answer) => [trace(answer), raw(answer.report)],
  config: (answer) => answer.programs.map((one, i) => program(one, `programs.${i}.report`)),
  command: (answer) => answer.programs.map((one, i) => program(one, `programs.${i}.report`)),
  scenario: (answer) => program({ name: "", scenario: answer.scenario, notes: [], report: answer.report }, "report"),
  model: (answer) => [quantities(answer.report, "report"), h("button", { type: "button", onclick: () => setScenario({ ...state.scenario, model: answer.model }) }, t("files.use_model"))],
  result: (answer) => [quantities(answer.report, "report"), answer.report.scenario ? h("button", { type: "button", onclick: () => setScenario(answer.report.scenario) }, t("files.use")) : null],
};

function failures(report) {
  if (report.failures.length === 0) return h("p", {}, t("files.no_failure"));
  return report.failures.map((one, i) => h("article", { class: "failure" },
    h("p", { class: "finding" }, [one.program, one.device].filter(Boolean).join(" · "), ["device", null].includes(one.memory) ? "" : [" · ", sentence("span", {}, `${one.memory} memory`)],
      " · ", h("strong", {}, t(one.failed ? one.probable ? "failure.probable" : "failure.failed" : "failure.none")), ": ", sentence("span", {}, one.cause)),
    h("dl", { class: "counters" }, Object.entries(one).filter(([key, value]) => key.endsWith("_bytes") && value !== null).map(([key, value]) =>
      h("div", {}, h("dt", {}, named("failure", key)), h("dd", {}, number(`report.failures.${i}.${key}`, value, sizeText(value))))),
      one.other_processes.map((other, k) => h("div", {}, h("dt", {}, `${t("failure.process_bytes")} ${other.process}`), h("dd", {}, number(`report.failures.${i}.other_processes.${k}.bytes`, other.bytes, sizeText(other.bytes)))))),
    one.where.length ? h("p", {}, t("failure.where"), " ", h("code", { lang: "en" }, one.where.find((frame) => !frame.includes("/torch/")) ?? one.where[0])) : null,
    Object.keys(one.held).length ? [h("h4", {}, t("failure.held")), h("dl", { class: "counters" }, Object.entries(one.held).map(([name, value]) =>
      h("div", {}, h("dt", {}, sentence("span", {}, name)), h("dd", {}, number(`report.failures.${i}.held.${name}`, value, sizeText(value))))))] : null,
    one.changes.length ? [h("h4", {}, t("files.try")), h("ul", {}, one.changes.map((change) => h("li", {}, sentence("code", {}, change.change),
      change.frees_bytes ? [" · ", t("files.frees"), " ", sizeText(change.frees_bytes)] : "", change.cost && change.cost !== "none" ? [" · ", sentence("span", {}, change.cost)] : "")))] : null));
}

function program(one, path) {
  return h("article", { class: "program" }, h("h4", {}, one.name), quantities(one.report, path),
    one.notes.length ? h("ul", { class: "notes" }, one.notes.map((note) => sentence("li", {}, note))) : null,
    h("button", { type: "button", onclick: () => setScenario(one.scenario), "aria-label": `${t("files.use")} ${one.name}` }, t("files.use")));
}

function quantities(report, path) {
  return [report.verdict ? h("p", {}, word(report.verdict.word)) : null,
    h("dl", { class: "counters" }, Object.entries(report.quantities).filter(([name]) => name !== "oom").sort(([a], [b]) => Number(b === FIRST) - Number(a === FIRST)).map(([name, one]) => h("div", {}, h("dt", {}, named("quantity", name)),
      h("dd", {}, number(`${path}.quantities.${name}.expected`, one.expected, quantityText(name, one.expected)), isBytes(name) ? " GiB" : "", interval(`${path}.quantities.${name}`, one.low, one.high, (value) => quantityText(name, value))))))];
}

/* A log beside its estimate, line by line. */
function said(report) {
  const sized = (row, value) => `${quantityText(row.quantity, value)}${isBytes(row.quantity) ? " GiB" : ""}`;
  const line = (row, i) => h("tr", {}, h("th", { scope: "row" }, named("quantity", row.quantity), h("small", { lang: "en" }, row.line)),
    h("td", {}, number(`report.rows.${i}.printed`, row.printed, sized(row, row.printed))),
    h("td", {}, row.predicted ? [number(`report.rows.${i}.predicted.expected`, row.predicted.expected, sized(row, row.predicted.expected)),
      interval(`report.rows.${i}.predicted`, row.predicted.low, row.predicted.high, (value) => quantityText(row.quantity, value))] : "–"),
    h("td", {}, typeof row.error === "number" ? number(`report.rows.${i}.error`, row.error, signedPercent(row.error)) : "–"));
  return [h("p", { class: "finding" }, `${report.engine} ${report.engine_version}`),
    h("div", { class: "scroll" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["quantity", "measured", "estimated", "error"].map((one) => h("th", { scope: "col" }, t(`right.${one}`))))),
      h("tbody", {}, report.rows.map(line)))),
    h("button", { type: "button", onclick: () => setScenario(report.scenario) }, t("files.use"))];
}

const raw = (report) => h("details", { class: "raw" }, h("summary", {}, "JSON"), h("pre", { tabindex: 0 }, JSON.stringify(report, null, 2)));
