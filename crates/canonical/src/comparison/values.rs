//! The differences of two values: results, errors, and the parts of definitions besides schemas.

use std::collections::{HashMap, VecDeque};

use fanlight_protocol::Json;
use fanlight_protocol::json::{DEFAULT_NESTING, Kind};

use super::forms::masked;
use super::{Change, Comparison, elements, members};

/// The places of content blocks, whose `type` decides what they are.
const BLOCKS: [&str; 3] = [
    "/result/content/*",
    "/result/messages/*/content",
    "/result/messages/*/content/*",
];

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
            (Kind::Object, Kind::Object) => self.objects(was, is),
            (Kind::Array, Kind::Array) => self.arrays(was, is),
            (Kind::String, Kind::String) if self.path.place.ends_with("/text") => {
                self.texts(was, is);
            }
            (before, after) if before != after => {
                self.add(Change::TypeChanged, Some(was), Some(is));
            }
            _ if scalar(was) == scalar(is) => {}
            _ => self.add(Change::ValueChanged, Some(was), Some(is)),
        }
    }

    /// Whether a content block is of another type.
    fn is_other_block(&self, was: &Json, is: &Json) -> bool {
        let kind = |block: &Json| block.get("type").map(|kind| scalar(&kind));
        BLOCKS.contains(&self.path.place.as_str()) && kind(was) != kind(is)
    }

    fn objects(&mut self, was: &Json, is: &Json) {
        let (was, is) = (members(was), members(is));
        let after: HashMap<&str, &Json> = is.iter().map(|(name, is)| (&**name, is)).collect();
        for (name, was) in &was {
            self.at_member(name, |at| match after.get(&**name) {
                Some(is) => at.values(was, is),
                None => at.add(Change::MemberGone, Some(was), None),
            });
        }
        let before: HashMap<&str, &Json> = was.iter().map(|(name, was)| (&**name, was)).collect();
        let added = is.iter().filter(|(name, _)| !before.contains_key(&**name));
        for (name, is) in added {
            self.at_member(name, |at| at.add(Change::MemberAdded, None, Some(is)));
        }
    }

    /// Compares texts, as JSON if both are.
    fn texts(&mut self, was: &Json, is: &Json) {
        match (inner_json(was), inner_json(is)) {
            (Some(was), Some(is)) => self.values(&was, &is),
            // Programs that read the text as JSON cannot any more.
            (Some(_), None) => self.add(Change::TypeChanged, Some(was), Some(is)),
            _ if scalar(was) == scalar(is) => {}
            _ => self.add(Change::ValueChanged, Some(was), Some(is)),
        }
    }

    /// Compares arrays. Equal items belong together wherever they are, then items with the same
    /// members, and then the others in order.
    fn arrays(&mut self, was: &Json, is: &Json) {
        let (before, after) = (elements(was), elements(is));
        let mut pairs = Vec::new();
        let mut left: Vec<usize> = (0..before.len()).collect();
        let mut right: Vec<usize> = (0..after.len()).collect();
        let keys = [
            Self::signature as fn(&mut Self, &Json) -> String,
            |_, item| outline(item),
            |_, _| String::new(),
        ];
        for (round, key) in keys.into_iter().enumerate() {
            let mut others: HashMap<String, VecDeque<usize>> = HashMap::new();
            for at in std::mem::take(&mut right) {
                let key = self.key_of(&after, at, key);
                others.entry(key).or_default().push_back(at);
            }
            for at in std::mem::take(&mut left) {
                let key = self.key_of(&before, at, key);
                match others.get_mut(&key).and_then(VecDeque::pop_front) {
                    Some(other) => pairs.push((at, other, round)),
                    None => left.push(at),
                }
            }
            right = others.into_values().flatten().collect();
            right.sort_unstable();
        }
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

    fn key_of(&mut self, items: &[Json], at: usize, key: fn(&mut Self, &Json) -> String) -> String {
        let mut found = String::new();
        if let Some(item) = items.get(at) {
            self.at_item(at, |here| found = key(here, item));
        }
        found
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
            Kind::String if self.path.place.ends_with("/text") => match inner_json(json) {
                Some(inner) => self.signature(&inner),
                None => scalar(json),
            },
            _ => scalar(json),
        }
    }
}

/// Texts in one, with their lengths, so that other texts give another one.
fn joined(texts: impl IntoIterator<Item = String>) -> String {
    let all = texts.into_iter();
    all.map(|text| format!("{}:{text}", text.len())).collect()
}

/// The kind of an item, its `type` and the names of its members.
fn outline(item: &Json) -> String {
    let mut names: Vec<String> = members(item).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let kind = item.get("type").map(|kind| scalar(&kind));
    format!("{:?}{kind:?}{}", item.kind(), joined(names))
}

/// A text for a value that is not read further. It is equal for strings with the same characters,
/// for equal numbers, and for values of a form that differs each time.
fn scalar(json: &Json) -> String {
    match json.as_str() {
        Some(text) => format!("\"{}", masked(&text)),
        None if json.kind() == Kind::Number && !json.is_integer() => {
            let number = json.as_text().parse::<f64>().unwrap_or_default();
            masked(&number.to_string())
        }
        None => masked(json.as_text()),
    }
}

/// The array or object that a string contains as text.
fn inner_json(text: &Json) -> Option<Json> {
    let text = text.as_str()?;
    let is_whole = text.trim_start().starts_with(['{', '[']);
    let parsed = Json::parse(text.into_owned().into(), DEFAULT_NESTING);
    parsed.ok().filter(|_| is_whole)
}
