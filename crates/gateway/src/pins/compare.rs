//! Compares two versions of a definition, and rates the difference.

use std::collections::BTreeSet;

use serde_json::Value;

/// How many levels of nested schemas are compared. A deeper difference counts as breaking.
const NESTING: usize = 24;
/// Members of a schema that only people and models read.
const WORDS: [&str; 6] = [
    "title",
    "description",
    "examples",
    "$comment",
    "default",
    "deprecated",
];
/// Hints that make clients trust a tool more, with the value that does so.
const HINTS: [(&str, bool); 4] = [
    ("readOnlyHint", true),
    ("destructiveHint", false),
    ("idempotentHint", true),
    ("openWorldHint", false),
];

/// The weight of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing differs.
    Same,
    /// Only texts for people and models differ.
    Text,
    /// Existing callers can use it as before.
    Compatible,
    /// Valid calls may become invalid, results may have another form, or the tool announces that it
    /// may do more.
    Breaking,
}

impl Change {
    /// The weight's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Text => "text",
            Self::Compatible => "compatible",
            Self::Breaking => "breaking",
        }
    }
}

/// The difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The weight of the whole difference.
    pub change: Change,
    /// Short descriptions of the differences.
    pub reasons: Vec<String>,
}

/// Compares an approved definition with the current one.
#[must_use]
pub fn compare(approved: &Value, now: &Value) -> Difference {
    let mut found = Found(Vec::new());
    let names: BTreeSet<&String> = members(approved).chain(members(now)).collect();
    for name in names {
        let (before, after) = (approved.get(name), now.get(name));
        if before == after {
            continue;
        }
        let known = found.0.len();
        match name.as_str() {
            "title" | "description" | "icons" => {
                found.add(Change::Text, format!("{name} has changed"));
            }
            "annotations" => found.annotations(before, after),
            "inputSchema" => {
                found.schema(
                    "inputSchema",
                    before.unwrap_or(&Value::Null),
                    after.unwrap_or(&Value::Null),
                    NESTING,
                );
            }
            "outputSchema" => found.output(before, after),
            "arguments" => found.arguments(before, after),
            "_meta" => found.add(
                Change::Breaking,
                "the page of the tool is another one".to_owned(),
            ),
            _ => found.add(Change::Breaking, format!("{name} has changed")),
        }
        if found.0.len() == known {
            found.add(Change::Text, format!("{name} has changed"));
        }
    }
    let change = found
        .0
        .iter()
        .map(|(change, _)| *change)
        .max()
        .unwrap_or(Change::Same);
    Difference {
        change,
        reasons: found.0.into_iter().map(|(_, reason)| reason).collect(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = &String> {
    value
        .as_object()
        .into_iter()
        .flat_map(|members| members.keys())
}

struct Found(Vec<(Change, String)>);

impl Found {
    fn add(&mut self, change: Change, reason: String) {
        self.0.push((change, reason));
    }

    fn annotations(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let hint = |annotations: Option<&Value>, name: &str| {
            annotations.and_then(|all| all.get(name)?.as_bool())
        };
        for (name, trusted) in HINTS {
            let (before, after) = (hint(before, name), hint(after, name));
            if before == Some(trusted) && after != Some(trusted) {
                self.add(Change::Breaking, format!("{name} is no longer {trusted}"));
            } else if before != after {
                self.add(Change::Compatible, format!("{name} has changed"));
            }
        }
        let rest = |annotations: Option<&Value>| {
            let all = annotations
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            all.into_iter()
                .filter(|(name, _)| HINTS.iter().all(|(hint, _)| hint != name))
                .collect::<serde_json::Map<_, _>>()
        };
        if rest(before) != rest(after) {
            self.add(Change::Text, "other annotations have changed".to_owned());
        }
    }

    fn output(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (None, Some(_)) => self.add(Change::Compatible, "outputSchema is new".to_owned()),
            (Some(before), Some(after)) if without_words(before) == without_words(after) => {
                self.add(
                    Change::Text,
                    "texts of outputSchema have changed".to_owned(),
                );
            }
            _ => self.add(Change::Breaking, "outputSchema has changed".to_owned()),
        }
    }

    /// Compares the arguments of a prompt.
    fn arguments(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let list = |all: Option<&Value>| all.and_then(Value::as_array).cloned().unwrap_or_default();
        let name = |one: &Value| {
            one.get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let is_required = |one: &Value| one.get("required") == Some(&Value::Bool(true));
        let (before, after) = (list(before), list(after));
        for one in &before {
            match after.iter().find(|other| name(other) == name(one)) {
                None => self.add(
                    Change::Breaking,
                    format!("the argument {} is gone", name(one)),
                ),
                Some(other) if is_required(other) && !is_required(one) => {
                    self.add(
                        Change::Breaking,
                        format!("the argument {} is required now", name(one)),
                    );
                }
                Some(other) if other != one => {
                    self.add(
                        Change::Text,
                        format!("the argument {} has changed", name(one)),
                    );
                }
                Some(_) => {}
            }
        }
        for one in after
            .iter()
            .filter(|one| before.iter().all(|other| name(other) != name(one)))
        {
            let change = if is_required(one) {
                Change::Breaking
            } else {
                Change::Compatible
            };
            self.add(change, format!("the argument {} is new", name(one)));
        }
    }

    /// Compares a schema of client input.
    fn schema(&mut self, place: &str, before: &Value, after: &Value, nesting: usize) {
        let Some(nesting) = nesting.checked_sub(1) else {
            return self.add(Change::Breaking, format!("{place} has changed"));
        };
        let (Value::Object(old), Value::Object(new)) = (before, after) else {
            return self.add(Change::Breaking, format!("{place} has changed"));
        };
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let (before, after) = (old.get(name), new.get(name));
            if before == after {
                continue;
            }
            match name.as_str() {
                word if WORDS.contains(&word) => {
                    self.add(Change::Text, format!("{place}: {word} has changed"));
                }
                "properties" => self.properties(place, before, after, nesting),
                "required" => self.required(place, before, after),
                "type" | "enum" => self.choices(place, name, before, after),
                "items" => {
                    self.schema(
                        &format!("{place}[]"),
                        before.unwrap_or(&Value::Null),
                        after.unwrap_or(&Value::Null),
                        nesting,
                    );
                }
                _ if after.is_none() && name != "additionalProperties" => {
                    self.add(Change::Compatible, format!("{place}: {name} is gone"));
                }
                _ => self.add(Change::Breaking, format!("{place}: {name} has changed")),
            }
        }
    }

    fn properties(
        &mut self,
        place: &str,
        before: Option<&Value>,
        after: Option<&Value>,
        nesting: usize,
    ) {
        let none = serde_json::Map::new();
        let of = |all: Option<&Value>| {
            all.and_then(Value::as_object)
                .cloned()
                .unwrap_or_else(|| none.clone())
        };
        let (old, new) = (of(before), of(after));
        for (name, schema) in &old {
            match new.get(name) {
                None => self.add(Change::Breaking, format!("{place}.{name} is gone")),
                Some(other) if other != schema => {
                    self.schema(&format!("{place}.{name}"), schema, other, nesting);
                }
                Some(_) => {}
            }
        }
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            self.add(Change::Compatible, format!("{place}.{name} is new"));
        }
    }

    fn required(&mut self, place: &str, before: Option<&Value>, after: Option<&Value>) {
        let (old, new) = (values(before), values(after));
        for name in new.iter().filter(|name| !old.contains(name)) {
            self.add(Change::Breaking, format!("{place}: {name} is required now"));
        }
        if old.iter().any(|name| !new.contains(name)) {
            self.add(Change::Compatible, format!("{place}: less is required"));
        }
    }

    /// Compares the permitted values or types. Fewer are breaking, and so is a new restriction.
    fn choices(&mut self, place: &str, name: &str, before: Option<&Value>, after: Option<&Value>) {
        let (old, new) = (values(before), values(after));
        let is_narrower =
            after.is_some() && (before.is_none() || old.iter().any(|value| !new.contains(value)));
        let change = if is_narrower {
            Change::Breaking
        } else {
            Change::Compatible
        };
        self.add(change, format!("{place}: {name} has changed"));
    }
}

/// The values of a list, or a single value.
fn values(value: Option<&Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(all)) => all.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    }
}

/// A schema without the members that only people and models read.
fn without_words(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            // A property may have the name of such a member.
            let kept = members
                .iter()
                .filter(|(name, value)| !WORDS.contains(&name.as_str()) || value.is_object());
            Value::Object(
                kept.map(|(name, value)| (name.clone(), without_words(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(without_words).collect()),
        other => other.clone(),
    }
}
