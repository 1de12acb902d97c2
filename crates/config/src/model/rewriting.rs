//! Overrides of a server's tools and prompts.

use crate::settings::Secret;
use serde_json::{Map, Value, json};

use crate::definition::{Form, Visible};
use crate::document::Node;
use crate::option::{
    Fields, Flag, JsonText, Kind, Maybe, Options as _, Parsed, Range, Reader, checked, choice,
    count, options,
};
use crate::report::problem::quoted;
use crate::syntax::Entry;

/// Members that a definition may have instead of the server's.
const REPLACED_TEXT: JsonText = JsonText {
    types: &["string", "null"],
    visible: Visible::All,
};
const REPLACED_OBJECT: JsonText = JsonText {
    types: &["object", "null"],
    visible: Visible::All,
};

options! {
    /// The naming of tools and prompts, made from the servers' own names.
    pub struct Naming: "naming", "in `naming`";
    options {
        /// `auto` puts the server's name in front if there are several servers. `always` also does
        /// so for a single server, so that names stay when a second one is added.
        "style" => style: NamingStyle = NamingStyle::Auto, STYLE;
        /// The text between the server's name and the name of the tool or prompt.
        "separator" => separator: String = "__".to_owned(), SEPARATOR;
        /// The maximum number of characters of a name; a longer one ends with a hash of the whole
        /// name. Default: no limit.
        "maxLength" => max_length: Option<usize> = None, Maybe(LENGTH), example "# 64";
        /// Names that every known client accepts: letters, digits, `_` and `-`, and at most 64
        /// characters with the client's own text. Another name is cut and ends with a hash of the
        /// server's name and its own name. Implies `style: always`.
        "safe" => safe: bool = false, Flag;
        /// The number of characters that clients add to a safe name, such as `mcp__fanlight__`.
        "reserve" => reserve: usize = 15, count(0, 48);
    }
}

options! {
    /// Members of a tool's definition that clients get instead of the server's. Null removes the
    /// server's.
    pub struct ToolOverride: "override", "in `override`, below the name of a tool";
    options {
        /// The title.
        "title" => title: Option<String> = None, REPLACED_TEXT;
        /// The description.
        "description" => description: Option<String> = None, REPLACED_TEXT;
        /// All annotations.
        "annotations" => annotations: Option<String> = None, REPLACED_OBJECT;
    }
}

options! {
    /// The treatment of an argument; only one of these options.
    pub struct ArgumentOptions: "argument", "in `arguments`, below the names of a tool and of an argument";
    options {
        /// The value in every call. Clients do not see the argument and may not send it.
        "value" => value: Option<String> = None, JsonText { types: &[], visible: Visible::Nothing };
        /// The value in calls without the argument. Clients see it as default and need not send the
        /// argument.
        "default" => default: Option<String> = None, JsonText { types: &[], visible: Visible::All };
        /// Clients do not see the argument and may not send it.
        "hidden" => hidden: bool = false, Flag;
    }
}

choice! {
    /// Whether names have prefixes.
    NamingStyle, STYLE {
        /// Names have prefixes if there are several servers.
        Auto = "auto",
        /// Always.
        Always = "always",
    }
}

/// The treatment of one argument of a tool. Values are JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Each call has this value, which may be a secret.
    Value(Secret),
    /// Calls without the argument get this value.
    Default(String),
    /// No client may send it.
    Hidden,
}

/// The longest name that all known clients accept, with the text that they add.
const LONGEST: usize = 64;

impl Naming {
    /// The greatest length of a safe name, if names are to be safe.
    pub fn safe_length(&self) -> Option<usize> {
        self.safe.then(|| LONGEST - self.reserve)
    }

    /// Reports options that contradict each other.
    pub(crate) fn check(&self, reader: &mut Reader<'_>, node: &Node) {
        if let Some(length) = node.field("maxLength").filter(|_| self.safe) {
            let help = "remove `maxLength`, and set `reserve` to what your clients add to names";
            reader.error(
                length.span,
                "`maxLength` does not go with `safe`, which has its own length",
                help,
            );
        }
    }
}

/// The range of the length: a shorter name would be little more than a hash.
const LENGTH: Range<usize> = count(16, 1024);

const SEPARATOR: Parsed<String> = checked!(
    // The characters that tool names may have (2025-11-25 server/tools, Tool Names).
    |text| (1..=8).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')),
    "cannot stand between the parts of a name",
    "write one to eight letters, digits, `_`, `-`, `.` or `/`"
);

/// A name that clients see.
pub(crate) const NEW_NAME: Parsed<String> = checked!(
    |text| !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace()),
    "cannot be the name of a tool or prompt",
    "write letters, digits, `_` and `-`"
);

/// The kind of [`Argument`].
pub(crate) struct ArgumentKind;

impl Kind for ArgumentKind {
    type Value = Argument;

    fn form(&self) -> Form {
        Form::Section(ArgumentOptions::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Argument> {
        let fields = Fields::open(
            reader,
            ArgumentOptions::SECTION,
            &quoted(&entry.key),
            &entry.value,
        )?;
        let ArgumentOptions {
            value,
            default,
            hidden,
        } = fields.read(reader);
        let given = ["value", "default", "hidden"].map(|key| fields.get_or_null(key));
        let says_nothing = fields.are_among(&["hidden"]);
        let mut given = given.into_iter().flatten();
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            reader.report_both(first, second);
            return None;
        }
        match (value, default, hidden) {
            (Some(value), ..) => Some(Argument::Value(Secret::new(value))),
            (_, Some(value), _) => Some(Argument::Default(value)),
            (None, None, true) => Some(Argument::Hidden),
            // The problem has been reported.
            (None, None, false) if !says_nothing => None,
            (None, None, false) => {
                let help = "write `value`, `default`, or `hidden: true`";
                reader.error(
                    entry.key_span,
                    format!("nothing is said of the argument {}", quoted(&entry.key)),
                    help,
                );
                None
            }
        }
    }

    fn show(&self, value: &Argument) -> Value {
        let mut options = ArgumentOptions::default();
        match value.clone() {
            Argument::Value(text) => options.value = Some(text.expose().to_owned()),
            Argument::Default(text) => options.default = Some(text),
            Argument::Hidden => options.hidden = true,
        }
        let said = |(_, value): &(String, Value)| !value.is_null() && *value != json!(false);
        options
            .show()
            .into_iter()
            .filter(said)
            .collect::<Map<_, _>>()
            .into()
    }
}
