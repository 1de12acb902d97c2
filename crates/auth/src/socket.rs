//! Users of this machine: the operating system tells which user has connected to a Unix socket.

use std::sync::Arc;

use fanlight_canonical::identity::{Claims, Identity, Principal, Scopes, Source, Validity};
use fanlight_credentials::{Credentials, Denial};
use tokio_util::sync::CancellationToken;

/// The issuer of these principals.
const ISSUER: &str = "fanlight:socket";

/// Users of this machine.
#[derive(Debug, Default)]
pub(crate) struct SocketUsers {
    /// Revokes all identities from sockets.
    pub(crate) revoked: CancellationToken,
}

impl SocketUsers {
    /// The method if it is on; `current` itself if it was.
    pub(crate) fn after(current: Option<&Arc<Self>>, is_on: bool) -> Option<Arc<Self>> {
        is_on.then(|| current.cloned().unwrap_or_default())
    }

    /// The user at the other end; `None` if the connection is not over a Unix socket.
    pub(crate) fn identity(
        &self,
        credentials: &Credentials<'_>,
    ) -> Option<Result<Arc<Identity>, Denial>> {
        let peer = credentials.connection.socket?;
        let name = format!("uid:{}", peer.user);
        Some(Ok(Arc::new(Identity {
            principal: Principal::named(ISSUER, &name),
            name: name.into(),
            source: Source::Socket,
            groups: Arc::default(),
            scopes: Scopes::All,
            claims: Claims::default(),
            endpoints: None,
            validity: Validity {
                expires: None,
                revoked: self.revoked.clone(),
            },
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use fanlight_credentials::{ConnectionFacts, SocketPeer};
    use http::HeaderMap;

    use super::*;
    use crate::testing::at_mcp;

    #[test]
    fn user_of_a_unix_socket_is_the_principal() {
        let users = SocketUsers::default();
        let headers = HeaderMap::new();
        let shown = |connection: &ConnectionFacts| users.identity(&at_mcp(&headers, connection));
        let socket = |user| ConnectionFacts {
            socket: Some(SocketPeer { user, group: 5 }),
            ..ConnectionFacts::default()
        };
        let root = shown(&socket(0)).unwrap().unwrap();
        assert_eq!(root.principal, Principal::named("fanlight:socket", "uid:0"));
        assert_ne!(
            root.principal,
            shown(&socket(1000)).unwrap().unwrap().principal
        );
        let local = ConnectionFacts {
            peer: Some(SocketAddr::from(([127, 0, 0, 1], 1))),
            ..ConnectionFacts::default()
        };
        assert!(shown(&local).is_none());
    }
}
