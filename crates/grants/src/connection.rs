//! Users' connections to servers, in a form for people.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::record::{Grant, RegisteredClient, UserKey};
use crate::store::{Exported, Owner, Store, StoreError, seconds};
use crate::{GrantChangeEnd, Grants, Method};

/// One user's connection to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserConnection {
    /// The name of the server.
    pub server: String,
    /// Whether its users deposit keys instead of signing in.
    pub wants_key: bool,
    /// When the user connected, in seconds since 1970; absent without a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The authorization server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The granted scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<String>,
    /// When the access token expires, in seconds since 1970; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Whether the access token is renewed without the user.
    pub is_renewed: bool,
    /// Whether the stored grant is unused because it is for another URL, client or authorization
    /// server than the configured one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_outdated: bool,
}

impl UserConnection {
    /// Whether the user is connected.
    pub fn is_connected(&self) -> bool {
        self.is_kept() && !self.is_outdated
    }

    /// Whether something is stored for the user, which may be outdated.
    pub fn is_kept(&self) -> bool {
        self.since.is_some()
    }

    /// The facts to show about the connection.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let state = match (self.is_kept(), self.wants_key) {
            (true, _) if self.is_outdated => {
                "not in use: the server's configuration has changed since"
            }
            (true, true) => "your key is stored",
            (true, false) => "signed in",
            (false, true) => "no key",
            (false, false) => "not signed in",
        };
        let ends = self.expires.and_then(moment);
        let ends = ends.map(|end| {
            if self.is_renewed {
                format!("{end}; renewed before")
            } else {
                end
            }
        });
        let optional = [
            ("since", self.since.and_then(moment)),
            ("signed in at", self.issuer.clone()),
            ("scopes", self.scopes.clone()),
            ("ends", ends),
        ];
        let known = optional
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        [("state", state.to_owned())]
            .into_iter()
            .chain(known)
            .collect()
    }

    /// The connection of a user who has signed in.
    pub fn from_grant(server: &str, grant: &Grant) -> Self {
        Self {
            since: Some(seconds(grant.since)),
            issuer: Some(grant.provider.issuer.clone()),
            scopes: grant.scopes().map(ToString::to_string),
            expires: grant.tokens.expires_at.map(seconds),
            is_renewed: grant.tokens.refresh_token.is_some(),
            ..Self::none(server)
        }
    }

    /// The connection to a server with keys; the user may have deposited one.
    pub fn from_key(server: &str, key: Option<&UserKey>) -> Self {
        Self {
            wants_key: true,
            since: key.map(|key| seconds(key.since)),
            ..Self::none(server)
        }
    }

    fn none(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            ..Self::default()
        }
    }
}

/// A time in seconds since 1970, in readable form; `None` for one out of range.
fn moment(at: u64) -> Option<String> {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at))?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_seconds(at)).ok()?;
    Some(text)
}

/// The connections of all users: first those by sign-in, then those by key.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn all_connections(store: &Store) -> Result<Vec<(Owner, UserConnection)>, StoreError> {
    Ok(opened_connections(store).await?.0)
}

/// All connections, and the number of users' records that none of the keys decrypts.
async fn opened_connections(
    store: &Store,
) -> Result<(Vec<(Owner, UserConnection)>, usize), StoreError> {
    let (granted, unknown_grants) = store.read_all::<Grant>().await?;
    let (deposited, unknown_keys) = store.read_all::<UserKey>().await?;
    let granted = granted.into_iter().map(|Exported { owner, record }| {
        let connection = UserConnection::from_grant(owner.server(), &record);
        (owner, connection)
    });
    let deposited = deposited.into_iter().map(|Exported { owner, record }| {
        let connection = UserConnection::from_key(owner.server(), Some(&record));
        (owner, connection)
    });
    Ok((
        granted.chain(deposited).collect(),
        unknown_grants + unknown_keys,
    ))
}

/// The result of removing all users' data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// The number of removed records.
    pub records: usize,
    /// The number of removed records whose users are unknown, and so absent from the audit log.
    pub unnamed: usize,
}

/// Removes all users' grants and keys and everything else in the store, and writes that to the
/// audit log. With `must_name`, nothing is removed unless all users can be named there.
///
/// # Errors
///
/// If the data cannot be removed, or a user cannot be named.
pub async fn purge(grants: &Grants, must_name: bool) -> Result<Purged, StoreError> {
    let store = grants.store();
    let (known, unnamed) = opened_connections(store).await?;
    if must_name && unnamed > 0 {
        return Err(StoreError::Unnamed(unnamed));
    }
    let removed = store.purge(None).await;
    // A failed removal may have removed a part. Unreadable data counts as removed.
    let (left, unnamed_left) = match &removed {
        Ok(_) => (Vec::new(), 0),
        Err(_) => opened_connections(store).await.unwrap_or_default(),
    };
    let identify = |(owner, connection): (Owner, UserConnection)| (owner, connection.wants_key);
    let left: HashSet<_> = left.into_iter().map(identify).collect();
    let end = GrantChangeEnd::new("the stored data of all users is removed");
    let gone = known
        .into_iter()
        .map(identify)
        .filter(|one| !left.contains(one));
    gone.for_each(|(owner, _)| grants.signed_out(&owner, &end));
    let unnamed = unnamed.saturating_sub(unnamed_left);
    if unnamed > 0 {
        let records = if unnamed == 1 { "record" } else { "records" };
        let reason = format!(
            "the stored data of all users is removed: {unnamed} {records} of users whom no key can name"
        );
        grants.signed_out(&Owner::nobody(""), &GrantChangeEnd::new(&reason));
    }
    Ok(Purged {
        records: removed?,
        unnamed,
    })
}

/// Removes all users' grants and keys for a server, or their grants of an authorization server, and
/// the clients that are registered there. Writes that to the audit log, and returns the number of
/// records.
///
/// # Errors
///
/// If the data cannot be read or removed.
pub async fn purge_of(grants: &Grants, name: &str) -> Result<usize, StoreError> {
    let (store, end) = (
        grants.store(),
        GrantChangeEnd::new("the stored data about the server is removed"),
    );
    let mut issuers = HashSet::from([name.to_owned()]);
    let mut count = 0;
    for Exported { owner, record } in store.export::<Grant>().await? {
        if owner.server() == name || record.provider.issuer == name {
            issuers.insert(record.provider.issuer);
            store.take::<Grant>(&owner).await?;
            grants.signed_out(&owner, &end);
            count += 1;
        }
    }
    for Exported { owner, .. } in store.export::<UserKey>().await? {
        if owner.server() == name {
            store.take::<UserKey>(&owner).await?;
            grants.signed_out(&owner, &end);
            count += 1;
        }
    }
    for Exported { owner, record } in store.export::<RegisteredClient>().await? {
        if issuers.contains(&record.0.issuer) {
            store.take::<RegisteredClient>(&owner).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// A user's connections to all servers, in order.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn connections(
    grants: &Grants,
    principal: &[u8],
) -> Result<Vec<UserConnection>, StoreError> {
    let (granted, deposited) = (
        grants.list_grants(principal).await?,
        grants.list_keys(principal).await?,
    );
    let of = |name: String| {
        let server = grants.server(&name)?;
        let owner = Owner::new(principal, &name);
        if matches!(server.settings.method, Method::Key { .. }) {
            let key = find_record(&deposited, &owner);
            let is_outdated = key.is_some_and(|key| key.origin != server.origin());
            return Some(UserConnection {
                is_outdated,
                ..UserConnection::from_key(&name, key)
            });
        }
        let kept = grants.record_owner(&owner);
        let Some(grant) = find_record(&granted, &kept) else {
            return Some(UserConnection::none(&name));
        };
        let is_outdated = grants
            .server(kept.server())
            .is_none_or(|server| !server.is_meant_by(grant));
        Some(UserConnection {
            is_outdated,
            ..UserConnection::from_grant(&name, grant)
        })
    };
    Ok(grants.servers().into_iter().filter_map(of).collect())
}

/// The record of this owner.
fn find_record<'a, T>(all: &'a [Exported<T>], owner: &Owner) -> Option<&'a T> {
    all.iter()
        .find(|one| one.owner == *owner)
        .map(|one| &one.record)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use fanlight_protocol::seal::Keys;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::audit::{GrantChange, GrantRecord, NotOnRecord};
    use crate::store::{CommonEntries, CommonError, Exchange, Exchanged, Kind, Stamp};

    /// Entries of which only one can be removed.
    #[derive(Debug, Default)]
    struct Failing(Mutex<BTreeMap<(&'static str, String), Vec<u8>>>);

    #[async_trait]
    impl CommonEntries for Failing {
        async fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>, CommonError> {
            Ok(self
                .0
                .lock()
                .unwrap()
                .get(&(kind.as_str(), name.to_owned()))
                .cloned())
        }

        async fn list(
            &self,
            kind: Kind,
            owner: Option<&str>,
            _: usize,
        ) -> Result<Vec<(String, Vec<u8>)>, CommonError> {
            let is_meant = move |name: &str| owner.is_none_or(|owner| name.starts_with(owner));
            let all = self.0.lock().unwrap().clone();
            let all = all
                .into_iter()
                .filter(|((of, name), _)| *of == kind.as_str() && is_meant(name));
            Ok(all.map(|((_, name), entry)| (name, entry)).collect())
        }

        async fn exchange(
            &self,
            kind: Kind,
            name: &str,
            exchange: Exchange<'_>,
        ) -> Result<Exchanged, CommonError> {
            let new = exchange.new.unwrap_or_default().to_vec();
            self.0
                .lock()
                .unwrap()
                .insert((kind.as_str(), name.to_owned()), new);
            Ok(Exchanged::Done)
        }

        async fn remove_all(&self, kind: Kind, _: Option<&str>) -> Result<usize, CommonError> {
            let mut all = self.0.lock().unwrap();
            let first = all.keys().find(|(of, _)| *of == kind.as_str()).cloned();
            let removed = first.map(|first| all.remove(&first));
            if removed.is_some() {
                Err(CommonError("it is away".to_owned()))
            } else {
                Ok(0)
            }
        }

        async fn now(&self, _: Kind, _: &str) -> Result<u64, CommonError> {
            Ok(0)
        }

        fn stamp(&self) -> Stamp {
            None
        }

        fn is_away(&self) -> bool {
            false
        }
    }

    /// The principals whose connections have ended.
    #[derive(Debug, Default)]
    struct Ended(Mutex<Vec<Vec<u8>>>);

    impl GrantRecord for Ended {
        fn begins(&self, _: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>> {
            Box::pin(async { Ok(()) })
        }

        fn record_end(&self, change: GrantChange<'_>, _: &GrantChangeEnd<'_>) {
            self.0
                .lock()
                .unwrap()
                .push(change.owner.principal().to_vec());
        }
    }

    #[test]
    fn moment_without_a_form_for_people_is_left_out() {
        assert_eq!(moment(0).unwrap(), "1970-01-01T00:00:00Z");
        assert_eq!((moment(999_999_999_999), moment(u64::MAX)), (None, None));
    }

    #[tokio::test]
    async fn purge_that_fails_midway_puts_on_record_what_is_gone() {
        let (entries, ended) = (Arc::new(Failing::default()), Arc::new(Ended::default()));
        let store =
            Store::open_common(Arc::<Failing>::clone(&entries), &Keys::new([[1; 32]])).unwrap();
        for user in [b"ann", b"bob"] {
            store
                .put(
                    &Owner::new(user, "notes"),
                    &UserKey::new("k", String::new()),
                )
                .await
                .unwrap();
        }
        let grants = Grants::new(store.clone(), Arc::<Ended>::clone(&ended));
        purge(&grants, true).await.unwrap_err();
        let left = all_connections(&store).await.unwrap();
        assert_eq!((left.len(), ended.0.lock().unwrap().len()), (1, 1));
        assert_ne!(left[0].0.principal(), ended.0.lock().unwrap()[0]);
    }

    #[tokio::test]
    async fn purge_removes_what_no_key_opens_only_where_nobody_has_to_be_named() {
        let (entries, ended) = (Arc::new(Failing::default()), Arc::new(Ended::default()));
        let store = |key| {
            Store::open_common(Arc::<Failing>::clone(&entries), &Keys::new([[key; 32]])).unwrap()
        };
        let key = UserKey::new("k", String::new());
        store(1)
            .put(&Owner::new(b"ann", "notes"), &key)
            .await
            .unwrap();
        let grants = Grants::new(store(2), Arc::<Ended>::clone(&ended));
        assert!(matches!(
            purge(&grants, true).await,
            Err(StoreError::Unnamed(1))
        ));
        assert_eq!(all_connections(&store(1)).await.unwrap().len(), 1);
        purge(&grants, false).await.unwrap_err();
        // A single line, for the anonymous user.
        assert_eq!(*ended.0.lock().unwrap(), [b""]);
    }
}
