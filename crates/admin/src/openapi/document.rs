//! The whole description, and the tests that it is current and complete.

use serde_json::{Value, json};
use utoipa::OpenApi as _;

use super::operations::Operations;
use crate::access::Needs;
use crate::api::ROUTES;

/// The path for whatever is not served.
const NOTHING: &str = "/api/{*rest}";

/// Schemas of answers that have more members than they name: options, and reports of what has changed.
const OPEN: [&str; 2] = ["InForce", "Reloaded"];

/// The description, with what all operations have in common.
fn document() -> Value {
    let mut document = serde_json::to_value(Operations::openapi()).unwrap();
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "`admin.token`, `admin.viewerToken`, or a key or access token \
            to which `admin.roles` gives a role."},
        "session": {"type": "apiKey", "in": "cookie", "name": "fanlight-session", "description": "The session of the page."},
    });
    for name in OPEN {
        document["components"]["schemas"][name]["additionalProperties"] = json!(true);
    }
    for schema in document["components"]["schemas"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        require_nullable(schema);
    }
    for (path, item) in document["paths"].as_object_mut().unwrap() {
        let route = ROUTES
            .iter()
            .find(|route| route.path == path)
            .unwrap_or_else(|| panic!("no route {path}"));
        for operation in item.as_object_mut().unwrap().values_mut() {
            add_common(operation, route.needs);
        }
    }
    document
}

/// Requires the members that may be null: they are null where they could be absent.
fn require_nullable(schema: &mut Value) {
    let Some(members) = schema["properties"].as_object() else {
        return;
    };
    let is_null =
        |kind: &Value| kind["type"] == "null" || array(&kind["type"]).contains(&json!("null"));
    let is_nullable =
        |member: &Value| is_null(member) || array(&member["oneOf"]).iter().any(is_null);
    let is_required = |name: &String| array(&schema["required"]).contains(&json!(name));
    let names = members
        .iter()
        .filter(|(name, member)| is_required(name) || is_nullable(member))
        .map(|(name, _)| name);
    let names: Vec<Value> = names.map(|name| json!(name)).collect();
    if !names.is_empty() {
        schema["required"] = names.into();
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Adds who may, and how others are refused.
fn add_common(operation: &mut Value, needs: Needs) {
    let refusal = |text: &str| json!({"description": text, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    let responses = operation["responses"].as_object_mut().unwrap();
    responses.insert(
        "403".to_owned(),
        refusal("The role is missing, or a page of another origin asks."),
    );
    let Needs::Role(role) = needs else { return };
    responses.insert(
        "401".to_owned(),
        refusal("The request shows nobody, or nobody who is known."),
    );
    responses.insert(
        "429".to_owned(),
        refusal("Too many wrong credentials came from this peer; `Retry-After` has the seconds."),
    );
    // Without `admin.token` and `admin.roles`, everybody on this machine is an operator.
    operation["security"] = json!([{"token": []}, {"session": []}, {}]);
    let description = operation["description"].as_str().unwrap_or_default();
    operation["description"] =
        json!(format!("{description}\n\nNeeds the role `{role}`.").trim_start());
}

#[test]
fn openapi_description_is_current() {
    fanlight_testkit::generated::assert_file("docs/openapi.json", &format!("{:#}\n", document()));
}

#[test]
fn openapi_describes_every_route() {
    let document = document();
    let described: Vec<&str> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut routes: Vec<&str> = ROUTES
        .iter()
        .map(|route| route.path)
        .filter(|path| *path != NOTHING)
        .collect();
    routes.sort_unstable();
    assert_eq!(described, routes);
}
