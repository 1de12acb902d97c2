//! The servers for which an authorization server is in use.
//!
//! A server chooses its authorization server itself. If it names another server's, and that one
//! ignores `resource` (RFC 8707), it gets tokens that are good at the other server. So an
//! authorization server that is in use for one server is used for another one only if it lists that
//! (RFC 9728, 4), or if the configuration names it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::oauth::Provider;
use crate::server::Server;
use crate::{Grants, Kind, Owner, Record, SignInError, Store};

/// The server whose users were the first to sign in at an authorization server.
#[derive(Debug, Serialize, Deserialize)]
struct FirstServer {
    issuer: String,
    /// The server's origin.
    origin: String,
}

impl Record for FirstServer {
    const KIND: Kind = Kind::Client;

    fn issuer(&self) -> &str {
        &self.issuer
    }

    fn useless_after(&self) -> Option<u64> {
        Some(crate::record::registration_end())
    }
}

/// The names by which an authorization server is recognized: its issuer, and its endpoints, since
/// metadata of another issuer could name them.
fn names(provider: &Provider) -> Vec<String> {
    let endpoints = endpoints(provider).map(|url| {
        let mut url = url.clone();
        url.set_query(None);
        url.set_fragment(None);
        format!("endpoint {url}")
    });
    let issuer = provider.issuer.trim_end_matches('/');
    std::iter::once(format!("issuer {issuer}"))
        .chain(endpoints)
        .collect()
}

fn endpoints(provider: &Provider) -> impl Iterator<Item = &Url> {
    let optional = provider.authorization_endpoint.iter();
    optional.chain([&provider.token_endpoint])
}

fn place(name: &str) -> Owner {
    Owner::nobody(&format!("first server at {name}"))
}

fn origin_of(url: &str) -> Option<String> {
    Some(Url::parse(url).ok()?.origin().ascii_serialization())
}

/// Whether users may sign in to a server at this authorization server.
///
/// # Errors
///
/// If it is another server's, and neither the configuration nor the authorization server itself says
/// that it is this one's as well.
pub(crate) async fn check(
    grants: &Grants,
    server: &Server,
    provider: &Provider,
    resource: &str,
) -> Result<(), SignInError> {
    if server.is_identity_provider() || server.has_configured_issuer() {
        return Ok(());
    }
    let of_other = SignInError::OfOtherServer {
        issuer: provider.issuer.clone(),
        server: server.name().to_owned(),
    };
    let issuer = origin_of(&provider.issuer);
    let is_own = provider.lists(resource) || issuer.as_ref() == Some(&server.origin());
    let is_used_by = |other: &Arc<Server>| {
        let origin = Some(other.origin());
        let configured = other.sign_in().and_then(|method| method.issuer.as_ref());
        // Many servers rely on the identity provider of the gateway.
        let is_its = !other.is_identity_provider()
            && (configured == Some(&provider.issuer) || issuer == origin);
        // An issuer says nothing about endpoints that are another's.
        let has_its =
            endpoints(provider).any(|url| Some(url.origin().ascii_serialization()) == origin);
        (is_its && !is_own) || (has_its && issuer != origin)
    };
    let others = grants.servers_elsewhere(&server.origin());
    if others.iter().any(is_used_by) {
        return Err(of_other);
    }
    for name in names(provider) {
        let first = grants.store().get::<FirstServer>(&place(&name)).await?;
        let is_other = |first: &FirstServer| {
            let mut servers = others.iter().filter(|other| !other.is_identity_provider());
            servers.any(|other| other.origin() == first.origin)
                && !(is_own && first.issuer == provider.issuer)
        };
        if first.as_ref().is_some_and(is_other) {
            return Err(of_other);
        }
    }
    Ok(())
}

/// Notes that a user signs in to a server at this authorization server.
///
/// # Errors
///
/// If that cannot be stored.
pub(crate) async fn note(
    store: &Store,
    server: &Server,
    provider: &Provider,
) -> Result<(), SignInError> {
    let first = FirstServer {
        issuer: provider.issuer.clone(),
        origin: server.origin(),
    };
    for name in names(provider) {
        store.put(&place(&name), &first).await?;
    }
    Ok(())
}
