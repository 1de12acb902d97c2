//! The values that strict clients expect in merged answers. The official SDKs refuse a whole answer
//! for one value of another type, so one server would take all servers from their clients.

use fanlight_protocol::json::{Edits, Json, Kind, Member, MemberChange};

/// A rule for a value. Members without a rule may have any value.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Is(fn(&Json) -> bool),
    Word(&'static [&'static str]),
    List(&'static Shape),
    /// An object whose members all have one shape.
    Each(&'static Shape),
    /// An object with the members that it must have, and the shapes of members.
    Object(&'static [&'static str], &'static [(&'static str, Shape)]),
}

use Shape::{Each, Is, List, Object, Word};

const TEXT: Shape = Is(|value| value.kind() == Kind::String);
const FLAG: Shape = Is(|value| value.kind() == Kind::Bool);
const NUMBER: Shape = Is(|value| value.kind() == Kind::Number);
const SHARE: Shape = Is(|value| matches!(value.as_text().parse(), Ok(0.0..=1.0)));
const OBJECT: Shape = Object(&[], &[]);
/// Legacy clients refuse boolean schemas of properties.
const SCHEMA: Shape = Object(
    &[],
    &[("properties", Each(&OBJECT)), ("required", List(&TEXT))],
);
const ICON: Shape = Object(
    &["src"],
    &[
        ("src", TEXT),
        ("mimeType", TEXT),
        ("sizes", List(&TEXT)),
        ("theme", Word(&["light", "dark"])),
    ],
);
const ARGUMENT: Shape = Object(
    &["name"],
    &[
        ("name", TEXT),
        ("title", TEXT),
        ("description", TEXT),
        ("required", FLAG),
    ],
);
const ANNOTATIONS: Shape = Object(
    &[],
    &[
        ("title", TEXT),
        ("readOnlyHint", FLAG),
        ("destructiveHint", FLAG),
        ("idempotentHint", FLAG),
        ("openWorldHint", FLAG),
        ("audience", List(&Word(&["user", "assistant"]))),
        ("priority", SHARE),
        ("lastModified", Is(is_date)),
    ],
);
const EXECUTION: Shape = Object(
    &[],
    &[("taskSupport", Word(&["forbidden", "optional", "required"]))],
);

/// An entry of a list.
pub(crate) const ENTRY: Shape = Object(
    &[],
    &[
        ("title", TEXT),
        ("description", TEXT),
        ("mimeType", TEXT),
        ("size", NUMBER),
        ("icons", List(&ICON)),
        ("arguments", List(&ARGUMENT)),
        ("annotations", ANNOTATIONS),
        ("execution", EXECUTION),
        ("inputSchema", SCHEMA),
        ("outputSchema", SCHEMA),
        ("_meta", OBJECT),
    ],
);

const LISTED: Shape = Object(&[], &[("listChanged", FLAG), ("subscribe", FLAG)]);
const TASK_METHODS: Shape = Object(
    &[],
    &[
        ("list", OBJECT),
        ("cancel", OBJECT),
        ("requests", Object(&[], &[("tools", Each(&OBJECT))])),
    ],
);

/// A server's description.
pub(crate) const DESCRIPTION: Shape = Object(
    &[],
    &[(
        "capabilities",
        Object(
            &[],
            &[
                ("tools", LISTED),
                ("prompts", LISTED),
                ("resources", LISTED),
                ("logging", OBJECT),
                ("completions", OBJECT),
                ("tasks", TASK_METHODS),
                ("experimental", Each(&OBJECT)),
                ("extensions", Each(&OBJECT)),
            ],
        ),
    )],
);

/// A task of the revision 2025-11-25.
pub(crate) const TASK: Shape = Object(
    &["taskId", "status", "createdAt", "lastUpdatedAt", "ttl"],
    &[
        ("taskId", TEXT),
        (
            "status",
            Word(&[
                "working",
                "input_required",
                "completed",
                "failed",
                "cancelled",
            ]),
        ),
        ("statusMessage", TEXT),
        ("createdAt", TEXT),
        ("lastUpdatedAt", TEXT),
        (
            "ttl",
            Is(|value| matches!(value.kind(), Kind::Number | Kind::Null)),
        ),
        ("pollInterval", NUMBER),
    ],
);

impl Shape {
    /// `value` without the members and elements that do not fit; `None` if it does not fit itself.
    /// `true` in place of an object says only that there is one.
    pub(crate) fn fit(&self, value: &Json) -> Option<Json> {
        let is_of = |kind| value.kind() == kind;
        match self {
            Is(fits) => fits(value).then(|| value.clone()),
            Word(words) => {
                let is_one = words.iter().any(|word| value.is_str(word));
                is_one.then(|| value.clone())
            }
            List(element) => is_of(Kind::Array).then(|| {
                let fitting = value.items().filter_map(|item| element.fit(&item));
                let fitting: Vec<_> = fitting.collect();
                match fitting.iter().cloned().eq(value.items()) {
                    true => value.clone(),
                    false => Json::array(fitting),
                }
            }),
            Each(_) | Object(..) if value.is_true() => self.fit(&Json::empty_object()),
            Each(_) | Object(..) => is_of(Kind::Object)
                .then(|| self.fit_members(value))
                .filter(|fitted| self.has_needed(fitted)),
        }
    }

    fn has_needed(&self, object: &Json) -> bool {
        let Object(needed, _) = self else { return true };
        needed.iter().all(|name| object.get(name).is_some())
    }

    fn fit_members(&self, object: &Json) -> Json {
        let members: Vec<_> = object.members().collect();
        let change = |member: &Member| {
            let value = object.slice(member.value.clone());
            let fitted = match self.of_member(object, member) {
                Some(shape) => shape.fit(&value),
                None => return MemberChange::Keep,
            };
            match fitted {
                None => MemberChange::Remove,
                Some(fitted) if fitted == value => MemberChange::Keep,
                Some(fitted) => MemberChange::Replace(fitted.into_bytes()),
            }
        };
        let changes: Vec<_> = members.iter().map(change).collect();
        if changes
            .iter()
            .all(|change| matches!(change, MemberChange::Keep))
        {
            return object.clone();
        }
        let mut edits = Edits::new(object.bytes().clone());
        edits.change_members(0, &members, changes, b"");
        edits.finish_json()
    }

    fn of_member(&self, object: &Json, member: &Member) -> Option<&Self> {
        match self {
            Each(shape) => Some(shape),
            Object(_, known) => {
                let mut known = known.iter();
                let found = known.find(|(name, _)| member.is(object, name));
                found.map(|(_, shape)| shape)
            }
            _ => None,
        }
    }
}

/// Whether a value is a time with a zone, by its form.
fn is_date(value: &Json) -> bool {
    let form = value.as_text().replace(|c: char| c.is_ascii_digit(), "0");
    let zones = ["Z\"", "+00:00\"", "-00:00\""];
    form.starts_with("\"0000-00-00T00:00") && zones.iter().any(|zone| form.ends_with(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(shape: Shape, text: &'static str) -> Option<String> {
        let fitted = shape.fit(&Json::literal(text))?;
        Some(fitted.as_text().to_owned())
    }

    #[test]
    fn faulty_members_of_an_entry_are_removed() {
        for (entry, expected) in [
            (
                r#"{"name":"a", "title":null, "x":null,"_meta":[]}"#,
                r#"{"name":"a", "x":null}"#,
            ),
            (r#"{"description":5}"#, "{}"),
            (
                r#"{"annotations":{"readOnlyHint":"yes","title":null,"openWorldHint":true}}"#,
                r#"{"annotations":{"openWorldHint":true}}"#,
            ),
            (
                r#"{"annotations":{"priority":5,"audience":["user","robot"],"lastModified":"yesterday"}}"#,
                r#"{"annotations":{"audience":["user"]}}"#,
            ),
            (
                r#"{"icons":[{"src":"x","sizes":"48x48","theme":"blue"},{},null]}"#,
                r#"{"icons":[{"src":"x"}]}"#,
            ),
            (
                r#"{"execution":{"taskSupport":"maybe"}}"#,
                r#"{"execution":{}}"#,
            ),
            (
                r#"{"arguments":[{"name":"a","required":"yes","description":null},7]}"#,
                r#"{"arguments":[{"name":"a"}]}"#,
            ),
            (
                r#"{"outputSchema":{"type":"object","properties":{"x":true},"required":"x"}}"#,
                r#"{"outputSchema":{"type":"object","properties":{"x":{}}}}"#,
            ),
        ] {
            assert_eq!(fitted(ENTRY, entry).as_deref(), Some(expected), "{entry}");
        }
    }

    #[test]
    fn valid_entry_keeps_its_bytes() {
        let entry = r#"{ "name":"a", "annotations" :{"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}, "icons":[ {"src":"x","sizes":[ "any" ]}], "inputSchema":{"type":"object","properties":{"x":{ }}}, "vendor": {"title":5}}"#;
        assert_eq!(fitted(ENTRY, entry).as_deref(), Some(entry));
        for zone in ["2025-01-12T15:00:58.5+02:00", "2025-01-12T15:00Z"] {
            assert!(is_date(&Json::string(zone)), "{zone}");
        }
        assert!(!is_date(&Json::string("2025-01-12T15:00:58")));
    }

    #[test]
    fn malformed_capabilities_are_removed() {
        let text = r#"{"capabilities":{"tools":true,"prompts":null,"resources":{"subscribe":"yes"},"logging":[],"experimental":{"x":true,"y":7},"extensions":["a"],"tasks":{"list":true,"cancel":5},"foo":null}}"#;
        let expected = r#"{"capabilities":{"tools":{},"resources":{},"experimental":{"x":{}},"tasks":{"list":{}},"foo":null}}"#;
        assert_eq!(fitted(DESCRIPTION, text).as_deref(), Some(expected));
        let none = r#"{"capabilities":null,"x":1}"#;
        assert_eq!(fitted(DESCRIPTION, none).as_deref(), Some(r#"{"x":1}"#));
    }

    #[test]
    fn malformed_task_does_not_fit() {
        let task = r#"{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":null,"pollInterval":"5"}"#;
        let expected =
            r#"{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":null}"#;
        assert_eq!(fitted(TASK, task).as_deref(), Some(expected));
        for bad in [
            "null",
            r#"{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"u"}"#,
            r#"{"taskId":5,"status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":1}"#,
            r#"{"taskId":"t","status":"running","createdAt":"c","lastUpdatedAt":"u","ttl":1}"#,
        ] {
            assert_eq!(fitted(TASK, bad), None, "{bad}");
        }
    }
}
