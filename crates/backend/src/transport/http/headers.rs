//! The headers of a transport's messages.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_canonical::Caller;
use fanlight_protocol::{Method, Revision, header};
use fanlight_telemetry::Propagation;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::log::excerpt;
use crate::request::dialect::Mirror;
use crate::settings::Secret;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// The number of headers that most messages add.
const OF_MESSAGE: usize = 6;

/// The configured headers for a server. They are read for each message, so a rotated secret applies
/// at once.
pub(super) struct ConfiguredHeaders {
    /// Headers of every request.
    own: HeaderMap,
    all: ArcSwap<HeaderMap>,
    /// Headers of clients, in lower case, each with its name at the server.
    forwarded: Vec<(String, HeaderName)>,
}

impl ConfiguredHeaders {
    pub(super) fn new(
        own: HeaderMap,
        configured: &[(String, Secret)],
        forwarded: &[(String, String)],
    ) -> Result<Self, String> {
        let all = ArcSwap::from_pointee(merged(&own, configured)?);
        let named = |(theirs, ours): &(String, String)| Some((theirs.clone(), ours.parse().ok()?));
        let forwarded = forwarded.iter().filter_map(named).collect();
        Ok(Self {
            own,
            all,
            forwarded,
        })
    }

    /// The headers of a client's request that the server gets, by the server's names.
    pub(super) fn client_headers<'a>(
        &'a self,
        client: &'a Caller,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a str)> {
        let value = |theirs: &str| {
            let mut all = client.headers().iter();
            all.find(|(name, _)| **name == *theirs)
                .map(|(_, value)| &**value)
        };
        let all = self.forwarded.iter();
        all.filter_map(move |(theirs, ours)| Some((ours, value(theirs)?)))
    }

    /// Adds the headers of a client's request. Lists are read without them, since clients share
    /// what Fanlight learns from lists. A configured header stays as it is.
    pub(super) fn add_of_client(&self, headers: &mut HeaderMap, method: &Method, client: &Caller) {
        if method.is_list() {
            return;
        }
        for (name, value) in self.client_headers(client) {
            if !headers.contains_key(name)
                && let Ok(mut value) = HeaderValue::from_str(value)
            {
                value.set_sensitive(true);
                insert(headers, name.clone(), value);
            }
        }
    }

    /// Uses these configured headers from the next message on.
    pub(super) fn replace(&self, configured: &[(String, Secret)]) -> Result<(), String> {
        self.all.store(Arc::new(merged(&self.own, configured)?));
        Ok(())
    }

    /// The configured headers for the next message.
    pub(super) fn current(&self) -> Arc<HeaderMap> {
        self.all.load_full()
    }
}

fn merged(own: &HeaderMap, configured: &[(String, Secret)]) -> Result<HeaderMap, String> {
    let mut headers = own.clone();
    configured
        .iter()
        .try_for_each(|(name, value)| set(&mut headers, name, value))?;
    // A clone keeps this capacity, so a message need not grow it.
    headers.reserve(OF_MESSAGE);
    Ok(headers)
}

/// Sets a configured header, unless it belongs to the protocol or to HTTP itself.
fn set(headers: &mut HeaderMap, name: &str, value: &Secret) -> Result<(), String> {
    let shown = excerpt(name.as_bytes(), 64);
    let name: HeaderName = name
        .parse()
        .map_err(|_| format!("the header name {shown:?} is not valid"))?;
    let mut value = HeaderValue::from_str(value.expose())
        .map_err(|_| format!("the value of the header {name} is not valid"))?;
    value.set_sensitive(true);
    if header::is_of_transport(name.as_str()) {
        tracing::warn!(header = %name, "configured header ignored: the transport sets it");
        return Ok(());
    }
    headers.insert(name, value);
    Ok(())
}

/// The headers of all messages of a transport. Each session and suspended call has a transport, so
/// all share the endpoint's headers.
#[derive(Clone)]
pub(super) struct MessageHeaders {
    configured: Arc<ConfiguredHeaders>,
    /// The revision, for a legacy server that wants it in a header.
    revision: Option<Revision>,
    session: Option<HeaderValue>,
}

impl MessageHeaders {
    pub(super) fn new(configured: Arc<ConfiguredHeaders>) -> Self {
        Self {
            configured,
            revision: None,
            session: None,
        }
    }

    /// Adopts the handshake's agreement.
    pub(super) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        self.revision = Some(revision).filter(|revision| revision.version_header);
        let session = session.filter(|_| revision.has_sessions);
        self.session = session.map(|mut session| {
            session.set_sensitive(true);
            session
        });
    }

    /// The session that the server assigned.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }

    /// The headers of a message that belongs to no request.
    pub(super) fn message_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.configured.current());
        if let Some(revision) = self.revision {
            insert(
                &mut headers,
                PROTOCOL_VERSION,
                HeaderValue::from_static(revision.name),
            );
        }
        if let Some(session) = &self.session {
            insert(&mut headers, SESSION_ID, session.clone());
        }
        headers
    }

    /// The headers of a request, with mirrored values and its trace context.
    pub(super) fn request_headers(
        &self,
        mirror: Option<Mirror>,
        propagation: &Propagation,
    ) -> HeaderMap {
        let mut headers = self.message_headers();
        if let Some(Mirror {
            revision,
            method,
            headers: mirrored,
        }) = mirror
        {
            insert(
                &mut headers,
                PROTOCOL_VERSION,
                HeaderValue::from_static(revision),
            );
            insert(&mut headers, METHOD, method);
            mirrored
                .into_iter()
                .for_each(|(name, value)| insert(&mut headers, name, value));
        }
        insert_trace_context(&mut headers, propagation);
        headers
    }
}

/// Adds a trace context to the headers of a request.
pub(super) fn insert_trace_context(headers: &mut HeaderMap, propagation: &Propagation) {
    for (name, value) in propagation.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            insert(headers, HeaderName::from_static(name), value);
        }
    }
}

/// Adds a header. A server decides how many parameters are mirrored, so the map's limit must not
/// cause a panic.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(name: Option<&'static str>) -> Mirror {
        Mirror {
            revision: "2026-07-28",
            method: HeaderValue::from_static("tools/call"),
            headers: name
                .map(|name| ("mcp-name", name))
                .into_iter()
                .chain([("mcp-param-r", "1")])
                .map(|(name, value)| {
                    let value = HeaderValue::from_static(value);
                    (HeaderName::from_static(name), value)
                })
                .collect(),
        }
    }

    fn agreed(adopted: Option<Revision>) -> MessageHeaders {
        let every = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("*/*"))]);
        let mut headers =
            MessageHeaders::new(Arc::new(ConfiguredHeaders::new(every, &[], &[]).unwrap()));
        if let Some(revision) = adopted {
            headers.adopt(revision, Some(HeaderValue::from_static("s")));
        }
        headers
    }

    fn text(headers: &HeaderMap) -> String {
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines.join(" ")
    }

    #[test]
    fn headers_without_a_value_are_absent() {
        for headers in [
            agreed(None),
            agreed(Some(Revision::V2026_07_28)),
            agreed(Some(Revision::V2024_11_05)),
        ] {
            let without_session = text(&headers.message_headers()).replace(" mcp-session-id=s", "");
            assert_eq!(without_session, "accept=*/*");
        }
        let unnamed = agreed(Some(Revision::V2026_07_28))
            .request_headers(Some(mirror(None)), &Propagation::default());
        assert_eq!(
            text(&unnamed),
            "accept=*/* mcp-method=tools/call mcp-param-r=1 mcp-protocol-version=2026-07-28"
        );
    }

    #[test]
    fn modern_headers_are_equal_before_and_after_the_handshake() {
        let of = |headers: MessageHeaders| {
            text(&headers.request_headers(Some(mirror(Some("n"))), &Propagation::default()))
        };
        assert_eq!(of(agreed(None)), of(agreed(Some(Revision::V2026_07_28))));
        assert!(of(agreed(None)).contains("mcp-name=n"));
    }

    #[test]
    fn legacy_headers_contain_revision_and_session() {
        let headers =
            agreed(Some(Revision::V2025_06_18)).request_headers(None, &Propagation::default());
        assert_eq!(
            text(&headers),
            "accept=*/* mcp-protocol-version=2025-06-18 mcp-session-id=s"
        );
        assert_eq!(agreed(Some(Revision::V2026_07_28)).session(), None);
    }
}
