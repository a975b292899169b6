/* Puts the page together: the question on the left, the answer and its views on the right, one scenario for all. */

import { showAnswer, showCard, showError, showSummary } from "./answer.js";
import { ask, connect, newest } from "./api.js";
import { byId, fill, h, saved } from "./dom.js";
import { showFixes } from "./fixes.js";
import { gpus } from "./gpus.js";
import { LANGUAGES, language, loadLanguage, t } from "./i18n.js";
import { showQuestion, startQuestion } from "./question.js";
import { isFirst, onChange, readAddress, setView, state, useKeys } from "./state.js";
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
const page = document.documentElement;
let result = null;
let drawn = null;
let quiet = null;
let starting = null;
const loads = {};

async function main() {
  const [backEnd] = await Promise.all([connect(progress), loadLanguage()]);
  theme(saved("theme"));
  page.dataset.backEnd = backEnd.kind;
  page.classList.toggle("embedded", new URLSearchParams(location.search).has("embed"));
  byId("language").addEventListener("click", switchLanguage);
  byId("theme").addEventListener("click", () => theme(dark() ? "light" : "dark"));
  for (const id of ["skip", "summary"]) byId(id).addEventListener("click", toTheAnswer);
  const known = backEnd.start?.keys ?? await ask("keys", {});
  if (known.error) {
    progress("failed", known.error.message, 0);
    return;
  }
  useKeys(known);
  startQuestion(known);
  readAddress();
  onChange(update);
  window.addEventListener("hashchange", () => { readAddress(); update(state.scenario); });
  files.listen(byId("drop"), () => open("files"));
  new IntersectionObserver(([seen]) => page.classList.toggle("answer-seen", seen.isIntersecting), { rootMargin: "0px 0px -120px" }).observe(byId("answer"));
  tabs();
  if (backEnd.start && isFirst(state.scenario)) show(backEnd.start.result);
  await update(state.scenario);
  await gpus();
  if (result) showCard(result);
}

async function update(scenario) {
  const asked = estimated(scenario);
  showQuestion(scenario, result?.scenario, null);
  const answer = await asked;
  if (answer === null) return;
  if (answer.error) {
    showQuestion(scenario, result?.scenario, answer.error);
    showError(answer.error);
    return;
  }
  show(answer);
}

function show(answer) {
  result = answer;
  page.classList.add("ready");
  showResult();
  if (VIEWS[state.view].needs === "result") draw();
  later();
}

function showResult() {
  showAnswer(result, (name) => {
    open("why");
    why.openTerm(byId("view"), name);
  }, () => {
    open("why");
    why.showNotes(byId("view"));
  });
  showSummary(result);
  showQuestion(state.scenario, result.scenario, null);
}

/* What asks more waits until the hand rests. */
function later() {
  clearTimeout(quiet);
  quiet = setTimeout(() => {
    if (VIEWS[state.view].needs !== "result") draw();
    showFixes(byId("answer"), state.scenario, () => open("change"));
  }, QUIET_MS);
}

/* A view is drawn again where what it shows is new, or where it is asked for: what was opened, chosen or written in it stays. */
function draw(isAsked = false) {
  if (!result) return;
  const view = byId("view");
  const anew = drawn?.view !== state.view;
  const about = JSON.stringify([state.scenario, state.other]);
  const isSame = !anew && drawn.about === about && (drawn.result === result || JSON.stringify(drawn.result) === JSON.stringify(result));
  if (isSame && !isAsked) return;
  drawn = { view: state.view, about, result };
  if (anew) view.replaceChildren();
  VIEWS[state.view].render(view, { result, scenario: state.scenario, anew });
  if (page.classList.contains("embedded")) parent.postMessage({ vramwise: "height", height: document.body.scrollHeight }, "*");
}

function open(name) {
  setView(name);
  tabs();
  draw(true);
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
  showTools();
}

function showTools() {
  byId("language").textContent = Object.entries(LANGUAGES).find(([one]) => one !== language)[1];
  byId("language").lang = language === "zh" ? "en" : "zh-Hans";
  byId("theme").textContent = t(dark() ? "page.light" : "page.dark");
}

/* The address after # is the scenario's: to go to the answer leaves it as it is. */
function toTheAnswer(event) {
  event.preventDefault();
  byId("answer").focus({ preventScroll: true });
  byId("answer").scrollIntoView({ block: "start" });
}

async function switchLanguage() {
  await loadLanguage(language === "zh" ? "en" : "zh");
  tabs();
  drawn = null;
  if (starting) progress(...starting);
  if (result) {
    showResult();
    draw();
  }
  await update(state.scenario);
}

const dark = () => (page.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function theme(chosen) {
  if (chosen === "light" || chosen === "dark") {
    page.dataset.theme = chosen;
    saved("theme", chosen);
  }
  showTools();
}

/* What a worker says while it starts: above the answer where one stands there already, else in its place. */
function progress(what, loaded, total) {
  const failed = what === "failed";
  starting = what === "ready" ? null : [what, loaded, total];
  if (total > 0) loads[what] = { loaded: Math.min(loaded, total), total };
  const [done, whole] = Object.values(loads).reduce(([a, b], one) => [a + one.loaded, b + one.total], [0, 0]);
  const line = byId("starting");
  line.className = failed ? "error" : "starting";
  line.textContent = starting === null ? "" : failed ? `${t("start.failed")} ${loaded}`
    : what === "program" ? t("start.program") : done < whole ? `${t("start.package")} ${Math.floor((100 * done) / whole)} %` : t("start.runtime");
}

main();
