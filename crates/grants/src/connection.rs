//! What a user has at the servers whose users have credentials of their own, for people.

use std::time::SystemTime;

use serde::Serialize;

use crate::audit::GrantChangeEnd;
use crate::grants::Grants;
use crate::record::{Grant, UserKey};
use crate::server::Method;
use crate::store::{Exported, Owner, Store, StoreError, seconds};

/// A server, and what one user has there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserConnection {
    /// The name of the server.
    pub server: String,
    /// Whether its users deposit keys instead of signing in.
    pub wants_key: bool,
    /// Since when the user is connected, in seconds since 1970; absent without a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The authorization server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<String>,
    /// When the access token ends, in seconds since 1970; absent if it is not known to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Whether it is renewed without the user.
    pub is_renewed: bool,
}

impl UserConnection {
    /// Whether the user is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.since.is_some()
    }

    /// What there is to say of it.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let state = match (self.is_connected(), self.wants_key) {
            (true, true) => "your key is kept",
            (true, false) => "signed in",
            (false, true) => "no key",
            (false, false) => "not signed in",
        };
        let moment =
            |at: u64| humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at));
        let ends = self.expires.map(|at| match self.is_renewed {
            true => format!("{}; renewed before", moment(at)),
            false => moment(at).to_string(),
        });
        let optional = [
            ("since", self.since.map(|at| moment(at).to_string())),
            ("signed in at", self.issuer.clone()),
            ("scopes", self.scopes.clone()),
            ("ends", ends),
        ];
        let known = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        [("state", state.to_owned())].into_iter().chain(known).collect()
    }

    /// What a user has who has signed in.
    #[must_use]
    pub fn of_grant(server: &str, grant: &Grant) -> Self {
        Self {
            server: server.to_owned(),
            wants_key: false,
            since: Some(seconds(grant.since)),
            issuer: Some(grant.provider.issuer.clone()),
            scopes: grant.scopes().map(ToString::to_string),
            expires: grant.tokens.expires_at.map(seconds),
            is_renewed: grant.tokens.refresh_token.is_some(),
        }
    }

    /// What a user has who has deposited a key, or has not.
    #[must_use]
    pub fn of_key(server: &str, key: Option<&UserKey>) -> Self {
        Self { wants_key: true, since: key.map(|key| seconds(key.since)), ..Self::none(server) }
    }

    fn none(server: &str) -> Self {
        let (since, issuer, scopes, expires) = (None, None, None, None);
        Self { server: server.to_owned(), wants_key: false, since, issuer, scopes, expires, is_renewed: false }
    }
}

/// What all users have: who has signed in, and then who has deposited a key.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn all_connections(store: &Store) -> Result<Vec<(Owner, UserConnection)>, StoreError> {
    let (granted, deposited) = (store.export::<Grant>().await?, store.export::<UserKey>().await?);
    let granted = granted.into_iter().map(|Exported { owner, record }| {
        let connection = UserConnection::of_grant(owner.server(), &record);
        (owner, connection)
    });
    let deposited = deposited.into_iter().map(|Exported { owner, record }| {
        let connection = UserConnection::of_key(owner.server(), Some(&record));
        (owner, connection)
    });
    Ok(granted.chain(deposited).collect())
}

/// Forgets what all users have granted and deposited, and whatever else is kept; how many records that were.
///
/// # Errors
///
/// If it cannot be forgotten.
pub async fn purge(grants: &Grants) -> Result<usize, StoreError> {
    let ended = all_connections(grants.store()).await?;
    let removed = grants.store().purge(None).await?;
    let end = GrantChangeEnd::because("all that was kept of users has been removed");
    ended.iter().for_each(|(owner, _)| grants.signed_out(owner, &end));
    Ok(removed)
}

/// What a user has at each of the servers, in order.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn connections(grants: &Grants, principal: &[u8]) -> Result<Vec<UserConnection>, StoreError> {
    let (granted, deposited) = (grants.granted(principal).await?, grants.deposited(principal).await?);
    let of = |name: String| {
        let server = grants.server(&name)?;
        let wants_key = matches!(server.settings.method, Method::Key { .. });
        if wants_key {
            return Some(UserConnection::of_key(&name, found(&deposited, &Owner::new(principal, &name))));
        }
        let grant = found(&granted, &grants.kept_as(&Owner::new(principal, &name)));
        Some(grant.map_or_else(|| UserConnection::none(&name), |grant| UserConnection::of_grant(&name, grant)))
    };
    Ok(grants.servers().into_iter().filter_map(of).collect())
}

/// The record of this owner.
fn found<'a, T>(all: &'a [Exported<T>], owner: &Owner) -> Option<&'a T> {
    all.iter().find(|one| one.owner == *owner).map(|one| &one.record)
}
