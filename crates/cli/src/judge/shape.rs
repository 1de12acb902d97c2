//! The members that results and entries must have, as JSON Schemas of our own.
//!
//! They contain requirements that all revisions from 2024-11-05 to 2026-07-28 share, and members
//! that clients rely on. They do not repeat the whole specification. Sources: lifecycle
//! (Initialization), server/discover, server/tools, server/resources, server/prompts, and the
//! utilities for pagination and caching.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::judge::observed::{Observed, shortened};

/// The most violations that are reported for one value.
const MOST: usize = 3;

/// A kind of value with required members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The result of `initialize`.
    Initialize,
    /// The result of `server/discover`.
    Discover,
    /// A page of a list.
    Page,
    /// A page of a list in the modern era.
    ModernPage,
    Tool,
    Resource,
    ResourceTemplate,
    Prompt,
}

const ALL: [Shape; 8] = [
    Shape::Initialize,
    Shape::Discover,
    Shape::Page,
    Shape::ModernPage,
    Shape::Tool,
    Shape::Resource,
    Shape::ResourceTemplate,
    Shape::Prompt,
];

/// Adds findings for the required members that a result lacks.
pub(crate) fn check_shape(shape: Shape, result: &Value, observed: &mut Observed) {
    let (rule, what) = match shape {
        Shape::Initialize => (
            "initialize",
            "The result of `initialize` lacks members that the specification requires.",
        ),
        Shape::Discover => (
            "discover",
            "The result of `server/discover` lacks members that the specification requires.",
        ),
        Shape::ModernPage => (
            "modern-page",
            "The result of a list lacks members that 2026-07-28 requires: `resultType`, `ttlMs`, `cacheScope`.",
        ),
        _ => (
            "page",
            "The result of a list has members of other types than the specification requires.",
        ),
    };
    for problem in problems(shape, result) {
        observed.error(rule, what, problem);
    }
}

/// Describes the violations in a value.
pub(crate) fn problems(shape: Shape, value: &Value) -> Vec<String> {
    static VALIDATORS: LazyLock<Vec<(Shape, Validator)>> = LazyLock::new(|| {
        ALL.into_iter()
            .filter_map(|shape| Some((shape, jsonschema::validator_for(&schema(shape)).ok()?)))
            .collect()
    });
    let Some((_, validator)) = VALIDATORS.iter().find(|(known, _)| *known == shape) else {
        return Vec::new();
    };
    let describe = |error: jsonschema::ValidationError<'_>| {
        let place = error.instance_path().to_string();
        shortened(&if place.is_empty() {
            error.to_string()
        } else {
            format!("{place}: {error}")
        })
    };
    validator
        .iter_errors(value)
        .take(MOST)
        .map(describe)
        .collect()
}

fn schema(shape: Shape) -> Value {
    let text = || json!({ "type": "string" });
    let object = || json!({ "type": "object" });
    let listed =
        || json!({ "type": "object", "properties": { "listChanged": { "type": "boolean" } } });
    let capabilities = || {
        json!({
            "type": "object",
            "properties": {
                "tools": listed(), "prompts": listed(), "resources": listed(),
                "logging": object(), "completions": object(), "extensions": object(), "experimental": object(),
            },
        })
    };
    let icons = json!({ "type": "array", "items": { "type": "object", "required": ["src"], "properties": { "src": text() } } });
    let of = |required: &[&str], properties: Value| {
        let mut schema =
            json!({ "type": "object", "required": required, "properties": properties });
        let described = [
            ("title", text()),
            ("description", text()),
            ("icons", icons.clone()),
            ("_meta", object()),
        ];
        for (name, kind) in described {
            schema["properties"][name] = kind;
        }
        schema
    };
    let cacheable = |required: &[&str], mut properties: Value| {
        properties["resultType"] = text();
        properties["ttlMs"] = json!({ "type": "integer", "minimum": 0 });
        properties["cacheScope"] = json!({ "enum": ["public", "private"] });
        let required: Vec<&str> = ["resultType", "ttlMs", "cacheScope"]
            .iter()
            .chain(required)
            .copied()
            .collect();
        json!({ "type": "object", "required": required, "properties": properties })
    };
    let cursor = || json!({ "nextCursor": text() });
    match shape {
        Shape::Initialize => of(
            &["protocolVersion", "capabilities", "serverInfo"],
            json!({
                "protocolVersion": text(),
                "capabilities": capabilities(),
                "serverInfo": of(&["name", "version"], json!({ "name": text(), "version": text() })),
                "instructions": text(),
            }),
        ),
        Shape::Discover => cacheable(
            &["supportedVersions", "capabilities"],
            json!({
                "supportedVersions": { "type": "array", "items": text(), "minItems": 1 },
                "capabilities": capabilities(),
                "instructions": text(),
            }),
        ),
        Shape::Page => json!({ "type": "object", "properties": cursor() }),
        Shape::ModernPage => cacheable(&[], cursor()),
        Shape::Tool => of(
            &["name", "inputSchema"],
            json!({ "name": text(), "inputSchema": object(), "annotations": hints() }),
        ),
        Shape::Resource => of(
            &["name", "uri"],
            json!({ "name": text(), "uri": text(), "mimeType": text() }),
        ),
        Shape::ResourceTemplate => of(
            &["name", "uriTemplate"],
            json!({ "name": text(), "uriTemplate": text(), "mimeType": text() }),
        ),
        Shape::Prompt => {
            let argument = json!({ "type": "object", "required": ["name"], "properties": { "name": text(), "required": { "type": "boolean" } } });
            of(
                &["name"],
                json!({ "name": text(), "arguments": { "type": "array", "items": argument } }),
            )
        }
    }
}

fn hints() -> Value {
    let flag = json!({ "type": "boolean" });
    json!({
        "type": "object",
        "properties": {
            "title": { "type": "string" }, "readOnlyHint": flag, "destructiveHint": flag, "idempotentHint": flag,
            "openWorldHint": flag,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_valid_schema() {
        for shape in ALL {
            assert_eq!(
                jsonschema::meta::validate(&schema(shape)).map_err(|error| error.to_string()),
                Ok(()),
                "{shape:?}"
            );
            assert!(!problems(shape, &json!("text")).is_empty(), "{shape:?}");
        }
    }

    #[test]
    fn values_without_required_members_have_problems() {
        let tool = json!({ "name": "t", "inputSchema": { "type": "object" }, "unheard-of": 1 });
        assert!(problems(Shape::Tool, &tool).is_empty());
        for (shape, value, part) in [
            (Shape::Tool, json!({ "name": "t" }), "inputSchema"),
            (
                Shape::Tool,
                json!({ "name": "t", "inputSchema": {}, "annotations": { "readOnlyHint": "yes" } }),
                "readOnlyHint",
            ),
            (Shape::Resource, json!({ "uri": "x:y" }), "name"),
            (
                Shape::Prompt,
                json!({ "name": "p", "arguments": {} }),
                "arguments",
            ),
            (
                Shape::ModernPage,
                json!({ "tools": [], "resultType": "complete", "cacheScope": "public" }),
                "ttlMs",
            ),
            (
                Shape::Page,
                json!({ "tools": [], "nextCursor": null }),
                "nextCursor",
            ),
            (
                Shape::Initialize,
                json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
                "serverInfo",
            ),
        ] {
            let found = problems(shape, &value);
            assert!(
                found.iter().any(|problem| problem.contains(part)),
                "{value}: {found:?}"
            );
        }
    }
}
