/* The cards that the program knows, asked for once, after the first answer or when somebody looks for one. */

import { ask } from "./api.js";

let asked = null;
const titles = new Map();

export async function gpus() {
  asked ??= ask("gpus", {}).then((answer) => {
    for (const one of answer.gpus ?? []) titles.set(one.id, one.name);
    return answer.gpus ?? [];
  });
  return asked;
}

/* What people call a card, with its size where it is sold with several; its id until the cards are here. */
export function titleOf(id) {
  if (titles.has(id)) return titles.get(id);
  const [, base, size] = /^(.+)-(\d+)gb$/.exec(id) ?? [];
  return titles.has(base) ? `${titles.get(base)} ${size} GB` : id;
}
