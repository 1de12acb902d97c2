//! The rules for entries of lists.

use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::param_header::{self, MAX_MIRRORED};
use fanlight_protocol::{DEFAULT_NESTING, Json, Revision};
use serde_json::Value;

use crate::judge::observed::{Observed, shorten};
use crate::judge::shape::{self, Shape};

/// The longest name of a tool (2025-11-25 server/tools, Tool Names).
const LONGEST_NAME: usize = 128;
/// The longest name that common clients accept.
const LONGEST_FOR_CLIENTS: usize = 64;
/// A larger entry has more bytes than a model needs to use it.
const LARGE_ENTRY: usize = 16 << 10;
/// Checks an entry of a list, and adds findings. Returns short descriptions of its faults.
pub(crate) fn check_entry(
    list: ListKind,
    revision: Revision,
    key: &str,
    entry: &Value,
    observed: &mut Observed,
) -> Vec<String> {
    let place = format!("{} {}", list.member(), shorten(key));
    let mut problems = shape::problems(Shape::from_list(list), entry);
    for problem in &problems {
        let what = "An entry of a list lacks members that the specification requires.";
        observed.error("entry-shape", what, format!("{place}: {problem}"));
    }
    if entry.to_string().len() > LARGE_ENTRY {
        let what = "An entry of a list is large: models read all of it.";
        observed.warn(
            "large-entry",
            what,
            format!("{place}: {} bytes", entry.to_string().len()),
        );
    }
    match list {
        ListKind::Tools => {
            problems.extend(check_name(key, &place, observed));
            if entry["description"]
                .as_str()
                .is_none_or(|text| text.trim().is_empty())
            {
                let what = "A tool has no description: models choose tools by their descriptions.";
                observed.note("no-description", what, place.as_str());
            }
            problems.extend(check_schemas(revision, entry, &place, observed));
        }
        ListKind::Resources => {
            if !key.is_empty() && reqwest::Url::parse(key).is_err() {
                observed.error("uri", "The URI of a resource is none.", place.as_str());
                problems.push("its URI is none".to_owned());
            }
        }
        ListKind::ResourceTemplates => {
            if key.matches('{').count() != key.matches('}').count() {
                observed.error(
                    "uri-template",
                    "The braces of a URI template do not match.",
                    place,
                );
                problems.push("its URI template is none".to_owned());
            }
        }
        ListKind::Prompts | ListKind::Skills => {}
    }
    problems
}

fn check_name(name: &str, place: &str, observed: &mut Observed) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.chars().count() > LONGEST_NAME || !name.chars().all(is_allowed) {
        let what = "The name of a tool should have 1 to 128 of the characters A-Z, a-z, 0-9, `_`, `-` and `.`: clients refuse \
                    others.";
        observed.warn("tool-name", what, place);
        return Some("a name that is too long, or has characters that clients refuse".to_owned());
    }
    if name.chars().count() > LONGEST_FOR_CLIENTS || name.contains('.') {
        let what = "Common clients take names of tools of at most 64 letters, digits, `_` and `-`, with the prefix that a gateway \
                    adds.";
        observed.note("tool-name-clients", what, place);
    }
    None
}

fn check_schemas(
    revision: Revision,
    tool: &Value,
    place: &str,
    observed: &mut Observed,
) -> Vec<String> {
    let mut problems = Vec::new();
    for member in ["inputSchema", "outputSchema"] {
        let Some(schema) = tool.get(member) else {
            continue;
        };
        if let Err(reason) = check(schema) {
            let what = "A schema of a tool is not valid JSON Schema: clients cannot check arguments or results by it.";
            observed.error("schema", what, format!("{place}, {member}: {reason}"));
            problems.push(format!("{member}: {reason}"));
        }
        if has_remote_reference(schema) {
            let what = "A schema refers to another document: clients and gateways do not fetch it.";
            observed.warn("schema-reference", what, format!("{place}, {member}"));
        }
        let is_object = schema["type"].as_str() == Some("object");
        if !is_object && (member == "inputSchema" || !revision.structures_any_value) {
            let what = "The root of a schema lacks `\"type\": \"object\"`.";
            observed.error("schema-root", what, format!("{place}, {member}"));
            problems.push(format!("{member} without `\"type\": \"object\"`"));
        }
    }
    let schema = tool
        .get("inputSchema")
        .map(ToString::to_string)
        .unwrap_or_default();
    if let Ok(schema) = Json::parse(schema.into(), DEFAULT_NESTING)
        && let Err(error) = param_header::annotations(&schema, MAX_MIRRORED)
    {
        let what = "An `x-mcp-header` cannot be used: over HTTP, clients of 2026-07-28 must leave the tool out.";
        observed.error("x-mcp-header", what, format!("{place}: {error}"));
        problems.push(error.to_string());
    }
    problems
}

/// Checks a schema. The error tells why it is invalid or unusable.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    if let Err(error) = jsonschema::meta::validate(schema) {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() {
            "the root".to_owned()
        } else {
            place
        };
        return Err(shorten(&format!("at {place}: {error}")));
    }
    // Remote documents are not fetched, so a schema that refers to one cannot be judged further.
    if has_remote_reference(schema) {
        return Ok(());
    }
    jsonschema::validator_for(schema)
        .map(drop)
        .map_err(|error| shorten(&error.to_string()))
}

/// Whether a schema refers to another document.
fn has_remote_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let is_remote =
                |text: &str| text.contains("://") && !text.starts_with("https://json-schema.org/");
            (name == "$ref" && value.as_str().is_some_and(is_remote)) || has_remote_reference(value)
        }),
        Value::Array(elements) => elements.iter().any(has_remote_reference),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_that_cannot_be_used_is_refused() {
        for good in [
            json!({ "type": "object" }),
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {} }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": true } }),
        ] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        for bad in [
            json!({ "type": "objekt" }),
            json!({ "type": "object", "properties": [] }),
            json!({ "type": "object", "required": "a" }),
            json!({ "properties": { "a": { "pattern": "(" } } }),
            json!({ "properties": { "a": { "$ref": "#/$defs/nothing" } } }),
            json!("object"),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
        assert!(has_remote_reference(
            &json!({ "a": [{ "$ref": "https://example.com/x.json" }] })
        ));
        assert!(!has_remote_reference(
            &json!({ "properties": { "$ref": { "type": "string" } } })
        ));
    }
}
