/* All texts of the page, one catalog a language. */

import { saved } from "./dom.js";

export const LANGUAGES = { en: "English", zh: "中文" };
let catalog = {};
let fallback = {};
export let language = "en";

export async function loadLanguage(chosen) {
  const wanted = chosen ?? saved("language") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  language = wanted in LANGUAGES ? wanted : "en";
  if (chosen) saved("language", chosen);
  const read = async (name) => (await fetch(`i18n/${name}.json`)).json();
  [catalog, fallback] = await Promise.all([read(language), read("en")]);
  document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.dataset.tLabel));
  }
}

export function t(key, values = {}) {
  const text = catalog[key] ?? fallback[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

/* The program's own word (a term, a moment, a counter) in this language, else as the program says it. */
export function named(group, word, otherwise = word) {
  return catalog[`${group}.${word}`] ?? otherwise;
}
