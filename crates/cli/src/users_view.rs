//! The operators' view of users' grants at servers.

use async_trait::async_trait;
use fanlight_admin::{GrantedConnection, GrantedConnections};
use fanlight_canonical::identity::Principal;
use fanlight_grants::{Grants, Owner, UserConnection, all_connections};
use fanlight_protocol::digest::short_digest;

use crate::users::Users;

#[async_trait]
impl GrantedConnections for Users {
    async fn list(&self) -> Result<Vec<GrantedConnection>, String> {
        Ok(all(self)
            .await?
            .into_iter()
            .map(|(_, connection)| connection)
            .collect())
    }

    async fn end(&self, id: String) -> Result<Option<GrantedConnection>, String> {
        let found = all(self)
            .await?
            .into_iter()
            .find(|(_, connection)| connection.id == id);
        let Some((owner, connection)) = found else {
            return Ok(None);
        };
        let Some(grants) = opened_grants(self)? else {
            return Ok(None);
        };
        grants
            .sign_out(&owner)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Some(connection))
    }
}

/// The store of grants; `None` if no server has needed it.
fn opened_grants(users: &Users) -> Result<Option<&Grants>, String> {
    let opened = users.opened_store().transpose()?;
    Ok(opened.map(|opened| &opened.grants))
}

/// All connections, by server and user.
async fn all(users: &Users) -> Result<Vec<(Owner, GrantedConnection)>, String> {
    let Some(grants) = opened_grants(users)? else {
        return Ok(Vec::new());
    };
    let all = all_connections(grants.store())
        .await
        .map_err(|error| error.to_string())?;
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(owner, connection)| connection_view(owner, connection))
        .collect();
    all.sort_by(|(_, one), (_, other)| {
        (&one.server, &one.principal).cmp(&(&other.server, &other.principal))
    });
    Ok(all)
}

fn connection_view(owner: Owner, connection: UserConnection) -> (Owner, GrantedConnection) {
    let principal = Principal::from_bytes(owner.principal());
    let millis = |seconds: u64| seconds as f64 * 1000.0;
    let connection = GrantedConnection {
        id: id_of(&owner),
        principal: principal.map_or_else(|| "unknown".to_owned(), |principal| principal.describe()),
        server: connection.server,
        key: connection.wants_key,
        issuer: connection.issuer,
        scopes: connection.scopes,
        since_ms: connection.since.map(millis).unwrap_or_default(),
        expires_ms: connection.expires.map(millis),
        renewed: connection.is_renewed,
    };
    (owner, connection)
}

/// A stable short id of a user and a server.
fn id_of(owner: &Owner) -> String {
    let length = (owner.principal().len() as u64).to_be_bytes();
    short_digest([&length, owner.principal(), owner.server().as_bytes()].concat())
}
