//! A borrowed value: most are only read once, and need no slice that shares the text.

use std::borrow::Cow;

use super::string;

/// Which of JSON's types a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number; its lexeme is kept as it is
    Number,
    /// A string
    String,
    /// An array
    Array,
    /// An object
    Object,
}

/// The text of one value, without white space around it; see [`Json`](super::Json).
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(pub(super) &'a [u8]);

impl<'a> Value<'a> {
    /// The type, by the first byte.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Whether this is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Whether this is `true`.
    #[must_use]
    pub fn is_true(self) -> bool {
        self.0 == b"true"
    }

    /// The characters of a string, escapes decoded. `None` for other types and for strings that
    /// are not Unicode text (a lone surrogate escape).
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        string::decode(self.0)
    }

    /// Whether this is the string `text`, however it is escaped.
    #[must_use]
    pub fn is_str(self, text: &str) -> bool {
        string::is(self.0, text)
    }

    /// Whether this is a number without fraction and exponent.
    #[must_use]
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number && !self.0.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }
}
