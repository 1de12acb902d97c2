//! The differences of two JSON Schemas: whether fewer or more values are valid.
//!
//! A schema is read as alternatives, each for one type: `type: [string, null]`, `nullable` and
//! `anyOf` with both mean the same, and so do a `$ref` and its target. A change of unknown
//! direction, such as another `pattern`, counts as the more severe of both.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, pointer_name, pointer_step};

use super::values::{Paired, pair_up};
use super::{Change, Comparison, change_of, elements, members};

/// The types of values, as bits. An integer is a number, too.
const TYPES: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("object", OBJECT),
    ("array", ARRAY),
    ("string", STRING),
    ("integer", 32),
    ("number", NUMBER),
];
const OBJECT: u8 = 4;
const ARRAY: u8 = 8;
const STRING: u8 = 16;
const NUMBER: u8 = 96;
const ANY: u8 = 127;

/// The keywords that limit values of these types: those that set a minimum, those that set a
/// maximum, and those that limit in a way that cannot be weighed.
const LIMITS: [(u8, [&str; 3]); 5] = [
    (
        STRING,
        [
            "minLength",
            "maxLength",
            "pattern format contentEncoding contentMediaType",
        ],
    ),
    (
        NUMBER,
        [
            "minimum exclusiveMinimum",
            "maximum exclusiveMaximum",
            "multipleOf format",
        ],
    ),
    (
        ARRAY,
        [
            "minItems minContains",
            "maxItems maxContains",
            "uniqueItems contains unevaluatedItems",
        ],
    ),
    (
        OBJECT,
        [
            "minProperties",
            "maxProperties",
            "patternProperties propertyNames dependencies dependentRequired dependentSchemas unevaluatedProperties",
        ],
    ),
    (ANY, ["", "", "not if then else $dynamicRef"]),
];
/// The keywords that are read in other ways.
const READ: &str = "type nullable enum const anyOf oneOf allOf $ref $defs definitions properties required additionalProperties items prefixItems additionalItems examples $comment";
/// The limits of nested schemas, of parts that hold together, and of alternatives.
const DEPTH: usize = 32;
const PARTS: usize = 64;
const ALTERNATIVES: usize = 256;
/// The limit of compared pairs of schemas, since references can multiply them.
const PAIRS: usize = 20_000;

/// The kinds of changes by the use of a schema: clients send what an input schema allows, and get
/// what an output schema allows.
pub(super) struct Direction {
    /// A property is gone.
    gone: Change,
    /// An optional property is new.
    added: Change,
    /// A property became required.
    required: Change,
    /// Fewer values are valid.
    narrowed: Change,
    /// More values are valid.
    widened: Change,
    /// A change whose effect on the valid values is unknown.
    other: Change,
    /// Unknown properties became valid.
    opened: Change,
}

pub(super) const INPUT: Direction = Direction {
    gone: Change::ArgumentGone,
    added: Change::ArgumentAdded,
    required: Change::ArgumentRequired,
    narrowed: Change::InputNarrowed,
    widened: Change::InputWidened,
    other: Change::InputNarrowed,
    opened: Change::InputWidened,
};
pub(super) const OUTPUT: Direction = Direction {
    gone: Change::OutputWidened,
    added: Change::OutputNarrowed,
    required: Change::OutputNarrowed,
    narrowed: Change::OutputNarrowed,
    widened: Change::OutputWidened,
    other: Change::OutputWidened,
    // Results may have new members at any time.
    opened: Change::DefinitionChanged,
};

/// A schema or another value in a document, and its place.
#[derive(Clone)]
struct Part {
    pointer: String,
    json: Json,
}

/// Schemas that must all hold for a value: a schema with the targets of its `$ref` and `allOf`, and
/// one of its alternatives.
type Node = Vec<Part>;

/// A running comparison of two schemas.
struct Schemas<'a, 'b> {
    to: &'a mut Comparison<'b>,
    /// The whole schemas.
    was: Part,
    is: Part,
    direction: &'static Direction,
    /// The pairs of places that have been compared. A schema may contain itself.
    seen: HashSet<(String, String)>,
}

/// Compares two schemas at the current place.
pub(super) fn compare_schemas(
    to: &mut Comparison<'_>,
    was: &Json,
    is: &Json,
    direction: &'static Direction,
) {
    let pointer = &to.path.pointer;
    let [was, is] = [was, is].map(|json| Part {
        pointer: pointer.clone(),
        json: json.clone(),
    });
    let mut schemas = Schemas {
        to,
        was: was.clone(),
        is: is.clone(),
        direction,
        seen: HashSet::new(),
    };
    schemas.compare(&[was], &[is], DEPTH);
}

impl Part {
    /// The member of an object or element of an array with this name.
    fn child(&self, name: &str) -> Option<Self> {
        let json = match name.parse::<usize>() {
            Ok(index) if !self.json.is_object() => elements(&self.json).into_iter().nth(index),
            _ => self.json.get(name),
        };
        let pointer = format!("{}{}", self.pointer, pointer_step(name));
        json.map(|json| Self { pointer, json })
    }

    /// The schemas in an array.
    fn children(&self, name: &str) -> Vec<Self> {
        let array = self.child(name);
        let all = array.iter().flat_map(|array| {
            let all = elements(&array.json).into_iter().enumerate();
            all.map(|(at, json)| Self {
                pointer: format!("{}/{at}", array.pointer),
                json,
            })
        });
        all.collect()
    }

    /// The target of a reference within this document.
    fn target(&self, reference: &str) -> Option<Self> {
        let path = reference.strip_prefix('#')?;
        let is_path = path.is_empty() || path.starts_with('/');
        let mut steps = path.split('/').skip(1).map(pointer_name);
        is_path.then(|| steps.try_fold(self.clone(), |at, name| at.child(&name)))?
    }

    /// Adds a part of this document to a node, with its `$ref` and `allOf`.
    fn join(&self, part: &Self, node: &mut Node) {
        if node.len() == PARTS || node.iter().any(|known| known.pointer == part.pointer) {
            return;
        }
        node.push(part.clone());
        let reference = part.json.get("$ref");
        let target = reference.and_then(|to| self.target(&to.as_str()?));
        let all = part.children("allOf");
        let all = target.iter().chain(&all);
        all.for_each(|part| self.join(part, node));
    }

    /// The alternatives (`anyOf`, `oneOf`) of a node.
    fn alternatives(&self, node: Node, from: usize, all: &mut Vec<Node>) {
        let several = node.iter().enumerate().skip(from).find_map(|(at, part)| {
            let mut found = ["anyOf", "oneOf"].map(|key| part.children(key)).into_iter();
            Some((at, found.find(|found| !found.is_empty())?))
        });
        let Some((at, several)) = several else {
            return all.push(node);
        };
        for one in several {
            if all.len() < ALTERNATIVES {
                let mut node = node.clone();
                self.join(&one, &mut node);
                self.alternatives(node, at + 1, all);
            }
        }
    }

    /// The values that the part lists, each at the place of the list.
    fn values(&self) -> Option<Vec<Self>> {
        let list = self.child("enum");
        let all = list.as_ref().map(|list| elements(&list.json));
        let list = list.or_else(|| self.child("const"))?;
        let all = all.unwrap_or_else(|| vec![list.json.clone()]).into_iter();
        let value = |json: Json| Self {
            pointer: list.pointer.clone(),
            // Strings may be written in several ways.
            json: json.canonical().unwrap_or(json),
        };
        Some(all.map(value).collect())
    }

    /// The types that the part allows.
    fn types(&self) -> u8 {
        if self.json.as_text() == "false" {
            return 0;
        }
        let Some(named) = self.json.get("type") else {
            return self.values().map_or(ANY, |values| union(&values, type_of));
        };
        let names: Vec<Json> = elements(&named).into_iter().chain([named]).collect();
        let all = union(&names, |name| {
            let known = TYPES.iter().find(|(known, _)| name.is_str(known));
            known.map_or(0, |(_, bits)| *bits)
        });
        let is_nullable = self.json.flag("nullable");
        all | u8::from(is_nullable)
    }
}

/// The union of the bits of all values.
fn union<T>(all: &[T], bits: impl Fn(&T) -> u8) -> u8 {
    all.iter().fold(0, |found, one| found | bits(one))
}

/// The bits of a value's type. A listed number stands for all numbers.
fn type_of(value: &Part) -> u8 {
    match value.json.kind() {
        Kind::Null => 1,
        Kind::Bool => 2,
        Kind::Object => OBJECT,
        Kind::Array => ARRAY,
        Kind::String => STRING,
        Kind::Number => NUMBER,
    }
}

fn types(node: &Node) -> u8 {
    node.iter().fold(ANY, |all, part| all & part.types())
}

/// The first of the parts' members with this name.
fn keyword(node: &[Part], name: &str) -> Option<Part> {
    node.iter().find_map(|part| part.child(name))
}

/// The listed values of this type; `None` if a node does not list its values.
fn listed_values(nodes: &[Node], bits: u8) -> Option<Vec<Part>> {
    let of_each = nodes
        .iter()
        .map(|node| node.iter().find_map(Part::values))
        .collect::<Option<Vec<_>>>()?;
    let all = of_each.into_iter().flatten();
    Some(all.filter(|value| type_of(value) & bits != 0).collect())
}

/// The properties of a node by name, each with all its schemas.
fn properties(node: &[Part]) -> BTreeMap<String, Vec<Part>> {
    let mut all = BTreeMap::<String, Vec<Part>>::new();
    for object in node.iter().filter_map(|part| part.child("properties")) {
        for (name, json) in members(&object.json) {
            let pointer = format!("{}{}", object.pointer, pointer_step(&name));
            all.entry(name).or_default().push(Part { pointer, json });
        }
    }
    all
}

fn required(node: &[Part]) -> BTreeSet<String> {
    let all = node.iter().flat_map(|part| part.children("required"));
    all.filter_map(|name| name.json.to_str()).collect()
}

/// The mark of an alternative among others of its type: the first property with one value, else its
/// title.
fn mark(node: &[Part]) -> Option<String> {
    let constant = properties(node).into_iter().find_map(|(name, parts)| {
        let values = parts.iter().find_map(Part::values)?;
        match &*values {
            [only] => Some(format!("{name}={}", only.json.as_text())),
            _ => None,
        }
    });
    let title = || Some(keyword(node.get(1..)?, "title")?.json.as_text().to_owned());
    constant.or_else(title)
}

impl Schemas<'_, '_> {
    /// Reports a change at the earlier place; a new part at its new place.
    fn add(&mut self, change: Change, was: Option<&Part>, is: Option<&Part>) {
        if let Some(Part { pointer, .. }) = was.or(is) {
            let [was, is] = [was, is].map(|part| part.map(|part| &part.json));
            self.to.add_at(pointer, change, was, is);
        }
    }

    fn compare(&mut self, was: &[Part], is: &[Part], depth: usize) {
        let [Some(first), Some(other)] = [was, is].map(<[Part]>::first) else {
            return;
        };
        // A reference may lead to another schema.
        let is_same =
            |(was, is): (&Part, &Part)| was.json == is.json && !was.json.as_text().contains("$ref");
        let are_same = was.len() == is.len() && was.iter().zip(is).all(is_same);
        let places = (first.pointer.clone(), other.pointer.clone());
        if are_same || depth == 0 || !self.seen.insert(places) {
            return;
        }
        if self.seen.len() > PAIRS {
            return self.add(self.direction.other, Some(first), Some(other));
        }
        let read = |document: &Part, parts: &[Part]| {
            let (mut node, mut all) = (Node::new(), Vec::new());
            let parts = parts.iter();
            parts.for_each(|part| document.join(part, &mut node));
            document.alternatives(node.clone(), 0, &mut all);
            (node, all)
        };
        let ((was, before), (is, after)) = (read(&self.was, was), read(&self.is, is));
        self.annotations(&was, &is);
        let (old, new) = (union(&before, types), union(&after, types));
        let [named, names] = [&was, &is].map(|node| keyword(node, "type"));
        let place = named.as_ref().or(names.as_ref()).unwrap_or(first);
        let pointer = place.pointer.clone();
        let (left, right) = named
            .zip(names)
            .unwrap_or_else(|| (first.clone(), other.clone()));
        let left = Part { pointer, ..left };
        let Direction {
            narrowed, widened, ..
        } = *self.direction;
        for (bits, change) in [(old & !new, narrowed), (new & !old, widened)] {
            if bits != 0 {
                self.add(change, Some(&left), Some(&right));
            }
        }
        for bits in [2, OBJECT, ARRAY, STRING, NUMBER] {
            let [before, after] = [&before, &after].map(|all| {
                let all = all.iter().filter(|node| types(node) & bits != 0);
                all.cloned().collect::<Vec<Node>>()
            });
            if !before.is_empty() && !after.is_empty() {
                self.compare_type(bits, &before, &after, depth);
            }
        }
    }

    /// Compares what both schemas say about values of one type.
    fn compare_type(&mut self, bits: u8, before: &[Node], after: &[Node], depth: usize) {
        let Direction {
            narrowed, widened, ..
        } = *self.direction;
        let (listed, lists) = (listed_values(before, bits), listed_values(after, bits));
        if listed.is_some() || lists.is_some() {
            // Where no values are listed, all of them are valid.
            let (lost, gained) = match listed.is_some() && lists.is_some() {
                true => (narrowed, widened),
                false => (widened, narrowed),
            };
            self.add(lost, first_other(&listed, &lists), None);
            return self.add(gained, None, first_other(&lists, &listed));
        }
        // Alternatives belong together that have the same mark, that are equal, or that stand at
        // the same place.
        let keys = |nodes: &[Node]| {
            let keys = nodes.iter().map(|node| {
                let text = node.last().map(|part| part.json.as_text().to_owned());
                let mark = (bits == OBJECT).then(|| mark(node)).flatten();
                [mark, text, Some(String::new())]
            });
            keys.collect::<Vec<_>>()
        };
        let Paired { pairs, gone, new } = pair_up(&keys(before), &keys(after));
        for (was, is, _) in pairs {
            if let (Some(was), Some(is)) = (before.get(was), after.get(is)) {
                self.limits(bits, was, is, depth);
            }
        }
        let part = |all: &[Node], at: usize| all.get(at)?.last().cloned();
        for at in gone {
            self.add(narrowed, part(before, at).as_ref(), None);
        }
        for at in new {
            self.add(widened, None, part(after, at).as_ref());
        }
    }

    /// Compares the conditions for values of one type.
    fn limits(&mut self, bits: u8, was: &Node, is: &Node, depth: usize) {
        for (_, kinds) in LIMITS.into_iter().filter(|(about, _)| about & bits != 0) {
            for (weighing, names) in kinds.into_iter().enumerate() {
                for name in names.split_whitespace() {
                    let on = |part: &Part| part.json.as_text() != "false";
                    let [was, is] = [was, is].map(|node| keyword(node, name).filter(on));
                    let (was, is) = (was.as_ref(), is.as_ref());
                    if let Some(change) = self.weigh(weighing, bits, was, is) {
                        self.add(change, was, is);
                    }
                }
            }
        }
        match bits {
            OBJECT => self.objects(was, is, depth - 1),
            ARRAY => self.arrays(was, is, depth - 1),
            _ => {}
        }
    }

    /// The meaning of another limit; `None` if it makes no difference. `weighing` is the place of
    /// its kind in [`LIMITS`].
    fn weigh(
        &self,
        weighing: usize,
        bits: u8,
        was: Option<&Part>,
        is: Option<&Part>,
    ) -> Option<Change> {
        let none = match (weighing, bits) {
            (0, NUMBER) => f64::NEG_INFINITY,
            (0, _) => 0.0,
            _ => f64::INFINITY,
        };
        let number =
            |part: Option<&Part>| part.map_or(Some(none), |part| part.json.as_text().parse().ok());
        let text = |part: Option<&Part>| part.and_then(|part| part.json.canonical().ok());
        let is_narrower = match number(was).zip(number(is)).filter(|_| weighing < 2) {
            Some((was, is)) if was == is => return None,
            Some((was, is)) => (was < is) == (weighing == 0),
            None if text(was) == text(is) => return None,
            None if was.is_some() && is.is_some() => return Some(self.direction.other),
            None => was.is_none(),
        };
        Some(match is_narrower {
            true => self.direction.narrowed,
            false => self.direction.widened,
        })
    }

    fn objects(&mut self, was: &Node, is: &Node, depth: usize) {
        let direction = self.direction;
        let (before, after) = (properties(was), properties(is));
        let (needed, needs) = (required(was), required(is));
        let names = before.keys().chain(after.keys()).chain(&needed);
        for name in names.chain(&needs).collect::<BTreeSet<_>>() {
            let is_needed = needs.contains(name);
            match (before.get(name), after.get(name)) {
                (Some(was), None) => self.add(direction.gone, was.first(), None),
                (None, Some(is)) if is_needed => self.add(direction.required, None, is.first()),
                (None, Some(is)) => self.add(direction.added, None, is.first()),
                (both, _) => {
                    if let Some((was, is)) = both.zip(after.get(name)) {
                        self.compare(was, is, depth);
                    }
                    if needed.contains(name) == is_needed {
                        continue;
                    }
                    let list = || keyword(if is_needed { is } else { was }, "required");
                    let place = both.and_then(|parts| parts.first()).cloned();
                    let json = Json::string(name);
                    let part = place.or_else(list).map(|part| Part { json, ..part });
                    match is_needed {
                        true => self.add(direction.required, None, part.as_ref()),
                        false => self.add(direction.widened, part.as_ref(), None),
                    }
                }
            }
        }
        let [open, opens] = [was, is].map(|node| remaining_schema(node, "additionalProperties"));
        match (open.types(), opens.types()) {
            (0, 1..) => self.add(direction.opened, Some(&open), Some(&opens)),
            _ => self.compare(&[open], &[opens], depth),
        }
    }

    fn arrays(&mut self, was: &Node, is: &Node, depth: usize) {
        // Before 2020-12, `items` was the array.
        let [was, is] = [was, is].map(|node| {
            let keys = ["prefixItems", "items"].into_iter();
            let first = keys.flat_map(|key| node.iter().flat_map(move |part| part.children(key)));
            let items = remaining_schema(node, "items");
            let others = match items.json.kind() {
                Kind::Array => remaining_schema(node, "additionalItems"),
                _ => items,
            };
            (first.collect::<Vec<_>>(), others)
        });
        let ((before, open), (after, opens)) = (was, is);
        for at in 0..=before.len().max(after.len()) {
            let was = before.get(at).unwrap_or(&open).clone();
            let is = after.get(at).unwrap_or(&opens).clone();
            self.compare(&[was], &[is], depth);
        }
    }

    /// Compares what does not limit values.
    fn annotations(&mut self, was: &[Part], is: &[Part]) {
        let is_read = |name: &String| {
            let limits = LIMITS.iter().flat_map(|(_, kinds)| kinds);
            let mut read = limits
                .chain([&READ])
                .flat_map(|names| names.split_whitespace());
            read.any(|read| read == name)
        };
        let all = was.iter().chain(is).flat_map(|part| members(&part.json));
        let all: BTreeSet<String> = all.map(|(name, _)| name).collect();
        for name in all.into_iter().filter(|name| !is_read(name)) {
            let [before, after] = [was, is].map(|node| keyword(node, &name));
            let both = before.as_ref().zip(after.as_ref());
            if !both.is_some_and(|(was, is)| self.to.are_same(&was.json, &is.json)) {
                self.add(change_of(&name), before.as_ref(), after.as_ref());
            }
        }
    }
}

/// The first of `all` that is not among `others`.
fn first_other<'a>(all: &'a Option<Vec<Part>>, others: &Option<Vec<Part>>) -> Option<&'a Part> {
    let texts = others.iter().flatten().map(|other| other.json.as_text());
    let known: HashSet<&str> = texts.collect();
    let mut all = all.iter().flatten();
    all.find(|value| !known.contains(value.json.as_text()))
}

/// The schema of the remaining values; without one, any value is allowed.
fn remaining_schema(node: &[Part], name: &str) -> Part {
    keyword(node, name).unwrap_or_else(|| Part {
        pointer: node.first().map_or_else(String::new, |part| {
            format!("{}{}", part.pointer, pointer_step(name))
        }),
        json: Json::literal("true"),
    })
}
