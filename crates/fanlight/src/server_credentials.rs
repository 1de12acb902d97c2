//! The credentials by which servers are reached, as the configuration says.

use std::sync::Arc;

use fanlight_backend::credentials::{CredentialSource, PrincipalCredentials};
use fanlight_config::Server;

use crate::users::{Users, auth_of_users};

/// The credentials for one server, besides headers that the configuration sets.
pub(crate) enum ServerCredentials {
    /// There are none.
    None,
    /// The same for all that call.
    Shared(Arc<dyn CredentialSource>),
    /// Each principal's own.
    PerPrincipal(Arc<dyn PrincipalCredentials>),
}

impl ServerCredentials {
    /// Those by which a server is reached.
    pub(crate) fn of(server: &Server, users: &Users) -> Self {
        match auth_of_users(server) {
            Some(auth) => Self::PerPrincipal(users.credentials(server, auth)),
            None => Self::None,
        }
    }
}
