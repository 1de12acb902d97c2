//! What tests of several methods share.

use fanlight_canonical::credentials::{ConnectionFacts, Credentials};
use http::{HeaderMap, Method};

/// What a request with these headers to the endpoint `/mcp` shows.
pub(crate) fn at_mcp<'a>(
    headers: &'a HeaderMap,
    connection: &'a ConnectionFacts,
) -> Credentials<'a> {
    let (method, path) = (&Method::POST, "/mcp");
    Credentials {
        method,
        path,
        headers,
        connection,
        client: None,
        endpoint: path,
    }
}
