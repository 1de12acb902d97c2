//! The page for people who open an endpoint that asks for credentials in a browser.

use std::fmt::Write as _;

use fanlight_credentials::{Denial, escaped_html as escaped};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use super::reply::{self, ReplyBody};

/// The page has no scripts, styles or forms, and no other page may frame it.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether a browser made the request to open a page.
pub(super) fn is_wanted(head: &Parts) -> bool {
    let accepted = head
        .headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut ranges = accepted.flat_map(|value| value.split(','));
    let is_html = |range: &str| {
        range
            .split(';')
            .next()
            .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
    };
    matches!(head.method, Method::GET | Method::HEAD) && ranges.any(is_html)
}

/// The page for a denied request. `url` is the address for clients, if known.
pub(super) fn denied_page(
    status: StatusCode,
    denial: &Denial,
    url: Option<&str>,
    authorization_servers: &[String],
) -> Response<ReplyBody> {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>MCP server</title>\n\
         <h1>This is an MCP server</h1>\n\
         <p>It serves programs that speak the Model Context Protocol, such as assistants and editors. There is nothing \
         to see here in a browser.</p>\n",
    );
    // Writing to a string does not fail.
    let _ = writeln!(
        html,
        "<p>{} {}: {}.</p>",
        status.as_u16(),
        reason(status),
        escaped(&denial.to_string())
    );
    html += "<h2>How to connect</h2>\n";
    let address = url.map_or_else(
        || "the address of this page".into(),
        |url| format!("<code>{}</code>", escaped(url)),
    );
    let _ = writeln!(
        html,
        "<p>Add {address} to your MCP client as a remote server (Streamable HTTP).</p>"
    );
    if authorization_servers.is_empty() {
        html += "<p>Have the client send a key that the operator has given you, as <code>Authorization: Bearer \
                 &lt;key&gt;</code>.</p>\n";
    } else {
        let servers: Vec<_> = authorization_servers
            .iter()
            .map(|server| format!("<code>{}</code>", escaped(server)))
            .collect();
        let _ = writeln!(
            html,
            "<p>The client will ask you to sign in at {}.</p>",
            servers.join(" or ")
        );
    }
    html += "</html>\n";
    let mut response = reply::page(status, html.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn page_is_for_browsers() {
        let wanted = |method: &str, accept: &str| {
            is_wanted(
                &Request::builder()
                    .method(method)
                    .header(ACCEPT, accept)
                    .body(())
                    .unwrap()
                    .into_parts()
                    .0,
            )
        };
        assert!(wanted(
            "GET",
            "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
        ));
        assert!(wanted("HEAD", "application/json, TEXT/HTML;q=0.5"));
        assert!(
            !wanted("POST", "text/html")
                && !wanted("GET", "text/event-stream")
                && !wanted("GET", "*/*")
        );
    }
}
