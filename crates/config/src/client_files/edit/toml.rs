//! TOML: a new table goes to the end of the file.

use toml_edit::DocumentMut;

use super::line_break;
use crate::client_files::item::{Item, toml_key};

/// The text with a table `name` added to the table at `path`.
pub(super) fn add(text: &str, path: &[&str], name: &str, value: &Item) -> Option<String> {
    let mut text = if find(text, path, name) {
        remove(text, path, name)?
    } else {
        text.to_owned()
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
        value.to_toml()
    );
    Some(text + &table.replace('\n', new_line))
}

fn find(text: &str, path: &[&str], name: &str) -> bool {
    let Ok(document) = text.parse::<DocumentMut>() else {
        return false;
    };
    let table = path
        .iter()
        .try_fold(document.as_item(), |item, key| item.get(key));
    table.is_some_and(|table| table.get(name).is_some())
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
