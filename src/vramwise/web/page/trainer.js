/* The choice of a trainer: what stands beside the step of plain fine-tuning, set by the scenario's own keys. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { apply, get, state } from "./state.js";

/* {box, show(scenario)}; `trainers`: names, the sequences that a sample is, and the settings that come along. */
export function trainerChoice(trainers) {
  const other = h("option", { value: "other", disabled: true }, t("trainer.other"));
  const input = h("select", { id: "trainer", "data-focus": "trainer", "aria-describedby": "trainer-help", onchange: () => choose(trainers, input.value) },
    trainers.map((one) => h("option", { value: one.name }, t(`trainer.${one.name}`))), other);
  const help = h("small", { class: "help", id: "trainer-help" });
  return {
    box: h("div", { class: "field" }, h("label", { for: "trainer" }, h("span", { class: "says" }, t("trainer.label"))), input, help),
    show(scenario) {
      const now = trainerOf(trainers, scenario);
      put(input, "value", now?.name ?? "other");
      put(other, "hidden", now !== null);
      input.parentElement.classList.toggle("stated", now !== trainers[0]);
      put(help, "textContent", now === null || now === trainers[0] ? "" : t(`trainer.${now.name}_help`));
    },
  };
}

const beside = (settings) => JSON.stringify([...(settings?.extra_models ?? [])].sort());

function trainerOf(trainers, scenario) {
  const now = beside(scenario.train);
  const fitting = trainers.filter((one) => beside(one.settings) === now);
  const isPair = (get(scenario, "train.micro_batch_size") ?? 1) % 2 === 0;
  return fitting.find((one) => one.sequences === (isPair ? 2 : 1)) ?? fitting[0] ?? null;
}

/* A micro batch counts sequences: it holds as many samples as before. */
function choose(trainers, name) {
  const chosen = trainers.find((one) => one.name === name);
  const before = trainerOf(trainers, state.scenario)?.sequences ?? 1;
  const asked = get(state.scenario, "train.micro_batch_size");
  const batch = Math.max(1, Math.round(((asked ?? 1) * chosen.sequences) / before));
  const brought = new Set(trainers.flatMap((one) => Object.keys(one.settings)));
  const changes = Object.fromEntries([...brought].map((key) => [`train.${key}`, chosen.settings[key] ?? null]));
  apply({ ...changes, ...(name === "grpo" ? {} : { "train.rollout_sleep": null }),
    "train.micro_batch_size": asked === undefined && batch === 1 ? null : batch });
}
