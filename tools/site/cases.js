/* The list of measured values: chosen, searched and sorted in the reader's browser; nothing is fetched. */
(() => {
  const HEAD = ["engine", "model", "card", "quantity", "measured", "estimated", "error", "inside", "source"];
  const MOST = 300;
  const chosen = { engine: "", quantity: "", words: "", outside: false, by: 6, up: false };
  const root = document.getElementById("measured");
  const node = (name, text, more = {}) => Object.assign(document.createElement(name), text === null ? {} : { textContent: text }, more);

  function choice(name, place) {
    const names = [...new Set(VALUES.map((value) => value[place]))].sort();
    const select = node("select", null, { onchange: () => { chosen[name] = select.value; show(); } });
    select.append(node("option", `every ${name}`, { value: "" }), ...names.map((one) => node("option", one, { value: one })));
    select.setAttribute("aria-label", name);
    return select;
  }

  function found() {
    const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
    return VALUES.filter((value) => (!chosen.engine || value[0] === chosen.engine) && (!chosen.quantity || value[3] === chosen.quantity)
      && (!chosen.outside || !value[7]) && words.every((word) => `${value[1]} ${value[2]} ${value[8]} ${value[9]}`.toLowerCase().includes(word)));
  }

  function order(a, b) {
    const [x, y] = [a[chosen.by], b[chosen.by]].map((one) => (chosen.by === 6 ? Math.abs(one ?? Infinity) : one));
    const sign = typeof x === "string" ? x.localeCompare(y) : x - y;
    return chosen.up ? sign : -sign;
  }

  function summary(values) {
    const errors = values.map((value) => Math.abs(value[6] ?? Infinity)).sort((a, b) => a - b);
    if (!errors.length) return "no such value";
    const at = (share) => errors[Math.min(errors.length - 1, Math.ceil(share * errors.length) - 1)].toFixed(1);
    const inside = (100 * values.filter((value) => value[7]).length) / values.length;
    return `${values.length.toLocaleString("en")} values: |error| ${at(0.5)} % in the median, ${at(0.9)} % at most for nine in ten; ${inside.toFixed(0)} % inside`
      + (values.length > MOST ? `; the first ${MOST} are shown` : "");
  }

  const said = node("p", "", { role: "status" });
  const body = node("tbody", null);
  function show() {
    const values = found();
    said.textContent = summary(values);
    body.replaceChildren(...values.sort(order).slice(0, MOST).map((value) => {
      const line = node("tr", null, { title: value[9] });
      const cells = [...value.slice(0, 6), value[6] === null ? "–" : `${value[6] > 0 ? "+" : ""}${value[6].toFixed(1)} %`, value[7] ? "yes" : "no", value[8]];
      line.append(...cells.map((cell) => node("td", typeof cell === "number" ? cell.toLocaleString("en") : cell)));
      return line;
    }));
  }

  const words = node("input", null, { type: "search", placeholder: "model, card, source", oninput: () => { chosen.words = words.value; show(); } });
  const outside = node("input", null, { type: "checkbox", onchange: () => { chosen.outside = outside.checked; show(); } });
  const label = node("label", " outside the interval alone");
  label.prepend(outside);
  const head = node("tr", null);
  head.append(...HEAD.map((name, place) => {
    const cell = node("th", null);
    cell.append(node("button", name, { type: "button", onclick: () => {
      chosen.up = chosen.by === place ? !chosen.up : typeof VALUES[0]?.[place] === "string";
      chosen.by = place;
      show();
    } }));
    return cell;
  }));
  const table = node("table", null);
  const top = node("thead", null);
  top.append(head);
  table.append(top, body);
  const choices = node("p", null);
  choices.append(choice("engine", 0), " ", choice("quantity", 3), " ", words, " ", label);
  root.replaceChildren(choices, said, table);
  show();
})();
