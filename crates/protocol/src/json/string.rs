//! Decodes and encodes JSON strings.

use std::borrow::Cow;
use std::cmp::Ordering;

/// The characters of a quoted, validated JSON string; `None` if an escape is a lone surrogate.
pub(super) fn decode(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = inner(quoted)?;
    let text = simdutf8::basic::from_utf8(inner).ok()?;
    if has_escape(inner) {
        decode_escapes(text).map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(text))
    }
}

/// Whether the quoted, validated JSON string encodes `text`.
pub(super) fn is(quoted: &[u8], text: &str) -> bool {
    inner(quoted).is_some_and(|inner| stands_for(inner, text))
}

/// Whether the text between a string's quotes encodes `text`. An escape is longer than its
/// character, so different lengths rule out most strings.
#[inline]
pub(super) fn stands_for(inner: &[u8], text: &str) -> bool {
    match inner.len().cmp(&text.len()) {
        Ordering::Less => false,
        Ordering::Equal => inner == text.as_bytes() && !has_escape(inner),
        Ordering::Greater => has_escape(inner) && decoded_is(inner, text),
    }
}

#[cold]
fn decoded_is(inner: &[u8], text: &str) -> bool {
    std::str::from_utf8(inner)
        .ok()
        .and_then(decode_escapes)
        .is_some_and(|decoded| decoded == text)
}

fn inner(quoted: &[u8]) -> Option<&[u8]> {
    quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn has_escape(inner: &[u8]) -> bool {
    /// Shorter texts are searched faster than `memchr` starts.
    const SHORT: usize = 16;
    if inner.len() <= SHORT {
        inner.contains(&b'\\')
    } else {
        memchr::memchr(b'\\', inner).is_some()
    }
}

#[cold]
fn decode_escapes(inner: &str) -> Option<String> {
    let mut decoded = String::with_capacity(inner.len());
    let (head, mut rest) = inner.split_at_checked(inner.find('\\').unwrap_or(inner.len()))?;
    decoded.push_str(head);
    while let Some(after) = rest.strip_prefix('\\') {
        let (character, tail) = escape(after)?;
        decoded.push(character);
        let run = tail.find('\\').unwrap_or(tail.len());
        let (plain, next) = tail.split_at_checked(run)?;
        decoded.push_str(plain);
        rest = next;
    }
    Some(decoded)
}

/// Decodes the text between a validated string's quotes, with U+FFFD for each lone surrogate.
pub(crate) fn decoded_characters(inner: &[u8]) -> impl Iterator<Item = char> + '_ {
    let mut rest = std::str::from_utf8(inner).unwrap_or_default();
    std::iter::from_fn(move || {
        let mut characters = rest.chars();
        let (character, tail) = match characters.next()? {
            '\\' => escape(characters.as_str()).unwrap_or_else(|| {
                const LONE_SURROGATE: usize = "uD800".len();
                (
                    char::REPLACEMENT_CHARACTER,
                    characters
                        .as_str()
                        .get(LONE_SURROGATE..)
                        .unwrap_or_default(),
                )
            }),
            plain => (plain, characters.as_str()),
        };
        rest = tail;
        Some(character)
    })
}

/// The valid JSON `text` with U+FFFD for each lone surrogate, if it has any.
pub(super) fn without_lone_surrogates(text: &str) -> Option<String> {
    let (mut out, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(found) = text.get(at..)?.find('\\') {
        let start = at + found;
        match escape(text.get(start + 1..)?) {
            Some((_, rest)) => at = text.len() - rest.len(),
            None => {
                at = start + r"\uD800".len();
                out.push_str(text.get(kept..start)?);
                out.push(char::REPLACEMENT_CHARACTER);
                kept = at;
            }
        }
    }
    out.push_str(text.get(kept..)?);
    (kept > 0).then_some(out)
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
    Some((
        char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?,
        rest,
    ))
}

fn code_unit(digits: &str) -> Option<(u32, &str)> {
    let (hex, rest) = digits.split_at_checked(4)?;
    Some((u32::from_str_radix(hex, 16).ok()?, rest))
}

/// Appends `text` as a quoted JSON string. Escapes only the characters that RFC 8259 section 7
/// requires.
pub(super) fn encode_into(out: &mut Vec<u8>, text: &str) {
    // Writing a text to a `Vec` cannot fail.
    _ = serde_json::to_writer(out, text);
}
