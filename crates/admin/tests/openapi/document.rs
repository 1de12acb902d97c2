//! The whole description, and the tests that it is current and complete.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::operations::{operations, schemas};
use crate::access::Needs;
use crate::api::routes;

/// The path of the route that answers all unknown paths.
const NOTHING: &str = "/api/{*rest}";

/// Schemas of answers that may have further members: options, and reports of changes.
const OPEN: [&str; 2] = ["InForce", "Reloaded"];

/// The whole description.
fn document() -> Value {
    let operations = operations();
    let mut schemas = json!(schemas(&operations));
    for name in OPEN {
        schemas[name]["additionalProperties"] = json!(true);
    }
    schemas
        .as_object_mut()
        .unwrap()
        .values_mut()
        .for_each(require_nullable);
    let routes = routes();
    let mut paths = BTreeMap::<_, BTreeMap<_, _>>::new();
    for mut operation in operations {
        let route = routes.iter().find(|route| route.0 == operation.path);
        let route = route.unwrap_or_else(|| panic!("no route {}", operation.path));
        add_common(&mut operation.value, route.1);
        let methods = paths.entry(operation.path).or_default();
        methods.insert(operation.method, operation.value);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fanlight's API for operators",
            "description": "The API that the page of the admin listener uses. Later versions may add members. Members \
                that end in `Ms` are milliseconds; points in time count from the Unix epoch. Unknown values are null.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "version": "1",
        },
        "servers": [{"url": "http://127.0.0.1:8081", "description": "The default address of the admin listener"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`admin.token`, or a key or access token of `auth` \
                    to which `admin.roles` gives a role."},
                "session": {"type": "apiKey", "in": "cookie", "name": "fanlight-session", "description": "The session of the page."},
            },
        },
    })
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
    let mut routes: Vec<&str> = routes()
        .into_iter()
        .map(|route| route.0)
        .filter(|path| *path != NOTHING)
        .collect();
    routes.sort_unstable();
    assert_eq!(described, routes);
}
