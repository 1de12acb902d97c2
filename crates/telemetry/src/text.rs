//! Shortens texts of peers.

/// The first `longest` characters of a text.
pub(crate) fn truncated(text: &str, longest: usize) -> &str {
    if text.len() <= longest {
        return text;
    }
    text.char_indices()
        .nth(longest)
        .and_then(|(end, _)| text.get(..end))
        .unwrap_or(text)
}

/// The beginning of a text, with at most this many bytes.
pub(crate) fn start_of(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes))
        .unwrap_or_default()
}
