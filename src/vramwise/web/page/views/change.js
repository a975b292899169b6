/* What saves most, as buttons that apply it; then the plan's options, which are searched on demand. */

import { changeText, word } from "../answer.js";
import { ask } from "../api.js";
import { fill, h } from "../dom.js";
import { suggestionsFor } from "../fixes.js";
import { chance, count, gib, interval, number, quantityText } from "../format.js";
import { composed, sentence, t } from "../i18n.js";
import { apply, setScenario, state } from "../state.js";

let planned = null;

export async function render(root, { scenario, result, anew }) {
  if (anew) fill(root, h("h2", {}, t("change.saves")), h("div", { class: "suggestions" }, h("p", { class: "waiting" }, t("page.working"))),
    h("h2", {}, t("change.plan")), h("p", { class: "lead" }, t("change.plan_help")), h("div", { class: "plan" }));
  showPlan(root.querySelector(".plan"), scenario);
  const where = root.querySelector(".suggestions");
  if (!result.verdict) return fill(where, h("p", {}, t("change.no_card")));
  const answer = await suggestionsFor(scenario);
  if (answer === null || !where.isConnected) return;
  if (answer.error) return fill(where, h("p", { class: "error" }, answer.error.message));
  fill(where, answer.suggestions.length === 0 ? h("p", {}, t("change.none")) : h("ol", { class: "options-list" }, answer.suggestions.map(suggestion)));
}

function suggestion(one, i) {
  const path = `suggestions.${i}`;
  return h("li", { class: "option" }, h("div", {}, h("code", {}, changeText(one.change)), sentence("small", {}, one.cost)),
    need(`${path}.total_needed`, one.total_needed),
    h("span", { class: "saves" }, t("change.saved"), " ", number(`${path}.saves_bytes`, one.saves_bytes, gib(one.saves_bytes)), " GiB"),
    word(one.fits ? "fits" : "does not fit"),
    h("button", { type: "button", class: "apply", "data-focus": `apply-${i}`, onclick: () => apply(one.change), "aria-label": `${t("change.apply")}: ${changeText(one.change)}` }, t("change.apply")));
}

const need = (path, size) => h("span", { class: "amount" }, number(`${path}.expected`, size.expected, gib(size.expected)), " GiB", interval(path, size.low, size.high));

function showPlan(where, scenario) {
  const asked = JSON.stringify(scenario);
  if (planned?.asked === asked) return fill(where, options(planned.answer));
  fill(where, h("button", { type: "button", "data-focus": "plan", onclick: async () => {
    fill(where, h("p", { class: "waiting", role: "status" }, t("change.searching")));
    const answer = await ask("plan", { scenario });
    if (JSON.stringify(state.scenario) !== asked) return;
    planned = { asked, answer };
    fill(where, options(answer));
  } }, t("change.search")));
}

function options(answer) {
  if (answer.error) return h("p", { class: "error" }, answer.error.message);
  if (answer.options.length === 0) return h("p", {}, t("change.nothing"), " ", sentence("span", {}, answer.binding));
  return [h("ol", { class: "options-list" }, answer.options.map((one, i) => h("li", { class: "option" },
    h("div", {}, h("code", {}, isAsAsked(one) ? t("change.as_asked") : one.words || changeText(one.change)), sentence("small", {}, one.cost)),
    need(`options.${i}.total_needed`, one.total_needed),
    h("span", { class: "saves" }, one.step_time_s ? [number(`options.${i}.step_time_s.expected`, one.step_time_s.expected, quantityText("step_time_s", one.step_time_s.expected)), ` ${t("change.a_step")}`]
      : one.tokens_per_second ? [number(`options.${i}.tokens_per_second.expected`, one.tokens_per_second.expected, quantityText("tokens_per_second", one.tokens_per_second.expected)), " tokens/s"] : null),
    h("span", {}, number(`options.${i}.probability`, one.probability, chance(one.probability))),
    isAsAsked(one) ? null : h("button", { type: "button", class: "apply", "data-focus": `plan-${i}`, onclick: () => take(one), "aria-label": `${t("change.apply")}: ${one.words}` }, t("change.apply"))))),
  h("p", { class: "lead" }, t("change.binding"), " ", sentence("span", {}, answer.binding), " · ", composed("change.searched", { count: number("searched", answer.searched, count(answer.searched)) }))];
}

/* The scenario itself, where it fits already. */
const isAsAsked = (one) => one.words === "as asked";

/* A plan's scenario is resolved; the change alone is applied where it says everything. */
function take(one) {
  if (Object.keys(one.change).length) apply(one.change);
  else setScenario(one.scenario);
}
