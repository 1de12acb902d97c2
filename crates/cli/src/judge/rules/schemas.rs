//! Checks whether a server's JSON Schema can be used.

use serde_json::Value;

use crate::judge::observed::shorten;

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
pub(super) fn has_remote_reference(schema: &Value) -> bool {
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
