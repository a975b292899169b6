/* The same scenario on every usual card, the smallest first. */

import { word } from "../answer.js";
import { newest } from "../api.js";
import { fill, h } from "../dom.js";
import { chance, gib, number } from "../format.js";
import { t } from "../i18n.js";
import { setScenario, state, withSettings } from "../state.js";

const asked = newest("cards");

export async function render(root, { scenario, anew }) {
  if (anew) fill(root, h("p", { class: "waiting", role: "status" }, t("page.working")));
  const answer = await asked({ scenario });
  if (answer === null || state.view !== "cards") return;
  if (answer.error) return fill(root, h("p", { class: "error" }, answer.error.message));
  const rows = answer.cards.map((one, i) => ({ ...one, i })).sort((a, b) => a.usable_bytes - b.usable_bytes);
  const most = Math.max(...rows.map((one) => one.usable_bytes));
  fill(root, h("h2", {}, t("view.cards")), h("p", { class: "lead" }, t("cards.help")), h("div", { class: "scroll" }, h("table", { class: "list cards" },
    h("thead", {}, h("tr", {}, ["card", "usable", "needed", "", "verdict", "probability"].map((one) => one ? h("th", { scope: "col" }, t(`cards.${one}`)) : h("th", { scope: "col", class: "gauge" }, h("span", { class: "hidden" }, t("cards.bar")))))),
    h("tbody", {}, rows.map((one) => row(one, most, scenario))))));
}

function row(one, most, scenario) {
  const path = `cards.${one.i}`;
  const take = h("button", { type: "button", class: "link", "data-focus": `card-${one.gpu}`, "aria-pressed": String(scenario.gpu === one.gpu),
    onclick: () => setScenario(withSettings(state.scenario, { gpu: one.gpu, gpu_total_bytes: null })) }, one.name);
  if (one.error) return h("tr", {}, h("th", { scope: "row" }, take), h("td", {}, gib(one.usable_bytes)), h("td", { colspan: 4, lang: "en" }, one.error));
  return h("tr", { class: scenario.gpu === one.gpu ? "own" : "" }, h("th", { scope: "row" }, take),
    h("td", {}, number(`${path}.usable_bytes`, one.usable_bytes, gib(one.usable_bytes))),
    h("td", {}, number(`${path}.needed_bytes`, one.needed_bytes, gib(one.needed_bytes))),
    h("td", { class: "gauge", "aria-hidden": "true" }, h("span", { class: "gauge-room", style: { width: `${(100 * one.usable_bytes) / most}%` } },
      h("i", { class: one.word === "does not fit" ? "over" : "", style: { width: `${Math.min(100, (100 * one.needed_bytes) / one.usable_bytes)}%` } }))),
    h("td", {}, one.word ? word(one.word) : "–"),
    h("td", {}, one.probability === null ? "–" : number(`${path}.probability`, one.probability, chance(one.probability))));
}
