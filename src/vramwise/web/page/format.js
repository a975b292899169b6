/* Numbers as people read them. Every number on the page is one of these: `data-path` says where it stands in the
   answer's JSON, `data-value` what stands there. */

import { h } from "./dom.js";
import { t } from "./i18n.js";

const GIB = 2 ** 30;
const fixed = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const plain = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

export const gib = (bytes) => fixed.format(bytes / GIB);
export const count = (value) => plain.format(value);
export const percent = (share) => {
  const shown = Math.round(share * 100);
  return `${share > 0 && shown === 0 ? "< 1" : shown} %`;
};
/* Cut and not rounded, as the program does: 94.9 % is below 95 %. */
export const chance = (probability) => {
  const shown = Math.floor(probability * 100);
  return `${probability > 0 && shown === 0 ? "< 1" : shown} %`;
};
export function signedPercent(share) {
  const shown = Math.abs(share * 100).toFixed(1);
  return `${shown === "0.0" ? "" : share < 0 ? "−" : "+"}${shown} %`;
}
export const signedGib = (bytes) => `${bytes < 0 ? "−" : bytes > 0 ? "+" : ""}${gib(Math.abs(bytes))}`;

export function sizeText(bytes) {
  const size = Math.abs(bytes);
  if (size >= 0.01 * GIB) return `${gib(bytes)} GiB`;
  if (size >= 2 ** 20) return `${fixed.format(bytes / 2 ** 20)} MiB`;
  return size >= 1024 ? `${fixed.format(bytes / 1024)} KiB` : `${plain.format(bytes)} B`;
}

export function parameters(number) {
  if (!number) return "";
  const [unit, by] = number >= 1e12 ? ["T", 1e12] : number >= 1e9 ? ["B", 1e9] : ["M", 1e6];
  return `${(number / by).toPrecision(3).replace(/\.0+$/, "")} ${unit}`;
}

export const number = (path, value, text) =>
  h("span", { class: "n", "data-path": path, "data-value": typeof value === "object" ? JSON.stringify(value) : value }, text);
export const size = (path, bytes) => number(path, bytes, sizeText(bytes));

/* (low – high), nothing where it is no wider than its last digit. */
export function interval(path, low, high, text = gib) {
  if (low === undefined || high === undefined || text(low) === text(high)) return null;
  return h("span", { class: "interval", title: t("answer.interval_help") }, " (", number(`${path}.low`, low, text(low)), " – ",
    number(`${path}.high`, high, text(high)), ")");
}

const BYTES = new Set(["weights", "kv_cache_bytes", "activation_peak", "non_torch", "cuda_graph", "cuda_graph_estimate",
  "peak_allocated", "peak_reserved", "peak_active", "nvidia_smi", "total_needed", "weights_gpu", "weights_host",
  "compute_buffer", "host_buffer", "output_buffer", "recurrent_state_bytes", "host_memory"]);
export const isBytes = (name) => BYTES.has(name);

export function quantityText(name, value) {
  if (BYTES.has(name)) return gib(value);
  if (name === "step_time_s") return `${value.toPrecision(3)} s`;
  return Number.isInteger(value) ? count(value) : Math.abs(value) >= 100 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
}

/* The same term has the same colour in every picture, and large ones that stand side by side have different ones; names
   that are new take one by their letters. */
const COLOURS = { weights: 0, "model weights": 0, activations: 1, "activation peak": 1, "warm-up prefill": 1, "KV cache": 2, "gathered weights": 2,
  "master weights": 2, "logits and loss": 3, "profile run: sampler": 3, "optimizer states": 4, "sampler state": 4, "runtime pool": 4, gradients: 5,
  "gradient buckets": 9, "fp32 gradients": 6, "gradients as one": 7, "unsharded gradients": 9, "reduce-scatter": 6, adapters: 6, "non-torch": 6,
  "forward temporaries": 7, "backward temporaries": 7, "compute buffer": 7, NCCL: 7, "dummy gradients": 3, "CUDA context": 8, "library workspace": 9,
  "library workspaces": 9, "CUDA graphs": 9, other: 8 };
export function colourOf(name) {
  if (name in COLOURS) return COLOURS[name];
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return [3, 4, 5, 6, 7, 9][sum % 6];
}
