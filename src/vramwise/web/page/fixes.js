/* Below an answer that does not fit: the changes that make it fit, as buttons, in the program's own order. */

import { changeText } from "./answer.js";
import { newest } from "./api.js";
import { fill, h } from "./dom.js";
import { gib, number } from "./format.js";
import { t } from "./i18n.js";
import { apply } from "./state.js";

const MOST = 3;
const asked = newest("suggestions");
let kept = { scenario: null, answer: null };

/* The suggestions for a scenario, asked for once; null where a newer question overtook this one. */
export async function suggestionsFor(scenario) {
  const key = JSON.stringify(scenario);
  if (kept.scenario !== key) kept = { scenario: key, answer: asked(scenario) };
  return kept.answer;
}

export async function showFixes(root, scenario, onmore) {
  const where = root.querySelector(".fixes");
  if (!where) return;
  const answer = await suggestionsFor(scenario);
  if (answer === null || !where.isConnected) return;
  const more = h("button", { type: "button", class: "link", "data-focus": "fixes-more", onclick: onmore }, t("fixes.more"));
  if (answer.error) {
    fill(where, more);
    return;
  }
  const fitting = answer.suggestions.map((one, i) => ({ one, i })).filter(({ one }) => one.fits).slice(0, MOST);
  fill(where, h("span", {}, t(fitting.length ? "fixes.fits" : "fixes.none")), fitting.map(({ one, i }) =>
    h("button", { type: "button", class: "fix apply", "data-focus": `fix-${i}`, onclick: () => apply(one.change) },
      h("code", {}, changeText(one.change)), " ", h("span", { class: "n" }, number(`suggestions.${i}.total_needed.expected`, one.total_needed.expected, gib(one.total_needed.expected)), " GiB"))),
  more);
}
