//! The Cedar schema that policies are checked against.

use std::fmt::Write as _;

use fanlight_canonical::PolicyKind;
use fanlight_protocol::Json;

/// The schema. It marks attributes that clients and servers state about themselves, because they
/// can lie.
const SCHEMA: &str = r#"// The attributes that Fanlight's policies can read. Entities are written as `Tool::"server/name"`: the server's name in the
// configuration, and the server's own name of the tool, whatever name clients see.

// A group of clients, from their token, key or proxy.
entity Group;

// A client: `User::"key#ci"` for the key `ci`, `User::"https://idp.example.com#ann"` for the subject `ann` of an issuer,
// `User::"proxy#ann"`, `User::"certificate#CN=ann"`, `User::"socket#uid:1000"`, and `User::"anonymous"` for clients
// without authentication.
entity User in [Group] = {
    issuer: String,
    subject: String,
    // The client's name for people. Not unique.
    name: String,
    // "token", "key", "certificate", "proxy", "socket" or "none".
    authentication: String,
    scopes: Set<String>,
    // Whether its scopes are unlimited; `scopes` is then empty.
    allScopes: Bool,
} // The claims of its token, by name: texts, numbers and truth values, and lists of texts.
  tags Set<String>;

// The path of the requested endpoint, such as `Endpoint::"/mcp"`.
entity Endpoint = { path: String };

// A server, by its name in the configuration.
entity Server in [Endpoint] = {
    name: String,
    // The same as `name`.
    server: String,
    // The server's tags in the configuration.
    tags: Set<String>,
};

entity Tool in [Server] = {
    name: String,
    server: String,
    // The server's tags in the configuration.
    tags: Set<String>,
    // The SERVER's own hints about its tool, unless the configuration overrides them.
    readOnlyHint?: Bool,
    destructiveHint?: Bool,
    idempotentHint?: Bool,
    openWorldHint?: Bool,
};

entity Prompt in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the server's URI.
entity Resource in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the text of the template.
entity Template in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the URI of the skill.
entity Skill in [Server] = { name: String, server: String, tags: Set<String> };

// A method or notification that Fanlight does not know.
entity Method in [Server] = { name: String, server: String, tags: Set<String> };

type Request = {
    // The CLIENT's own statements about itself.
    clientName?: String,
    clientVersion?: String,
    // "legacy" (with `initialize`) or "modern" (without).
    era: String,
    // The client's address; absent for Unix sockets and `fanlight stdio`.
    address?: ipaddr,
    // The time, to the minute.
    time: datetime,
};

type RequestWithArguments = {
    // The arguments that the CLIENT sends, with those that the configuration adds. All of them are optional and of any
    // type. Null is absent; a number with a fraction is a decimal.
    arguments: {},
    // The other members are the same as in `Request`.
    clientName?: String,
    clientVersion?: String,
    era: String,
    address?: ipaddr,
    time: datetime,
};

action call appliesTo { principal: User, resource: Tool, context: RequestWithArguments };

action get appliesTo { principal: User, resource: Prompt, context: RequestWithArguments };

action read appliesTo { principal: User, resource: [Resource, Template], context: Request };

action getSkill appliesTo { principal: User, resource: Skill, context: Request };

// Completing an argument. Needs the right to get the prompt or read the template.
action complete appliesTo { principal: User, resource: [Prompt, Resource, Template], context: Request };

// Subscribing. Needs the right to read the resource.
action subscribe appliesTo { principal: User, resource: Resource, context: Request };

// Signing in at a server that has credentials for each user, or depositing a key for it.
action signIn appliesTo { principal: User, resource: Server, context: Request };

// Sending a method that Fanlight does not know. It could name anything, so a policy for all actions permits it only to a
// client that may do everything at the server; a policy that names this action permits it to others as well.
action send appliesTo { principal: User, resource: Method, context: Request };

// Listing. A client that may use an item is shown it, unless a policy forbids that; then it cannot use the item either.
action list appliesTo { principal: User, resource: [Tool, Prompt, Resource, Template, Skill], context: Request };
"#;

/// An item that a server lists.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The kind of the item.
    pub kind: PolicyKind,
    /// `server/name`.
    pub name: String,
    /// The item's definition.
    pub definition: Json,
}

/// The schema that policies are checked against. Comments list the servers' items, and the
/// arguments of tools as policies see them.
pub fn schema(catalogue: &[Listed]) -> String {
    let mut text = SCHEMA.to_owned();
    if !catalogue.is_empty() {
        text.push_str("\n// What the servers list now. What a tool says of its arguments is the SERVER's word, and binds no client:\n");
        for Listed {
            kind,
            name,
            definition,
        } in catalogue
        {
            let _ = writeln!(text, "// {}::{name:?}", kind.as_str());
            let arguments = definition
                .get("inputSchema")
                .filter(|_| *kind == PolicyKind::Tool);
            if let Some(arguments) = arguments.and_then(|schema| record(&schema, NESTING)) {
                let _ = writeln!(text, "//   context.arguments: {arguments}");
            }
        }
    }
    text
}

/// The deepest nesting of a written type.
const NESTING: usize = 4;

/// The type of the objects that a JSON Schema describes, as policies see them. Members without a
/// type in Cedar are left out. `None` if the schema describes other values, or has no members.
fn record(schema: &Json, nesting: usize) -> Option<String> {
    let nesting = nesting.checked_sub(1)?;
    let properties = schema.get("properties").filter(Json::is_object)?;
    let required = schema.get("required").unwrap_or_default();
    let is_required = |name: &str| required.items().any(|place| place.is_str(name));
    let fields = properties.members().filter_map(|member| {
        let (name, described) = (member.name(&properties)?, properties.slice(member.value));
        let optional = if is_required(&name) { "" } else { "?" };
        Some(format!(
            "{name:?}{optional}: {}",
            type_of(&described, nesting)?
        ))
    });
    Some(format!("{{ {} }}", fields.collect::<Vec<_>>().join(", ")))
}

/// The type of the values that a JSON Schema describes; `None` if Cedar has no such type, or there
/// are several.
fn type_of(schema: &Json, nesting: usize) -> Option<String> {
    Some(match schema.get("type")?.as_str()?.as_ref() {
        "string" => "String".to_owned(),
        "integer" => "Long".to_owned(),
        "boolean" => "Bool".to_owned(),
        "array" => format!(
            "Set<{}>",
            type_of(&schema.get("items")?, nesting.checked_sub(1)?)?
        ),
        "object" => record(schema, nesting)?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use cedar_policy::Schema;

    use super::*;

    fn input_type(input_schema: &'static str) -> Option<String> {
        record(&Json::literal(input_schema), NESTING)
    }

    #[test]
    fn arguments_of_tools_are_written_as_types() {
        for (schema, expected) in [
            (
                r#"{"properties":{"path":{"type":"string"},"n":{"type":"integer"},"deep":{"type":"boolean"}},"required":["path"]}"#,
                r#"{ "path": String, "n"?: Long, "deep"?: Bool }"#,
            ),
            (
                r#"{"properties":{"tags":{"type":"array","items":{"type":"string"}},"to":{"type":"object","properties":{"id":{"type":"integer"}}}}}"#,
                r#"{ "tags"?: Set<String>, "to"?: { "id"?: Long } }"#,
            ),
            // A `number` may be whole or not. Members with several types or none are left out.
            (
                r#"{"properties":{"x":{"type":"number"},"y":{"type":["string","null"]},"z":{},"a":{"type":"array"},"o":{"type":"object"}}}"#,
                "{  }",
            ),
        ] {
            let written = input_type(schema).unwrap();
            assert_eq!(written, expected);
            let (parsed, _) =
                Schema::from_cedarschema_str(&format!("entity E = {written};")).unwrap();
            assert!(parsed.entity_types().next().is_some());
        }
        assert_eq!(input_type(r#"{"type":"object"}"#), None);
    }

    #[test]
    fn deep_types_end_and_no_name_ends_a_comment() {
        let mut schema = r#"{"type":"string"}"#.to_owned();
        for _ in 0..100 {
            schema = format!(r#"{{"type":"object","properties":{{"a":{schema}}}}}"#);
        }
        let deep = record(&Json::parse(schema.into(), 256).unwrap(), NESTING).unwrap();
        assert!(deep.len() < 100, "{deep}");
        let definition =
            Json::literal(r#"{"inputSchema":{"properties":{"a\npermit(":{"type":"string"}}}}"#);
        let listed = Listed {
            kind: PolicyKind::Tool,
            name: "s/t\nentity X;".to_owned(),
            definition,
        };
        let text = schema_text(&listed);
        assert!(
            Schema::from_cedarschema_str(&text).is_ok()
                && !text.contains("\npermit")
                && !text.contains("\nentity X")
        );
    }

    fn schema_text(listed: &Listed) -> String {
        schema(std::slice::from_ref(listed))
    }
}
