/* What the program says in English sentences (notes, reasons, what a change costs), in another language: the texts and the
   rule of the command line (vramwise.cli.language). What the catalog lacks stays English. */

const FIGURES = "[\\d.,]+";
const WORDS = "(?:(?! · )[^;])+?";
const LONGEST = 1000;
const KEPT = new Set(["choices", "task", "task2"]);  // written as it is in every language: values of a key, commands
const BETWEEN = [[" · ", " · ", false], ["; ", "；", false], ["   ", "   ", false], [": ", "：", true], [", ", "，", true]];
const ASIDE = /^([^();]*[^(); ]) {0,2}\(([^]+)\)$/;
const NAME_AND_FIGURES = /^([█▓▒░▚▞] )?([^\d(–−]*[^\s\d(–−])(:| [\d(–−<×%./]?[\d.,()–−×%/: ]*)$/;
const ENGLISH = /(?<![\p{L}\d_-])[a-z]{2,}(?![\p{L}\d_.=-])/gu;

let texts = new Map();
let patterns = [];

/* `words`: names by their English; `sentences`: texts with names in braces for what differs from case to case. */
export function learn(words, sentences) {
  const whole = Object.entries(sentences).filter(([text]) => !text.includes("{"));
  texts = new Map([...words, ...whole]);
  const length = (text) => text.replace(/\{\w+\}/g, "").length;
  patterns = Object.entries(sentences).filter(([text]) => text.includes("{")).sort(([a], [b]) => length(b) - length(a))
    .map(([text, other]) => [pattern(text), other]);
}

function pattern(text) {
  const parts = text.split(/\{(\w+)\}/).map((part, i) => (i % 2 === 0 ? part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
    : `(?<${part}>${part === "n" || part === "n2" ? FIGURES : WORDS})`));
  return new RegExp(`^${parts.join("")}$`);
}

/* Where the names stand is said to those who type commands; here they are a press away. */
export const withoutCommand = (text) => text.replace(/\s*[(（]vramwise [a-z]+ (lists all|列出全部)[^)）]*[)）]/, "");

export function said(text) {
  const body = text.trim();
  if (texts.size === 0 || body === "" || text.length > LONGEST) return text;
  return text.replace(body, () => lookedUp(body));
}

function lookedUp(text) {
  if (texts.has(text)) return texts.get(text);
  if (/^(vramwise |\$ |= )/.test(text)) return text;
  for (const [one, other] of patterns) {
    const found = one.exec(text);
    if (found) return other.replace(/\{(\w+)\}/g, (_, name) => (KEPT.has(name) ? found.groups[name] : said(found.groups[name])));
  }
  const aside = ASIDE.exec(text);
  if (aside && said(aside[2]) !== aside[2]) return `${said(aside[1])}（${said(aside[2])}）`;
  const figures = NAME_AND_FIGURES.exec(text);
  if (figures && texts.has(figures[2])) return `${figures[1] ?? ""}${texts.get(figures[2])}${figures[3]}`;
  for (const [between, theirs, withinASentence] of BETWEEN) {
    if (!text.includes(between)) continue;
    const parts = text.split(between);
    const told = parts.map(said);
    const isLeft = (part, i) => part === told[i] && (part.match(ENGLISH) ?? []).length > 1;
    if (!withinASentence || !parts.some(isLeft)) return told.join(theirs);
  }
  return text;
}
