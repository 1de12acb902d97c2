//! The definition of an option and of a section, as data: what reading, masking, the JSON Schema, the reference and the
//! sample file have in common. The definitions themselves stand in `model`.

use std::time::Duration;

use serde_json::Value;

/// A mapping of the file: the top level, `limits`, a server.
pub(crate) struct Section {
    /// Its name in the JSON Schema.
    pub(crate) name: &'static str,
    /// Where its options are written, as a message says it.
    pub(crate) location: &'static str,
    pub(crate) about: &'static str,
    pub(crate) definitions: &'static [Definition],
    /// Values that are no options any more. They are still read, with a warning, and without one where the file is a test's.
    pub(crate) fixed: &'static [Definition],
    /// Other names of options, which other programs write.
    pub(crate) aliases: &'static [Definition],
    /// Keys that other programs write for themselves: accepted, without effect.
    pub(crate) foreign: &'static [&'static str],
}

/// One option.
pub(crate) struct Definition {
    pub(crate) key: &'static str,
    /// Its name in earlier versions, still accepted; empty if it has none.
    pub(crate) former: &'static str,
    /// Whether a change of it takes effect when the configuration is loaded again; else, when Fanlight is started again.
    pub(crate) is_live: bool,
    /// What stands in its place, if it is no option any more: the rest of a sentence that begins with "write".
    pub(crate) instead: &'static str,
    pub(crate) about: &'static str,
    pub(crate) form: fn() -> Form,
    pub(crate) default: fn() -> Value,
    /// What the sample file has instead of the default, in YAML; `#` in front comments it out. Empty for none.
    pub(crate) example: &'static str,
}

/// The values that an option takes. Null stands for an absent option everywhere.
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
    /// A list of such words.
    Choices(Vec<&'static str>),
    /// A list of texts.
    Texts(Visible),
    /// A text, or a list of texts.
    TextOrTexts(Visible),
    /// `true`, `false`, or a list of texts.
    FlagOrTexts(Visible),
    /// A list of texts, in which numbers and booleans stand for their text.
    Scalars,
    /// A mapping to texts, in which numbers and booleans stand for their text.
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
    /// Anything; not read.
    Any,
}

/// How much of a text may stand in a message.
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
    /// The keys of its options.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        self.definitions
            .iter()
            .map(|definition| definition.key)
            .collect()
    }

    /// The option of this key, or of this former key; also an alias, and a value that is no option any more.
    pub(crate) fn find(&self, key: &str) -> Option<&'static Definition> {
        let named = |definition: &&Definition| {
            key == definition.key || (key == definition.former && !key.is_empty())
        };
        self.definitions
            .iter()
            .chain(self.aliases)
            .find(named)
            .or_else(|| self.find_fixed(key))
    }

    /// The value of this key, or of this former key, that is no option any more.
    pub(crate) fn find_fixed(&self, key: &str) -> Option<&'static Definition> {
        let named = |definition: &&Definition| {
            key == definition.key || (key == definition.former && !key.is_empty())
        };
        self.fixed.iter().find(named)
    }
}

impl Definition {
    /// The default in the notation of the file, if there is one.
    pub(crate) fn default(&self) -> Option<Value> {
        Some((self.default)()).filter(|value| match value {
            Value::Null | Value::Object(_) => false,
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        })
    }
}
