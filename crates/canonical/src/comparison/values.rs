//! The differences of two values: results, errors, parameters, and the parts of definitions besides
//! schemas.

use std::collections::{HashMap, HashSet, VecDeque};

use fanlight_protocol::Json;
use fanlight_protocol::json::{DEFAULT_NESTING, Kind};

use super::forms::mask_forms;
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
