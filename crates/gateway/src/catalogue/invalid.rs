//! Definitions for which clients that validate lists reject the whole list. The official SDKs for
//! TypeScript and Python do. With several servers, one such definition would take the tools of all
//! servers from their clients, so it is left out.

use fanlight_protocol::json::{Json, Kind, rewrite_object};

use super::ListKind;

/// The members of entries that are optional, each with the kind of its value.
const OPTIONAL: [(&str, Kind); 10] = [
    ("title", Kind::String),
    ("description", Kind::String),
    ("mimeType", Kind::String),
    ("size", Kind::Number),
    ("icons", Kind::Array),
    ("arguments", Kind::Array),
    ("annotations", Kind::Object),
    ("execution", Kind::Object),
    ("outputSchema", Kind::Object),
    ("_meta", Kind::Object),
];

/// The reason why no client with a strict library takes the entry; a `null` of an optional member
/// is none, since it can be removed.
pub(super) fn reason(kind: ListKind, entry: &Json) -> Option<&'static str> {
    if !entry.is_object() {
        return Some("it is no object");
    }
    if !has_text(entry, kind.key()) {
        return Some("it has no name or URI");
    }
    if kind == ListKind::Skills {
        return None;
    }
    if !has_text(entry, "name") {
        return Some("it has no `name`");
    }
    let has_other_kind = |(member, expected): &(&str, Kind)| {
        entry
            .get(member)
            .is_some_and(|value| !matches!(value.kind(), Kind::Null) && value.kind() != *expected)
    };
    if OPTIONAL.iter().any(has_other_kind) {
        return Some("a member has a value of another type than MCP defines");
    }
    let all_have = |member: &str, name: &str| {
        let list = entry.get(member).unwrap_or_default();
        list.items().all(|element| has_text(&element, name))
    };
    if !all_have("icons", "src") || !all_have("arguments", "name") {
        return Some("an icon has no `src`, or an argument no `name`");
    }
    (kind == ListKind::Tools)
        .then(|| schema_fault(entry))
        .flatten()
}

fn has_text(object: &Json, member: &str) -> bool {
    object
        .peek(member)
        .is_some_and(|value| value.kind() == Kind::String)
}

/// The fault of a tool's `inputSchema`, which has to describe an object.
fn schema_fault(tool: &Json) -> Option<&'static str> {
    let Some(schema) = tool.get("inputSchema").filter(Json::is_object) else {
        return Some("its `inputSchema` is missing or no object");
    };
    if !schema.says("type", "object") {
        return Some("its `inputSchema` has not the type `object`");
    }
    let properties = schema.get("properties");
    let are_schemas = properties.as_ref().is_none_or(|all| {
        all.is_object()
            && all
                .members()
                .all(|member| matches!(all.slice(member.value).kind(), Kind::Object | Kind::Bool))
    });
    let required = schema.get("required");
    let are_names = required.as_ref().is_none_or(|all| {
        all.kind() == Kind::Array && all.items().all(|name| name.kind() == Kind::String)
    });
    (!are_schemas || !are_names)
        .then_some("`properties` or `required` of its `inputSchema` is not valid")
}

/// The entry without optional members that are `null`, if it has any.
pub(super) fn without_nulls(entry: &Json) -> Option<Json> {
    let is_null = |member: &fanlight_protocol::json::Member| {
        OPTIONAL.iter().any(|(name, _)| member.is(entry, name))
            && entry.slice(member.value.clone()).kind() == Kind::Null
    };
    let has_any = entry.members().any(|member| is_null(&member));
    has_any.then(|| rewrite_object(entry, |member| !is_null(member), b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into(), 16).unwrap()
    }

    #[test]
    fn definition_that_strict_clients_reject_has_a_reason() {
        let schema = r#""inputSchema":{"type":"object"}"#;
        for valid in [
            format!(r#"{{"name":"a",{schema},"description":null,"icons":[{{"src":"x"}}]}}"#),
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":true},"required":["x"]}}"#.into(),
            format!(r#"{{"name":"a",{schema},"outputSchema":{{"type":"array"}},"vendor":null}}"#),
        ] {
            assert_eq!(reason(ListKind::Tools, &json(&valid)), None, "{valid}");
        }
        for invalid in [
            "7".into(),
            format!("{{{schema}}}"),
            format!(r#"{{"name":null,{schema}}}"#),
            r#"{"name":"a"}"#.into(),
            r#"{"name":"a","inputSchema":null}"#.into(),
            r#"{"name":"a","inputSchema":{}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"string"}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":["object"]}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","properties":null}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":null}}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","required":[1]}}"#.into(),
            format!(r#"{{"name":"a",{schema},"description":1}}"#),
            format!(r#"{{"name":"a",{schema},"icons":[{{}}]}}"#),
        ] {
            assert!(
                reason(ListKind::Tools, &json(&invalid)).is_some(),
                "{invalid}"
            );
        }
        assert!(reason(ListKind::Resources, &json(r#"{"uri":"x:1"}"#)).is_some());
        assert!(reason(ListKind::Prompts, &json(r#"{"name":"p","arguments":[{}]}"#)).is_some());
    }

    #[test]
    fn null_of_an_optional_member_is_removed() {
        let entry = json(r#"{"name":"a", "title":null, "x":null,"_meta":null}"#);
        let cleaned = without_nulls(&entry).unwrap();
        assert_eq!(cleaned.as_text(), r#"{"name":"a", "x":null}"#);
        assert!(without_nulls(&cleaned).is_none());
    }
}
