//! Changes text by splicing: everything outside of the edited ranges keeps its bytes.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Json, Member, ObjectBuilder};

/// Replacements in a text. All ranges refer to the original text.
#[derive(Clone, Debug)]
pub struct Edits {
    base: Bytes,
    edits: SmallVec<[(Range<usize>, Bytes); FEW]>,
}

/// The number of edits that are stored without an allocation.
const FEW: usize = 3;
/// The longest edited text that is copied, in bytes. Copying it costs less than sharing parts of
/// the original.
const SHORT: usize = 8 << 10;

impl Edits {
    /// No edits yet.
    pub fn new(base: Bytes) -> Self {
        Self {
            base,
            edits: SmallVec::new(),
        }
    }

    /// Replaces the text at `range`. Ranges must not overlap. [`Edits::finish`] ignores a range
    /// that overlaps another one, or that is outside of the text.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.edits.push((range, with.into()));
    }

    /// Inserts one or more members at the front of the object that begins at `object_start`.
    /// `members` is their text without outer commas, e.g. `"a":1,"b":2`.
    pub fn insert_members(&mut self, object_start: usize, members: &[u8]) {
        self.insert_owned_members(object_start, Bytes::copy_from_slice(members));
    }

    /// Like [`Edits::insert_members`], for text that needs no copy.
    pub fn insert_owned_members(&mut self, object_start: usize, members: Bytes) {
        if members.is_empty() {
            return;
        }
        let at = object_start + 1;
        self.edits.push((at..at, members));
        let first = super::scan::white_space(&self.base, at);
        if self.base.get(first) != Some(&b'}') {
            self.edits.push((at..at, Bytes::from_static(b",")));
        }
    }

    /// Changes the members of the object that begins at `object_start`. `changes` has one element
    /// for each of `members`. The text `added` (members without outer commas) is put after the last
    /// one. All other text stays.
    pub fn change_members(
        &mut self,
        object_start: usize,
        members: &[Member],
        changes: Vec<MemberChange>,
        added: &[u8],
    ) {
        let kept = |change: &MemberChange| !matches!(change, MemberChange::Remove);
        let removed: SmallVec<[bool; 16]> = changes.iter().map(|change| !kept(change)).collect();
        let at = |range: Range<usize>| object_start + range.start..object_start + range.end;
        let elements = members.iter().map(|member| member.lead..member.value.end);
        remove_elements(
            elements,
            |index| removed.get(index) == Some(&true),
            |range| {
                self.edits.push((at(range), Bytes::new()));
            },
        );
        let is_empty = !changes.iter().any(kept);
        for (member, change) in members.iter().zip(changes) {
            if let MemberChange::Replace(value) = change {
                self.edits.push((at(member.value.clone()), value));
            }
        }
        if !added.is_empty() {
            let end = object_start + members.last().map_or(1, |last| last.value.end);
            let comma: &[u8] = if is_empty { b"" } else { b"," };
            self.edits.push((end..end, [comma, added].concat().into()));
        }
    }

    /// Removes the elements of `array` whose index satisfies `removes`. The array begins at
    /// `array_start`.
    pub fn remove_elements(
        &mut self,
        array_start: usize,
        array: &Json,
        removes: impl Fn(usize) -> bool,
    ) {
        let mut lead = 1;
        let elements: Vec<_> = array
            .elements()
            .map(|element| {
                let start =
                    std::mem::replace(&mut lead, following_comma(array.bytes(), element.end));
                start..element.end
            })
            .collect();
        remove_elements(elements.into_iter(), removes, |range| {
            self.edits.push((
                array_start + range.start..array_start + range.end,
                Bytes::new(),
            ));
        });
    }

    /// The edited text. A short text is one piece; a longer one consists of pieces that share
    /// memory with the original.
    #[must_use]
    pub fn finish(mut self) -> Chunks {
        self.put_in_order();
        let (out, new) = self.edits.iter().fold((0, 0), |(out, new), (range, with)| {
            (out + range.len(), new + with.len())
        });
        let len = self.base.len().saturating_sub(out) + new;
        if len <= SHORT {
            return self.copied(len).into();
        }
        let mut chunks = Chunks::default();
        let mut done = 0;
        for (range, with) in self.edits {
            chunks.push(self.base.slice(done..range.start));
            chunks.push(with);
            done = range.end;
        }
        chunks.push(self.base.slice(done..));
        chunks
    }

    /// Copies the edited text, which has `len` bytes.
    fn copied(&self, len: usize) -> Bytes {
        let base = |range: Range<usize>| self.base.get(range).unwrap_or_default();
        let mut whole = Vec::with_capacity(len);
        let mut done = 0;
        for (range, with) in &self.edits {
            whole.extend_from_slice(base(done..range.start));
            whole.extend_from_slice(with);
            done = range.end;
        }
        whole.extend_from_slice(base(done..self.base.len()));
        whole.into()
    }

    /// Sorts the edits, and drops those that overlap or are outside of the text.
    fn put_in_order(&mut self) {
        // An insertion goes before a replacement that begins at the same place.
        self.edits
            .sort_by_key(|(range, _)| (range.start, range.end));
        let mut done = 0;
        let end = self.base.len();
        self.edits.retain(|(range, _)| {
            let fits = done <= range.start && range.start <= range.end && range.end <= end;
            debug_assert!(
                fits,
                "overlapping edit, or one outside of the text, at {range:?}"
            );
            done = if fits { range.end } else { done };
            fits
        });
    }

    /// The edited text as one value. The edits must have kept it a single value.
    #[must_use]
    pub fn finish_json(self) -> Json {
        Json::from_trusted(self.finish().into_bytes())
    }
}

/// A change of one member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Keeps the member.
    Keep,
    /// Removes the member, with one of the commas around it.
    Remove,
    /// Replaces the value by this text.
    Replace(Bytes),
}

/// Calls `remove` with the ranges to cut out, so that commas remain only between the other
/// elements. The range of each element includes the white space in front of it.
fn remove_elements(
    elements: impl Iterator<Item = Range<usize>>,
    removes: impl Fn(usize) -> bool,
    mut remove: impl FnMut(Range<usize>),
) {
    let mut elements = elements.enumerate().peekable();
    let (mut previous_end, mut kept_any) = (0, false);
    while let Some((index, element)) = elements.next() {
        match removes(index) {
            false => kept_any = true,
            // Together with the comma in front of it.
            true if kept_any => remove(previous_end..element.end),
            // Together with the comma behind it, if there is one.
            true => {
                remove(element.start..elements.peek().map_or(element.end, |(_, next)| next.start));
            }
        }
        previous_end = element.end;
    }
}

/// The offset after the comma that follows an element, or the element's end if there is no comma.
fn following_comma(text: &[u8], end: usize) -> usize {
    let next = super::scan::white_space(text, end);
    if text.get(next) == Some(&b',') {
        next + 1
    } else {
        end
    }
}

/// Pieces of text. The pieces of an edited message are stored without an allocation.
type Parts = SmallVec<[Bytes; 2 * FEW]>;

/// Text in pieces that are sent one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    parts: Parts,
    len: usize,
}

impl Chunks {
    /// Appends a piece. Empty pieces are left out.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    /// The length of all pieces together, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The pieces in order.
    #[must_use]
    pub fn into_parts(self) -> impl ExactSizeIterator<Item = Bytes> {
        self.parts.into_iter()
    }

    /// The text in one piece. It is copied only if there are several pieces.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        if self.parts.len() == 1 {
            return self.parts.pop().unwrap_or_default();
        }
        let mut whole = Vec::with_capacity(self.len);
        for part in &self.parts {
            whole.extend_from_slice(part);
        }
        Bytes::from(whole)
    }
}

impl From<Bytes> for Chunks {
    fn from(text: Bytes) -> Self {
        [text].into_iter().collect()
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let parts = parts.into_iter();
        let mut chunks = Self {
            parts: Parts::with_capacity(parts.size_hint().0),
            len: 0,
        };
        parts.for_each(|part| chunks.push(part));
        chunks
    }
}

/// The object after `change` has replaced elements of the array `member`; `None` if it changes none.
pub fn replace_elements(
    object: &Json,
    member: &str,
    mut change: impl FnMut(&Json) -> Option<Json>,
) -> Option<Json> {
    let array = object.place(member)?;
    let mut edits = None;
    for place in object.slice(array.clone()).elements() {
        let place = array.start + place.start..array.start + place.end;
        if let Some(changed) = change(&object.slice(place.clone())) {
            edits
                .get_or_insert_with(|| Edits::new(object.bytes().clone()))
                .replace(place, changed.into_bytes());
        }
    }
    edits.map(Edits::finish_json)
}

/// The object without the members for which `keep` is false, and with `added` appended (raw member
/// text without outer commas). Kept members keep their bytes and the white space before them.
pub fn rewrite_object(object: &Json, mut keep: impl FnMut(&Member) -> bool, added: &[u8]) -> Json {
    let text = object.bytes();
    let mut out = Vec::with_capacity(text.len() + added.len() + 2);
    out.push(b'{');
    for member in object.members() {
        if !keep(&member) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(text.get(member.lead..member.value.end).unwrap_or_default());
    }
    if !added.is_empty() {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(added);
    }
    out.push(b'}');
    Json::from_trusted(Bytes::from(out))
}

impl Json {
    /// The text of an object's members, without the braces.
    pub fn inner_text(&self) -> &[u8] {
        let text = self.bytes();
        text.get(1..text.len().saturating_sub(1))
            .unwrap_or_default()
    }

    /// The object without the members of these names.
    pub fn without_members(&self, names: &[&str]) -> Self {
        let is_kept = |member: &Member| !names.iter().any(|name| member.is(self, name));
        rewrite_object(self, is_kept, b"")
    }

    /// The object with this member at the end, without others of its name.
    pub fn with_member(&self, name: &str, value: &Self) -> Self {
        let added = ObjectBuilder::new().member(name, value).finish();
        rewrite_object(self, |member| !member.is(self, name), added.inner_text())
    }

    /// The object with the member `name` in the object that its member `outer` is. If it has that
    /// already, nothing changes.
    pub fn with_nested(&self, outer: &str, name: &str, value: &Self) -> Self {
        let own = ObjectBuilder::new().member(name, value).finish();
        let Some(place) = self
            .place(outer)
            .filter(|at| self.slice(at.clone()).is_object())
        else {
            return self.with_member(outer, &own);
        };
        let mut edits = Edits::new(self.bytes().clone());
        if self.slice(place.clone()).get(name).is_none() {
            edits.insert_members(place.start, own.inner_text());
        }
        edits.finish_json()
    }
}

/// The array with only the elements whose index satisfies `keep`. The text around them keeps its
/// bytes.
pub fn retain_elements(array: &Json, mut keep: impl FnMut(usize) -> bool) -> Json {
    let text = array.bytes();
    let elements: Vec<Range<usize>> = array.elements().collect();
    let slice = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
        return array.clone();
    };
    let mut out = slice(0, first.start).to_vec();
    let mut previous_end = first.start;
    let mut kept_any = false;
    for (index, element) in elements.iter().enumerate() {
        if keep(index) {
            // The comma and white space before an element belong to it.
            out.extend_from_slice(slice(
                if kept_any {
                    previous_end
                } else {
                    element.start
                },
                element.end,
            ));
            kept_any = true;
        }
        previous_end = element.end;
    }
    out.extend_from_slice(slice(last.end, text.len()));
    Json::from_trusted(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    fn changed(text: &str, added: &str, change: impl Fn(&str) -> MemberChange) -> String {
        let object = json(text);
        let members: Vec<_> = object.members().collect();
        let changes = members
            .iter()
            .map(|member| change(&member.name(&object).unwrap()))
            .collect();
        // Within a larger text, to check that places count from its beginning.
        let mut edits = Edits::new(format!("[0,{text}]").into());
        edits.change_members(3, &members, changes, added.as_bytes());
        let whole = String::from_utf8(edits.finish().into_bytes().to_vec()).unwrap();
        whole
            .strip_prefix("[0,")
            .unwrap()
            .strip_suffix(']')
            .unwrap()
            .to_owned()
    }

    #[test]
    fn changed_members_leave_all_other_text() {
        let text = "{ \"a\" : 1 , \"b\":[ ],\n\"\\u0063\":3 }";
        let without = |gone: &'static str| {
            changed(text, "", move |name| {
                if gone.contains(name) {
                    MemberChange::Remove
                } else {
                    MemberChange::Keep
                }
            })
        };
        assert_eq!(without(""), text);
        assert_eq!(without("a"), "{ \"b\":[ ],\n\"\\u0063\":3 }");
        assert_eq!(without("b"), "{ \"a\" : 1,\n\"\\u0063\":3 }");
        assert_eq!(without("c"), "{ \"a\" : 1 , \"b\":[ ] }");
        assert_eq!(without("ab"), "{\n\"\\u0063\":3 }");
        assert_eq!(without("ac"), "{ \"b\":[ ] }");
        assert_eq!(without("abc"), "{ }");
        let with = |added: &str| changed(text, added, |_| MemberChange::Keep);
        assert_eq!(
            with("\"d\":4"),
            "{ \"a\" : 1 , \"b\":[ ],\n\"\\u0063\":3,\"d\":4 }"
        );
        let replaced = changed(text, "\"d\":4", |name| match name {
            "a" => MemberChange::Replace("\"x\"".into()),
            "b" => MemberChange::Keep,
            _ => MemberChange::Remove,
        });
        assert_eq!(replaced, "{ \"a\" : \"x\" , \"b\":[ ],\"d\":4 }");
        assert_eq!(
            changed(text, "\"d\":4", |_| MemberChange::Remove),
            "{\"d\":4 }"
        );
        assert_eq!(
            changed("{ }", "\"d\":4", |_| MemberChange::Keep),
            "{\"d\":4 }"
        );
        assert_eq!(changed("{}", "", |_| MemberChange::Keep), "{}");
    }

    proptest! {
        #[test]
        fn changed_members_and_removed_elements_are_those_of_serde_json(
            values in proptest::collection::vec(("[ \\n]{0,2}", 0..100_u32, 0..3_u8), 0..6),
            added in any::<bool>(),
        ) {
            use serde_json::{Value, json, from_str};
            let text = |one: &dyn Fn(usize, u32) -> String| -> String {
                let all = values.iter().enumerate();
                all.map(|(at, (space, value, _))| format!("{space}{}{space}", one(at, *value))).collect::<Vec<_>>().join(",")
            };
            let object = format!("{{{}}}", text(&|at, value| format!("\"k{at}\":{value}")));
            let action = |name: &str| values[name[1..].parse::<usize>().unwrap()].2;
            let result = changed(&object, if added { "\"new\":true" } else { "" }, |name| match action(name) {
                0 => MemberChange::Keep,
                1 => MemberChange::Remove,
                _ => MemberChange::Replace("[null]".into()),
            });
            let expected: serde_json::Map<String, Value> = values.iter().enumerate().filter(|(_, (_, _, action))| *action != 1)
                .map(|(at, (_, value, action))| (format!("k{at}"), if *action == 0 { json!(value) } else { json!([null]) }))
                .chain(added.then(|| ("new".to_owned(), json!(true))))
                .collect();
            prop_assert_eq!(from_str::<Value>(&result).unwrap(), Value::Object(expected));

            let array = json(&format!("[{}]", text(&|_, value| value.to_string())));
            let mut edits = Edits::new(array.bytes().clone());
            edits.remove_elements(0, &array, |at| values[at].2 == 1);
            let expected: Vec<_> = values.iter().filter(|(.., action)| *action != 1).map(|(_, value, _)| json!(value)).collect();
            prop_assert_eq!(from_str::<Value>(edits.finish_json().as_text()).unwrap(), Value::Array(expected));
        }
    }

    #[test]
    fn members_in_front_keep_the_offset_index() {
        let long = "x".repeat(2000);
        let value = json(&format!(
            r#"{{"name":"n","arguments":{{ "a":"{long}","b":{{"c":1}}}},"z":"{long}"}}"#
        ));
        let [arguments, empty] = [
            value.find(["arguments"]).unwrap()[0].clone().unwrap().start,
            0,
        ];
        let with = value
            .with_members_indexed(arguments, br#""o":1"#)
            .with_members_indexed(empty, br#""p":2"#);
        assert!(
            with.as_text()
                .starts_with(r#"{"p":2,"name":"n","arguments":{"o":1, "a":"x"#)
        );
        let plain = Json::parse(with.bytes().clone(), 64).unwrap();
        for key in ["p", "name", "arguments", "z"] {
            assert_eq!(with.get(key), plain.get(key), "{key}");
        }
        assert_eq!(
            with.get("arguments")
                .unwrap()
                .get("b")
                .unwrap()
                .get("c")
                .unwrap()
                .as_text(),
            "1"
        );
        let [name, arguments] = value
            .find(["name", "arguments"])
            .unwrap()
            .map(Option::unwrap);
        let at = arguments.start + 1;
        let edits = [
            (name, b"\"longer\"".as_slice()),
            (at..at, br#""o":1"#),
            (at..at, b","),
        ];
        let with = value.with_edits_indexed(edits.clone());
        let plain = Json::parse(with.bytes().clone(), 64).unwrap();
        for (key, inner) in [
            ("name", "x"),
            ("arguments", "o"),
            ("arguments", "a"),
            ("arguments", "b"),
            ("z", "x"),
        ] {
            let [indexed, plain] = [&with, &plain].map(|value| value.get(key).unwrap());
            assert_eq!(
                (indexed.get(inner), &indexed),
                (plain.get(inner), &plain),
                "{key} {inner}"
            );
        }
        let [first, second, third] = edits;
        assert_eq!(
            value.with_edits_indexed([second, third, first]),
            value,
            "out of order"
        );
        assert_eq!(
            json("{ }").with_members_indexed(0, br#""o":1"#).as_text(),
            r#"{"o":1 }"#
        );
        assert_eq!(
            json("[1]").with_members_indexed(0, br#""o":1"#).as_text(),
            "[1]"
        );
    }
}
