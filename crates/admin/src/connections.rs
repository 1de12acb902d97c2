//! The operators' interface to users' connections. The program behind this listener stores them.

use futures_util::future::BoxFuture;

/// Users' connections to servers.
///
/// A trait because its implementation depends on this crate.
pub trait GrantedConnections: Send + Sync + 'static {
    /// Lists all connections, without secrets. The text of an error is for operators.
    fn list(&self) -> BoxFuture<'_, Result<Vec<GrantedConnection>, String>>;

    /// Ends a connection and revokes its tokens; the user has to sign in again. `None` if no
    /// connection has this id.
    fn end(&self, id: String) -> BoxFuture<'_, Result<Option<GrantedConnection>, String>>;
}

answers! {
    /// One user's connection to a server.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GrantedConnection {
        /// The id, by which the connection is ended.
        pub id: String,
        /// The user's principal, with the issuer.
        pub principal: String,
        /// The name of the server.
        pub server: String,
        /// Whether the user has deposited a key instead of signing in.
        pub key: bool,
        /// The authorization server; null for a key.
        pub issuer: Option<String>,
        /// The granted scopes; null if unknown.
        pub scopes: Option<String>,
        /// When the user connected.
        pub since_ms: f64,
        /// When the access token expires; null if unknown.
        pub expires_ms: Option<f64>,
        /// Whether the access token is renewed without the user.
        pub renewed: bool,
    }
}
