//! The configured credentials for servers.

use std::sync::Arc;

use fanlight_backend::credentials::{CredentialSource, PrincipalCredentials};
use fanlight_config::{Config, Server, ServerAuth, Transport};

use crate::own_credentials::OwnCredentials;
use crate::users::{Users, auth_of_users};

/// The credentials for one server, besides configured headers.
#[derive(Clone)]
pub enum ServerCredentials {
    /// No credentials.
    None,
    /// Fanlight's own credentials, the same for all callers.
    Own(Arc<OwnCredentials>),
    /// Separate credentials for each principal.
    PerPrincipal(Arc<dyn PrincipalCredentials>),
}

impl ServerCredentials {
    /// The credentials in a server's entry: its users', or Fanlight's own.
    pub fn new(config: &Config, server: &Server, users: &Users) -> Self {
        if !server.user_env.is_empty() {
            return Self::PerPrincipal(users.variables(config, server));
        }
        let auth =
            auth_of_users(server).filter(|_| !matches!(server.transport, Transport::Stdio { .. }));
        if let Some(auth) = auth {
            return Self::PerPrincipal(users.credentials(server, auth));
        }
        let own = server
            .auth
            .as_ref()
            .and_then(|auth| OwnCredentials::new(server, auth));
        own.map_or(Self::None, Self::Own)
    }

    /// The source of credentials for each message, if they are the same for all callers.
    pub fn shared(&self) -> Option<Arc<dyn CredentialSource>> {
        match self {
            Self::Own(own) => Some(Arc::clone(own) as _),
            Self::None | Self::PerPrincipal(_) => None,
        }
    }

    /// Takes over rotated secrets from a server's entry.
    pub fn change(&self, auth: Option<&ServerAuth>) {
        if let (Self::Own(own), Some(auth)) = (self, auth) {
            own.change(auth);
        }
    }
}

/// Whether two entries give a server the same credentials, apart from rotated secrets.
pub fn are_same(one: Option<&ServerAuth>, other: Option<&ServerAuth>) -> bool {
    one.map(ServerAuth::without_secrets) == other.map(ServerAuth::without_secrets)
}
