//! The outcome of a case: what a gateway did to one part of a message.

use std::collections::BTreeSet;

use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, pointer_step};

/// The fate of a part of a message, from the best to the worst; or the reason why nothing judged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    NotTried,
    NotOffered,
    Kept,
    Reordered,
    Changed,
    /// Progress arrived late, or with the answer.
    HeldUp,
    Lost,
    /// The part reached another client.
    Leaked,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NotTried => "not tried",
            Self::NotOffered => "not offered",
            Self::Kept => "kept",
            Self::Reordered => "reordered",
            Self::Changed => "changed",
            Self::HeldUp => "held up",
            Self::Lost => "lost",
            Self::Leaked => "leaked",
        }
    }
}

/// Compares a part of a message with the sent one. With `exactly` the digits of numbers and the
/// order of members count; members that were added never do.
pub(super) fn compare(sent: &Json, found: Option<&Json>, exactly: bool) -> Outcome {
    let Some(found) = found else {
        return Outcome::Lost;
    };
    match (sent.kind(), found.kind()) {
        (Kind::Object, Kind::Object) => compare_members(sent, found, exactly),
        (Kind::Array, Kind::Array) => compare_items(sent, found, exactly),
        (Kind::String, Kind::String) if sent.as_str() == found.as_str() => Outcome::Kept,
        (Kind::Number, Kind::Number) if !exactly && number(sent) == number(found) => Outcome::Kept,
        _ if sent.as_text() == found.as_text() => Outcome::Kept,
        _ => Outcome::Changed,
    }
}

fn number(json: &Json) -> Option<f64> {
    json.as_text().parse().ok()
}

fn compare_members(sent: &Json, found: &Json, exactly: bool) -> Outcome {
    let (mut worst, mut last) = (Outcome::Kept, 0);
    for member in sent.members() {
        let name = member.name(sent).unwrap_or_default();
        let place = found.members().find(|it| it.is(found, &name));
        let value = place.as_ref().map(|it| found.slice(it.value.clone()));
        let sent = sent.slice(member.value);
        worst = worst.max(compare(&sent, value.as_ref(), exactly));
        let at = place.map_or(last, |it| it.lead);
        if exactly && at < last {
            worst = worst.max(Outcome::Reordered);
        }
        last = at;
    }
    worst
}

fn compare_items(sent: &Json, found: &Json, exactly: bool) -> Outcome {
    let [sent, found]: [Vec<Json>; 2] = [sent, found].map(|array| array.items().collect());
    let is_there = |item: &Json| {
        let mut found = found.iter();
        found.any(|it| compare(item, Some(it), exactly) == Outcome::Kept)
    };
    match sent.len().cmp(&found.len()) {
        std::cmp::Ordering::Greater => return Outcome::Lost,
        std::cmp::Ordering::Less => return Outcome::Changed,
        std::cmp::Ordering::Equal => {}
    }
    let pairs = sent.iter().zip(&found);
    let worst = pairs
        .map(|(sent, found)| compare(sent, Some(found), exactly))
        .max()
        .unwrap_or(Outcome::Kept);
    match worst {
        Outcome::Kept => worst,
        _ if sent.iter().all(is_there) => Outcome::Reordered,
        _ => worst,
    }
}

/// Adds the pointers of members that only `found` has.
pub(super) fn note_additions(sent: &Json, found: &Json, at: &str, added: &mut BTreeSet<String>) {
    for member in found.members() {
        let name = member.name(found).unwrap_or_default();
        let pointer = format!("{at}{}", pointer_step(&name));
        match sent.get(&name) {
            Some(sent) => note_additions(&sent, &found.slice(member.value), &pointer, added),
            None => {
                added.insert(pointer);
            }
        }
    }
}

/// The string at a JSON Pointer.
pub(super) fn text_at(json: &Json, pointer: &str) -> Option<String> {
    json.at_pointer(pointer)?.to_str()
}

/// The text between the braces of an object.
pub(super) fn braced(object: &str) -> &str {
    let inner = object.trim().strip_prefix('{');
    inner
        .and_then(|it| it.strip_suffix('}'))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<Json> {
        crate::recording::script::json(text.as_bytes())
    }

    fn outcome(sent: &str, found: &str, exactly: bool) -> Outcome {
        compare(&json(sent).unwrap(), json(found).as_ref(), exactly)
    }

    #[test]
    fn loss_is_worse_than_change_and_change_than_order() {
        let sent = r#"{"a":1.0,"b":[1,2,{"c":"x"}],"d":null}"#;
        for (found, by_value, exactly) in [
            (sent, Outcome::Kept, Outcome::Kept),
            (
                r#"{"a":1,"b":[1,2,{"c":"\u0078"}],"d":null}"#,
                Outcome::Kept,
                Outcome::Changed,
            ),
            (
                r#"{"d":null,"a":1.0,"b":[1,2,{"c":"x"}]}"#,
                Outcome::Kept,
                Outcome::Reordered,
            ),
            (
                r#"{"a":1.0,"b":[2,1,{"c":"x"}],"d":null}"#,
                Outcome::Reordered,
                Outcome::Reordered,
            ),
            (
                r#"{"a":1.0,"b":[1,2,{"c":"y"}],"d":null}"#,
                Outcome::Changed,
                Outcome::Changed,
            ),
            (
                r#"{"a":2,"b":[1,2,{}],"d":null}"#,
                Outcome::Lost,
                Outcome::Lost,
            ),
            (
                r#"{"a":1.0,"b":[1,2],"d":null}"#,
                Outcome::Lost,
                Outcome::Lost,
            ),
            (
                r#"{"a":1.0,"b":[1,2,{"c":"x"}]}"#,
                Outcome::Lost,
                Outcome::Lost,
            ),
            (
                r#"{"a":1.0,"b":[1,2,{"c":"x","e":1}],"d":null,"f":1}"#,
                Outcome::Kept,
                Outcome::Kept,
            ),
            (
                r#"{"a":"1.0","b":[1,2,{"c":"x"}],"d":null}"#,
                Outcome::Changed,
                Outcome::Changed,
            ),
        ] {
            assert_eq!(outcome(sent, found, false), by_value, "{found}");
            assert_eq!(outcome(sent, found, true), exactly, "{found}");
        }
        assert_eq!(outcome("1", "", false), Outcome::Lost);
    }

    #[test]
    fn additions_are_named_by_pointer() {
        let mut added = BTreeSet::new();
        let (sent, found) = (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c/d":2},"e":3}"#);
        note_additions(&json(sent).unwrap(), &json(found).unwrap(), "", &mut added);
        assert_eq!(added.into_iter().collect::<Vec<_>>(), ["/a/c~1d", "/e"]);
    }
}
