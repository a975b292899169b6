/* How right is this? The measured cases nearest to the scenario, and the whole table of errors. */

import { ask, newest } from "../api.js";
import { fill, h } from "../dom.js";
import { count, isBytes, number, quantityText, signedPercent } from "../format.js";
import { composed, named, t } from "../i18n.js";
import { setScenario, state } from "../state.js";

const asked = newest("nearest");
let table = null;

export async function render(root, { scenario, anew }) {
  if (anew) fill(root, h("h2", {}, t("right.nearest")), h("p", { class: "lead" }, t("right.nearest_help")), h("div", { class: "nearest" }, h("p", { class: "waiting", role: "status" }, t("page.working"))),
    h("h2", {}, t("right.table")), h("p", { class: "lead" }, t("right.table_help")), h("div", { class: "accuracy" }));
  whole(root.querySelector(".accuracy"));
  const answer = await asked({ scenario, limit: 8 });
  const where = root.querySelector(".nearest");
  if (answer === null || !where) return;
  if (answer.error) return fill(where, h("p", { class: "error" }, answer.error.message));
  fill(where, answer.median_absolute_error === null ? null : h("p", { class: "finding" }, t("right.median"), " ",
    number("median_absolute_error", answer.median_absolute_error, `${(answer.median_absolute_error * 100).toFixed(1)} %`)),
  answer.cases.length ? cases(answer.cases) : h("p", {}, t("right.no_cases")));
}

/* One line a case; what was measured in it, quantity by quantity, when it is opened. */
function cases(rows) {
  return h("div", { class: "cases" }, rows.map((row, i) => {
    const model = row.scenario.model?.id ?? row.scenario.model;
    return h("details", { class: "case" }, h("summary", { "data-focus": `case-${i}` }, h("span", { class: "name" }, `${typeof model === "string" ? model : row.id} · ${row.engine}`, h("small", { lang: "en" }, row.source)), inShort(row, i)),
      h("div", { class: "inside" }, h("div", { class: "scroll" }, h("table", { class: "list" }, head(["quantity", "measured", "estimated", "error", "inside"]), h("tbody", {}, lines(row, i)))),
        h("button", { type: "button", onclick: () => setScenario(row.scenario) }, t("files.use"))));
  }));
}

function inShort(row, i) {
  const known = row.compared.map((one, j) => ({ ...one, j })).filter((one) => one.error !== null).sort((a, b) => Math.abs(a.error) - Math.abs(b.error));
  const worst = known.at(-1);
  const said = worst ? [h("span", {}, t("right.worst"), " ", number(`cases.${i}.compared.${worst.j}.error`, worst.error, signedPercent(worst.error)), h("small", {}, named("quantity", worst.quantity))),
    h("span", {}, t("right.inside"), " ", `${known.filter((one) => one.in_interval).length} / ${known.length}`)] : [];
  return row.oom ? [...said, h("span", {}, t("right.oom"), " ", h("small", {}, t(row.oom.measured === row.oom.expected ? "right.agrees" : "right.differs")))] : said;
}

function lines(row, i) {
  const compared = row.compared.map((one, j) => h("tr", {}, h("th", { scope: "row" }, named("quantity", one.quantity)),
    ["measured", "expected"].map((key) => h("td", {}, number(`cases.${i}.compared.${j}.${key}`, one[key], sized(one.quantity, one[key])))),
    h("td", {}, one.error === null ? "–" : number(`cases.${i}.compared.${j}.error`, one.error, signedPercent(one.error))), h("td", {}, t(one.in_interval ? "question.yes" : "question.no"))));
  if (row.oom) {
    compared.push(h("tr", {}, h("th", { scope: "row" }, t("right.oom")), h("td", {}, t(row.oom.measured ? "question.yes" : "question.no")), h("td", {}, t(row.oom.expected ? "question.yes" : "question.no")),
      h("td", {}, t(row.oom.measured === row.oom.expected ? "right.agrees" : "right.differs")), h("td", {}, "–")));
  }
  return compared;
}

const sized = (name, value) => `${quantityText(name, value)}${isBytes(name) ? " GiB" : ""}`;
const head = (names) => h("thead", {}, h("tr", {}, names.map((one) => h("th", { scope: "col" }, t(`right.${one}`)))));

function whole(where) {
  if (table) return fill(where, errors(table, where));
  if (where.hasChildNodes()) return undefined;
  return fill(where, h("button", { type: "button", "data-focus": "accuracy", onclick: () => load(where, "engine") }, t("right.work_out")));
}

async function load(where, by) {
  fill(where, h("p", { class: "waiting", role: "status" }, t("right.working")));
  const answer = await ask("accuracy", { by });
  if (answer.error) return fill(where, h("p", { class: "error" }, answer.error.message));
  table = { ...answer, by };
  return state.view === "right" ? fill(where, errors(table, where)) : undefined;
}

function errors(answer, where) {
  const share = (path, value, sign) => h("td", {}, value === null ? "–" : number(path, value, sign ? signedPercent(value) : `${(value * 100).toFixed(1)} %`));
  return [h("p", { class: "row" }, h("label", {}, t("right.by"), " ", h("select", { onchange: (event) => load(where, event.target.value) }, ["engine", "source", "specified"].map((one) => h("option", { value: one, selected: one === answer.by }, t(`right.by_${one}`))))),
    h("span", {}, composed("right.cases", { count: number("cases", answer.cases, count(answer.cases)) }))),
  h("div", { class: "scroll" }, h("table", { class: "list" }, head(["group", "quantity", "count", "median_error", "median_absolute", "p90", "worst", "inside", "width"]), h("tbody", {}, answer.rows.map((row, i) =>
    h("tr", {}, h("th", { scope: "row" }, row.group), h("td", {}, named("quantity", row.quantity)), h("td", {}, number(`rows.${i}.count`, row.count, count(row.count))),
      share(`rows.${i}.median_error`, row.median_error, true), share(`rows.${i}.median_absolute_error`, row.median_absolute_error), share(`rows.${i}.p90_absolute_error`, row.p90_absolute_error),
      share(`rows.${i}.worst_error`, row.worst_error, true), share(`rows.${i}.coverage`, row.coverage), share(`rows.${i}.median_width`, row.median_width))))))];
}
