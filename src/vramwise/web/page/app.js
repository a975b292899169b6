/* Puts the page together: the question on the left, the answer and its views on the right, one scenario for all. */

import { showAnswer, showError } from "./answer.js";
import { ask, connect, newest } from "./api.js";
import { byId, fill, h, saved } from "./dom.js";
import { LANGUAGES, language, loadLanguage, t } from "./i18n.js";
import { showQuestion, startQuestion } from "./question.js";
import { onChange, readAddress, setView, state, useKeys } from "./state.js";
import * as cards from "./views/cards.js";
import * as change from "./views/change.js";
import * as compare from "./views/compare.js";
import * as files from "./views/files.js";
import * as map from "./views/map.js";
import * as right from "./views/right.js";
import * as share from "./views/share.js";
import * as why from "./views/why.js";

const VIEWS = { why, change, map, cards, compare, right, files, share };
const QUIET_MS = 160;
const estimated = newest("result");
let result = null;
let drawn = null;
let quiet = null;

async function main() {
  await loadLanguage();
  theme(saved("theme"));
  const starting = await connect(progress);
  document.documentElement.dataset.backEnd = starting.kind;
  document.documentElement.classList.toggle("embedded", new URLSearchParams(location.search).has("embed"));
  const known = await ask("keys", {});
  if (known.error) {
    progress("failed", known.error.message, 0);
    return;
  }
  useKeys(known.keys);
  startQuestion(known);
  readAddress();
  onChange(update);
  byId("language").addEventListener("click", switchLanguage);
  byId("theme").addEventListener("click", () => theme(dark() ? "light" : "dark"));
  window.addEventListener("hashchange", () => { readAddress(); update(state.scenario); });
  files.listen(byId("drop"), () => open("files"));
  tabs();
  await update(state.scenario);
}

async function update(scenario) {
  showQuestion(scenario, result?.scenario, null);
  const answer = await estimated(scenario);
  if (answer === null) return;
  if (answer.error) {
    showQuestion(scenario, result?.scenario, answer.error);
    showError(answer.error);
    return;
  }
  result = answer;
  document.documentElement.classList.add("ready");
  showResult();
  if (VIEWS[state.view].needs === "result") draw();
  else later();
}

function showResult() {
  showAnswer(result, (name) => {
    open("why");
    why.openTerm(byId("view"), name);
  });
  showQuestion(state.scenario, result.scenario, null);
}

/* Views that ask more wait until the hand rests. */
function later() {
  clearTimeout(quiet);
  quiet = setTimeout(draw, QUIET_MS);
}

function draw() {
  if (!result) return;
  const view = byId("view");
  const anew = drawn !== state.view;
  drawn = state.view;
  if (anew) view.replaceChildren();
  VIEWS[state.view].render(view, { result, scenario: state.scenario, anew });
  if (document.documentElement.classList.contains("embedded")) parent.postMessage({ vramwise: "height", height: document.body.scrollHeight }, "*");
}

function open(name) {
  setView(name);
  tabs();
  draw();
}

function tabs() {
  if (!(state.view in VIEWS)) state.view = "why";
  const names = Object.keys(VIEWS);
  const go = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    open(names[(names.indexOf(state.view) + step + names.length) % names.length]);
    byId(`tab-${state.view}`).focus();
  };
  fill(byId("tabs"), names.map((name) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.view),
    "aria-controls": "view", tabindex: name === state.view ? 0 : -1, "data-focus": `tab-${name}`, onclick: () => open(name), onkeydown: go }, t(`view.${name}`))));
  byId("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  for (const [id, text] of [["language", Object.entries(LANGUAGES).find(([one]) => one !== language)[1]], ["theme", t(dark() ? "page.light" : "page.dark")]]) byId(id).textContent = text;
  byId("language").lang = language === "zh" ? "en" : "zh-Hans";
}

async function switchLanguage() {
  await loadLanguage(language === "zh" ? "en" : "zh");
  tabs();
  drawn = null;
  if (result) {
    showResult();
    draw();
  }
  await update(state.scenario);
}

const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function theme(chosen) {
  if (chosen !== "light" && chosen !== "dark") return;
  document.documentElement.dataset.theme = chosen;
  saved("theme", chosen);
  byId("theme").textContent = t(dark() ? "page.light" : "page.dark");
}

function progress(what, loaded, total) {
  const where = byId("answer");
  if (what === "ready" || document.documentElement.classList.contains("ready")) return;
  const share = total > 0 ? ` ${Math.round((100 * loaded) / total)} %` : "";
  fill(where, h("p", { class: what === "failed" ? "error" : "starting", role: "status" }, what === "failed" ? `${t("start.failed")} ${loaded}` : `${t(`start.${what}`)}${share}`));
}

main();
