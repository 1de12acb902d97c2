//! Forms of values that differ each time: points in time and ids.

use std::ops::Range;

use fanlight_protocol::uri::KEPT_RESULT;

/// A form that a part of a text has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A UUID (RFC 9562), or the URI of a result that Fanlight keeps.
    Id,
    /// A date, with or without a time (RFC 3339). The offset may be missing, as in ISO 8601.
    Time,
    /// Seconds, milliseconds, microseconds or nanoseconds since 1970, in the years 2017 to 2039.
    Epoch,
}

/// In these patterns `x` is a hexadecimal digit, `d` a decimal one, and `T` what separates a date
/// from a time.
const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const DATE: &str = "dddd-dd-dd";
const CLOCK: &str = "Tdd:dd:dd";
const OFFSET: &str = "dd:dd";
/// The numbers of digits of an epoch.
const EPOCHS: [usize; 4] = [10, 13, 16, 19];

/// A text in which each time and each id is the same.
pub(super) fn mask_forms(text: &str) -> String {
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for (range, form) in find_forms(text) {
        out += text.get(copied..range.start).unwrap_or_default();
        out += match form {
            Form::Id => "\u{1}id",
            Form::Time => "\u{1}time",
            Form::Epoch => "\u{1}epoch",
        };
        copied = range.end;
    }
    out + text.get(copied..).unwrap_or_default()
}

/// The ids in a text.
pub fn find_ids(text: &str) -> impl Iterator<Item = &str> {
    let ids = find_forms(text).filter(|(_, form)| *form == Form::Id);
    ids.filter_map(|(range, _)| text.get(range))
}

fn find_forms(text: &str) -> impl Iterator<Item = (Range<usize>, Form)> {
    let (bytes, mut at) = (text.as_bytes(), 0);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            let word = bytes.get(start..)?;
            let found = form_of(word).filter(|(length, _)| !is_word(word.get(*length)));
            if let Some((length, form)) = found {
                at += length;
                return Some((start..at, form));
            }
            // A form begins where a word begins.
            let letters = word.iter().take_while(|byte| is_word(Some(byte)));
            at += letters.count().max(1);
        }
        None
    })
}

fn is_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
}

/// The form that a text begins with, and its length.
fn form_of(text: &[u8]) -> Option<(usize, Form)> {
    if matches(text, UUID) {
        return Some((UUID.len(), Form::Id));
    }
    if let Some(handle) = text.strip_prefix(KEPT_RESULT.as_bytes()) {
        let is_of_handle = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let length = handle.iter().take_while(is_of_handle).count();
        return Some((KEPT_RESULT.len() + length, Form::Id));
    }
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let after_fraction = |at: usize| match (text.get(at), digits(at + 1)) {
        (Some(b'.' | b','), count) if count > 0 => at + 1 + count,
        _ => at,
    };
    if matches(text, DATE) && matches!(text, [b'1' | b'2', ..]) {
        let mut end = DATE.len();
        if text.get(end..).is_some_and(|rest| matches(rest, CLOCK)) {
            end = after_fraction(end + CLOCK.len());
            end += match text.get(end..) {
                Some([b'Z' | b'z', ..]) => 1,
                Some([b'+' | b'-', offset @ ..]) if matches(offset, OFFSET) => 1 + OFFSET.len(),
                _ => 0,
            };
        }
        return Some((end, Form::Time));
    }
    let count = digits(0);
    let is_recent = matches!(text, [b'1', b'5'..=b'9', ..] | [b'2', b'0' | b'1', ..]);
    let is_epoch = is_recent && EPOCHS.contains(&count);
    is_epoch.then(|| (after_fraction(count), Form::Epoch))
}

fn matches(text: &[u8], pattern: &str) -> bool {
    text.len() >= pattern.len()
        && text
            .iter()
            .zip(pattern.bytes())
            .all(|(byte, wanted)| match wanted {
                b'x' => byte.is_ascii_hexdigit(),
                b'd' => byte.is_ascii_digit(),
                b'T' => matches!(byte, b'T' | b't' | b' '),
                other => *byte == other,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_uuids_are_masked_wherever_a_word_begins() {
        let uuid = "6f1c2f0e-3c7d-4a54-9d2b-0f6f5a1c9e77";
        for (text, expected) in [
            ("2026-11-29T21:39:36.123456Z", "\u{1}time"),
            ("2026-11-29t21:39:36+01:00!", "\u{1}time!"),
            ("at 2026-11-29 21:39:36, ok", "at \u{1}time, ok"),
            ("2026-11-29T21:39:36.123", "\u{1}time"),
            ("day 2026-11-29.", "day \u{1}time."),
            ("1764452376", "\u{1}epoch"),
            ("1764452376.25", "\u{1}epoch"),
            ("1764452376123 ms", "\u{1}epoch ms"),
            ("3000000000", "3000000000"),
            ("17644523761", "17644523761"),
            ("x1764452376", "x1764452376"),
            ("1764452376x", "1764452376x"),
            ("é1764452376", "é1764452376"),
            ("2026-11-291", "2026-11-291"),
            ("v2026-11-29", "v2026-11-29"),
            ("", ""),
        ] {
            assert_eq!(mask_forms(text), expected, "{text}");
        }
        assert_eq!(mask_forms(&format!("id:{uuid}/x")), "id:\u{1}id/x");
        assert_eq!(mask_forms(&format!("{uuid}0")), format!("{uuid}0"));
        let uri = "at fanlight-result:3q-_Xw/content/0: text";
        assert_eq!(mask_forms(uri), "at \u{1}id/content/0: text");
        let both = format!("{uuid} and {uuid}");
        assert_eq!(find_ids(&both).collect::<Vec<_>>(), [uuid, uuid]);
    }
}
