//! Structured results and their schemas for legacy clients.
//!
//! Since 2026-07-28 a tool's `structuredContent` may be any JSON value, and its `outputSchema` any
//! schema (server/tools). Earlier, both are objects, and the schema says `"type": "object"`
//! (2025-11-25 schema, `Tool` and `CallToolResult`). A legacy client's library refuses a whole list
//! or result with anything else.
//!
//! So such schemas and content are left out. A wrapper would be data that the server did not send,
//! and `content` has the result too, as 2026-07-28 asks of servers.

use fanlight_protocol::Json;
use fanlight_protocol::json::replace_elements;
use memchr::memmem;

const OUTPUT_SCHEMA: &str = "outputSchema";
const STRUCTURED_CONTENT: &str = "structuredContent";
const RESULT_TYPE: &str = "resultType";

/// The list of tools without output schemas that do not describe objects; `None` if nothing
/// changes.
pub(super) fn tools_for_legacy(list: &Json) -> Option<Json> {
    if !may_have(list, OUTPUT_SCHEMA) {
        return None;
    }
    replace_elements(list, "tools", |tool| {
        let schema = tool.get(OUTPUT_SCHEMA)?;
        (!is_of_objects(&schema)).then(|| tool.without_members(&[OUTPUT_SCHEMA]))
    })
}

/// The result of a modern server's tool without structured content that is not an object; `None` if
/// nothing changes. A modern server is recognized by `resultType`, which 2026-07-28 requires in
/// every result.
pub(super) fn result_for_legacy(result: &Json) -> Option<Json> {
    let is_foreign = may_have(result, STRUCTURED_CONTENT)
        // Leave a legacy server's violation of its own revision alone.
        && result.get(RESULT_TYPE).is_some()
        && result.get(STRUCTURED_CONTENT).is_some_and(|content| !content.is_object());
    is_foreign.then(|| result.without_members(&[STRUCTURED_CONTENT]))
}

fn is_of_objects(schema: &Json) -> bool {
    schema
        .get("type")
        .is_some_and(|kind| kind.as_str().as_deref() == Some("object"))
}

/// Whether a text may have a member with this name. An escape could hide the name.
fn may_have(text: &Json, name: &str) -> bool {
    memmem::find(text.bytes(), name.as_bytes()).is_some()
        || memmem::find(text.bytes(), b"\\u").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_schemas_that_are_not_of_objects_are_left_out() {
        let of = |text: &'static str| {
            tools_for_legacy(&Json::literal(text)).map(|list| list.as_text().to_owned())
        };
        let list = r#"{ "tools":[{"name":"a","outputSchema":{"type":"object"}}, {"outputSchema" : {"type":"array"},"name":"b","x":1.0},{"name":"c"}],"n":1E2}"#;
        let expected = r#"{ "tools":[{"name":"a","outputSchema":{"type":"object"}}, {"name":"b","x":1.0},{"name":"c"}],"n":1E2}"#;
        assert_eq!(of(list).as_deref(), Some(expected));
        for foreign in [
            r#"{"oneOf":[{"type":"object"}]}"#,
            r#"{"type":["object","null"]}"#,
            r#"{"$ref":"a"}"#,
            "true",
            "null",
        ] {
            let list = Json::parse(
                format!(r#"{{"tools":[{{"name":"a","output\u0053chema":{foreign}}}]}}"#).into(),
                16,
            )
            .unwrap();
            assert_eq!(
                tools_for_legacy(&list).unwrap().as_text(),
                r#"{"tools":[{"name":"a"}]}"#,
                "{foreign}"
            );
        }
        assert_eq!(
            of(r#"{"tools":[{"name":"a","outputSchema":{"type":"obj\u0065ct"}}]}"#),
            None
        );
        assert_eq!(of(r#"{"tools":{"outputSchema":{}}}"#), None);
        assert_eq!(of(r#"{"x":"outputSchema"}"#), None);
    }

    #[test]
    fn structured_content_that_is_no_object_is_left_out() {
        let of = |text: &'static str| {
            result_for_legacy(&Json::literal(text)).map(|result| result.as_text().to_owned())
        };
        let result =
            r#"{"resultType":"complete","content":[1.0],"structuredContent":[1],"_meta":{ "a":1}}"#;
        let without = r#"{"resultType":"complete","content":[1.0],"_meta":{ "a":1}}"#;
        assert_eq!(of(result).as_deref(), Some(without));
        let escaped = r#"{"structured\u0043ontent":null,"resultType":"complete"}"#;
        assert_eq!(of(escaped).as_deref(), Some(r#"{"resultType":"complete"}"#));
        assert_eq!(
            of(r#"{"resultType":"complete","content":["structuredContent"]}"#),
            None
        );
        assert_eq!(
            of(r#"{"resultType":"complete","structuredContent":{ }}"#),
            None
        );
    }

    #[test]
    fn structured_content_of_a_legacy_server_passes() {
        assert!(
            result_for_legacy(&Json::literal(r#"{"content":[],"structuredContent":[1]}"#))
                .is_none()
        );
    }
}
