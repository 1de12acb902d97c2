//! The Cedar schema that policies are checked against.

use std::fmt::Write as _;

use fanlight_canonical::PolicyKind;

/// The schema. What clients and servers say of themselves is marked: either can lie.
const SCHEMA: &str = r#"// What Fanlight's policies can read. Entities are written as `Tool::"server/name"`, with the name of the server in the
// configuration and the server's own name of the tool, whatever clients are shown.

// A group of clients, as their token, key or proxy names it.
entity Group;

// A client: `User::"key#ci"` for the key `ci`, `User::"https://idp.example.com#ann"` for the subject `ann` of an issuer,
// `User::"proxy#ann"`, `User::"certificate#CN=ann"`, `User::"socket#uid:1000"`, and `User::"anonymous"` where clients are not
// authenticated.
entity User in [Group] = {
    issuer: String,
    subject: String,
    // The name for people. Not unique.
    name: String,
    // "token", "key", "certificate", "proxy", "socket" or "none".
    authentication: String,
    scopes: Set<String>,
    // Whether nothing limits its scopes; `scopes` is then empty.
    allScopes: Bool,
} // The claims of its token, by name: texts, numbers and truth values, and lists of texts.
  tags Set<String>;

// The path that the client asks, such as `Endpoint::"/mcp"`.
entity Endpoint = { path: String };

// A server, by its name in the configuration.
entity Server in [Endpoint] = {
    name: String,
    // Those of the configuration.
    tags: Set<String>,
};

entity Tool in [Server] = {
    name: String,
    server: String,
    // Those of the server in the configuration.
    tags: Set<String>,
    // What the SERVER says of its tool, unless the configuration overrides it.
    readOnlyHint?: Bool,
    destructiveHint?: Bool,
    idempotentHint?: Bool,
    openWorldHint?: Bool,
};

entity Prompt in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the URI as the server knows it.
entity Resource in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the text of the template.
entity Template in [Server] = { name: String, server: String, tags: Set<String> };

// `name` is the URI of the skill.
entity Skill in [Server] = { name: String, server: String, tags: Set<String> };

type Request = {
    // What the CLIENT says of itself.
    clientName?: String,
    clientVersion?: String,
    // "legacy" (with `initialize`) or "modern" (without).
    era: String,
    // Where the request comes from; absent for Unix sockets and `fanlight stdio`.
    address?: ipaddr,
    // The time, to the minute.
    time: datetime,
};

type RequestWithArguments = {
    // What the CLIENT sends, with what the configuration adds: all of it is optional, of any type. Null is absent; a
    // number with a fraction is a decimal.
    arguments: {},
    // The rest is that of every request.
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

// Completing an argument, for those who may get the prompt or read the template.
action complete appliesTo { principal: User, resource: [Prompt, Resource, Template], context: Request };

// Subscribing, for those who may read the resource.
action subscribe appliesTo { principal: User, resource: Resource, context: Request };

// Being shown it. Whoever may use something is shown it unless a policy forbids this; then it cannot be used either.
action list appliesTo { principal: User, resource: [Tool, Prompt, Resource, Template, Skill], context: Request };
"#;

/// The schema that policies are checked against, with what servers list in comments: the kind and `server/name` of each.
#[must_use]
pub fn schema(catalogue: &[(PolicyKind, String)]) -> String {
    let mut text = SCHEMA.to_owned();
    if !catalogue.is_empty() {
        text.push_str("\n// What the servers list now:\n");
        for (kind, name) in catalogue {
            let _ = writeln!(text, "// {}::{name:?}", kind.as_str());
        }
    }
    text
}
