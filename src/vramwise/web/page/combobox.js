/* A text field with a list of what is known below it (ARIA combobox); any other text is taken as it is. */

import { fill, h, put } from "./dom.js";

/* `find(text)` gives [{value, title, aside}], maybe later; `chosen(value)` is called on a choice or on Enter. An option with
   `more` instead of a value gives the options that stand in the list when it is chosen; one with neither is only read. */
export function combobox({ id, label, help, value, placeholder, find, chosen }) {
  let options = [];
  let at = -1;
  let asked = 0;
  let answered = Promise.resolve(); // then the list is that of what was typed
  const list = h("ul", { id: `${id}-list`, role: "listbox", class: "options", "aria-label": label, hidden: true });
  const input = h("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", value, placeholder,
    "aria-expanded": "false", "aria-controls": `${id}-list`, "aria-autocomplete": "list", "data-focus": id,
  });
  const close = () => {
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (text) => {
    close();
    input.value = text;
    if (text.trim() && text !== value) chosen((value = text.trim()));
  };
  const mark = (index) => {
    at = index;
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", `${id}-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  };
  const look = (text) => { answered = listed(find(text), ++asked); };
  const choose = (one) => {
    if (one.more) answered = listed(one.more(), ++asked);
    else if (one.value) take(one.value);
  };
  const listed = async (finding, number) => {
    list.setAttribute("aria-busy", "true");
    const found = await Promise.resolve(finding).finally(() => number === asked && list.removeAttribute("aria-busy"));
    if (number !== asked || document.activeElement !== input) return;
    options = found;
    fill(list, options.map((one, i) =>
      h("li", { id: `${id}-${i}`, role: "option", "aria-selected": "false", "aria-disabled": one.value || one.more ? null : "true",
        onmousedown: (event) => { event.preventDefault(); choose(one); } },
      h("span", {}, one.title), h("small", {}, one.aside ?? ""))));
    list.hidden = options.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    at = -1;
  };
  input.addEventListener("input", () => look(input.value));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => list.hidden && look(""));
  input.addEventListener("blur", () => { close(); take(input.value); });
  const keys = {
    ArrowDown: () => (list.hidden ? look(input.value === value ? "" : input.value) : mark(Math.min(at + 1, options.length - 1))),
    ArrowUp: () => mark(Math.max(at - 1, 0)),
    Enter: () => (at >= 0 ? choose(options[at]) : take(input.value)),
    Escape: () => { input.value = value; close(); },
  };
  input.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    answered.then(keys[event.key], keys[event.key]); // no key is for the list of a word half typed
  });
  const box = h("div", { class: "field combo" }, h("label", { for: id }, label), h("div", { class: "combo-box" }, input, list),
    help ? h("small", { class: "help" }, help) : null);
  const isTypedIn = () => document.activeElement === input && value !== undefined && input.value !== value;
  return { box, show: (text) => { if (!isTypedIn()) put(input, "value", (value = text)); } };
}
