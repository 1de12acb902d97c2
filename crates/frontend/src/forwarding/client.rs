//! The sender of a request, as known to the replica where the request arrived.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::{Identity, Principal, Scopes, Source, Validity};
use serde::{Deserialize, Serialize};

/// The sources by their numbers in an envelope. The numbers must never change.
const SOURCES: [Source; 6] = [
    Source::Anonymous,
    Source::Token,
    Source::Key,
    Source::Certificate,
    Source::Proxy,
    Source::Socket,
];

/// The client of a forwarded request.
#[derive(Clone, Debug)]
pub struct ForwardedClient {
    /// The identity that its credentials proved.
    pub identity: Arc<Identity>,
    /// The address, for shares of limits, policies, traces and logs.
    pub address: Option<SocketAddr>,
    /// The user id of its process, on a Unix socket.
    pub user: Option<u32>,
}

/// The serialised form of a [`ForwardedClient`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenClient<'a> {
    principal: Vec<u8>,
    name: Cow<'a, str>,
    source: usize,
    groups: Vec<Cow<'a, str>>,
    /// The client's scopes; `None` for all.
    scopes: Option<Vec<Cow<'a, str>>>,
    claims: BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>>,
    endpoints: Option<Vec<Cow<'a, str>>>,
    expires: Option<SystemTime>,
    address: Option<SocketAddr>,
    user: Option<u32>,
}

impl<'a> WrittenClient<'a> {
    pub(crate) fn new(client: &'a ForwardedClient) -> Self {
        let ForwardedClient {
            identity,
            address,
            user,
        } = client;
        let texts = |all: &'a [Arc<str>]| all.iter().map(|one| Cow::Borrowed(&**one)).collect();
        let claim = |texts: &'a [Box<str>]| texts.iter().map(|one| Cow::Borrowed(&**one)).collect();
        Self {
            principal: identity.principal.to_bytes(),
            name: Cow::Borrowed(&identity.name),
            source: SOURCES
                .iter()
                .position(|source| *source == identity.source)
                .unwrap_or(SOURCES.len()),
            groups: texts(&identity.groups),
            scopes: match &identity.scopes {
                Scopes::All => None,
                Scopes::Only(scopes) => {
                    Some(scopes.iter().map(|scope| Cow::Borrowed(&**scope)).collect())
                }
            },
            claims: identity
                .claims
                .iter()
                .map(|(name, texts)| (Cow::Borrowed(&**name), claim(texts)))
                .collect(),
            endpoints: identity.endpoints.as_deref().map(texts),
            expires: identity.validity.expires,
            address: *address,
            user: *user,
        }
    }

    /// Reads a client; `None` if no replica forwards requests of such an identity.
    pub(crate) fn read(self) -> Option<ForwardedClient> {
        let principal = Principal::from_bytes(&self.principal)?;
        let source = *SOURCES.get(self.source)?;
        // Clients always are one of these; requests of replicas and operators are never forwarded.
        let is_client = if source == Source::Anonymous {
            principal.is_anonymous()
        } else {
            principal.is_named()
        };
        let texts = |all: Vec<Cow<'_, str>>| {
            all.iter()
                .map(|one| Arc::from(&**one))
                .collect::<Arc<[Arc<str>]>>()
        };
        let claim = |(name, texts): (Cow<'_, str>, Vec<Cow<'_, str>>)| {
            (
                Box::from(&*name),
                texts.iter().map(|one| Box::from(&**one)).collect(),
            )
        };
        let scopes = self.scopes.map_or(Scopes::All, |scopes| {
            scopes.iter().map(|scope| &**scope).collect()
        });
        let identity = Identity {
            principal,
            name: Arc::from(&*self.name),
            source,
            groups: texts(self.groups),
            scopes,
            claims: Arc::new(self.claims.into_iter().map(claim).collect()),
            endpoints: self.endpoints.map(texts),
            // The forwarding replica ends the request when the credentials are revoked.
            validity: Validity {
                expires: self.expires,
                ..Validity::default()
            },
        };
        let client = ForwardedClient {
            identity: Arc::new(identity),
            address: self.address,
            user: self.user,
        };
        is_client.then_some(client)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn written(identity: Identity) -> Option<ForwardedClient> {
        let address = Some(SocketAddr::from(([10, 0, 0, 1], 99)));
        let client = ForwardedClient {
            identity: Arc::new(identity),
            address,
            user: Some(7),
        };
        let text = serde_json::to_vec(&WrittenClient::new(&client)).unwrap();
        serde_json::from_slice::<WrittenClient<'_>>(&text)
            .unwrap()
            .read()
    }

    #[test]
    fn client_is_read_as_it_was_written() {
        let ann = Identity {
            principal: Principal::new("https://a.example", "ann"),
            name: "Ann \"A\"".into(),
            source: Source::Token,
            groups: Arc::from(["g".into()]),
            scopes: Scopes::parse("a b"),
            claims: Arc::new(BTreeMap::from([(
                "c".into(),
                Box::from(["1".into(), "2".into()]),
            )])),
            endpoints: Some(Arc::from(["/mcp".into()])),
            validity: Validity {
                expires: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(9)),
                ..Validity::default()
            },
        };
        for identity in [ann, Identity::anonymous()] {
            let read = written(identity.clone()).unwrap();
            assert_eq!(
                (read.user, read.address.map(|address| address.port())),
                (Some(7), Some(99))
            );
            let shown = |identity: &Identity| {
                let Identity {
                    principal,
                    name,
                    source,
                    groups,
                    scopes,
                    claims,
                    endpoints,
                    validity,
                } = identity;
                let parts = (
                    principal,
                    name,
                    source,
                    groups,
                    scopes,
                    claims,
                    endpoints,
                    validity.expires,
                );
                format!("{parts:?}")
            };
            assert_eq!(shown(&read.identity), shown(&identity));
        }
    }

    #[test]
    fn nobody_but_clients_is_passed_on() {
        let with = |principal, source| Identity {
            principal,
            source,
            ..Identity::anonymous()
        };
        for (principal, source) in [
            (Principal::operator(), Source::Key),
            (Principal::gateway(), Source::Anonymous),
            (Principal::anonymous(), Source::Key),
            (Principal::new("i", "s"), Source::Anonymous),
        ] {
            assert!(written(with(principal, source)).is_none());
        }
    }
}
