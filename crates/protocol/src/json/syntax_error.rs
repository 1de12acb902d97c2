//! Syntax errors in JSON text.

/// The reason why a text is not JSON, with the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct SyntaxError {
    /// The kind of error.
    pub kind: SyntaxErrorKind,
    /// The offset of the invalid byte.
    pub at: usize,
}

/// The kinds of syntax errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxErrorKind {
    /// The text ends within a value.
    #[error("unexpected end")]
    End,
    /// A byte is invalid at its place.
    #[error("unexpected character")]
    Unexpected,
    /// A number is invalid by RFC 8259 section 6.
    #[error("malformed number")]
    Number,
    /// An escape is invalid by RFC 8259 section 7.
    #[error("malformed escape")]
    Escape,
    /// A string contains an unescaped control character.
    #[error("control character in a string")]
    Control,
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// Arrays and objects are nested deeper than the limit.
    #[error("nested too deeply")]
    Depth,
    /// The value is followed by something else.
    #[error("trailing characters")]
    Trailing,
}

pub(super) type Scanned<T> = Result<T, SyntaxError>;

pub(super) fn fail<T>(kind: SyntaxErrorKind, at: usize) -> Scanned<T> {
    Err(SyntaxError { kind, at })
}

pub(super) fn unexpected<T>(text: &[u8], at: usize) -> Scanned<T> {
    let kind = if at < text.len() {
        SyntaxErrorKind::Unexpected
    } else {
        SyntaxErrorKind::End
    };
    fail(kind, at)
}
