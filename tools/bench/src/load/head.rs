//! Requests of HTTP/1.1 as text.

use crate::era::Era;

/// `notifications/initialized`, as a POST within `session`.
pub(crate) fn initialized(session: Option<&str>, token: Option<&str>) -> Vec<u8> {
    post(
        "/mcp",
        Era::Legacy,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        session,
        token,
        &[],
    )
}

/// A POST of `body` with further headers.
pub(crate) fn post(
    path: &str,
    era: Era,
    body: &str,
    session: Option<&str>,
    token: Option<&str>,
    more: &[(&str, String)],
) -> Vec<u8> {
    let own = own_headers(session, token);
    let headers = own
        .iter()
        .chain(more)
        .map(|(name, value)| (*name, value.as_str()));
    (head("POST", path, era, body.len(), headers) + body).into_bytes()
}

/// A request without a body, such as the GET of a session's stream.
pub(crate) fn bare(
    method: &str,
    path: &str,
    session: Option<&str>,
    token: Option<&str>,
) -> Vec<u8> {
    let own = own_headers(session, token);
    head(
        method,
        path,
        Era::Legacy,
        0,
        own.iter().map(|(name, value)| (*name, value.as_str())),
    )
    .into_bytes()
}

/// The headers that name a session and carry a token.
fn own_headers<'a>(session: Option<&str>, token: Option<&str>) -> Vec<(&'a str, String)> {
    let session = session.map(|session| ("mcp-session-id", session.to_owned()));
    session
        .into_iter()
        .chain(token.map(|token| ("authorization", format!("Bearer {token}"))))
        .collect()
}

/// The head of an HTTP/1.1 request with further headers.
pub(super) fn head<'a>(
    method: &str,
    path: &str,
    era: Era,
    length: usize,
    more: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: {}\r\ncontent-length: {length}\r\n",
        era.revision(),
    );
    for (name, value) in more {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}
