//! Foreign text made fit for a log line or an error message.
//!
//! Must not know: whose text it is.

/// The first `limit` characters of `text` without control characters.
pub(crate) fn excerpt(text: &[u8], limit: usize) -> String {
    // A character has at most four bytes: no more than that need be looked at.
    let head = text.get(..limit.saturating_mul(4).min(text.len())).unwrap_or_default();
    let decoded = String::from_utf8_lossy(head);
    let mut shown: String = decoded.chars().map(printable).take(limit).collect();
    if head.len() < text.len() || decoded.chars().nth(limit).is_some() {
        shown.push('…');
    }
    shown
}

/// Control characters could move a terminal's cursor or forge log lines; directional marks could
/// disguise text.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        other if other.is_control() => '\u{fffd}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_and_drops_control_characters() {
        assert_eq!(excerpt(b"plain", 10), "plain");
        assert_eq!(excerpt("ééééé".as_bytes(), 3), "ééé…");
        assert_eq!(excerpt(b"a\x1b[2J\xff\tb", 10), "a\u{fffd}[2J\u{fffd} b");
        assert_eq!(excerpt(&vec![b'x'; 1 << 20], 4), "xxxx…");
    }
}
