//! The facts about a message's arrival, and the span of a client's request, from its arrival to the
//! last frame of its answer.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fanlight_canonical::{Endpoint, Identity, Principal, SameClient, Source};
use fanlight_http::peer_of;
use fanlight_protocol::{Json, Method, Request, Response, Revision, RpcError};
use fanlight_telemetry::metrics::{Direction, SessionSide};
use fanlight_telemetry::{
    Arrival, Carriers, ClientName, Headers, Metrics, Moment, Network, Propagation, ServerSpan,
    Subject, Telemetry, TrustInbound, Verdict,
};
use tokio::time::Instant;

use crate::eras::params::Params;
use crate::settings::FrontendSettings;

/// Facts about a message that its transport knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportFacts<'a> {
    pub(crate) received: Moment,
    /// The number of the exchange in the running recording; 0 if nothing records it.
    pub(crate) exchange: u64,
    pub(crate) network: Network,
    /// The user id of the client's process, on a Unix socket.
    pub(crate) user: Option<u32>,
    /// Whether another replica forwarded the message.
    pub(crate) is_forwarded: bool,
    /// Whether another program forwarded the message, which may do so for several clients.
    pub(crate) is_proxied: bool,
    pub(crate) trace_context: Headers<'a>,
}

impl TransportFacts<'_> {
    /// The client's socket; `None` on stdio and Unix sockets.
    pub(crate) fn client_socket(&self) -> Option<SocketAddr> {
        match self.network {
            Network::Http { client, .. } => client,
            Network::Stdio => None,
        }
    }

    /// The address of the client; `None` on stdio and Unix sockets.
    pub(crate) fn client_address(&self) -> Option<IpAddr> {
        self.client_socket().map(|address| address.ip())
    }

    /// The sign that tells the client of a message without a session.
    pub(crate) fn client_of(&self, principal: &Principal) -> Option<SameClient> {
        match self.network {
            Network::Stdio => Some(SameClient::Connection),
            _ if !principal.is_anonymous() => Some(SameClient::Principal),
            _ if self.is_proxied => None,
            Network::Http { client, .. } => {
                let number = match client.map(|address| address.ip().to_canonical()) {
                    Some(IpAddr::V4(address)) if address.is_loopback() => address.to_bits(),
                    // Only `::1` is a loopback address.
                    Some(IpAddr::V6(address)) if address.is_loopback() => 1,
                    Some(_) => return None,
                    // No address begins with this bit.
                    None => self.user.map_or(0, |user| user | 1 << 31),
                };
                Some(SameClient::Machine(number))
            }
        }
    }

    /// The address that the message counts for under limits; `None` on stdio.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.client_address().map(peer_of)
    }
}

/// Begins the span of `request`.
pub(crate) fn begin(
    settings: &FrontendSettings,
    request: &Request,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let meta = request.param("_meta");
    let subject = Subject::new(&request.method, request.params.as_ref());
    begin_of(settings, request, &subject, meta.as_ref(), endpoint, facts)
}

/// Begins the span of `request` after its `params` have been parsed.
pub(crate) fn begin_read(
    settings: &FrontendSettings,
    request: &Request,
    params: &Params,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let subject = Subject::from_members(&request.method, |key| match key {
        "name" => params.name(),
        "uri" => params.uri(),
        _ => None,
    });
    let meta = params.meta.object();
    let span = begin_of(settings, request, &subject, meta, endpoint, facts);
    if let Some(state) = params.request_state() {
        span.set_continued(&state);
    }
    span
}

fn begin_of(
    settings: &FrontendSettings,
    request: &Request,
    subject: &Subject,
    meta: Option<&Json>,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let mut carriers = Carriers {
        meta,
        headers: facts.trace_context,
        trust: settings.trust_inbound,
    };
    // The forwarding replica has read the message's own context and put its span into the headers.
    if facts.is_forwarded && facts.trace_context.traceparent.is_some() {
        (carriers.meta, carriers.trust) = (None, TrustInbound::Trust);
    }
    let mut span = settings.telemetry.server(&Arrival {
        method: &request.method,
        target: subject.target(),
        id: Some(&request.id),
        received: facts.received,
        carriers,
    });
    span.set_network(facts.network);
    span.set_exchange(facts.exchange);
    span.keep_content(&request.method, request.params.as_ref());
    if let Some(path) = endpoint.path() {
        span.set_endpoint(path);
    }
    span
}

/// The number of clients that a thread remembers, so that it need not parse their names for each
/// request. A constant: with more clients, parsing takes a little longer.
const REMEMBERED: usize = 8;
/// The maximum length of a remembered client's description, in bytes.
const LONGEST_INFO: usize = 1024;

/// A client's name for spans, and the description it was made from.
struct Remembered {
    info: Box<[u8]>,
    principal: Option<Arc<str>>,
    name: Option<Arc<ClientName>>,
}

thread_local! {
    /// The clients that this thread named last.
    static CLIENTS: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
}

/// The client with the description `info`, for spans; `None` if nothing is known about it.
pub(crate) fn client_name(info: Option<&Json>, identity: &Identity) -> Option<Arc<ClientName>> {
    let principal = (identity.source != Source::Anonymous).then_some(&identity.name);
    let bytes = info.map_or(&[][..], |info| info.bytes());
    if bytes.is_empty() && principal.is_none() {
        return None;
    }
    CLIENTS.with_borrow_mut(|clients| {
        let known = clients
            .iter()
            .find(|one| *one.info == *bytes && one.principal.as_ref() == principal);
        if let Some(known) = known {
            return known.name.clone();
        }
        let name = ClientName::new(info, principal);
        if bytes.len() <= LONGEST_INFO {
            if clients.len() >= REMEMBERED {
                clients.remove(0);
            }
            clients.push(Remembered {
                info: bytes.into(),
                principal: principal.cloned(),
                name: name.clone(),
            });
        }
        name
    })
}

/// Ends a span once the answer has been sent. Dropping it earlier means that the answer was given
/// up.
#[derive(Debug)]
pub(crate) struct Ending {
    span: ServerSpan,
    verdict: Verdict,
}

impl Ending {
    /// The end of a request for `method` with the answer `response`.
    pub(crate) fn for_answer(span: ServerSpan, method: &Method, response: &Response) -> Self {
        Self {
            verdict: span.verdict(method, response),
            span,
        }
    }

    /// The end of a refused request.
    pub(crate) fn for_refusal(span: ServerSpan, error: &RpcError) -> Self {
        Self {
            verdict: span.refusal_verdict(error),
            span,
        }
    }

    /// Changes the end to a refusal.
    pub(crate) fn refuse(&mut self, error: &RpcError) {
        self.verdict = self.span.refusal_verdict(error);
    }

    /// Changes the end to a forwarded request, which another replica answers.
    pub(crate) fn pass_on(&mut self) {
        self.verdict = Verdict::default();
    }

    /// The trace context for the replica that continues.
    pub(crate) fn propagation(&self) -> Propagation {
        self.span.propagation()
    }

    /// Ends the span: the last frame has been sent.
    pub(crate) fn finish(self) {
        self.span.finish(&self.verdict.outcome());
    }
}

/// Counts a legacy client's session until dropped.
#[derive(Debug)]
pub(crate) struct SessionCount {
    metrics: Option<Arc<Metrics>>,
    revision: Revision,
    network: Network,
    since: Instant,
}

impl SessionCount {
    pub(crate) fn new(telemetry: &Telemetry, revision: Revision, network: Network) -> Self {
        let metrics = telemetry.metrics().cloned();
        metrics.iter().for_each(|metrics| metrics.sessions(1));
        Self {
            metrics,
            revision,
            network,
            since: Instant::now(),
        }
    }
}

impl Drop for SessionCount {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.sessions(-1);
            metrics.session_ended(
                SessionSide::Server(self.network),
                self.revision,
                self.since.elapsed(),
                None,
            );
        }
    }
}

/// Counts a call that waits for its client's input, until dropped.
#[derive(Debug)]
pub(crate) struct SuspendedCount(Option<Arc<Metrics>>);

impl SuspendedCount {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let metrics = telemetry.metrics().cloned();
        metrics
            .iter()
            .for_each(|metrics| metrics.suspended_calls(1));
        Self(metrics)
    }
}

impl Drop for SuspendedCount {
    fn drop(&mut self) {
        self.0
            .iter()
            .for_each(|metrics| metrics.suspended_calls(-1));
    }
}

/// Counts message bytes from or to a client.
pub(crate) fn bytes(telemetry: &Telemetry, direction: Direction, count: usize) {
    if let Some(metrics) = telemetry.metrics() {
        metrics.client_bytes(direction, count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, source: Source) -> Identity {
        Identity {
            name: name.into(),
            source,
            ..Identity::anonymous()
        }
    }

    #[test]
    fn client_is_named_by_its_own_description_and_identity() {
        let nobody = Identity::anonymous();
        let named = |info: &str, identity: &Identity| {
            let info = Json::parse(info.to_owned().into(), 8).unwrap();
            client_name(Some(&info), identity)
        };
        let name =
            |info: &str| named(info, &nobody).and_then(|client| client.name().map(str::to_owned));
        // More clients than a thread remembers, in turn.
        for round in 0..3 {
            for client in 0..12 {
                assert_eq!(
                    name(&format!(r#"{{"name":"c{client}"}}"#)),
                    Some(format!("c{client}")),
                    "{round}"
                );
            }
        }
        assert!(CLIENTS.with_borrow(|clients| clients.len() <= REMEMBERED));
        let info = r#"{"name":"c"}"#;
        let [ann, bob] = ["ann", "bob"].map(|name| identity(name, Source::Key));
        for one in [&ann, &bob, &ann] {
            assert_eq!(named(info, one).unwrap().principal(), Some(&*one.name));
        }
        assert_eq!(named(info, &nobody).unwrap().principal(), None);
        assert!(named("{}", &nobody).is_none() && client_name(None, &nobody).is_none());
        assert_eq!(client_name(None, &ann).unwrap().name(), None);
        // Not remembered: a client could fill the memory of every thread.
        let long = format!(r#"{{"name":"c","x":"{}"}}"#, "x".repeat(5000));
        assert_eq!(name(&long).as_deref(), Some("c"));
        assert!(
            CLIENTS.with_borrow(|clients| clients.iter().all(|one| one.info.len() <= LONGEST_INFO))
        );
    }
}
