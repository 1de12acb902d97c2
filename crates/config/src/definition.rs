//! The definition of an option and of a section, as data for reading, masking, the JSON Schema, the
//! reference and the sample file. The definitions themselves are in `model`.

use std::time::Duration;

use serde_json::Value;

/// A mapping in the file: the top level, `limits`, a server.
pub(crate) struct Section {
    /// The section's name in the JSON Schema.
    pub(crate) name: &'static str,
    /// The section's place in the file, as messages name it.
    pub(crate) location: &'static str,
    pub(crate) about: &'static str,
    pub(crate) definitions: &'static [Definition],
    /// Alternative names of options, which other programs write.
    pub(crate) aliases: &'static [Definition],
    /// Other programs' own keys: accepted, without effect.
    pub(crate) foreign: &'static [&'static str],
}

/// One option.
pub(crate) struct Definition {
    pub(crate) key: &'static str,
    /// Whether a change takes effect when the configuration is reloaded, instead of after a
    /// restart.
    pub(crate) is_live: bool,
    pub(crate) about: &'static str,
    pub(crate) form: fn() -> Form,
    pub(crate) default: fn() -> Value,
    /// The option's YAML in the sample file instead of the default; a leading `#` comments it out.
    /// Empty for none.
    pub(crate) example: &'static str,
}

/// The possible values of an option. Null stands for an absent option everywhere.
pub(crate) enum Form {
    Text(Visible),
    Flag,
    Duration {
        min: Duration,
        max: Duration,
    },
    Size {
        min: usize,
        max: usize,
    },
    Count {
        min: usize,
        max: usize,
    },
    /// A number from 0 to 1.
    Share,
    Choice(Vec<&'static str>),
    /// `off`, or a value of this form.
    OrOff(Box<Form>),
    /// A list of texts.
    Texts(Visible),
    /// A text, or a list of texts.
    TextOrTexts(Visible),
    /// `true`, `false`, or a list of texts.
    FlagOrTexts(Visible),
    /// A list of texts; numbers and booleans stand for their text.
    Scalars,
    /// A mapping to texts; numbers and booleans stand for their text.
    Pairs,
    Section(&'static Section),
    /// This word, or a section.
    WordOr(&'static str, &'static Section),
    /// A list of sections.
    Sections(&'static Section),
    /// A mapping of names to sections.
    Named(&'static Section),
    /// A mapping of paths to sections, each of which may be null.
    Paths(&'static Section),
    /// A mapping of names to values of this form.
    Map(Box<Form>),
    /// JSON of these types.
    Json(&'static [&'static str], Visible),
    /// Any value; Fanlight does not read it.
    Any,
}

/// The part of a text that messages may show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visible {
    All,
    /// A program without its arguments.
    FirstWord,
    /// A URL up to its path, without user information.
    Authority,
    Nothing,
}

impl Section {
    /// The keys of the section's options.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        self.definitions
            .iter()
            .map(|definition| definition.key)
            .collect()
    }

    /// The option or alias with this key.
    pub(crate) fn find(&self, key: &str) -> Option<&'static Definition> {
        let mut all = self.definitions.iter().chain(self.aliases);
        all.find(|definition| definition.key == key)
    }
}

impl Definition {
    /// The default in the file's notation, if there is one.
    pub(crate) fn default(&self) -> Option<Value> {
        Some((self.default)()).filter(|value| match value {
            Value::Null | Value::Object(_) => false,
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        })
    }
}
