/* All texts of the page, one catalog a language. */

import { h, saved } from "./dom.js";
import { learn, said } from "./sentences.js";

export const LANGUAGES = { en: "English", zh: "中文" };
const SAID = ["task", "quantity", "word", "term", "moment"];
let catalog = {};
let fallback = {};
export let language = "en";

export async function loadLanguage(chosen) {
  const wanted = chosen ?? saved("language") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  language = wanted in LANGUAGES ? wanted : "en";
  if (chosen) saved("language", chosen);
  const read = async (name) => (await fetch(`i18n/${name}.json`)).json();
  const sentences = language === "en" ? {} : read(`sentences.${language}`);
  const [own, english, others] = await Promise.all([read(language), read("en"), sentences]);
  [catalog, fallback] = [own, english];
  learn(language === "en" ? [] : Object.entries(own).filter(([key]) => SAID.includes(key.split(".")[0]))
    .map(([key, text]) => [key.slice(key.indexOf(".") + 1), text]), others);
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

/* A text as the children of an element, with elements where its names in braces stand. */
export function composed(key, values) {
  return (catalog[key] ?? fallback[key] ?? key).split(/\{(\w+)\}/).map((part, i) => (i % 2 === 0 ? part : values[part]));
}

/* The program's own word (a term, a moment, a counter) in this language, else as the program says it. */
export function named(group, word, otherwise = word) {
  return catalog[`${group}.${word}`] ?? said(otherwise);
}

/* An element with a sentence of the program's, marked as English where it is left so. */
export function sentence(tag, attributes, text) {
  const told = said(text);
  return h(tag, told === text && language !== "en" ? { ...attributes, lang: "en" } : attributes, told);
}
