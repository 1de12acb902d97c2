//! Decoding and encoding JSON strings.
//!
//! Must not know: where the strings come from.

use std::borrow::Cow;

/// The characters of a quoted, validated JSON string; `None` if an escape is a lone surrogate.
pub(super) fn decode(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = inner.find('\\') else { return Some(Cow::Borrowed(inner)) };
    let mut decoded = String::with_capacity(inner.len());
    let (head, mut rest) = inner.split_at_checked(first)?;
    decoded.push_str(head);
    while let Some(after) = rest.strip_prefix('\\') {
        let (character, tail) = escape(after)?;
        decoded.push(character);
        let run = tail.find('\\').unwrap_or(tail.len());
        let (plain, next) = tail.split_at_checked(run)?;
        decoded.push_str(plain);
        rest = next;
    }
    Some(Cow::Owned(decoded))
}

fn escape(after_backslash: &str) -> Option<(char, &str)> {
    let mut characters = after_backslash.chars();
    let character = match characters.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return unicode_escape(characters.as_str()),
        plain => plain,
    };
    Some((character, characters.as_str()))
}

fn unicode_escape(digits: &str) -> Option<(char, &str)> {
    let (unit, rest) = code_unit(digits)?;
    if !(0xd800..0xdc00).contains(&unit) {
        return Some((char::from_u32(unit)?, rest));
    }
    let (low, rest) = code_unit(rest.strip_prefix("\\u")?)?;
    if !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    Some((char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?, rest))
}

fn code_unit(digits: &str) -> Option<(u32, &str)> {
    let (hex, rest) = digits.split_at_checked(4)?;
    Some((u32::from_str_radix(hex, 16).ok()?, rest))
}

/// Appends `text` as a quoted JSON string, escaping only what RFC 8259 section 7 requires.
pub(super) fn encode_into(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend(HEX.get(usize::from(byte >> 4)));
                out.extend(HEX.get(usize::from(byte & 15)));
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
