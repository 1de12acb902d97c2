//! The members that results and entries must have, as JSON Schemas of our own.
//!
//! They contain requirements that all revisions from 2024-11-05 to 2026-07-28 share, and members
//! that clients rely on. They do not repeat the whole specification. Sources: lifecycle
//! (Initialization), server/discover, server/tools, server/resources, server/prompts, and the
//! utilities for pagination and caching.

use std::sync::LazyLock;

use fanlight_gateway::catalogue::ListKind;
use jsonschema::Validator;
use serde_json::Value;

use crate::judge::observed::{Observed, shorten};

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

impl Shape {
    /// The shape of a list's entries.
    pub(crate) fn from_list(list: ListKind) -> Self {
        match list {
            ListKind::Tools => Self::Tool,
            ListKind::Resources | ListKind::Skills => Self::Resource,
            ListKind::ResourceTemplates => Self::ResourceTemplate,
            ListKind::Prompts => Self::Prompt,
        }
    }
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
    static VALIDATORS: LazyLock<[Option<Validator>; 8]> =
        LazyLock::new(|| ALL.map(|shape| jsonschema::validator_for(&schema(shape)).ok()));
    let Some(Some(validator)) = VALIDATORS.get(shape as usize) else {
        return Vec::new();
    };
    let describe = |error: jsonschema::ValidationError<'_>| {
        let place = error.instance_path().to_string();
        shorten(&if place.is_empty() {
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

/// The JSON Schema of a shape: a definition in `shapes.json`.
fn schema(shape: Shape) -> Value {
    let mut schema: Value = serde_json::from_str(include_str!("shapes.json")).unwrap_or_default();
    schema["$ref"] = format!("#/$defs/{shape:?}").into();
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
