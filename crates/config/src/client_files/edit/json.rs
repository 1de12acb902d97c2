//! JSON with comments: everything else stays as it is.

use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value as Json;

use crate::document::JSON;

/// The text with a member `name` added to the mapping at `path`, parts of which may be missing.
pub(super) fn add(text: &str, path: &[&str], name: &str, value: &Json) -> Option<String> {
    let root = CstRootNode::parse(text, &JSON).ok()?;
    let whole = root.object_value()?;
    let section = path
        .iter()
        .fold(whole, |object, key| object.object_value_or_set(key));
    match section.get(name) {
        Some(member) => member.set_value(input(value)),
        None => drop(section.append(name, input(value))),
    }
    Some(root.to_string())
}

/// The text without the member `name` of the mapping at `path`.
pub(super) fn remove(text: &str, path: &[&str], name: &str) -> Option<String> {
    let root = CstRootNode::parse(text, &JSON).ok()?;
    let section = path
        .iter()
        .try_fold(root.object_value()?, |object, key| object.object_value(key))?;
    section.get(name)?.remove();
    Some(root.to_string())
}

fn input(item: &Json) -> CstInputValue {
    match item {
        Json::Null => CstInputValue::Null,
        Json::Bool(flag) => CstInputValue::Bool(*flag),
        Json::Number(digits) => CstInputValue::Number(digits.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Json::Object(members) => {
            let member = |(key, value): (&String, &Json)| (key.clone(), input(value));
            CstInputValue::Object(members.iter().map(member).collect())
        }
    }
}
