const element = (name, text, parent) => {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
};

const document_ = await (await fetch("openapi.json")).json();
const names = document.getElementById("names");
for (const [path, { post }] of Object.entries(document_.paths)) {
  const section = element("section", "", names);
  element("h2", path, section);
  element("p", post.summary, section);
  element("p", post.description, section).className = "body";
  const button = element("button", "ask with the body above", section);
  button.type = "button";
  const shown = element("pre", "", section);
  shown.hidden = true;
  button.addEventListener("click", async () => {
    const body = document.getElementById("body").value;
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(path, { method: "POST", headers, body });
    const text = await answer.text();
    shown.hidden = false;
    shown.textContent = `${answer.status}\n${text.length > 20000 ? `${text.slice(0, 20000)} …` : text}`;
  });
}

const keys = document.getElementById("keys");
const rows = (title, properties) => {
  element("h3", title, keys);
  const table = element("table", "", keys);
  for (const [key, schema] of Object.entries(properties)) {
    const row = element("tr", "", table);
    element("th", key, row).scope = "row";
    element("td", schema.description ?? "", row);
    element("td", schema.enum?.filter((one) => one !== null).join(", ") ?? schema.type ?? "", row);
  }
};
const { properties } = document_.components.schemas.Scenario;
const tables = ["train", "serve", "generate"];
rows("scenario", Object.fromEntries(Object.entries(properties).filter(([key]) => !tables.includes(key))));
for (const name of tables) {
  rows(name, properties[name].properties);
}
