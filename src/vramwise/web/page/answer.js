/* The answer to the scenario: the verdict first, then the bar, then the counters that tools print. */

import { bar, legend, peakOf } from "./bar.js";
import { byId, fill, h, s } from "./dom.js";
import { chance, gib, interval, isBytes, number, parameters, quantityText, size } from "./format.js";
import { titleOf } from "./gpus.js";
import { named, sentence, t } from "./i18n.js";
import { withoutCommand } from "./sentences.js";

const FACTS = ["max_concurrency", "kv_cache_tokens", "max_batch", "max_seq", "step_time_s", "tokens_per_second", "peak_reserved", "nvidia_smi"];
const MARKS = { fits: "M5 12.5l4.5 4.5L19 7", tight: "M12 5v9M12 17.5v1.5", "does not fit": "M6 6l12 12M18 6L6 18" };
export const slug = (word) => word.replaceAll(" ", "-");
export const mark = (word) => s("svg", { viewBox: "0 0 24 24", class: "mark", "aria-hidden": "true" }, s("path", { d: MARKS[word] }));

export function word(text) {
  return h("span", { class: `word ${slug(text)}` }, mark(text), named("word", text));
}

/* What is wrong is said at the question; the answer before it stays, and says so. */
export function showError(error) {
  const where = byId("answer");
  const isKept = where.querySelector(".headline") !== null;
  where.classList.toggle("stale", isKept);
  byId("summary").classList.add("stale");
  if (!isKept) fill(where, sentence("p", { class: "error" }, withoutCommand(error.message)));
  else if (!where.querySelector(".before")) where.prepend(h("p", { class: "before" }, t("answer.before")));
}

/* The answer in one line, at the edge of a screen that shows the question alone. */
export function showSummary(result) {
  const line = byId("summary");
  const need = result.quantities.total_needed?.expected ?? peakOf(result).phase.bytes;
  line.className = `summary ${result.verdict ? slug(result.verdict.word) : ""}`;
  fill(line, result.verdict ? [mark(result.verdict.word), h("b", {}, named("word", result.verdict.word))] : null,
    h("span", {}, `${gib(need)} GiB`, result.capacity ? ` / ${gib(result.capacity.usable_bytes)}` : ""), h("span", { class: "to", "aria-hidden": "true" }, "↓"));
}

export function showAnswer(result, onterm, onnotes) {
  const where = byId("answer");
  where.classList.remove("stale");
  const need = result.quantities.total_needed ?? { expected: peakOf(result).phase.bytes };
  const capacity = result.capacity;
  const verdict = result.verdict;
  fill(where,
    h("p", { class: "subject" }, h("strong", {}, modelName(result.model.id)), " ", sub(result)),
    h("div", { class: "headline" },
      verdict ? h("p", { class: `verdict ${slug(verdict.word)}`, "data-path": "verdict.word", "data-value": verdict.word }, mark(verdict.word), named("word", verdict.word)) : null,
      h("p", { class: "need" }, h("span", { class: "big" }, number("quantities.total_needed.expected", need.expected, gib(need.expected)), " GiB"),
        interval("quantities.total_needed", need.low, need.high), " ", h("span", { class: "what" }, t("answer.needed"))),
      verdict ? h("p", { class: "room" }, verdict.headroom_bytes >= 0
        ? [number("verdict.headroom_bytes", verdict.headroom_bytes, gib(verdict.headroom_bytes)), " GiB ", t("answer.free")]
        : [number("verdict.headroom_bytes", verdict.headroom_bytes, gib(-verdict.headroom_bytes)), " GiB ", t("answer.short")],
      " · ", t("answer.probability"), " ", number("verdict.probability", verdict.probability, chance(verdict.probability))) : null),
    bar(result),
    legend(result, onterm),
    capacity ? h("p", { class: "card-line" }, h("strong", {}, cardName(result)), " · ", t("answer.total"), " ", size("capacity.total_bytes", capacity.total_bytes), " · ",
      t("answer.usable"), " ", size("capacity.usable_bytes", capacity.usable_bytes), " · ", t("answer.moment"), " ", named("moment", result.peak_phase), notes(result, onnotes))
      : h("p", { class: "card-line" }, t("answer.no_card"), notes(result, onnotes)),
    verdict && verdict.word !== "fits" && verdict.reasons.length ? h("ul", { class: "reasons" }, verdict.reasons.map((one) => sentence("li", {}, one))) : null,
    verdict && verdict.word !== "fits" ? h("div", { class: "fixes" }, h("span", { class: "waiting", role: "status" }, t("fixes.searching"))) : null,
    counters(result, FACTS.filter((name) => name in result.quantities), "facts"));
  byId("status").textContent = [verdict ? named("word", verdict.word) : "", `${gib(need.expected)} GiB`, t("answer.needed")].join(" ");
}

/* The card by what people call it, once the list of cards is here: nothing else of what stands there is touched. */
export function showCard(result) {
  const name = byId("answer").querySelector(".card-line strong");
  if (name && result.capacity) name.textContent = cardName(result);
}

/* What was assumed stands below everything: the answer says that there is something to read. */
function notes(result, onnotes) {
  const count = result.notes.length;
  return count ? [" · ", h("button", { type: "button", class: "link to-notes", "data-focus": "to-notes", onclick: onnotes }, t("answer.notes", { count }))] : null;
}

const modelName = (id) => id.split("/").pop();

function cardName(result) {
  const many = result.scenario.num_gpus ?? 1;
  return `${many > 1 ? `${many} × ` : ""}${titleOf(result.capacity.gpu) || t("answer.own_card")}`;
}

function sub(result) {
  const own = result.scenario[result.scenario.task === "load" ? "serve" : result.scenario.task] ?? {};
  const trained = result.model.num_trainable_parameters;
  const words = [named("task", result.scenario.task), own.framework ?? (own.image_size && result.scenario.task === "generate" ? "diffusers" : own.engine), own.engine_version, own.method, own.quantization ?? own.gguf_quant ?? own.dtype ?? own.precision, result.scenario.task === "generate" ? own.image_size : null];
  return h("span", {}, number("model.num_parameters", result.model.num_parameters, parameters(result.model.num_parameters)),
    ` ${t("answer.parameters")}`, trained && trained < result.model.num_parameters
      ? [" · ", number("model.num_trainable_parameters", trained, parameters(trained)), ` ${t("answer.trained")}`] : null,
    ` · ${words.filter((one) => one && one !== "auto").join(" · ")}`);
}

/* What engines and tools print, each by its name. */
export function counters(result, names, kind = "") {
  return h("dl", { class: `counters ${kind}` }, names.map((name) => [name, result.quantities[name]]).map(([name, one]) =>
    h("div", {}, h("dt", {}, named("quantity", name)),
      h("dd", {}, number(`quantities.${name}.expected`, one.expected, quantityText(name, one.expected)), isBytes(name) ? " GiB" : "",
        interval(`quantities.${name}`, one.low, one.high, (value) => quantityText(name, value))))));
}

export function changeText(change) {
  return Object.entries(change).filter(([, value]) => !(Array.isArray(value) && value.length === 0))
    .map(([key, value]) => `${key} ${typeof value === "number" ? value.toLocaleString("en-US") : typeof value === "object" ? JSON.stringify(value) : value}`).join(" · ");
}

