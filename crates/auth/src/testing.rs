//! Helpers for tests of several methods.

use fanlight_credentials::{ConnectionFacts, Credentials};
use http::{HeaderMap, Method};

/// The credentials of a request with these headers to the endpoint `/mcp`.
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
