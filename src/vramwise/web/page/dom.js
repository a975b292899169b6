/* Elements from plain calls; text is always text, so that nothing of a file or an answer becomes markup. */

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/* Replaces what is in `parent`; the focus stays on the element with the same data-focus. */
export function fill(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  if (focused !== undefined) parent.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

/* Writes what is new alone: of what stands there already the browser would work out the layout again. */
export function put(element, name, value) {
  if (element[name] !== value) element[name] = value;
}

export function putAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function saved(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(`vramwise.${key}`);
    localStorage.setItem(`vramwise.${key}`, value);
  } catch {
    /* a frame without storage keeps nothing */
  }
  return null;
}

export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
