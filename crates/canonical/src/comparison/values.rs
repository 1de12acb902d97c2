//! The differences of two values: results, errors, parameters, and the parts of definitions besides
//! schemas.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use fanlight_protocol::Json;
use fanlight_protocol::json::{DEFAULT_NESTING, Kind};
use fanlight_protocol::uri::KEPT_RESULT;

use super::{Change, Comparison, Difference, Tolerance, elements, members};

/// The places of content blocks, which are compared by their `type`.
const BLOCKS: [&str; 3] = [
    "/result/content/*",
    "/result/messages/*/content",
    "/result/messages/*/content/*",
];

/// Compares two values at `pointer`. The order of members and the forms of texts and numbers do not
/// count, but the places of items do.
pub fn compare_exactly(
    pointer: &str,
    was: Option<&Json>,
    is: Option<&Json>,
    tolerance: &Tolerance,
) -> Vec<Difference> {
    let mut comparison = Comparison::new(tolerance, pointer);
    comparison.is_exact = true;
    comparison.compare_optional(was, is);
    comparison.found
}

impl Comparison<'_> {
    /// Compares two values at the current place.
    pub(super) fn values(&mut self, was: &Json, is: &Json) {
        if was == is || self.is_exempt() {
            return;
        }
        match (was.kind(), is.kind()) {
            (Kind::Object, Kind::Object) if self.is_other_block(was, is) => {
                let (was, is) = (was.get("type"), is.get("type"));
                self.at_member("type", |at| {
                    at.add(Change::TypeChanged, was.as_ref(), is.as_ref());
                });
            }
            (Kind::Object, Kind::Object) => {
                self.each_member(was, is, |at, _, was, is| at.compare_optional(was, is));
            }
            (Kind::Array, Kind::Array) => self.arrays(was, is),
            (Kind::String, Kind::String) if self.is_text() => self.texts(was, is),
            (before, after) if before != after => {
                self.add(Change::TypeChanged, Some(was), Some(is));
            }
            _ if self.scalar(was) == self.scalar(is) => {}
            _ => self.add(Change::ValueChanged, Some(was), Some(is)),
        }
    }

    fn compare_optional(&mut self, was: Option<&Json>, is: Option<&Json>) {
        match (was, is) {
            (Some(was), Some(is)) => self.values(was, is),
            (None, None) => {}
            (was, None) => self.add(Change::MemberGone, was, None),
            (None, is) => self.add(Change::MemberAdded, None, is),
        }
    }

    /// Whether a content block is of another type.
    fn is_other_block(&self, was: &Json, is: &Json) -> bool {
        let kind = |block: &Json| block.get("type").map(|kind| self.scalar(&kind));
        BLOCKS.contains(&self.path.place.as_str()) && kind(was) != kind(is)
    }

    /// Whether a string at the current place may be JSON.
    fn is_text(&self) -> bool {
        !self.is_exact && self.path.place.ends_with("/text")
    }

    /// Compares texts, as JSON if both are.
    fn texts(&mut self, was: &Json, is: &Json) {
        match (inner_json(was), inner_json(is)) {
            (Some(was), Some(is)) => self.values(&was, &is),
            // Programs that read the text as JSON cannot any more.
            (Some(_), None) => self.add(Change::TypeChanged, Some(was), Some(is)),
            _ if self.scalar(was) == self.scalar(is) => {}
            _ => self.add(Change::ValueChanged, Some(was), Some(is)),
        }
    }

    /// Compares arrays. Unless the comparison is exact, equal items belong together wherever they
    /// are, then items with the same members, and then the others in order.
    fn arrays(&mut self, was: &Json, is: &Json) {
        let (before, after) = (elements(was), elements(is));
        if self.is_exact {
            for at in 0..before.len().max(after.len()) {
                // As a name: each item is a place of its own.
                self.at_member(&at.to_string(), |here| {
                    here.compare_optional(before.get(at), after.get(at));
                });
            }
            return;
        }
        let mut keys = |items: &[Json]| {
            let keys = items.iter().enumerate().map(|(at, item)| {
                let mut signature = String::new();
                self.at_item(at, |here| signature = here.signature(item));
                [signature, outline(item), String::new()].map(Some)
            });
            keys.collect::<Vec<_>>()
        };
        let Paired { mut pairs, .. } = pair_up(&keys(&before), &keys(&after));
        if before.len() != after.len() {
            self.add(Change::ValueChanged, Some(was), Some(is));
        }
        let equal = pairs.iter().filter(|(.., round)| *round == 0);
        if !equal.is_sorted_by_key(|(_, other, _)| *other) {
            self.add(Change::OrderChanged, Some(was), Some(is));
        }
        pairs.sort_unstable();
        for (at, other, _) in pairs.into_iter().filter(|(.., round)| *round > 0) {
            if let (Some(was), Some(is)) = (before.get(at), after.get(other)) {
                self.at_item(at, |here| here.values(was, is));
            }
        }
    }

    /// Whether two values are the same, apart from tolerated differences.
    pub(super) fn are_same(&mut self, was: &Json, is: &Json) -> bool {
        was == is || self.signature(was) == self.signature(is)
    }

    /// A text that is equal for values without a difference.
    fn signature(&mut self, json: &Json) -> String {
        if self.is_exempt() || self.tolerance.knows(&self.path.place, Change::ValueChanged) {
            return format!("{:?}", json.kind());
        }
        match json.kind() {
            Kind::Object => {
                let mut signs = Vec::new();
                for (name, member) in members(json) {
                    self.at_member(&name, |at| {
                        if !at.tolerance.knows(&at.path.place, Change::MemberGone) {
                            signs.push(joined([name.clone(), at.signature(&member)]));
                        }
                    });
                }
                signs.sort_unstable();
                format!("{{{}", joined(signs))
            }
            Kind::Array => {
                let mut signs = Vec::new();
                for (index, item) in elements(json).iter().enumerate() {
                    self.at_item(index, |at| signs.push(at.signature(item)));
                }
                if self.tolerance.knows(&self.path.place, Change::OrderChanged) {
                    signs.sort_unstable();
                }
                format!("[{}", joined(signs))
            }
            Kind::String if self.is_text() => match inner_json(json) {
                Some(inner) => self.signature(&inner),
                None => self.scalar(json),
            },
            _ => self.scalar(json),
        }
    }

    /// A text for a value that is not read further. It is equal for strings with the same
    /// characters, for equal numbers, and, unless the comparison is exact, for values of a form that
    /// differs each time.
    fn scalar(&self, json: &Json) -> String {
        let form = |text: &str| match self.is_exact {
            true => text.to_owned(),
            false => mask_forms(text),
        };
        match json.as_str() {
            Some(text) => format!("\"{}", form(&text)),
            None => {
                let text = form(json.as_text());
                let number = (json.kind() == Kind::Number).then(|| decimal(&text));
                number.flatten().unwrap_or(text)
            }
        }
    }
}

/// The keys that identify an item of a list; items with an equal key form a pair.
type Keys = [Option<String>; 3];

/// Pairs of items from the two sides, by their places.
pub(super) struct Paired {
    /// Both places, and the number of the equal key.
    pub(super) pairs: Vec<(usize, usize, usize)>,
    pub(super) gone: Vec<usize>,
    pub(super) new: Vec<usize>,
}

/// Pairs the things whose first keys are equal, then those whose second keys are, and so on.
pub(super) fn pair_up(before: &[Keys], after: &[Keys]) -> Paired {
    let mut pairs = Vec::new();
    let mut gone: Vec<usize> = (0..before.len()).collect();
    let mut new: Vec<usize> = (0..after.len()).collect();
    for round in 0..3 {
        let key = |all: &[Keys], at: usize| all.get(at)?.get(round)?.clone();
        let mut others: HashMap<String, VecDeque<usize>> = HashMap::new();
        for at in &new {
            if let Some(key) = key(after, *at) {
                others.entry(key).or_default().push_back(*at);
            }
        }
        let mut taken = HashSet::new();
        gone.retain(|at| {
            let place = key(before, *at).and_then(|key| others.get_mut(&key));
            let other = place.and_then(VecDeque::pop_front);
            pairs.extend(other.map(|other| (*at, other, round)));
            taken.extend(other);
            other.is_none()
        });
        new.retain(|at| !taken.contains(at));
    }
    Paired { pairs, gone, new }
}

/// Joins texts with their lengths, so that different lists of texts give different results.
fn joined(texts: impl IntoIterator<Item = String>) -> String {
    let all = texts.into_iter();
    all.map(|text| format!("{}:{text}", text.len())).collect()
}

/// The kind of an item, its `type` and the names of its members.
fn outline(item: &Json) -> String {
    let mut names: Vec<String> = members(item).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let kind = item.get("type");
    let kind = kind.as_ref().and_then(Json::as_str);
    format!("{:?}{kind:?}{}", item.kind(), joined(names))
}

/// A text that is equal for equal numbers: the sign, the digits without zeros at the ends, and the
/// power of ten of the last digit. `None` for an exponent that no program computes with.
fn decimal(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let unsigned = mantissa.trim_start_matches('-');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let power = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + zeros;
    let sign = mantissa.strip_suffix(unsigned)?;
    Some(match significant.trim_start_matches('0') {
        "" => "0".to_owned(),
        significant => format!("{sign}{significant}e{power}"),
    })
}

/// The array or object that a string contains as text.
fn inner_json(text: &Json) -> Option<Json> {
    let text = text.as_str()?;
    let is_whole = text.trim_start().starts_with(['{', '[']);
    let parsed = Json::parse(text.into_owned().into(), DEFAULT_NESTING);
    parsed.ok().filter(|_| is_whole)
}

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
