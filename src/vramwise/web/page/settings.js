/* One control for one key of a scenario, made from what the program says of the key. */

import { h, put, putAttribute } from "./dom.js";
import { count } from "./format.js";
import { named, t } from "./i18n.js";
import { apply, get, keyOf } from "./state.js";

const LENGTHS = [256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304, 131072];
const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const STEPS = {
  micro_batch_size: COUNTS.slice(0, 12), sequence_length: LENGTHS, max_model_len: LENGTHS, n_ctx: LENGTHS,
  max_num_seqs: COUNTS, n_parallel: COUNTS.slice(0, 10), lora_rank: [1, 2, 4, 8, 16, 32, 64, 128, 256],
  batch_size: COUNTS.slice(0, 12), prompt_tokens: LENGTHS, new_tokens: LENGTHS.slice(0, 9),
  max_num_batched_tokens: LENGTHS.slice(1, 13), tensor_parallel_size: [1, 2, 4, 8],
};

/* {box, show(scenario, resolved, error)} */
export function control(path, prefix = "") {
  const key = keyOf(path);
  const id = `${prefix}${path.replace(".", "-")}`;
  const problem = h("small", { class: "problem", id: `${id}-problem`, hidden: true });
  const label = h("label", { for: id }, h("span", { class: "says" }, named("help", path, key.help)), " ", h("code", {}, key.key));
  const whole = key.type === "choice" || key.type === "boolean" ? chooser(key, path, id) : typed(key, path, id, prefix);
  const box = h("div", { class: `field ${whole.wide ? "wide" : ""}` }, label, whole.parts, problem);
  whole.input.setAttribute("aria-describedby", `${id}-problem`);
  return {
    box,
    show(scenario, resolved, error) {
      whole.show(get(scenario, path), get(resolved, path) ?? key.default);
      const wrong = error?.path === path || error?.path === key.key;
      put(problem, "hidden", !wrong);
      put(problem, "textContent", wrong ? error.message : "");
      putAttribute(whole.input, "aria-invalid", String(wrong));
      box.classList.toggle("stated", get(scenario, path) !== undefined);
    },
  };
}

const said = (value) => (value === true ? t("question.yes") : value === false ? t("question.no") : typeof value === "object" ? JSON.stringify(value) : String(value));

function chooser(key, path, id) {
  const choices = key.type === "boolean" ? [true, false] : key.choices;
  const first = h("option", { value: "" }, "");
  const input = h("select", { id, "data-focus": id, onchange: () => {
    const value = input.value;
    apply({ [path]: value === "" ? null : key.type === "boolean" ? value === "true" : value });
  } }, first, choices.map((one) => h("option", { value: String(one) }, said(one))));
  return {
    input, parts: [input],
    show(value, resolved) {
      put(first, "textContent", resolved === null || resolved === undefined ? t("question.not_set") : t("question.default", { value: said(resolved) }));
      if (value !== undefined && ![...input.options].some((one) => one.value === String(value))) {
        input.append(h("option", { value: String(value) }, said(value)));
      }
      put(input, "value", value === undefined ? "" : String(value));
    },
  };
}

function typed(key, path, id) {
  const steps = STEPS[key.key];
  const numeric = key.type === "integer" || key.type === "number";
  const input = h("input", { id, type: "text", inputmode: numeric ? "decimal" : "text", autocomplete: "off", spellcheck: "false",
    "data-focus": id, onchange: () => {
      input.dataset.shown = input.value;
      apply({ [path]: read(key, input.value.trim()) });
    } });
  if (!steps) {
    return { input, parts: [input], show: (value, resolved) => showText(input, value, resolved) };
  }
  const slider = h("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": key.key,
    "data-focus": `${id}-slider`, oninput: () => {
      const value = steps[Number(slider.value)];
      input.value = input.dataset.shown = String(value);
      slider.setAttribute("aria-valuetext", count(value));
      apply({ [path]: value });
    } });
  return {
    input, wide: true, parts: [h("div", { class: "sliding" }, slider, input)],
    show(value, resolved) {
      showText(input, value, resolved);
      const now = value ?? resolved ?? steps[0];
      const near = steps.reduce((best, one, i) => (Math.abs(Math.log(one / now)) < Math.abs(Math.log(steps[best] / now)) ? i : best), 0);
      if (document.activeElement !== slider) put(slider, "value", String(near));
      putAttribute(slider, "aria-valuetext", count(now));
    },
  };
}

/* What is being typed while an answer comes stays. */
function showText(input, value, resolved) {
  if (document.activeElement === input && input.value !== (input.dataset.shown ?? "")) return;
  put(input.dataset, "shown", value === undefined ? "" : Array.isArray(value) ? value.join(", ") : said(value));
  put(input, "value", input.dataset.shown);
  put(input, "placeholder", resolved === null || resolved === undefined ? t("question.not_set") : Array.isArray(resolved) ? resolved.join(", ") : said(resolved));
}

function read(key, text) {
  if (text === "") return null;
  if (/^[[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  if (key.type === "list" && text !== "all-linear") return text.split(",").map((one) => one.trim()).filter(Boolean);
  const plain = text.replace(/(?<=\d),(?=\d{3}\b)/g, "");
  return ["integer", "number", "size"].includes(key.type) && plain !== "" && !Number.isNaN(Number(plain)) ? Number(plain) : text;
}

/* Keys that mean something for the scenario as it is resolved, by topic. */
export function topics(keys, owners, scenario, resolved, shown) {
  const table = scenario.task === "load" ? "serve" : scenario.task;
  const value = (key) => get(scenario, `${table}.${key}`) ?? get(resolved, `${table}.${key}`) ?? keyOf(`${table}.${key}`)?.default ?? null;
  const holds = (name) => {
    const owner = owners[name];
    if (!owner) return true;
    const now = value(owner.key);
    const own = owner.values.length ? owner.values.includes(now) : !owner.absent.some((one) => one === now) && now !== null;
    return own && (owner.within === null || holds(owner.within));
  };
  const found = new Map();
  for (const key of keys) {
    const path = key.table ? `${key.table}.${key.key}` : key.key;
    const mine = key.table === table || (key.table === "" && !["model", "task", "gpu", "num_gpus"].includes(key.key));
    const stated = get(scenario, path) !== undefined;
    if (!mine || shown.has(path) || (key.owners.length && !key.owners.some(holds) && !stated)) continue;
    const topic = key.table === "" ? "machine" : key.topic || topicOf(key.key);
    found.set(topic, [...(found.get(topic) ?? []), path]);
  }
  return found;
}

const TOPICS = [
  ["precision", /dtype|precision|quanti|fp8|kbit|imatrix|gguf/],
  ["optimizer", /optimizer|clip|gradient_(acc|rel)|set_to_none|distributed/],
  ["batch", /batch|sequence|pack|padd|sample|document|image|tokens|len$|seqs|beams|prompt/],
  ["parallel", /parallel|fsdp|zero|moe|expert|partition/],
  ["compute", /check|recomp|attention|loss|kernels|compile|eager|graph|expandable|head/],
  ["engine", /./],
];
const topicOf = (key) => TOPICS.find(([, pattern]) => pattern.test(key))[0];

export function folded(topic, paths, opened) {
  const title = named("topic", topic);
  const controls = paths.map((path) => control(path, "all-"));
  const box = h("details", { class: "topic", "data-topic": topic, open: opened }, h("summary", {}, title, h("small", {}, ` ${paths.length}`)),
    h("div", { class: "fields" }, controls.map((one) => one.box)));
  return { box, controls };
}

