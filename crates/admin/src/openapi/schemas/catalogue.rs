//! Lists and endpoints.

use serde_json::Value;
use utoipa::ToSchema;

/// The merged lists: those that were asked for.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Catalogue {
    #[schema(nullable = false)]
    tools: Option<List>,
    #[schema(nullable = false)]
    resources: Option<List>,
    #[schema(nullable = false)]
    resource_templates: Option<List>,
    #[schema(nullable = false)]
    prompts: Option<List>,
    #[schema(nullable = false)]
    skills: Option<List>,
}

/// A list.
#[derive(ToSchema)]
struct List {
    entries: Vec<Entry>,
    collisions: Vec<Collision>,
    backends: Vec<Contribution>,
}

/// An entry of a list.
#[derive(ToSchema)]
struct Entry {
    backend: String,
    /// Its name or URI for clients.
    #[schema(required = true)]
    key: Option<String>,
    /// The name or URI that the server gives it.
    #[schema(required = true)]
    original: Option<String>,
    /// The text that clients receive.
    entry: Value,
}

/// Two entries with one name.
#[derive(ToSchema)]
struct Collision {
    key: String,
    /// The server whose entry is offered.
    kept: String,
    /// The server whose entry is not, or has an alias.
    other: String,
    #[schema(required = true)]
    alias: Option<String>,
}

/// What a server has contributed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Contribution {
    backend: String,
    /// `ok`, `timeout`, `unauthorized`, `unreachable` or `error`.
    outcome: String,
    #[schema(required = true)]
    reason: Option<String>,
    /// True where the entries are those that it listed before it failed.
    #[schema(nullable = false)]
    stale: Option<bool>,
    /// When it was asked, where the entries are from `stateDir`.
    #[schema(nullable = false)]
    as_of_ms: Option<f64>,
}

/// The endpoints.
#[derive(ToSchema)]
pub(crate) struct Endpoints {
    endpoints: Vec<Endpoint>,
}

/// An endpoint.
#[derive(ToSchema)]
struct Endpoint {
    path: String,
    servers: Vec<String>,
    entries: Entries,
}

/// How many entries it shows.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Entries {
    tools: u64,
    resources: u64,
    resource_templates: u64,
    prompts: u64,
    skills: u64,
}
