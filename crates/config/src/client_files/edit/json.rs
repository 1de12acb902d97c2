//! JSON with comments: everything else stays as it is.

use jsonc_parser::cst::{CstInputValue, CstRootNode};

use crate::client_files::Item;
use crate::document::JSON;

/// The text with a member `name` added to the mapping at `path`, parts of which may be missing.
pub(super) fn add(text: &str, path: &[&str], name: &str, value: &Item) -> Option<String> {
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

fn input(item: &Item) -> CstInputValue {
    match item {
        Item::Null => CstInputValue::Null,
        Item::Flag(flag) => CstInputValue::Bool(*flag),
        Item::Number(digits) => CstInputValue::Number(digits.clone()),
        Item::Text(text) => CstInputValue::String(text.clone()),
        Item::List(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Item::Map(members) => {
            let member = |(key, value): &(String, Item)| (key.clone(), input(value));
            CstInputValue::Object(members.iter().map(member).collect())
        }
    }
}
