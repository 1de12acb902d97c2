//! TOML: a new table goes to the end of the file.

use serde_json::Value as Json;
use toml_edit::DocumentMut;

use super::{find_section, line_break};
use crate::client_files::item::{to_toml, toml_key};
use crate::document::Node;

/// The text with a table `name` added to the table at `path`.
pub(super) fn add(
    text: &str,
    root: &Node,
    path: &[&str],
    name: &str,
    value: &Json,
) -> Option<String> {
    let is_there = find_section(root, path).is_some_and(|section| section.field(name).is_some());
    let mut text = match is_there {
        true => remove(text, path, name)?,
        false => text.to_owned(),
    };
    let new_line = line_break(&text);
    if !text.ends_with('\n') {
        text.push_str(new_line);
    }
    if !text.ends_with("\n\n") && !text.ends_with("\n\r\n") {
        text.push_str(new_line);
    }
    let table = format!(
        "[{}.{}]\n{}",
        path.join("."),
        toml_key(name),
        to_toml(value)
    );
    Some(text + &table.replace('\n', new_line))
}

/// The text without the table `name` of the table at `path`.
pub(super) fn remove(text: &str, path: &[&str], name: &str) -> Option<String> {
    let mut document = text.parse::<DocumentMut>().ok()?;
    let table = path
        .iter()
        .try_fold(document.as_item_mut(), |item, key| item.get_mut(key))?;
    table.as_table_like_mut()?.remove(name)?;
    Some(document.to_string())
}
