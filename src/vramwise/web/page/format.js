/* Numbers as people read them. Every number on the page is one of these: `data-path` says where it stands in the
   answer's JSON, `data-value` what stands there. */

import { h } from "./dom.js";
import { t } from "./i18n.js";

const GIB = 2 ** 30;
const fixed = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const plain = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

const LONGEST = 1e7; // GiB: beyond it no machine is meant, and digits would only push one another off the screen

export function gib(bytes) {
  const size = bytes / GIB;
  return Math.abs(size) < LONGEST ? fixed.format(size) : size.toExponential(2).replace("e+", "e");
}
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
