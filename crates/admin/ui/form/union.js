// A value with one of several shapes: the user chooses the shape first.

import { fill, h } from "../dom.js";
import { framed, grouped, Purpose } from "./field.js";
import { alternatives, isObject, joined, MOST, own, resolved, typeOf, words } from "./schema.js";

/** The field for `oneOf` or `anyOf`. Keywords beside them apply to each shape. */
export function unionField(purpose, context) {
  const { anyOf, oneOf, default: given, ...base } = purpose.schema;
  const shapes = alternatives(purpose.schema).slice(0, MOST.variants).filter((one) => own(one, "type") !== "null")
    .map((one) => resolved(one, context.document).schema)
    .map((one) => ({ ...joined(base, one), title: one.title, description: one.description }));
  const inner = context.deeper();
  const start = startOf(shapes, purpose.given);
  const select = h("select", null, shapes.map((one, at) => h("option", { value: String(at), selected: at === start }, label(one, at))));
  const chooser = framed(new Purpose("shape", {}), select, "one of");
  const place = h("div", { class: "fields" });
  let field;
  const show = (value) => {
    field = inner.field(purpose.name, shapes[Number(select.value)], { isRequired: purpose.isRequired, isNullable: purpose.isNullable, given: value });
    fill(place, field.element);
  };
  select.addEventListener("change", () => show(undefined));
  show(purpose.given);
  const { element } = grouped(purpose, "one of", chooser.element, place);
  return { element, read: (problems) => field.read(problems) };
}

/** The most likely shape of a value: the one with most of its members as properties, or with its type. */
function startOf(shapes, value) {
  if (value === undefined) return 0;
  const type = Array.isArray(value) ? "array" : typeof value;
  const points = shapes.map((shape) => {
    if (!isObject(value)) return [type, type === "number" ? "integer" : type].includes(typeOf(shape)) ? 1 : 0;
    return Object.entries(value).reduce((sum, [name, member]) => {
      const property = own(shape.properties, name);
      if (property === undefined) return sum;
      const fixed = own(property, "const");
      if (fixed === undefined) return sum + 1;
      return fixed === member ? sum + 10 : sum - 10;
    }, 0);
  });
  return points.indexOf(Math.max(...points));
}

function label(shape, at) {
  const title = words(shape.title);
  if (title) return title;
  // A member with one allowed value often tells shapes apart.
  const fixed = Object.entries(isObject(shape.properties) ? shape.properties : {}).slice(0, MOST.fields).find(([, one]) => isObject(one) && Object.hasOwn(one, "const"));
  if (fixed) return `${fixed[0]}: ${JSON.stringify(fixed[1].const)}`.slice(0, 80);
  return typeOf(shape) ?? `shape ${at + 1}`;
}
