/* The answer's own picture, which the program draws, as files: SVG and PNG. */

import { named, t } from "./i18n.js";

/* The words of the picture in the page's language. */
export function labelsOf(result) {
  const terms = result.phases.flatMap((phase) => phase.components.children.map((one) => one.name));
  const words = ["fits", "tight", "does not fit"];
  const moments = result.phases.map((one) => [one.name, named("moment", one.name)]);
  const pairs = [...moments, ...terms.map((one) => [one, named("term", one)]), ...words.map((one) => [one, named("word", one)])];
  return { ...Object.fromEntries(pairs), other: named("term", "other"), needs: t("share.needs"), usable: t("answer.usable") };
}

export const svgBlob = (text) => new Blob([text], { type: "image/svg+xml" });

export async function pngBlob(text) {
  const address = URL.createObjectURL(svgBlob(text));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.naturalWidth;
    canvas.height = 2 * image.naturalHeight;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
