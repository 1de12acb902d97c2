//! Excerpts of a peer's text that cannot harm the log.

use fanlight_protocol::secret::redacted_text;
use fanlight_protocol::visible::escaped;

/// The first `limit` characters of `text`; invisible ones are escaped.
pub(crate) fn excerpt(text: &[u8], limit: usize) -> String {
    // A character has at most four bytes, so the rest need not be decoded.
    let head = text
        .get(..limit.saturating_mul(4).min(text.len()))
        .unwrap_or_default();
    let decoded = String::from_utf8_lossy(head);
    let mut shown: String = decoded
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .take(limit)
        .collect();
    if head.len() < text.len() || decoded.chars().nth(limit).is_some() {
        shown.push('…');
    }
    escaped(&shown).into_owned()
}

/// An [`excerpt`] of a server's text for Fanlight's own messages, without secrets that it repeats.
pub(crate) fn foreign_text(text: &[u8], limit: usize) -> String {
    excerpt(
        redacted_text(&String::from_utf8_lossy(text)).as_bytes(),
        limit,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_has_no_secret() {
        let text = b"Invalid API key: s3cret-value-1";
        assert_eq!(foreign_text(text, 200), "Invalid API key: [redacted]");
    }

    #[test]
    fn excerpt_is_short_and_visible() {
        assert_eq!(excerpt(b"plain", 10), "plain");
        assert_eq!(excerpt("ééééé".as_bytes(), 3), "ééé…");
        assert_eq!(excerpt(b"a\x1b[2J\xff\tb", 10), "a\\u001b[2J\u{fffd} b");
        assert_eq!(excerpt(&vec![b'x'; 1 << 20], 4), "xxxx…");
    }
}
