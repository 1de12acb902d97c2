//! The differences of two JSON Schemas: whether fewer or more values are valid.
//!
//! A schema is read as alternatives, each for one type: `type: [string, null]`, `nullable` and
//! `anyOf` with both mean the same, and so do a `$ref` and its target. A change of unknown direction,
//! such as another `pattern`, counts as the more severe of both.

use std::collections::{BTreeMap, HashSet};
use std::slice::from_ref;

use fanlight_protocol::Json;
use fanlight_protocol::json::pointer_step;

use super::path::name;
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

/// How a keyword limits values.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Least,
    Most,
    /// In a way that cannot be weighed.
    Other,
}

/// The keywords that limit values, and the types that they are about.
const LIMITS: [(&str, u8, Limit); 31] = [
    ("minLength", STRING, Limit::Least),
    ("maxLength", STRING, Limit::Most),
    ("pattern", STRING, Limit::Other),
    ("format", STRING | NUMBER, Limit::Other),
    ("contentEncoding", STRING, Limit::Other),
    ("contentMediaType", STRING, Limit::Other),
    ("minimum", NUMBER, Limit::Least),
    ("exclusiveMinimum", NUMBER, Limit::Least),
    ("maximum", NUMBER, Limit::Most),
    ("exclusiveMaximum", NUMBER, Limit::Most),
    ("multipleOf", NUMBER, Limit::Other),
    ("minItems", ARRAY, Limit::Least),
    ("maxItems", ARRAY, Limit::Most),
    ("minContains", ARRAY, Limit::Least),
    ("maxContains", ARRAY, Limit::Most),
    ("uniqueItems", ARRAY, Limit::Other),
    ("contains", ARRAY, Limit::Other),
    ("unevaluatedItems", ARRAY, Limit::Other),
    ("minProperties", OBJECT, Limit::Least),
    ("maxProperties", OBJECT, Limit::Most),
    ("patternProperties", OBJECT, Limit::Other),
    ("propertyNames", OBJECT, Limit::Other),
    ("dependencies", OBJECT, Limit::Other),
    ("dependentRequired", OBJECT, Limit::Other),
    ("dependentSchemas", OBJECT, Limit::Other),
    ("unevaluatedProperties", OBJECT, Limit::Other),
    ("not", ANY, Limit::Other),
    ("if", ANY, Limit::Other),
    ("then", ANY, Limit::Other),
    ("else", ANY, Limit::Other),
    ("$dynamicRef", ANY, Limit::Other),
];
/// The keywords that are read in other ways.
const READ: [&str; 18] = [
    "type",
    "nullable",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "examples",
    "$comment",
];
/// The limits of nested schemas, of parts that hold together, and of alternatives.
const DEPTH: usize = 32;
const PARTS: usize = 64;
const ALTERNATIVES: usize = 256;

/// The use of a schema: clients send what an input schema allows, and get what an output schema
/// allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Input,
    Output,
}

/// A schema and its place.
#[derive(Clone)]
struct Part {
    pointer: String,
    json: Json,
}

/// Schemas that hold together: one with the targets of its `$ref` and `allOf`, and one of its
/// alternatives.
type Node = Vec<Part>;

/// A text that is equal for alternatives that belong together.
type Key<'a> = &'a dyn Fn(&Node) -> Option<String>;

/// One of two schemas.
struct Document<'a> {
    root: &'a Json,
    pointer: String,
}

/// A running comparison of two schemas.
struct Schemas<'a, 'b, 'c> {
    to: &'a mut Comparison<'b>,
    was: Document<'c>,
    is: Document<'c>,
    direction: Direction,
    /// The pairs of places that have been compared. A schema may contain itself.
    seen: HashSet<(String, String)>,
}

/// Compares two schemas at the current place.
pub(super) fn compare_schemas(
    to: &mut Comparison<'_>,
    was: &Json,
    is: &Json,
    direction: Direction,
) {
    if was == is {
        return;
    }
    let pointer = &to.path.pointer;
    let [was, is] = [was, is].map(|root| Document {
        root,
        pointer: pointer.clone(),
    });
    let (old, new) = (vec![was.whole()], vec![is.whole()]);
    let seen = HashSet::new();
    Schemas {
        to,
        was,
        is,
        direction,
        seen,
    }
    .compare(&old, &new, DEPTH);
}

impl Document<'_> {
    fn whole(&self) -> Part {
        let (pointer, json) = (self.pointer.clone(), self.root.clone());
        Part { pointer, json }
    }

    /// The target of a reference within the document.
    fn target(&self, reference: &str) -> Option<Part> {
        let steps = reference.strip_prefix('#')?;
        let is_path = steps.is_empty() || steps.starts_with('/');
        let mut steps = steps.split('/').skip(1).filter(|_| is_path).map(name);
        is_path.then(|| steps.try_fold(self.whole(), |at, name| at.child(&name)))?
    }

    /// The parts that hold together with these.
    fn joined(&self, parts: &[Part]) -> Node {
        let mut node = Node::new();
        parts.iter().for_each(|part| self.join(part, &mut node));
        node
    }

    fn join(&self, part: &Part, node: &mut Node) {
        if node.len() == PARTS || node.iter().any(|known| known.pointer == part.pointer) {
            return;
        }
        node.push(part.clone());
        let target = part
            .json
            .get("$ref")
            .and_then(|to| self.target(&to.as_str()?));
        let all = part.children("allOf");
        target
            .iter()
            .chain(&all)
            .for_each(|part| self.join(part, node));
    }

    /// The alternatives of parts that hold together.
    fn alternatives(&self, node: Node, from: usize, all: &mut Vec<Node>) {
        let several = node.iter().enumerate().skip(from).find_map(|(at, part)| {
            let keys = ["anyOf", "oneOf"].into_iter();
            let found = keys
                .map(|key| part.children(key))
                .find(|found| !found.is_empty());
            found.map(|found| (at, found))
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
}

impl Part {
    /// The member of an object or element of an array with this name.
    fn child(&self, name: &str) -> Option<Self> {
        let json = match name.parse::<usize>() {
            Ok(index) if !self.json.is_object() => elements(&self.json).into_iter().nth(index),
            _ => self.json.get(name),
        };
        let pointer = format!("{}{}", self.pointer, pointer_step(name));
        Some(Self {
            pointer,
            json: json?,
        })
    }

    /// The schemas in an array.
    fn children(&self, name: &str) -> Vec<Self> {
        let array = self.child(name);
        let count = array
            .as_ref()
            .map_or(0, |array| array.json.elements().count());
        let all = (0..count).filter_map(|at| array.as_ref()?.child(&at.to_string()));
        all.collect()
    }

    /// The values that the part lists.
    fn values(&self) -> Option<Vec<Json>> {
        let values = self.json.get("enum").map(|all| elements(&all));
        values.or_else(|| self.json.get("const").map(|one| vec![one]))
    }

    /// The types that the part allows.
    fn types(&self) -> u8 {
        if self.json.as_text() == "false" {
            return 0;
        }
        let bits = |name: &str| {
            TYPES
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, bits)| *bits)
        };
        let Some(named) = self.json.get("type") else {
            let values = self
                .values()
                .map(|values| values.iter().map(type_of).fold(0, |all, bits| all | bits));
            return values.unwrap_or(ANY);
        };
        let names = elements(&named).into_iter().chain([named]);
        let all = names
            .filter_map(|name| bits(&name.as_str()?))
            .fold(0, |all, bits| all | bits);
        let is_nullable = self.json.get("nullable").is_some_and(|flag| flag.is_true());
        all | u8::from(is_nullable)
    }
}

/// The bits of a value's type. A listed number stands for all numbers.
fn type_of(value: &Json) -> u8 {
    use fanlight_protocol::json::Kind;
    match value.kind() {
        Kind::Null => 1,
        Kind::Bool => 2,
        Kind::Object => OBJECT,
        Kind::Array => ARRAY,
        Kind::String => STRING,
        Kind::Number => NUMBER,
    }
}

fn types(node: &[Part]) -> u8 {
    node.iter()
        .map(Part::types)
        .fold(ANY, |all, bits| all & bits)
}

/// The first of the parts' members with this name.
fn keyword(node: &[Part], name: &str) -> Option<Part> {
    node.iter().find_map(|part| part.child(name))
}

/// The values of this type that a node lists, and their place.
fn listed(node: &Node, bits: u8) -> Option<(Vec<Json>, String)> {
    let (part, values) = node.iter().find_map(|part| Some((part, part.values()?)))?;
    let name = if part.json.get("enum").is_some() {
        "enum"
    } else {
        "const"
    };
    let values = values
        .into_iter()
        .filter(|value| type_of(value) & bits != 0);
    // Strings may be written in several ways.
    let values = values.map(|value| value.canonical().unwrap_or(value));
    Some((values.collect(), format!("{}/{name}", part.pointer)))
}

/// The properties of a node by name; each holds with the others of its name.
fn properties(node: &[Part]) -> BTreeMap<String, Vec<Part>> {
    let mut all = BTreeMap::<String, Vec<Part>>::new();
    for object in node.iter().filter_map(|part| part.child("properties")) {
        for (name, _) in members(&object.json) {
            let part = object.child(&name);
            all.entry(name).or_default().extend(part);
        }
    }
    all
}

fn required(node: &[Part]) -> HashSet<String> {
    let all = node.iter().flat_map(|part| part.children("required"));
    all.filter_map(|name| Some(name.json.as_str()?.into_owned()))
        .collect()
}

/// The mark of an alternative among others of its type: the first property with one value, else its
/// title.
fn mark(node: &[Part]) -> Option<String> {
    let constant = properties(node).into_iter().find_map(|(name, parts)| {
        let values = parts
            .iter()
            .find_map(Part::values)
            .filter(|values| values.len() == 1)?;
        Some(format!("{name}={}", values.first()?.as_text()))
    });
    let title = || keyword(node.get(1..)?, "title").map(|title| title.json.as_text().to_owned());
    constant.or_else(title)
}

impl Schemas<'_, '_, '_> {
    /// Reports that fewer values are valid, or more.
    fn changed(&mut self, is_narrower: bool, pointer: &str, was: Option<&Json>, is: Option<&Json>) {
        let change = match (self.direction, is_narrower) {
            (Direction::Input, true) => Change::InputNarrowed,
            (Direction::Input, false) => Change::InputWidened,
            (Direction::Output, true) => Change::OutputNarrowed,
            (Direction::Output, false) => Change::OutputWidened,
        };
        self.to.add_at(pointer, change, was, is);
    }

    fn compare(&mut self, was: &[Part], is: &[Part], depth: usize) {
        let place = |parts: &[Part]| {
            parts
                .first()
                .map(|part| part.pointer.clone())
                .unwrap_or_default()
        };
        let text = |parts: &[Part]| {
            parts
                .iter()
                .map(|part| part.json.as_text().to_owned())
                .collect::<Vec<_>>()
        };
        let (old, new) = (text(was), text(is));
        // A reference may lead to another schema.
        let is_same = old == new && !old.iter().any(|text| text.contains("$ref"));
        if is_same || depth == 0 || !self.seen.insert((place(was), place(is))) {
            return;
        }
        let (was, is) = (self.was.joined(was), self.is.joined(is));
        self.annotations(&was, &is);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.was.alternatives(was.clone(), 0, &mut before);
        self.is.alternatives(is.clone(), 0, &mut after);
        let union = |all: &[Node]| {
            all.iter()
                .map(|node| types(node))
                .fold(0, |all, bits| all | bits)
        };
        let (old, new) = (union(&before), union(&after));
        let named = [keyword(&was, "type"), keyword(&is, "type")];
        let pointer = match &named {
            [Some(part), _] | [None, Some(part)] => part.pointer.clone(),
            _ => place(&was),
        };
        let [left, right] = [&was, &is].map(|node| node.first().map(|part| &part.json));
        let [left, right] = match &named {
            [Some(was), Some(is)] => [Some(&was.json), Some(&is.json)],
            _ => [left, right],
        };
        for (bits, is_narrower) in [(old & !new, true), (new & !old, false)] {
            if bits != 0 {
                self.changed(is_narrower, &pointer, left, right);
            }
        }
        for bits in [2, OBJECT, ARRAY, STRING, NUMBER] {
            let of_type = |all: &[Node]| {
                let all = all.iter().filter(|node| types(node) & bits != 0);
                all.cloned().collect::<Vec<Node>>()
            };
            let (before, after) = (of_type(&before), of_type(&after));
            if !before.is_empty() && !after.is_empty() {
                self.of_type(bits, before, after, depth);
            }
        }
    }

    /// Compares what both schemas say about values of one type.
    fn of_type(&mut self, bits: u8, mut before: Vec<Node>, mut after: Vec<Node>, depth: usize) {
        let values = |all: &[Node]| {
            let all: Option<Vec<_>> = all.iter().map(|node| listed(node, bits)).collect();
            all.map(|all| {
                let pointer = all
                    .first()
                    .map(|(_, pointer)| pointer.clone())
                    .unwrap_or_default();
                (
                    all.into_iter()
                        .flat_map(|(values, _)| values)
                        .collect::<Vec<_>>(),
                    pointer,
                )
            })
        };
        match (values(&before), values(&after)) {
            (None, None) => {}
            (None, Some((values, pointer))) => {
                return values
                    .iter()
                    .take(1)
                    .for_each(|is| self.changed(true, &pointer, None, Some(is)));
            }
            (Some((values, pointer)), None) => {
                return values
                    .iter()
                    .take(1)
                    .for_each(|was| self.changed(false, &pointer, Some(was), None));
            }
            (Some((was, pointer)), Some((is, _))) => {
                let lost = was.iter().find(|value| !is.contains(value));
                let gained = is.iter().find(|value| !was.contains(value));
                lost.iter()
                    .for_each(|lost| self.changed(true, &pointer, Some(lost), None));
                gained
                    .iter()
                    .for_each(|gained| self.changed(false, &pointer, None, Some(gained)));
                return;
            }
        }
        if let ([was], [is]) = (&*before, &*after) {
            return self.limits(bits, was, is, depth);
        }
        // Alternatives belong together that are equal, that have the same mark, or that stand at
        // the same place.
        let text = |node: &Node| {
            node.iter()
                .map(|part| part.json.as_text().to_owned())
                .next_back()
        };
        let keys: [Key<'_>; 2] = [&|node| mark(node).filter(|_| bits == OBJECT), &text];
        for key in keys {
            let left = std::mem::take(&mut before);
            for was in left {
                let same = after
                    .iter()
                    .position(|is| key(is).is_some() && key(is) == key(&was));
                match same {
                    Some(at) => self.limits(bits, &was, &after.remove(at), depth),
                    None => before.push(was),
                }
            }
        }
        let both = before.len().min(after.len());
        for (was, is) in before.drain(..both).zip(after.drain(..both)) {
            self.limits(bits, &was, &is, depth);
        }
        for (is_narrower, left) in [(true, before), (false, after)] {
            for part in left.iter().filter_map(|node| node.last()) {
                let (was, is) = (
                    Some(&part.json).filter(|_| is_narrower),
                    Some(&part.json).filter(|_| !is_narrower),
                );
                self.changed(is_narrower, &part.pointer, was, is);
            }
        }
    }

    /// Compares the conditions for values of one type.
    fn limits(&mut self, bits: u8, was: &Node, is: &Node, depth: usize) {
        for (name, _, limit) in LIMITS.into_iter().filter(|(_, about, _)| about & bits != 0) {
            let on = |part: &Part| part.json.as_text() != "false";
            let [before, after] = [was, is].map(|node| keyword(node, name).filter(on));
            let Some(pointer) = before
                .as_ref()
                .or(after.as_ref())
                .map(|part| part.pointer.clone())
            else {
                continue;
            };
            let [before, after] = [before, after].map(|part| part.map(|part| part.json));
            if let Some(is_narrower) =
                self.is_narrower(limit, before.as_ref(), after.as_ref(), bits)
            {
                self.changed(is_narrower, &pointer, before.as_ref(), after.as_ref());
            }
        }
        match bits {
            OBJECT => self.objects(was, is, depth - 1),
            ARRAY => self.arrays(was, is, depth - 1),
            _ => {}
        }
    }

    /// Whether fewer values are valid with another limit; `None` if it makes no difference.
    fn is_narrower(
        &self,
        limit: Limit,
        was: Option<&Json>,
        is: Option<&Json>,
        bits: u8,
    ) -> Option<bool> {
        let number = |json: &Json| json.as_text().parse::<f64>().ok();
        let least = if bits == NUMBER {
            f64::NEG_INFINITY
        } else {
            0.0
        };
        let weigh = |none: f64| {
            Some((
                was.map_or(Some(none), number)?,
                is.map_or(Some(none), number)?,
            ))
        };
        let weighed = match limit {
            Limit::Least => weigh(least),
            // Turned round, so that more is narrower for both.
            Limit::Most => weigh(f64::INFINITY).map(|(was, is)| (-was, -is)),
            Limit::Other => None,
        };
        if let Some((was, is)) = weighed {
            return was
                .partial_cmp(&is)
                .filter(|order| order.is_ne())
                .map(std::cmp::Ordering::is_lt);
        }
        let text = |json: &Json| json.canonical().ok().map(|json| json.as_text().to_owned());
        match (was, is) {
            (Some(was), Some(is)) if text(was) == text(is) => None,
            (Some(_), Some(_)) => Some(self.direction == Direction::Input),
            (was, _) => Some(was.is_none()),
        }
    }

    fn objects(&mut self, was: &Node, is: &Node, depth: usize) {
        let (before, after) = (properties(was), properties(is));
        let (needed, needs) = (required(was), required(is));
        let is_input = self.direction == Direction::Input;
        for (name, parts) in &before {
            let Some(other) = after.get(name) else {
                let gone = if is_input {
                    Change::ArgumentGone
                } else {
                    Change::OutputWidened
                };
                if let Some(part) = parts.first() {
                    self.to.add_at(&part.pointer, gone, Some(&part.json), None);
                }
                continue;
            };
            self.compare(parts, other, depth);
        }
        for (name, parts) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
            let change = match (is_input, needs.contains(name)) {
                (true, true) => Change::ArgumentRequired,
                (true, false) => Change::ArgumentAdded,
                (false, _) => Change::OutputNarrowed,
            };
            if let Some(part) = parts.first() {
                self.to
                    .add_at(&part.pointer, change, None, Some(&part.json));
            }
        }
        let place = |name: &str, all: &BTreeMap<String, Vec<Part>>, node: &Node| {
            let part = all.get(name).and_then(|parts| parts.first()).cloned();
            part.or_else(|| keyword(node, "required"))
                .map(|part| part.pointer)
        };
        let is_new = |name: &&String| after.contains_key(*name) && !before.contains_key(*name);
        for name in needs.difference(&needed).filter(|name| !is_new(name)) {
            let change = if is_input {
                Change::ArgumentRequired
            } else {
                Change::OutputNarrowed
            };
            let pointer = place(name, &before, is).unwrap_or_default();
            self.to
                .add_at(&pointer, change, None, Some(&Json::string(name)));
        }
        let is_gone = |name: &&String| before.contains_key(*name) && !after.contains_key(*name);
        for name in needed.difference(&needs).filter(|name| !is_gone(name)) {
            let pointer = place(name, &before, was).unwrap_or_default();
            self.changed(false, &pointer, Some(&Json::string(name)), None);
        }
        let [open, opens] = [was, is].map(|node| rest(node, "additionalProperties"));
        match (open.types(), opens.types()) {
            // Results may have new members at any time.
            (0, 1..) if !is_input => {
                self.to.add_at(
                    &open.pointer,
                    Change::DefinitionChanged,
                    Some(&open.json),
                    Some(&opens.json),
                );
            }
            _ => self.compare(&[open], &[opens], depth),
        }
    }

    fn arrays(&mut self, was: &Node, is: &Node, depth: usize) {
        // Before 2020-12, `items` was the array.
        let first = |node: &Node| {
            let keys = ["prefixItems", "items"].into_iter();
            let all = keys.flat_map(|key| node.iter().flat_map(move |part| part.children(key)));
            all.collect::<Vec<_>>()
        };
        let others = |node: &Node| {
            let items = rest(node, "items");
            if items.json.elements().next().is_some() {
                rest(node, "additionalItems")
            } else {
                items
            }
        };
        let ((before, open), (after, opens)) = ((first(was), others(was)), (first(is), others(is)));
        for at in 0..before.len().max(after.len()) {
            let (was, is) = (
                before.get(at).unwrap_or(&open),
                after.get(at).unwrap_or(&opens),
            );
            self.compare(from_ref(was), from_ref(is), depth);
        }
        self.compare(&[open], &[opens], depth);
    }

    /// Compares what does not limit values.
    fn annotations(&mut self, was: &[Part], is: &[Part]) {
        let names = |node: &[Part]| {
            let all = node.iter().flat_map(|part| members(&part.json));
            let all = all.map(|(name, _)| name).filter(|name| {
                !READ.contains(&&**name) && !LIMITS.iter().any(|(limit, ..)| limit == name)
            });
            all.collect::<Vec<_>>()
        };
        let mut all = [names(was), names(is)].concat();
        all.sort_unstable();
        all.dedup();
        for name in all {
            let [before, after] = [was, is].map(|node| keyword(node, &name));
            let pointer = before
                .as_ref()
                .or(after.as_ref())
                .map(|part| part.pointer.clone());
            let [before, after] = [before, after].map(|part| part.map(|part| part.json));
            let is_same = match (&before, &after) {
                (Some(was), Some(is)) => self.to.are_same(was, is),
                _ => false,
            };
            if !is_same {
                let pointer = pointer.unwrap_or_default();
                self.to
                    .add_at(&pointer, change_of(&name), before.as_ref(), after.as_ref());
            }
        }
    }
}

/// The schema of the remaining values; without one, any value is allowed.
fn rest(node: &[Part], name: &str) -> Part {
    keyword(node, name).unwrap_or_else(|| Part {
        pointer: node
            .first()
            .map(|part| part.pointer.clone() + &pointer_step(name))
            .unwrap_or_default(),
        json: Json::literal("true"),
    })
}
