/* Two scenarios side by side: one is kept, the other is the one on screen. */

import { word } from "../answer.js";
import { newest } from "../api.js";
import { fill, h } from "../dom.js";
import { count, gib, interval, number, signedGib } from "../format.js";
import { named, t } from "../i18n.js";
import { setOther, setScenario, state } from "../state.js";

const asked = newest("difference");

export async function render(root, { scenario }) {
  const keep = h("button", { type: "button", "data-focus": "keep", onclick: () => setOther(structuredClone(state.scenario)) }, t(state.other ? "compare.keep_again" : "compare.keep"));
  if (!state.other) return fill(root, h("h2", {}, t("view.compare")), h("p", { class: "lead" }, t("compare.help")), keep);
  if (!root.querySelector(".sides")) fill(root, h("p", { class: "waiting", role: "status" }, t("page.working")));
  const answer = await asked({ a: state.other, b: scenario });
  if (answer === null || state.view !== "compare" || !state.other) return;
  const tools = h("p", { class: "row" }, keep,
    h("button", { type: "button", "data-focus": "swap", onclick: () => { const other = state.other; state.other = state.scenario; setScenario(other); } }, t("compare.swap")),
    h("button", { type: "button", class: "quiet", "data-focus": "end", onclick: () => setOther(null) }, t("compare.end")));
  if (answer.error) return fill(root, tools, h("p", { class: "error" }, answer.error.message));
  const most = Math.max(1, ...answer.terms.map((one) => Math.abs(one.difference)));
  fill(root, h("h2", {}, t("view.compare")), tools,
    h("div", { class: "sides" }, side(answer, "a"), side(answer, "b"),
      h("div", { class: "side" }, h("h3", {}, t("compare.difference")), h("p", { class: "big" }, number("difference", answer.difference, signedGib(answer.difference)), " GiB"))),
    answer.settings.length ? [h("h3", {}, t("compare.settings")), h("div", { class: "scroll" }, h("table", { class: "list" }, head(["key", "a", "b"]), h("tbody", {}, answer.settings.map((one, i) =>
      h("tr", {}, h("th", { scope: "row" }, h("code", {}, one.key)), ["a", "b"].map((name) => h("td", {}, shown(`settings.${i}.${name}`, one[name]))))))))] : null,
    h("h3", {}, t("compare.terms")),
    h("div", { class: "scroll" }, h("table", { class: "list" }, head(["term", "a", "b", "difference"], h("td", { class: "gauge" })), h("tbody", {}, answer.terms.map((one, i) =>
      h("tr", {}, h("th", { scope: "row" }, one.path.split("/").map((part) => named("term", part)).join(" / ")), ["a", "b", "difference"].map((name) =>
        h("td", {}, number(`terms.${i}.${name}`, one[name], name === "difference" ? signedGib(one[name]) : gib(one[name])))),
      h("td", { class: "gauge", "aria-hidden": "true" }, h("i", { class: one.difference > 0 ? "more" : "less", style: { width: `${(100 * Math.abs(one.difference)) / most}%` } }))))))));
}

const shown = (path, value) => (value === null || value === undefined ? "–" : typeof value === "number" ? number(path, value, Number.isInteger(value) ? count(value) : String(value))
  : typeof value === "object" ? JSON.stringify(value) : String(value));
const head = (names, more = null) => h("thead", {}, h("tr", {}, names.map((one) => h("th", { scope: "col" }, t(`compare.${one}`))), more));

function side(answer, name) {
  const one = answer[name];
  return h("div", { class: "side" }, h("h3", {}, t(`compare.${name}`)), h("p", {}, one.model),
    h("p", { class: "big" }, number(`${name}.needed.expected`, one.needed.expected, gib(one.needed.expected)), " GiB"),
    h("p", {}, interval(`${name}.needed`, one.needed.low, one.needed.high), " ", one.verdict ? word(one.verdict.word) : null));
}
