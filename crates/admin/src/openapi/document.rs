//! The whole description, and the tests that it is current and complete.

use serde_json::{Value, json};
use utoipa::OpenApi as _;

use super::operations::Operations;
use crate::access::Needs;
use crate::api::ROUTES;

/// The path of the route that answers all unknown paths.
const NOTHING: &str = "/api/{*rest}";

/// Schemas of answers that may have further members: options, and reports of changes.
const OPEN: [&str; 2] = ["InForce", "Reloaded"];

/// The description, with the parts that all operations have in common.
fn document() -> Value {
    let mut document = serde_json::to_value(Operations::openapi()).unwrap();
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "`admin.token`, or a key or access token of `auth` \
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

/// Makes all members required that may be null. An unknown member is null and never absent.
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

/// Adds the required role and the refusals.
fn add_common(operation: &mut Value, needs: Needs) {
    let refusal = |text: &str| json!({"description": text, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    let responses = operation["responses"].as_object_mut().unwrap();
    responses.insert(
        "403".to_owned(),
        refusal("The operator lacks the role, or a page of another origin sends the request."),
    );
    let Needs::Role(role) = needs else { return };
    responses.insert(
        "401".to_owned(),
        refusal("The request has no credentials, or unknown ones."),
    );
    responses.insert(
        "429".to_owned(),
        refusal("This peer sent too many wrong credentials; `Retry-After` is the number of seconds to wait."),
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
