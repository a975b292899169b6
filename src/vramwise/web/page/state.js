/* The scenario on screen: what was stated, nothing that is default. It stands in the address after `#`. */

const TABLES = ["train", "serve", "generate"];

let kinds = new Map();
let first = {};
const listeners = [];
export const state = { scenario: first, other: null, view: "why" };

/* `known`: the keys of a scenario, and the one that is asked while nobody has asked anything. */
export function useKeys(known) {
  kinds = new Map(known.keys.map((one) => [one.table ? `${one.table}.${one.key}` : one.key, one]));
  first = known.first;
}

export const isFirst = (scenario) => JSON.stringify(scenario) === JSON.stringify(first);

export const keyOf = (path) => kinds.get(path);
export const keysOf = (table) => [...kinds.values()].filter((one) => one.table === table);
export const tableOf = (scenario) => (scenario.task === "load" ? "serve" : scenario.task);
export const settingsOf = (scenario) => scenario[tableOf(scenario)] ?? {};
export const onChange = (listener) => listeners.push(listener);

/* "micro_batch_size" or "gpu": the path of a key under the scenario's own task. */
export function pathOf(scenario, key) {
  return kinds.has(key) ? key : `${tableOf(scenario)}.${key}`;
}

export function get(scenario, path) {
  return path.split(".").reduce((table, key) => table?.[key], scenario);
}

export function withSettings(scenario, changes) {
  const changed = structuredClone(scenario);
  for (const [path, value] of Object.entries(changes)) {
    const [table, key] = path.includes(".") ? path.split(".") : [null, path];
    const where = table === null ? changed : (changed[table] ??= {});
    if (value === null || value === undefined || value === "") delete where[key];
    else where[key] = value;
    if (table !== null && Object.keys(where).length === 0) delete changed[table];
  }
  return changed;
}

export function setScenario(scenario) {
  state.scenario = scenario;
  tell();
}

/* Keys without a table are the scenario's, or the task's where the scenario has none of that name. */
export function apply(changes) {
  const paths = Object.entries(changes).map(([key, value]) => [
    key.includes(".") ? key : pathOf(state.scenario, key),
    Array.isArray(value) && value.length === 0 ? null : value,
  ]);
  setScenario(withSettings(state.scenario, Object.fromEntries(paths)));
}

export function setOther(other) {
  state.other = other;
  tell();
}

export function setView(view) {
  state.view = view;
  writeAddress();
}

/* The address waits for the browser's own process: the question goes out first. */
function tell() {
  for (const listener of listeners) listener(state.scenario);
  writeAddress();
}

// -- the address ----------------------------------------------------------------------------------------------

const encoded = (text) => encodeURIComponent(text).replace(/%(2F|3A|2C|40)/g, decodeURIComponent);

export function addressOf(scenario) {
  const flat = [];
  for (const [key, value] of Object.entries(scenario)) {
    if (TABLES.includes(key)) for (const [inner, one] of Object.entries(value)) flat.push([`${key}.${inner}`, one]);
    else flat.push([key, value]);
  }
  return flat.map(([key, value]) => `${key}=${encoded(inAddress(value))}`).join("&");
}

function inAddress(value) {
  if (typeof value === "string") return value;
  return Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join(",") : JSON.stringify(value);
}

export function scenarioFrom(address) {
  const scenario = {};
  for (const [path, text] of new URLSearchParams(address.replace(/\+/g, "%2B"))) {
    const [table, key] = path.includes(".") ? path.split(".", 2) : [null, path];
    if (table === null && (key === "view" || key === "with")) continue;
    if (table !== null && !TABLES.includes(table)) continue;
    const where = table === null ? scenario : (scenario[table] ??= {});
    where[key] = fromAddress(text, kinds.get(path)?.type ?? "text");
  }
  return scenario;
}

function fromAddress(text, type) {
  if (type === "choice") return text;
  if (/^[[{]/.test(text) || ["integer", "number", "boolean", "size"].includes(type)) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return type === "list" && text !== "all-linear" ? text.split(",") : text;
}

export function readAddress() {
  const address = location.hash.slice(1);
  const values = new URLSearchParams(address);
  const scenario = scenarioFrom(address);
  state.scenario = scenario.model || scenario.task ? { model: first.model, task: first.task, ...scenario } : structuredClone(first);
  state.other = values.get("with") ? scenarioFrom(values.get("with")) : null;
  state.view = values.get("view") ?? "why";
}

function writeAddress() {
  const more = [];
  if (state.view !== "why") more.push(`view=${state.view}`);
  if (state.other) more.push(`with=${encodeURIComponent(addressOf(state.other))}`);
  history.replaceState(null, "", `#${[addressOf(state.scenario), ...more].join("&")}`);
}
