//! The configuration, its changes, and the entries of clients.

use serde_json::Value;
use utoipa::ToSchema;

/// The options by their names in the file, with defaults; `***` replaces secrets. `reload` has what is known of changes.
#[derive(ToSchema)]
pub(crate) struct InForce {
    reload: Value,
}

/// The outcome of a reload.
#[derive(ToSchema)]
pub(crate) struct Reloaded {
    /// `applied`, `unchanged` or `failed`.
    result: String,
}

/// The entry for this gateway in the configuration of a client.
#[derive(ToSchema)]
pub(crate) struct ClientEntry {
    client: String,
    /// Its name for people.
    title: String,
    /// The file that it is written to.
    #[schema(required = true)]
    file: Option<String>,
    /// `json`, `toml` or `yaml`.
    language: String,
    text: String,
    /// A command of the client that does it.
    #[schema(required = true)]
    command: Option<String>,
    /// The environment variable from which the client reads its token.
    #[schema(required = true)]
    variable: Option<String>,
}
