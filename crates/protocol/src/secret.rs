//! The one list of names and shapes of secrets, for everything that masks: traces, the audit log,
//! messages about the configuration, `import` and `check`.
//!
//! A value is secret if a name next to it says so. Such a name is the value's member, the `name`
//! beside a `value`, the parameter of a URL, the option before it, or a word before `=` or `:` in a
//! text. Credentials in URLs and in `Authorization`, private keys, JWTs and tokens with a well-known
//! beginning are secret, too.
//!
//! A secret in free text without any of these cannot be recognized.

mod names;
mod text;

use crate::Json;

pub use names::{PARTS, is_secret};
pub use text::{begins_like_token, without_secrets};

/// The members that name another member's value, as in `{"name": "password", "value": …}`.
const NAMES: &[&str] = &["name", "key", "header", "field", "param", "variable"];
/// The members whose value another one names.
const VALUES: &[&str] = &["value", "values", "val"];

/// The replacement for a secret in a text that somebody reads.
pub const BLANK: &str = "[redacted]";

/// `text` without secrets.
pub fn redacted_text(text: &str) -> String {
    without_secrets(text, BLANK).unwrap_or_else(|| text.to_owned())
}

/// Implements `Debug` for types that contain secrets, or too much to print: it shows the type's name
/// alone.
#[macro_export]
macro_rules! opaque {
    ($($type:ty),+) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($type), "(***)"))
            }
        }
    )+};
}

/// Whether a word of a command is an option whose next word is secret, such as `--password`.
pub fn is_secret_option(word: &str) -> bool {
    let is_switch = ["--no-", "--with-", "--without-"]
        .iter()
        .any(|start| word.starts_with(start));
    word.starts_with('-') && !is_switch && !word.contains('=') && is_secret(word)
}

/// Recognizes the secret members of an object.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// Whether the object has a name and a value for it.
    is_pair: bool,
    names_secret: bool,
}

impl Members {
    /// Reads the names in `object`.
    pub fn read(object: &Json) -> Self {
        let (mut has_value, mut names_secret, mut has_name) = (false, false, false);
        for member in object.members() {
            let Some(name) = member.name(object) else {
                continue;
            };
            has_value |= is_one_of(&name, VALUES);
            if is_one_of(&name, NAMES) {
                has_name = true;
                names_secret |= object
                    .slice(member.value)
                    .as_str()
                    .is_some_and(|name| is_secret(&name));
            }
        }
        Self {
            is_pair: has_name && has_value,
            names_secret,
        }
    }

    /// The same for an object that was cut, so that a name may be missing.
    #[must_use]
    pub fn hiding_values(self) -> Self {
        Self {
            names_secret: true,
            ..self
        }
    }

    /// Whether the member with this name and value is secret.
    pub fn hide(self, name: &str, value: &Json) -> bool {
        if self.is_pair && is_one_of(name, NAMES) {
            return false;
        }
        let is_named = is_secret(name) && !text::is_count(name, value.as_text());
        is_named || (self.names_secret && is_one_of(name, VALUES))
    }
}

/// Recognizes the secret elements of a list: the words after the options of a command line, and the
/// second one of `["Authorization", …]`.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    is_pair: bool,
    is_next_secret: bool,
}

impl Elements {
    /// Begins with the first element of `list`.
    pub fn new(list: &Json) -> Self {
        Self {
            is_pair: list.elements().take(3).count() == 2,
            is_next_secret: false,
        }
    }

    /// Whether the next element is secret.
    pub fn hide(&mut self, element: &Json) -> bool {
        let text = element.as_str();
        let is_option = text.as_ref().is_some_and(|text| text.starts_with("--"));
        let is_secret_one = self.is_next_secret && !is_option;
        self.is_next_secret = !is_secret_one
            && text
                .is_some_and(|text| is_secret_option(&text) || (self.is_pair && is_secret(&text)));
        is_secret_one
    }
}

fn is_one_of(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.eq_ignore_ascii_case(word))
}
