//! Raw clients: they send text, receive bytes, and decode no JSON.

mod event;
mod http;
mod stdio;

use std::net::SocketAddr;

use crate::harness::Gateway;
use crate::slicer;

pub use self::event::Event;
pub use self::http::{Connection, Response};
pub use self::stdio::StdioClient;
pub use crate::revisions::{LEGACY, MODERN, NEWEST_LEGACY};

/// The content headers of both kinds of POST.
pub const JSON_HEADERS: [(&str, &str); 2] = [
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
];

/// POSTs a body to `/mcp` on a new connection, with the content headers and `headers`.
pub async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> Response {
    let mut connection = Connection::open(address).await;
    let mut all = JSON_HEADERS.to_vec();
    all.extend_from_slice(headers);
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await
}

impl Gateway {
    /// Makes it reload its configuration; returns the status and the report.
    pub async fn reload(&self) -> (u16, String) {
        let mut connection = Connection::open(self.admin).await;
        connection.request("POST", "/api/reload", &[], b"").await;
        let mut answer = connection.response().await;
        (answer.status, answer.text().await)
    }
}

/// The `_meta` members that every modern request must have, as raw text without braces.
pub fn modern_meta(capabilities: &str) -> String {
    format!(
        r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":"raw","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{capabilities}"#
    )
}

/// A modern request from raw parts. `params` are members without braces, `meta` likewise; both may
/// be empty.
pub fn modern_request(id: &str, method: &str, params: &str, meta: &str) -> String {
    modern_request_with("{}", id, method, params, meta)
}

/// [`modern_request`] from a client with these raw capabilities.
pub fn modern_request_with(
    capabilities: &str,
    id: &str,
    method: &str,
    params: &str,
    meta: &str,
) -> String {
    let comma = |text: &str| if text.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{}"_meta":{{{}{}{meta}}}}}}}"#,
        comma(params),
        modern_meta(capabilities),
        comma(meta),
    )
}

/// A legacy request from raw parts; `params` are members without braces.
pub fn legacy_request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
}

/// The headers that a modern request's body requires (2026-07-28 streamable-http, Request
/// Metadata). Names with escapes or characters outside visible ASCII are not supported; their tests
/// add the headers.
pub fn modern_headers(body: &str) -> Vec<(String, String)> {
    let text = |path: &[&str]| {
        slicer::member_at(body, path)
            .and_then(slicer::plain_string)
            .map(str::to_owned)
    };
    let version = text(&["params", "_meta", "io.modelcontextprotocol/protocolVersion"]);
    let name = text(&["params", "name"]).or_else(|| text(&["params", "uri"]));
    let name = name.or_else(|| text(&["params", "taskId"]));
    [
        ("MCP-Protocol-Version", version),
        ("Mcp-Method", text(&["method"])),
        ("Mcp-Name", name),
    ]
    .into_iter()
    .filter_map(|(header, value)| Some((header.to_owned(), value?)))
    .collect()
}

/// POSTs a modern request with the headers that its body requires.
pub async fn post_modern(address: SocketAddr, body: &str) -> Response {
    let headers = modern_headers(body);
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    post(address, &headers, body).await
}

/// [`post_modern`] on this connection.
pub async fn post_modern_on(mut connection: Connection, body: &str) -> Response {
    let headers = modern_headers(body);
    let mut all = JSON_HEADERS.to_vec();
    all.extend(
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await
}

/// Opens a modern client's `subscriptions/listen` stream; `notifications` is the raw filter object.
pub async fn listen(address: SocketAddr, id: &str, notifications: &str) -> Response {
    post_modern(
        address,
        &modern_request(
            id,
            LISTEN,
            &format!(r#""notifications":{notifications}"#),
            "",
        ),
    )
    .await
}

/// The method of a modern client's subscription.
pub const LISTEN: &str = "subscriptions/listen";

/// The `initialize` request of a legacy client with these raw capabilities.
pub fn initialize(revision: &str, capabilities: &str) -> String {
    let params = format!(
        r#""protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"raw","version":"1"}}"#
    );
    legacy_request("0", "initialize", &params)
}

/// The notification that completes a legacy handshake.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A legacy client's session over HTTP.
pub struct LegacySession {
    address: SocketAddr,
    /// The session id, if the server has given one.
    pub session: Option<String>,
    /// The negotiated revision.
    pub revision: String,
    /// The raw result of `initialize`.
    pub initialize_result: String,
}

impl LegacySession {
    /// Initializes with the newest legacy revision.
    pub async fn open(address: SocketAddr) -> Self {
        Self::open_as(address, NEWEST_LEGACY).await
    }

    /// Initializes with this revision.
    pub async fn open_as(address: SocketAddr, revision: &str) -> Self {
        Self::open_with(address, revision, "{}").await
    }

    /// Initializes with these raw capabilities.
    pub async fn open_with(address: SocketAddr, revision: &str, capabilities: &str) -> Self {
        let mut response = post(address, &[], &initialize(revision, capabilities)).await;
        let session = response.header("mcp-session-id").map(str::to_owned);
        assert_eq!(response.status, 200, "initialize");
        let (_, answer) = response.messages().await;
        let result = slicer::member(&answer, "result")
            .unwrap_or_else(|| panic!("initialize failed: {answer}"));
        let revision = slicer::member(result, "protocolVersion").and_then(slicer::plain_string);
        let revision = revision.expect("a revision").to_owned();
        let session = Self {
            address,
            session,
            revision,
            initialize_result: result.to_owned(),
        };
        assert_eq!(session.post(INITIALIZED).await.status, 202);
        session
    }

    /// POSTs a raw message within the session.
    pub async fn post(&self, body: &str) -> Response {
        post(self.address, &self.headers(), body).await
    }

    /// Opens the session's stream, or resumes one after this event. Dropping the response closes
    /// the stream.
    pub async fn stream(&self, last_event_id: Option<&str>) -> Response {
        let mut headers = self.headers();
        headers.push(("Accept", "text/event-stream"));
        headers.extend(last_event_id.map(|id| ("Last-Event-ID", id)));
        let mut connection = Connection::open(self.address).await;
        connection.request("GET", "/mcp", &headers, b"").await;
        connection.response().await
    }

    /// Ends the session.
    pub async fn delete(&self) -> Response {
        let mut connection = Connection::open(self.address).await;
        connection
            .request("DELETE", "/mcp", &self.headers(), b"")
            .await;
        connection.response().await
    }

    /// The headers of every message in the session.
    /// The headers of its messages.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![];
        if self.revision.as_str() >= "2025-06-18" {
            headers.push(("MCP-Protocol-Version", self.revision.as_str()));
        }
        headers.extend(
            self.session
                .as_deref()
                .map(|session| ("Mcp-Session-Id", session)),
        );
        headers
    }
}

#[cfg(test)]
mod tests {
    use crate::slicer::compact;

    use super::*;

    #[test]
    fn requests_are_built_from_raw_parts() {
        let request = modern_request(
            "1.0",
            "tools/call",
            r#""name":"a","arguments":{"x":1E400}"#,
            r#""k":-0"#,
        );
        assert_eq!(compact(&request), request);
        assert_eq!(slicer::member(&request, "id"), Some("1.0"));
        assert_eq!(
            slicer::member(&request, "params.arguments.x"),
            Some("1E400")
        );
        assert_eq!(slicer::member(&request, "params._meta.k"), Some("-0"));
        let headers = modern_headers(&request);
        let value = |name: &str| {
            headers
                .iter()
                .find(|header| header.0 == name)
                .map(|header| header.1.as_str())
        };
        assert_eq!(value("MCP-Protocol-Version"), Some(MODERN));
        assert_eq!(value("Mcp-Method"), Some("tools/call"));
        assert_eq!(value("Mcp-Name"), Some("a"));
        assert_eq!(
            modern_headers(&modern_request("1", "tools/list", "", "")).len(),
            2
        );
    }
}
