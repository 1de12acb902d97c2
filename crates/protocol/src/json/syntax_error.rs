//! Why text is not JSON.

/// Why text is not JSON, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct SyntaxError {
    /// What is wrong.
    pub kind: SyntaxErrorKind,
    /// Offset of the offending byte.
    pub at: usize,
}

/// What is wrong with text that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxErrorKind {
    /// The text stops within a value.
    #[error("unexpected end")]
    End,
    /// A byte that cannot stand here.
    #[error("unexpected character")]
    Unexpected,
    /// A number that RFC 8259 section 6 does not allow.
    #[error("malformed number")]
    Number,
    /// An escape that RFC 8259 section 7 does not allow.
    #[error("malformed escape")]
    Escape,
    /// An unescaped control character in a string.
    #[error("control character in a string")]
    Control,
    /// Bytes that are not UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// More levels of arrays and objects than the limit.
    #[error("nested too deeply")]
    Depth,
    /// Something after the value.
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
