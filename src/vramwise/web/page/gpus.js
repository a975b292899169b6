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

/* What people call a card; its id until the cards are here. */
export const titleOf = (id) => titles.get(id) ?? id;
