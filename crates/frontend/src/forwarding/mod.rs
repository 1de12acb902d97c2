//! Requests that one replica forwards to another. Usually that is the one with the request's
//! subject: a session, a suspended call, or a task that Fanlight made. A replica that is ending
//! forwards requests for new sessions to any other.
//!
//! A request travels in an envelope ([`Envelopes`]). It contains everything that the receiver acts
//! on: the client's request, and the client's identity as the sender has authenticated it. It is
//! sealed with the replicas' shared keys, for one run of one replica. The seal covers the digest of
//! the body, a time, and a number that is valid once. Nothing outside of the envelope matters. So a
//! request that a client makes up or changes is refused.
//!
//! A forwarded request is never forwarded again: the receiver's types have no way to do so.

mod envelope;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fanlight_canonical::ProcessRun;
use fanlight_canonical::identity::{Identity, Principal, Scopes, Source, Validity};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use serde::{Deserialize, Serialize};

pub use envelope::{Envelopes, Opened, Refused};

/// The header field with the envelope.
pub const ENVELOPE: &str = "fanlight-envelope";

/// The maximum length of an envelope in bytes. The longest header needs less, even with every
/// character escaped and in Base64. Replicas trust each other with as much.
pub const LONGEST_ENVELOPE: usize = 4 << 20;

/// The maximum number of bytes in flight on an HTTP/2 connection (RFC 9113 section 6.9.1), which
/// many clients share.
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The status that stands for [`ForwardError::TaskElsewhere`]. No answer to a client has it.
pub const TASK_ELSEWHERE: StatusCode = StatusCode::TEMPORARY_REDIRECT;

/// A client's request without its body.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// The method.
    pub method: Method,
    /// The path and query.
    pub target: Uri,
    /// The header fields that affect the request's meaning. None has credentials, which have been
    /// checked already.
    pub headers: HeaderMap,
    /// The sender of the request.
    pub client: ForwardedClient,
}

/// The body of an answer, as it arrives.
pub type ForwardedBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// The future of an answer. Dropping it cancels the request at the other replica.
pub type Forwarding<'a> = BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>>;

/// The reason why another replica did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// The replica has ended or no longer has the request's subject. It has not processed the
    /// request.
    #[error("the replica has ended")]
    Gone,
    /// The replica has the request's session, but not its task. It did nothing else.
    #[error("the replica keeps the session, and another one the task")]
    TaskElsewhere,
    /// The request's header fields and its client's identity exceed [`LONGEST_ENVELOPE`]. Nothing
    /// was sent.
    #[error("the request is too long to be passed on")]
    TooLong,
    /// No connection is possible, so the replica has not seen the request. It may still be alive.
    #[error("the replica cannot be reached")]
    Unreachable,
    /// The connection broke after the request was sent, so the request may have run.
    #[error("the connection to the replica broke; it may have carried the request out")]
    Lost,
}

/// The other replicas, from the view of this process.
///
/// A trait because its implementation depends on this crate.
pub trait Replicas: Send + Sync + fmt::Debug {
    /// Lets `run` answer a request. Nothing is sent twice.
    fn forward<'a>(
        &'a self,
        run: ProcessRun,
        request: &'a ForwardedRequest,
        body: Bytes,
    ) -> Forwarding<'a>;

    /// A replica that is not ending, for work that an ending replica should not begin.
    fn find_other(&self) -> Option<ProcessRun>;

    /// Opens an envelope for this replica, which is valid once.
    ///
    /// # Errors
    ///
    /// If no replica has just sent it to this one.
    fn open(&self, envelope: &str) -> Result<Opened, Refused>;
}

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
struct WrittenClient<'a> {
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
    fn new(client: &'a ForwardedClient) -> Self {
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
    fn read(self) -> Option<ForwardedClient> {
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
