//! The credentials by which servers are reached, as the configuration says.

use std::sync::Arc;

use fanlight_backend::credentials::{CredentialSource, PrincipalCredentials};

/// The credentials for one server, besides headers that the configuration sets.
pub(crate) enum ServerCredentials {
    /// There are none.
    None,
    /// The same for all that call.
    Shared(Arc<dyn CredentialSource>),
    /// Each principal's own.
    PerPrincipal(Arc<dyn PrincipalCredentials>),
}
