// A field for the content of a file, which is sent as base64 or as a data URL.

import { h } from "../dom.js";
import { size } from "../format.js";
import { framed } from "./field.js";

/** The largest file. Its base64 is a third larger, and `limits.requestBody` limits the request. */
const LARGEST = 8 * 1024 * 1024;

/** Whether a schema describes the content of a file. */
export function isFile(schema) {
  return schema.contentEncoding === "base64" || ["byte", "binary", "base64", "data-url"].includes(schema.format);
}

export function fileField(purpose) {
  const { schema, name, isRequired, isNullable } = purpose;
  const isUrl = schema.format === "data-url";
  const text = h("textarea", { rows: 3, class: "mono", spellcheck: false, value: typeof purpose.given === "string" ? purpose.given : "", placeholder: isUrl ? "or a data: URL" : "or its base64" });
  const said = h("p", { class: "note", role: "status" });
  const file = h("input", { type: "file", "aria-label": `File for ${name}` });
  if (typeof schema.contentMediaType === "string") file.accept = schema.contentMediaType.slice(0, 200);
  const field = framed(purpose, text, isUrl ? "data URL" : "base64", file, said);
  let reading = 0;
  file.addEventListener("change", async () => {
    field.clear();
    reading += 1;
    const mine = reading;
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > LARGEST) {
      said.textContent = `${chosen.name} has ${size(chosen.size)}; at most ${size(LARGEST)} can be sent from here`;
      return;
    }
    const url = await dataUrl(chosen).catch(() => undefined);
    if (mine !== reading) return;
    if (url === undefined) {
      said.textContent = `The browser cannot read ${chosen.name}`;
      return;
    }
    text.value = isUrl ? url : url.slice(url.indexOf(",") + 1);
    said.textContent = `${chosen.name}, ${size(chosen.size)}`;
  });
  const read = (problems) => {
    field.clear();
    const value = isUrl ? text.value.trim() : text.value.replace(/\s+/g, "");
    if (value === "") return isRequired && !isNullable ? field.fail(problems, `${name} is required: choose a file`) : purpose.absent("null");
    if (!isUrl && !/^[A-Za-z0-9+/_-]*={0,2}$/.test(value)) return field.fail(problems, `${name} must be base64`);
    if (isUrl && !value.startsWith("data:")) return field.fail(problems, `${name} must be a data: URL`);
    return JSON.stringify(value);
  };
  return { element: field.element, read };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
