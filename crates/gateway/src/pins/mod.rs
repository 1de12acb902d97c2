//! Pins: the approved definitions of servers, and their changes since.
//!
//! This crate has no I/O. Definitions are compared when a server lists them, not during calls.

mod lock;

use serde_json::Value;

pub use lock::{Definition, INSTRUCTIONS, InvalidLock, ItemKey, Lock, LockedKind, Pinned};

/// A suspicious part of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flag {
    /// A text contains invisible characters, or characters that change the direction of writing.
    Invisible {
        /// The place, as a JSON Pointer.
        place: String,
        /// The first such character.
        character: char,
    },
    /// A name looks like the name of another server's tool.
    Lookalike {
        /// The other tool, as `server/name`.
        other: String,
    },
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invisible { place, character } => {
                write!(
                    f,
                    "{place} has a character that nobody sees: U+{:04X}",
                    u32::from(*character)
                )
            }
            Self::Lookalike { other } => write!(f, "its name looks like that of {other}"),
        }
    }
}

/// The suspicious parts of a definition. `others` are the tools of other servers, each as server
/// and name.
#[must_use]
pub fn flags<'a>(
    name: &str,
    definition: &Value,
    others: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<Flag> {
    let mut found = Vec::new();
    texts(definition, &mut String::new(), &mut |place, text| {
        if let Some(character) = text.chars().find(|character| is_invisible(*character)) {
            found.push(Flag::Invisible {
                place: place.to_owned(),
                character,
            });
        }
    });
    let shape = skeleton(name);
    let alike = others.filter(|(_, other)| *other != name && skeleton(other) == shape);
    found.extend(alike.map(|(server, other)| Flag::Lookalike {
        other: format!("{server}/{other}"),
    }));
    found
}

/// Passes each text in a value, including member names, with its place to `take`. Stops at the
/// depth that a definition may have.
fn texts(value: &Value, place: &mut String, take: &mut dyn FnMut(&str, &str)) {
    const LONGEST: usize = 1024;
    if place.len() > LONGEST {
        return;
    }
    let length = place.len();
    match value {
        Value::String(text) => take(place, text),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                place.push_str(&format!("/{at}"));
                texts(item, place, take);
                place.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                take(place, name);
                place.push('/');
                place.push_str(name);
                texts(member, place, take);
                place.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a character is invisible or changes the direction of writing: format characters (Cf),
/// variation selectors, tags, and control characters except line ends and tabs.
fn is_invisible(character: char) -> bool {
    matches!(u32::from(character),
        0x00..=0x08 | 0x0b | 0x0c | 0x0e..=0x1f | 0x7f..=0x9f
        | 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfeff | 0xffa0 | 0xfff9..=0xfffb
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

/// The appearance of a name: in lower case, without word separators, and with look-alike letters
/// and digits made equal.
#[must_use]
pub fn skeleton(name: &str) -> String {
    let shown = name
        .chars()
        .filter(|character| character.is_alphanumeric() && !is_invisible(*character));
    let like = |character: char| match character {
        '0' | 'о' | 'ο' | 'Ο' | 'О' => 'o',
        '1' | 'l' | 'і' | 'ı' | 'ӏ' | '|' => 'i',
        'а' | 'α' => 'a',
        'е' | 'ε' => 'e',
        'р' | 'ρ' => 'p',
        'с' => 'c',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        'ѕ' => 's',
        'ԁ' => 'd',
        'ո' => 'n',
        'ʋ' | 'ν' => 'v',
        'к' | 'κ' => 'k',
        'т' | 'τ' => 't',
        'м' => 'm',
        'н' => 'h',
        'в' => 'b',
        other => other,
    };
    shown.flat_map(char::to_lowercase).map(like).collect()
}

#[cfg(test)]
mod tests;
