//! The headers of one link's requests, made once. A request copies them, with room kept for what it
//! has of its own, so that nothing is moved or hashed anew for it.
//!
//! Must not know: how requests are sent.

use fanlight_protocol::{Era, Revision, header};
use fanlight_telemetry::Propagation;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::dialect::Mirror;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// See the module.
pub(super) struct Heads {
    /// What every message carries.
    base: HeaderMap,
    /// The same with room for the length of a request.
    measured: HeaderMap,
    /// The same with what a modern request repeats, once that is what the server speaks.
    mirroring: Option<Mirroring>,
    session: Option<HeaderValue>,
}

struct Mirroring {
    revision: &'static str,
    /// With room for the other headers that all requests, or most, repeat something in.
    headers: HeaderMap,
}

impl Heads {
    pub(super) fn new(every: &HeaderMap) -> Self {
        let base = every.clone();
        Self { measured: with_room(&base, [CONTENT_LENGTH]), base, mirroring: None, session: None }
    }

    /// Takes up what the handshake agreed on. `MCP-Protocol-Version` exists since 2025-06-18;
    /// modern requests bring it along, since there it belongs to the request.
    pub(super) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        if revision.era() == Era::Modern {
            let revision = revision.as_str();
            let mut headers = with_room(&self.measured, [METHOD, NAME]);
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
        self.measured = with_room(&self.base, [CONTENT_LENGTH]);
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
        let mut headers = mirror.map_or_else(|| self.measured.clone(), |mirror| self.mirroring(mirror));
        let length = HeaderValue::from_str(itoa::Buffer::new().format(length)).ok();
        if let (Some(room), Some(length)) = (headers.get_mut(CONTENT_LENGTH), length) {
            *room = length;
        }
        carry(&mut headers, carrying);
        headers
    }

    fn mirroring(&self, mirror: Mirror) -> HeaderMap {
        let Mirror { revision, method, name, params } = mirror;
        let mut headers = match &self.mirroring {
            Some(agreed) if agreed.revision == revision => agreed.headers.clone(),
            // Before the agreement, and while it is looked for.
            _ => {
                let mut headers = self.measured.clone();
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

/// These and, with no value yet, headers that all requests have, or most.
fn with_room<const N: usize>(headers: &HeaderMap, names: [HeaderName; N]) -> HeaderMap {
    let mut headers = headers.clone();
    for name in names {
        insert(&mut headers, name, HeaderValue::from_static(""));
    }
    headers
}

/// Puts a trace context into the headers of a request.
pub(super) fn carry(headers: &mut HeaderMap, carrying: &Propagation) {
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

    fn heads(adopted: Option<Revision>) -> Heads {
        let every = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("*/*"))]);
        let mut heads = Heads::new(&every);
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
    fn room_that_nothing_came_to_leaves_no_header() {
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
    fn a_modern_request_says_the_same_before_and_after_the_agreement() {
        let of = |heads: Heads| text(&heads.of_request(7, Some(mirror(Some("n"))), &Propagation::default()));
        assert_eq!(of(heads(None)), of(heads(Some(Revision::V2026_07_28))));
        assert!(of(heads(None)).contains("mcp-name=n"));
    }

    #[test]
    fn legacy_requests_carry_what_was_agreed_on() {
        let headers = heads(Some(Revision::V2025_06_18)).of_request(7, None, &Propagation::default());
        assert_eq!(text(&headers), "accept=*/* content-length=7 mcp-protocol-version=2025-06-18 mcp-session-id=s");
        assert_eq!(heads(Some(Revision::V2026_07_28)).session(), None);
    }
}
