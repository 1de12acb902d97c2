//! The headers of one transport's requests, made once. A request copies them, and fills in the values of its own, for
//! which the template has empty entries, so that the copy needs no new allocation.

use fanlight_protocol::{Era, Revision, header};
use fanlight_telemetry::Propagation;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::request::dialect::Mirror;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// The templates.
pub(super) struct HeaderTemplates {
    /// The headers of every message.
    base: HeaderMap,
    /// `base` with an empty content length.
    with_length: HeaderMap,
    /// The template of modern requests, once the server is known to be modern.
    mirroring: Option<Mirroring>,
    session: Option<HeaderValue>,
}

struct Mirroring {
    revision: &'static str,
    /// With empty entries for the method and the name.
    headers: HeaderMap,
}

impl HeaderTemplates {
    pub(super) fn new(every: &HeaderMap) -> Self {
        let base = every.clone();
        Self { with_length: with_empty(&base, [CONTENT_LENGTH]), base, mirroring: None, session: None }
    }

    /// Sets what the handshake agreed on. `MCP-Protocol-Version` exists since 2025-06-18;
    /// modern requests bring it along, since there it belongs to the request.
    pub(super) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        if revision.era() == Era::Modern {
            let revision = revision.as_str();
            let mut headers = with_empty(&self.with_length, [METHOD, NAME]);
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision));
            self.mirroring = Some(Mirroring { revision, headers });
            return;
        }
        if revision >= Revision::V2025_06_18 {
            self.base.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(mut session) = session {
            session.set_sensitive(true);
            self.base.insert(SESSION_ID, session.clone());
            self.session = Some(session);
        }
        self.with_length = with_empty(&self.base, [CONTENT_LENGTH]);
    }

    /// The session that the server assigned.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }

    /// The headers of a message that belongs to no request.
    pub(super) fn of_message(&self) -> HeaderMap {
        self.base.clone()
    }

    /// The headers of a request of `length` bytes, with what they repeat of it and the trace context
    /// that goes along.
    pub(super) fn of_request(&self, length: usize, mirror: Option<Mirror>, carrying: &Propagation) -> HeaderMap {
        let mut headers = mirror.map_or_else(|| self.with_length.clone(), |mirror| self.mirroring(mirror));
        let length = HeaderValue::from_str(itoa::Buffer::new().format(length)).ok();
        if let (Some(entry), Some(length)) = (headers.get_mut(CONTENT_LENGTH), length) {
            *entry = length;
        }
        insert_trace_context(&mut headers, carrying);
        headers
    }

    fn mirroring(&self, mirror: Mirror) -> HeaderMap {
        let Mirror { revision, method, name, params } = mirror;
        let mut headers = match &self.mirroring {
            Some(agreed) if agreed.revision == revision => agreed.headers.clone(),
            // During the handshake.
            _ => {
                let mut headers = self.with_length.clone();
                headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision));
                headers
            }
        };
        insert(&mut headers, METHOD, method);
        match name {
            Some(name) => insert(&mut headers, NAME, name),
            None => drop(headers.remove(NAME)),
        }
        for (name, value) in params {
            insert(&mut headers, name, value);
        }
        headers
    }
}

/// `headers` with empty entries for these names.
fn with_empty<const N: usize>(headers: &HeaderMap, names: [HeaderName; N]) -> HeaderMap {
    let mut headers = headers.clone();
    for name in names {
        insert(&mut headers, name, HeaderValue::from_static(""));
    }
    headers
}

/// Puts a trace context into the headers of a request.
pub(super) fn insert_trace_context(headers: &mut HeaderMap, carrying: &Propagation) {
    for (name, value) in carrying.headers() {
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

    fn heads(adopted: Option<Revision>) -> HeaderTemplates {
        let every = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("*/*"))]);
        let mut heads = HeaderTemplates::new(&every);
        if let Some(revision) = adopted {
            heads.adopt(revision, Some(HeaderValue::from_static("s")));
        }
        heads
    }

    fn text(headers: &HeaderMap) -> String {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.join(" ")
    }

    #[test]
    fn empty_entries_are_never_sent() {
        for heads in [heads(None), heads(Some(Revision::V2026_07_28)), heads(Some(Revision::V2024_11_05))] {
            let without_session = text(&heads.of_message()).replace(" mcp-session-id=s", "");
            assert_eq!(without_session, "accept=*/*");
        }
        let unnamed = heads(Some(Revision::V2026_07_28)).of_request(7, Some(mirror(None)), &Propagation::default());
        assert_eq!(
            text(&unnamed),
            "accept=*/* content-length=7 mcp-method=tools/call mcp-param-r=1 mcp-protocol-version=2026-07-28"
        );
    }

    #[test]
    fn modern_headers_are_equal_before_and_after_the_handshake() {
        let of = |heads: HeaderTemplates| text(&heads.of_request(7, Some(mirror(Some("n"))), &Propagation::default()));
        assert_eq!(of(heads(None)), of(heads(Some(Revision::V2026_07_28))));
        assert!(of(heads(None)).contains("mcp-name=n"));
    }

    #[test]
    fn legacy_headers_contain_revision_and_session() {
        let headers = heads(Some(Revision::V2025_06_18)).of_request(7, None, &Propagation::default());
        assert_eq!(text(&headers), "accept=*/* content-length=7 mcp-protocol-version=2025-06-18 mcp-session-id=s");
        assert_eq!(heads(Some(Revision::V2026_07_28)).session(), None);
    }
}
