//! A borrowed value. Most values are read only once, and need no slice that shares the text.

use std::borrow::Cow;

use super::string;

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, whose text is kept as it is
    Number,
    /// A string
    String,
    /// An array
    Array,
    /// An object
    Object,
}

/// The text of one value without white space around it; see [`Json`](super::Json).
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(pub(super) &'a [u8]);

impl<'a> Value<'a> {
    /// The type of the value, which its first byte tells.
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
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Whether this is `true`.
    pub fn is_true(self) -> bool {
        self.0 == b"true"
    }

    /// The characters of a string, with escapes decoded. `None` for other types, and for strings
    /// with a lone surrogate, which is not Unicode text.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        string::decode(self.0)
    }

    /// Whether this is the string `text`, whatever escapes it contains.
    #[must_use]
    pub fn is_str(self, text: &str) -> bool {
        string::is(self.0, text)
    }

    /// Whether this is a number without fraction and exponent.
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number && !self.0.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }
}
