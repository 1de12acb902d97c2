//! What users have granted at servers, as operators see it; the program behind this listener keeps it.

use futures_util::future::BoxFuture;
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

/// What users have granted at servers.
pub trait GrantedConnections: Send + Sync + 'static {
    /// All of it, without a secret. The text of an error is for operators.
    fn list(&self) -> BoxFuture<'_, Result<Vec<GrantedConnection>, String>>;

    /// Forgets a connection, and gives its tokens back; the user has to sign in anew. `None` if there is none of this id.
    fn end(&self, id: String) -> BoxFuture<'_, Result<Option<GrantedConnection>, String>>;
}

/// What one user has at one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantedConnection {
    /// By which it is ended.
    pub id: String,
    /// The user, with the issuer.
    pub principal: String,
    /// The server.
    pub server: String,
    /// Whether the user has deposited a key instead of signing in.
    pub key: bool,
    /// The authorization server; null for a key.
    pub issuer: Option<String>,
    /// What was granted; null if that was not said.
    pub scopes: Option<String>,
    /// Since when.
    pub since_ms: f64,
    /// When the access token ends; null if it is not known to.
    pub expires_ms: Option<f64>,
    /// Whether it is renewed without the user.
    pub renewed: bool,
}
