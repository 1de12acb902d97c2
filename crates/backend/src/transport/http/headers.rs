//! The headers of the messages of one transport.

use std::sync::Arc;

use fanlight_protocol::{Era, Revision, header};
use fanlight_telemetry::Propagation;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::request::dialect::Mirror;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// The headers that all messages have. There is a transport for each session and each suspended call, so they share what
/// the endpoint has.
#[derive(Clone)]
pub(super) struct MessageHeaders {
    base: Arc<HeaderMap>,
    /// Of a legacy server that wants it.
    revision: Option<Revision>,
    session: Option<HeaderValue>,
}

impl MessageHeaders {
    pub(super) fn new(base: &Arc<HeaderMap>) -> Self {
        Self { base: Arc::clone(base), revision: None, session: None }
    }

    /// Sets what the handshake agreed on. `MCP-Protocol-Version` exists since 2025-06-18; in the modern era it belongs to
    /// the request.
    pub(super) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        if revision.era() == Era::Modern {
            return;
        }
        self.revision = (revision >= Revision::V2025_06_18).then_some(revision);
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
    pub(super) fn of_message(&self) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.base);
        if let Some(revision) = self.revision {
            insert(&mut headers, PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(session) = &self.session {
            insert(&mut headers, SESSION_ID, session.clone());
        }
        headers
    }

    /// The headers of a request, with what they repeat of it and with its trace context.
    pub(super) fn of_request(&self, mirror: Option<Mirror>, propagation: &Propagation) -> HeaderMap {
        let mut headers = self.of_message();
        if let Some(Mirror { revision, method, name, params }) = mirror {
            insert(&mut headers, PROTOCOL_VERSION, HeaderValue::from_static(revision));
            insert(&mut headers, METHOD, method);
            let name = name.map(|name| (NAME, name));
            name.into_iter().chain(params).for_each(|(name, value)| insert(&mut headers, name, value));
        }
        insert_trace_context(&mut headers, propagation);
        headers
    }
}

/// Puts a trace context into the headers of a request.
pub(super) fn insert_trace_context(headers: &mut HeaderMap, propagation: &Propagation) {
    for (name, value) in propagation.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            insert(headers, HeaderName::from_static(name), value);
        }
    }
}

/// A server decides how many parameters it wants mirrored, so the map's limit must not panic.
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
            name: name.map(HeaderValue::from_static),
            params: vec![(HeaderName::from_static("mcp-param-r"), HeaderValue::from_static("1"))],
        }
    }

    fn agreed(adopted: Option<Revision>) -> MessageHeaders {
        let every = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("*/*"))]);
        let mut headers = MessageHeaders::new(&Arc::new(every));
        if let Some(revision) = adopted {
            headers.adopt(revision, Some(HeaderValue::from_static("s")));
        }
        headers
    }

    fn text(headers: &HeaderMap) -> String {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.join(" ")
    }

    #[test]
    fn headers_without_a_value_are_absent() {
        for headers in [agreed(None), agreed(Some(Revision::V2026_07_28)), agreed(Some(Revision::V2024_11_05))] {
            let without_session = text(&headers.of_message()).replace(" mcp-session-id=s", "");
            assert_eq!(without_session, "accept=*/*");
        }
        let unnamed = agreed(Some(Revision::V2026_07_28)).of_request(Some(mirror(None)), &Propagation::default());
        assert_eq!(text(&unnamed), "accept=*/* mcp-method=tools/call mcp-param-r=1 mcp-protocol-version=2026-07-28");
    }

    #[test]
    fn modern_headers_are_equal_before_and_after_the_handshake() {
        let of = |headers: MessageHeaders| text(&headers.of_request(Some(mirror(Some("n"))), &Propagation::default()));
        assert_eq!(of(agreed(None)), of(agreed(Some(Revision::V2026_07_28))));
        assert!(of(agreed(None)).contains("mcp-name=n"));
    }

    #[test]
    fn legacy_headers_contain_revision_and_session() {
        let headers = agreed(Some(Revision::V2025_06_18)).of_request(None, &Propagation::default());
        assert_eq!(text(&headers), "accept=*/* mcp-protocol-version=2025-06-18 mcp-session-id=s");
        assert_eq!(agreed(Some(Revision::V2026_07_28)).session(), None);
    }
}
