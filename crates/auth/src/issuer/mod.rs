//! Issuers of access tokens: their keys and their answers about tokens, over HTTP.

mod introspection;
mod keys;
mod store;

use std::sync::Arc;

use fanlight_grants::fetch::{Requests, authorities};
use tokio_util::sync::CancellationToken;

pub(crate) use self::introspection::Introspection;
pub(crate) use self::keys::{Key, KeySet};
pub(crate) use self::store::{KeyStore, Lookup};
use crate::settings::{IssuerSettings, OAuthLimits, OAuthSettings};

/// An issuer of access tokens.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) settings: IssuerSettings,
    /// The issuer's signing keys, read on demand.
    pub(crate) keys: Arc<KeyStore>,
    /// Token introspection, used instead of verifying signatures.
    pub(crate) introspection: Option<Arc<Introspection>>,
    /// Cancelled when the configuration no longer accepts the issuer.
    pub(crate) revoked: CancellationToken,
    /// All settings that the issuer's identities depend on.
    basis: Basis,
}

#[derive(Debug, PartialEq, Eq)]
struct Basis {
    public_url: Option<String>,
    limits: OAuthLimits,
}

impl Issuer {
    fn new(settings: &IssuerSettings, all: &OAuthSettings) -> Self {
        let limits = all.limits;
        // Others are discovered, and lead only where these may lead.
        let configured = [Some(&settings.issuer), settings.jwks_uri.as_ref()]
            .into_iter()
            .chain([settings
                .introspection
                .as_ref()
                .and_then(|asked| asked.endpoint.as_ref())])
            .flatten()
            .filter_map(|url| url.parse().ok());
        let client = Requests::for_discovery(configured).with_time_limit(limits.request);
        // The configuration was refused if it has others.
        let trusted = settings.authorities.as_deref().map(authorities);
        let trusted = trusted.and_then(Result::ok).unwrap_or_default();
        let client = Arc::new(client.with_authorities(trusted));
        let (issuer, revoked) = (settings.issuer.clone(), CancellationToken::new());
        let introspection = settings.introspection.clone().map(|introspection| {
            Arc::new(Introspection::new(
                issuer.clone(),
                introspection,
                &limits,
                Arc::clone(&client),
            ))
        });
        let keys = Arc::new(KeyStore::new(
            issuer,
            settings.jwks_uri.clone(),
            limits,
            client,
            revoked.clone(),
        ));
        let basis = Basis {
            public_url: all.public_url.clone(),
            limits,
        };
        Self {
            settings: settings.clone(),
            keys,
            introspection,
            revoked,
            basis,
        }
    }

    /// The issuers of `settings`. Unchanged ones are taken from `before` with their state.
    pub(crate) fn build_all(settings: &OAuthSettings, before: &[Arc<Self>]) -> Vec<Arc<Self>> {
        let basis = Basis {
            public_url: settings.public_url.clone(),
            limits: settings.limits,
        };
        let of = |issuer: &IssuerSettings| {
            let known = before
                .iter()
                .find(|known| known.settings == *issuer && known.basis == basis);
            known.map_or_else(|| Arc::new(Self::new(issuer, settings)), Arc::clone)
        };
        settings.issuers.iter().map(of).collect()
    }
}
