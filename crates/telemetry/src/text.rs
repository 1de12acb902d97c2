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
