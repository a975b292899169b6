/* The scenario to take away: as a command, a file, an address, a picture, a badge, or for another tool. */

import { ask, isBrowser, newest } from "../api.js";
import { download, fill, h } from "../dom.js";
import { sentence, t } from "../i18n.js";
import { pngBlob, svgBlob, labelsOf } from "../picture.js";
import { addressOf, state } from "../state.js";

const asked = newest("words");

export async function render(root, { scenario, result, anew }) {
  if (anew) fill(root, h("p", { class: "waiting", role: "status" }, t("page.working")));
  const words = await asked({ scenario, labels: labelsOf(result) });
  if (words === null || state.view !== "share") return;
  if (words.error) return fill(root, h("p", { class: "error" }, words.error.message));
  const page = location.href.split("#")[0].split("?")[0];
  const address = addressOf(scenario);
  fill(root, h("h2", {}, t("view.share")),
    words.command ? text("command", words.command) : null, text("address", `${page}#${address}`), text("toml", words.toml), text("json", words.json), text("markdown", words.markdown),
    text("frame", `<iframe src="${page}?embed#${address}" width="100%" height="520" title="vramwise"></iframe>`),
    text("element", `<script defer src="${new URL("element.js", page)}"></script>\n<vramwise-estimate scenario="${address.replaceAll("&", "&amp;")}"></vramwise-estimate>`),
    isBrowser() ? null : h("p", { class: "help embeds" }, t("share.embeds")),
    h("h3", {}, t("share.pictures")), h("p", { class: "row" },
      h("button", { type: "button", onclick: () => download("vramwise.svg", svgBlob(words.picture)) }, "SVG"),
      h("button", { type: "button", onclick: async () => download("vramwise.png", await pngBlob(words.picture)) }, "PNG"),
      h("button", { type: "button", onclick: () => download("vramwise-badge.svg", new Blob([words.badge], { type: "image/svg+xml" })) }, t("share.badge")),
      h("button", { type: "button", onclick: () => download("vramwise-result.json", new Blob([JSON.stringify(result)])) }, t("share.result")),
      h("button", { type: "button", onclick: () => print() }, t("share.print"))),
    exports(scenario, words.tools));
}

function text(name, value, title = t(`share.${name}`)) {
  const button = h("button", { type: "button", "data-focus": `copy-${title}`, "aria-label": `${t("share.copy")}: ${title}`, onclick: async () => {
    await copy(value);
    button.textContent = t("share.copied");
    setTimeout(() => { button.textContent = t("share.copy"); }, 1500);
  } }, t("share.copy"));
  return h("div", { class: "share", "data-share": name }, h("h3", {}, title), button, h("pre", { tabindex: 0, "aria-label": title }, value.trimEnd()));
}

/* A page without a secure origin has no clipboard of its own. */
async function copy(value) {
  try {
    await navigator.clipboard.writeText(value);
  } catch {
    const area = h("textarea", { value, class: "hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function exports(scenario, tools) {
  if (Object.keys(tools).length === 0) return null;
  const out = h("div", { class: "export", "aria-live": "polite" });
  const choice = h("select", { id: "tool" }, Object.entries(tools).map(([name, title]) => h("option", { value: name }, title)));
  return h("div", {}, h("h3", {}, t("share.tool")), h("p", { class: "row" }, h("label", { for: "tool" }, t("share.which_tool")), choice,
    h("button", { type: "button", "data-focus": "export", onclick: async () => fill(out, written(await ask("export", { scenario, tool: choice.value }))) }, t("share.write"))), out);
}

function written(answer) {
  if (answer.error) return sentence("p", { class: "error", role: "alert" }, answer.error.message);
  return [text("for_tool", answer.command), answer.files.map((one) => text("for_tool", one.text, one.path)),
    answer.not_expressed.length ? h("ul", { class: "notes" }, answer.not_expressed.map((one) => sentence("li", {}, one))) : null];
}
