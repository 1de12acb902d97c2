//! The entries of one mapping in the file, checked against its section.

use crate::client_files::is_comment;
use crate::definition::{Form, Section};
use crate::option::{Options, Reader, suggest};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Node, Value};

/// The entries of one mapping.
pub(crate) struct Fields<'t> {
    section: &'static Section,
    entries: &'t [Entry],
}

impl<'t> Fields<'t> {
    /// The entries of a node, which must be a mapping. Reports unknown keys, and keys without
    /// effect.
    pub(crate) fn open(
        reader: &mut Reader<'_>,
        section: &'static Section,
        what: &str,
        node: &'t Node,
    ) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let help = format!("the fields known here: {}", section.keys().join(", "));
            reader.wrong_type(what, node, "a mapping", &help);
            return None;
        };
        for entry in entries {
            let key = quoted(&entry.key);
            match section.find(&entry.key) {
                Some(_) => {}
                None if is_comment(&entry.key) => {}
                None if section.name == reader.root.name && is_for_anchors(&entry.key) => {}
                None if section.foreign.contains(&entry.key.as_str()) => {
                    let help = "it is a setting of a client; Fanlight ignores it";
                    reader.warn(entry.key_span, format!("{key} has no effect here"), help);
                }
                // Sections inside Fanlight's options are exact in a client's file, too.
                None if !reader.is_own && ["config", "server"].contains(&section.name) => {
                    let candidates = section.keys();
                    let help = match suggest(&entry.key, &candidates) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => "Fanlight does not know it".to_owned(),
                    };
                    reader.warn(entry.key_span, format!("{key} has no effect here"), &help);
                }
                None => {
                    let help = unknown_help(reader.root, section, entry);
                    reader.error(entry.key_span, format!("unknown field {key}"), &help);
                }
            }
        }
        Some(Self { section, entries })
    }

    /// Reads every option of the section into its field of `S`.
    pub(crate) fn read<S: Options>(&self, reader: &mut Reader<'_>) -> S {
        let mut options = S::default();
        for field in S::FIELDS {
            if let Some(entry) = self.get_or_null(field.key) {
                (field.read)(reader, entry, &mut options);
            }
        }
        options
    }

    /// Whether the mapping has no keys other than these.
    pub(crate) fn are_among(&self, keys: &[&str]) -> bool {
        self.entries
            .iter()
            .all(|entry| keys.contains(&entry.key.as_str()))
    }

    /// The entry of this key, unless it is absent or null.
    pub(crate) fn get(&self, key: &'static str) -> Option<&'t Entry> {
        self.get_or_null(key).filter(|entry| !entry.value.is_null())
    }

    /// The entry of this key, unless it is absent. A duplicate key, which is an error, yields its
    /// last entry.
    pub(crate) fn get_or_null(&self, key: &'static str) -> Option<&'t Entry> {
        debug_assert!(self.section.find(key).is_some(), "{key} is not defined");
        let is_it = |entry: &&Entry| entry.key == key;
        self.entries.iter().rev().find(is_it)
    }
}

/// Whether a top-level key is for YAML anchors, as in Compose files.
pub(crate) fn is_for_anchors(key: &str) -> bool {
    key.starts_with("x-")
}

fn unknown_help(root: &'static Section, section: &'static Section, entry: &Entry) -> String {
    // A client's setting may be mistyped, too.
    let candidates = [section.keys().as_slice(), section.foreign].concat();
    if let Some(meant) = suggest(&entry.key, &candidates) {
        return format!("did you mean `{meant}`?");
    }
    if section.name == root.name && looks_like_server(&entry.value) {
        return "a server belongs under `mcpServers`".to_owned();
    }
    match find_elsewhere(root, &entry.key) {
        Some(other) => format!("{} belongs {}", quoted(&entry.key), other.location),
        None => format!(
            "the fields known {}: {}",
            section.location,
            section.keys().join(", ")
        ),
    }
}

/// The section that has an option with this key.
fn find_elsewhere(section: &'static Section, key: &str) -> Option<&'static Section> {
    if section.find(key).is_some() {
        return Some(section);
    }
    section
        .definitions
        .iter()
        .find_map(|definition| match (definition.form)() {
            Form::Section(inner)
            | Form::WordOr(_, inner)
            | Form::Sections(inner)
            | Form::Named(inner)
            | Form::Paths(inner) => find_elsewhere(inner, key),
            _ => None,
        })
}

fn looks_like_server(node: &Node) -> bool {
    let Value::Map(entries) = &node.value else {
        return false;
    };
    entries
        .iter()
        .any(|entry| matches!(entry.key.as_str(), "command" | "url"))
}
