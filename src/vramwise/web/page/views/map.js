/* Two sizes against one another: what each pair needs, and the frontier of what fits. */

import { slug } from "../answer.js";
import { newest } from "../api.js";
import { fill, h } from "../dom.js";
import { count, gib, number } from "../format.js";
import { named, t } from "../i18n.js";
import { apply, get, state, tableOf } from "../state.js";

const asked = newest("grid");
const MARKS = { fits: "✓", tight: "!", "does not fit": "✕" };
const LENGTHS = [512, 1024, 2048, 4096, 8192, 16384, 32768];
const AXES = {
  train: [["micro_batch_size", [1, 2, 4, 8, 16, 32, 64]], ["sequence_length", LENGTHS]],
  serve: [["max_num_seqs", [1, 4, 16, 64, 128, 256, 512]], ["max_model_len", [2048, 4096, 8192, 16384, 32768, 65536, 131072]]],
  gguf: [["n_parallel", [1, 2, 4, 8, 16, 32]], ["n_ctx", [2048, 4096, 8192, 16384, 32768, 65536, 131072]]],
  pipeline: [["batch_size", [1, 2, 4, 8, 16]], ["image_size", ["512x512", "768x768", "1024x1024", "1536x1536", "2048x2048"]]],
  generate: [["batch_size", [1, 2, 4, 8, 16, 32]], ["prompt_tokens", LENGTHS]],
};

function axes(scenario, resolved) {
  const table = tableOf(scenario);
  const engine = resolved[table]?.engine;
  if (table === "generate" && resolved.generate?.image_size) return AXES.pipeline;
  return table === "serve" && ["llama.cpp", "ollama"].includes(engine) ? AXES.gguf : AXES[table];
}

function withOwn(values, own) {
  return own && !values.includes(own) ? [...values, own].sort((a, b) => pixels(a) - pixels(b)) : values;
}

/* "1024x768" by what it holds, a number as it is. */
const pixels = (value) => String(value).split("x").reduce((whole, side) => whole * Number(side), 1);
const shownAs = (value) => (typeof value === "number" ? count(value) : value);

export async function render(root, { scenario, result, anew }) {
  const table = tableOf(scenario);
  const [[xKey, xs], [yKey, ys]] = axes(scenario, result.scenario);
  const own = [get(result.scenario, `${table}.${xKey}`), get(result.scenario, `${table}.${yKey}`)];
  const question = { scenario, x: { key: xKey, values: withOwn(xs, own[0]) }, y: { key: yKey, values: withOwn(ys, own[1]) } };
  if (anew) fill(root, h("p", { class: "waiting", role: "status" }, t("page.working")));
  const answer = await asked(question);
  if (answer === null || state.view !== "map") return;
  if (answer.error) return fill(root, h("p", { class: "error" }, answer.error.message));
  fill(root, h("h2", {}, h("code", {}, xKey), " × ", h("code", {}, yKey)), h("p", { class: "lead" }, t("map.help")), h("div", { class: "scroll" }, heat(answer, own, scenario)), key());
}

function heat(answer, own) {
  const { x, y } = answer;
  const fits = (i, j) => i >= 0 && j >= 0 && i < y.values.length && j < x.values.length && ["fits", "tight"].includes(answer.words[i][j]);
  const cell = (i, j) => {
    const need = answer.needed_bytes[i][j];
    if (need === null || need === undefined) return h("td", { class: "heat none", title: answer.errors[i][j] ?? "" }, "–");
    const word = answer.words[i][j];
    const level = answer.usable_bytes ? Math.min(9, Math.floor((need / answer.usable_bytes) * 5)) : 0;
    const edges = [fits(i, j) && !fits(i, j + 1) && j + 1 < x.values.length ? "edge-right" : "", fits(i, j) && !fits(i + 1, j) && i + 1 < y.values.length ? "edge-below" : "",
      x.values[j] === own[0] && y.values[i] === own[1] ? "own" : ""];
    return h("td", { class: `heat ${word ? slug(word) : "none"} h${level} ${edges.join(" ")}` },
      h("button", { type: "button", "data-focus": `cell-${i}-${j}`, onclick: () => apply({ [x.key]: x.values[j], [y.key]: y.values[i] }),
        "aria-label": `${x.key} ${x.values[j]}, ${y.key} ${y.values[i]}: ${gib(need)} GiB${word ? `, ${named("word", word)}` : ""}` },
      number(`needed_bytes.${i}.${j}`, need, gib(need)), word ? h("span", { class: "cell-mark", "aria-hidden": "true" }, MARKS[word]) : null));
  };
  return h("table", { class: "heat-table" }, h("caption", { class: "hidden" }, t("map.caption", { x: x.key, y: y.key })),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, breaking(x.key), "\u00a0→", h("br"), breaking(y.key), "\u00a0↓"), x.values.map((one, j) => h("th", { scope: "col" }, number(`x.values.${j}`, one, shownAs(one)))))),
    h("tbody", {}, y.values.map((one, i) => h("tr", {}, h("th", { scope: "row" }, number(`y.values.${i}`, one, shownAs(one))), x.values.map((_, j) => cell(i, j))))));
}

/** A key of two words and more, whose line may end after each. */
function breaking(key) {
  return key.split(/(?<=[_.])/).flatMap((word, i) => i ? [h("wbr"), word] : [word]);
}

function key() {
  return h("p", { class: "lead key" }, Object.entries(MARKS).map(([word, sign]) => h("span", {}, h("b", {}, sign), " ", named("word", word))), h("span", {}, t("map.frontier")));
}
