/* The question: what for, which model, on what, the five settings that matter, and all others by topic. */

import { ask, hubToken, isBrowser } from "./api.js";
import { combobox } from "./combobox.js";
import { byId, fill, h, put } from "./dom.js";
import { count, gib, parameters } from "./format.js";
import { gpus } from "./gpus.js";
import { t } from "./i18n.js";
import { said, withoutCommand } from "./sentences.js";
import { control, folded, topics } from "./settings.js";
import { apply, get, setScenario, settingsOf, state, tableOf, withSettings } from "./state.js";
import { trainerChoice } from "./trainer.js";

const GOALS = {
  run: { task: "serve" },
  tune: { task: "train", train: { method: "lora" } },
  train: { task: "train" },
};
const FIVE = {
  serve: ["engine", "quantization", "max_model_len", "max_num_seqs", "kv_cache_dtype"],
  gguf: ["engine", "gguf_quant", "n_ctx", "n_parallel", "cache_type_k"],
  mlx: ["engine", "quantization", "max_model_len", "max_kv_size", "kv_bits"],
  tune: ["method", "micro_batch_size", "sequence_length", "lora_rank", "checkpointing"],
  train: ["micro_batch_size", "sequence_length", "checkpointing", "optimizer", "precision"],
  many: ["fsdp", "zero_stage"],
  shared: ["tensor_parallel_size"],
  generate: ["quantization", "dtype", "batch_size", "prompt_tokens", "new_tokens"],
  pipeline: ["quantization", "dtype", "batch_size", "image_size", "offload"],
  video: ["num_frames"],
};

const SHARED_WHEN_TOLD = ["vllm", "sglang", "tgi", "tensorrt-llm"];
/* Engines that use one card of several unless told to share a model; llama.cpp and ollama share by themselves. */
const APPLE = /^(apple\b|m\d\b)/i;

let known = null;
let parts = null;
let made = "";
let replacing = false;
let lastModels = [];
let resolvedNow = {};
let restOpen = matchMedia("(min-width: 901px)").matches;

export const goalOf = (scenario) =>
  scenario.task !== "train" ? "run" : (settingsOf(scenario).method ?? "full") === "full" ? "train" : "tune";

export function startQuestion(keys) {
  known = keys;
  byId("question").addEventListener("submit", (event) => event.preventDefault());
}

function five(scenario) {
  const table = tableOf(scenario);
  const engine = settingsOf(scenario).engine ?? "vllm";
  const keys = table === "train" ? [...FIVE[goalOf(scenario)], ...((scenario.num_gpus ?? 1) > 1 ? FIVE.many : [])]
    : table === "generate" ? (madeOf(resolvedNow) ? [...FIVE.pipeline, ...(madeOf(resolvedNow).num_frames > 1 ? FIVE.video : [])] : FIVE.generate)
      : ["llama.cpp", "ollama"].includes(engine) ? FIVE.gguf : engine === "mlx" ? FIVE.mlx
        : [...FIVE.serve, ...((scenario.num_gpus ?? 1) > 1 && SHARED_WHEN_TOLD.includes(engine) ? FIVE.shared : [])];
  return keys.map((key) => `${table}.${key}`);
}

/* The form anew where other keys matter now, then every value in it. */
export function showQuestion(scenario, resolved, error) {
  resolvedNow = resolved ?? resolvedNow;
  const main = five(scenario);
  const shape = topics(known.keys, known.owners, scenario, resolvedNow, new Set(main));
  const signature = JSON.stringify([main, [...shape], document.documentElement.lang]);
  const typed = parts && document.activeElement === parts.count ? parts.count.value : null;
  if (signature !== made) {
    made = signature;
    replacing = true; // a field that is replaced loses the focus too
    build(scenario, main, shape);
    replacing = false;
  }
  for (const goal of Object.keys(GOALS)) put(byId(`goal-${goal}`), "checked", goalOf(scenario) === goal);
  parts.model.show(typeof scenario.model === "string" ? scenario.model : t("question.own_config"));
  parts.gpu.show(scenario.gpu ?? "");
  put(parts.count, "value", typed ?? String(scenario.num_gpus ?? 1));
  for (const one of parts.controls) one.show(scenario, resolvedNow, error);
  const facts = lastModels.find((one) => one.id === scenario.model || one.aliases.includes(scenario.model));
  put(parts.modelFacts, "textContent", facts ? [parameters(facts.num_parameters), facts.model_type].filter(Boolean).join(" · ") : "");
  if (error) fill(parts.problem, withoutCommand(said(error.message)), meant(error.message));
  put(parts.problem, "hidden", !error);
}

function build(scenario, main, shape) {
  const model = combobox({ id: "model", label: t("question.model"), placeholder: t("question.model_hint"), find: findModels,
    chosen: async (value) => {
      const isTrained = ["train", "load"].includes(state.scenario.task); // by the same task whatever the model
      const task = isTrained ? null : await taskOf(value);
      setScenario(runBy(task, { ...state.scenario, model: value }));
    } });
  const gpu = combobox({ id: "gpu", label: t("question.gpu"), placeholder: t("question.gpu_hint"), find: findCards,
    chosen: (value) => setScenario(withSettings(state.scenario, { gpu: value, gpu_total_bytes: null, ...engineOn(value) })) });
  const number = h("input", { id: "num_gpus", type: "number", min: 0, max: 16384, step: 1, "data-focus": "num_gpus",
    onchange: () => counted(number), onblur: () => counted(number),
    onkeydown: (event) => { if (event.key === "Enter") counted(number); } });
  const ownControls = main.map((path) => control(path));
  const mainControls = scenario.task === "train" && known.trainers ? [trainerChoice(known.trainers), ...ownControls] : ownControls;
  const opened = new Set([...byId("question").querySelectorAll("details[open]")].map((one) => one.dataset.topic));
  const more = [...shape].map(([topic, paths]) => folded(topic, paths, opened.has(topic)));
  parts = { model, gpu, count: number, controls: [...mainControls, ...more.flatMap((one) => one.controls)],
    modelFacts: h("small", { class: "help" }), problem: h("p", { class: "error", role: "alert", hidden: true }) };
  model.box.append(parts.modelFacts);
  fill(byId("question"),
    h("fieldset", { class: "goals" }, h("legend", {}, t("question.goal")), Object.entries(GOALS).map(([goal, start]) =>
      h("label", { class: "goal" }, h("input", { type: "radio", name: "goal", id: `goal-${goal}`, "data-focus": `goal-${goal}`,
        checked: goalOf(scenario) === goal, onchange: () => choose(start) }), h("span", {}, t(`goal.${goal}`))))),
    model.box,
    h("div", { class: "machine" }, gpu.box, h("div", { class: "field" }, h("label", { for: "num_gpus" }, t("question.num_gpus")), number)),
    parts.problem,
    h("h2", {}, t("question.matters")),
    h("div", { class: "fields" }, mainControls.map((one) => one.box)),
    h("details", { class: "rest", open: restOpen, ontoggle: (event) => { if (event.target.matches(".rest")) restOpen = event.target.open; } },
      h("summary", {}, t("question.all")), more.map((one) => one.box), isBrowser() ? tokenField() : null),
    h("button", { type: "button", class: "quiet reset", onclick: reset }, t("question.reset")));
}

/* A count that was typed while an answer came is still the one that is meant: it is taken from the field, once. */
function counted(number) {
  if (replacing) return;
  const many = number.value === "1" || number.value === "" ? null : Number(number.value);
  if (many !== (state.scenario.num_gpus ?? null)) apply({ num_gpus: many, ...sharedBy(many) });
}

/* Who counts several cards means all of them: the engine is told so, unless something else was said of how they share. */
function sharedBy(many) {
  const settings = settingsOf(state.scenario);
  const [before, shared] = [state.scenario.num_gpus ?? 1, settings.tensor_parallel_size ?? 1];
  const isPlain = !["pipeline_parallel_size", "data_parallel_size"].some((key) => (settings[key] ?? 1) > 1);
  const isOurs = tableOf(state.scenario) === "serve" && SHARED_WHEN_TOLD.includes(settings.engine ?? "vllm") && isPlain;
  return isOurs && (shared === 1 || shared === before) ? { "serve.tensor_parallel_size": many } : {};
}

/* The default engine is written for CUDA: on Apple's chips the question is asked about one that runs there. */
function engineOn(card) {
  const isOpen = tableOf(state.scenario) === "serve" && Object.keys(settingsOf(state.scenario)).length === 0;
  return isOpen && APPLE.test(card) ? { "serve.engine": "llama.cpp" } : {};
}

/* A pipeline of images or videos is run by another task than a language model: the goal stays, the task follows. */
function runBy(task, scenario) {
  if (task === null || scenario.task === "train" || scenario.task === "load") return scenario;
  if (task === "serve" && !(scenario.task === "generate" && madeOf(resolvedNow))) return scenario;
  const { serve, generate, ...rest } = scenario;
  const kept = task === "generate" ? generate : serve;
  return { ...rest, task, ...(kept ? { [task]: kept } : {}) };
}

/* What a pipeline makes, of a scenario that asks about one. */
const madeOf = (resolved) => (resolved?.generate?.image_size ? resolved.generate : null);

async function taskOf(model) {
  const isIt = (one) => [one.id, one.id.split("/").pop(), ...one.aliases].some((name) => name.toLowerCase() === model.toLowerCase());
  const found = lastModels.find(isIt) ?? (await ask("models", { query: model.slice(0, 200), limit: 40 })).models?.find(isIt);
  return found?.task ?? "serve";
}

/* An unknown name's nearest ones, or what a pipeline can be asked, to be taken by a press. */
function meant(message) {
  if (message.endsWith("expected generate or load")) {
    return h("span", { class: "row" }, h("button", { type: "button", "data-focus": "meant-0", onclick: () => choose(GOALS.run, true) }, t("goal.run")));
  }
  const found = /^unknown (model|GPU) ".*?": did you mean (.+?)\?/.exec(message);
  if (!found) return null;
  const key = found[1] === "model" ? "model" : "gpu";
  return h("span", { class: "row" }, found[2].split(", ").map((name, i) =>
    h("button", { type: "button", "data-focus": `meant-${i}`, onclick: () => setScenario({ ...state.scenario, [key]: name }) }, name)));
}

/* In the browser the page itself asks the hub; the token goes to the worker and nowhere else. */
function tokenField() {
  return h("div", { class: "field token" }, h("label", { for: "token" }, t("question.token")), h("input", { id: "token", type: "password", autocomplete: "off",
    "data-focus": "token", onchange: (event) => { hubToken(event.target.value.trim()); setScenario(state.scenario); } }), h("small", { class: "help" }, t("question.token_help")));
}

function choose(start, isPipeline = madeOf(resolvedNow) !== null) {
  if (start.task === "serve" && isPipeline) start = { task: "generate" };
  const { model, gpu, num_gpus, gpu_total_bytes } = state.scenario;
  const machine = { model, gpu, num_gpus, gpu_total_bytes };
  for (const key of Object.keys(machine)) if (machine[key] === undefined) delete machine[key];
  const train = get(state.scenario, "train");
  const kept = start.task === "train" && train ? { train: { ...train } } : {};
  if (kept.train) {
    for (const key of Object.keys(kept.train)) if (/^(method|quantization|lora_|dora|kbit)/.test(key)) delete kept.train[key];
    if (start.train) Object.assign(kept.train, start.train);
    if (Object.keys(kept.train).length === 0) delete kept.train;
  }
  setScenario({ ...machine, ...structuredClone(start), ...kept });
}

function reset() {
  const { model, task, gpu } = state.scenario;
  setScenario({ model, task, ...(gpu ? { gpu } : {}), ...(goalOf(state.scenario) === "tune" ? { train: { method: "lora" } } : {}) });
}

async function findModels(text) {
  const { models, near } = await ask("models", { query: text.trim(), limit: 40 });
  if (models) lastModels = models;
  return [
    ...(models ?? []).map((one) => ({ value: one.id, title: one.id,
      aside: [parameters(one.num_parameters), one.context ? `${count(one.context)} ${t("question.tokens")}` : ""].filter(Boolean).join(" · ") })),
    ...(near ?? []).map((one) => ({ value: one, title: one, aside: t("question.near") })),
    ...(text.trim() ? [{ title: t("question.on_hub", { text: text.trim() }), more: () => findOnHub(text.trim()) }] : []),
  ];
}

/* The hub hears of what was typed only where somebody asks for it. */
async function findOnHub(text) {
  const { names, error } = await ask("hub", { query: text, limit: 40 });
  if (error) return [{ title: said(error.message) }];
  return names.length ? names.map((one) => ({ value: one, title: one, aside: "huggingface.co" })) : [{ title: t("question.none_on_hub", { text }) }];
}

const USUAL = ["rtx-4090", "rtx-5090", "rtx-3090", "rtx-4060", "rtx-3060-12gb", "t4", "l4", "a10-pcie-24gb", "l40s", "a100-sxm-80gb",
  "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x"];

async function findCards(text) {
  const known = await gpus();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const of = (one) => ({ value: one.id, title: one.name, aside: one.memory_reported_bytes ? `${gib(one.memory_reported_bytes)} GiB` : one.memory_nominal_gb ? `${one.memory_nominal_gb} GB` : "" });
  if (words.length === 0) return USUAL.map((id) => known.find((one) => one.id === id)).filter(Boolean).map(of);
  return known.filter((one) => words.every((word) => `${one.name} ${one.id} ${one.vendor}`.toLowerCase().includes(word))).slice(0, 40).map(of);
}
