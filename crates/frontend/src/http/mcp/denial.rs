//! Answers to requests without an identity, or without the required rights.
//!
//! These answers do not reveal whether a path is served. An unauthenticated client learns about
//! endpoints only from metadata that is public.

use std::fmt::Write as _;
use std::sync::Arc;

use fanlight_canonical::Item;
use fanlight_credentials::{Denial, escaped_html as escaped, resource_url};
use fanlight_protocol::{Json, Method as McpMethod, RpcError, code, partial};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, EXPECT, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;

use super::Endpoint;
use super::arrived::{AUTHORIZATION, Field, Fields};
use crate::http::activity::ActiveRequest;
use crate::http::body;
use crate::http::challenge::{Challenge, Scheme};
use crate::http::reply::{self, Refusal, ReplyBody, whole_seconds};
use crate::ingress::Destination;
use crate::protection::{Operation, ScopePolicy};

/// The maximum number of body bytes to search for a denied request's id.
const ID_WITHIN: usize = 4 << 10;

impl Endpoint {
    /// Answers a request without an identity.
    pub(super) async fn deny(
        &self,
        denial: &Denial,
        head: &Parts,
        active: &ActiveRequest,
        destination: &Destination<'_>,
        body: &mut Incoming,
    ) -> Response<ReplyBody> {
        tracing::debug!(reason = %denial, "request denied");
        let status = status(denial);
        let mut response = if is_wanted(head) && status.is_client_error() {
            let (protection, guard) = (self.settings.protection.load(), self.settings.guard.load());
            let url = guard
                .public_url()
                .map(|url| resource_url(url.as_str(), destination.resource));
            denied_page(
                status,
                denial,
                url.as_deref(),
                &protection.authorization_servers,
            )
        } else {
            let id = self.id_of_denied(head, active, body).await;
            Refusal::new(status, error(denial))
                .with_request_id(id)
                .into_response()
        };
        let headers = response.headers_mut();
        for challenge in self.challenges(denial, &head.headers, destination) {
            headers.append(WWW_AUTHENTICATE, challenge);
        }
        if let Denial::Throttled { retry_after } = denial {
            headers.insert(RETRY_AFTER, whole_seconds(*retry_after).into());
        }
        response
    }

    /// Refuses a request that repeats the field `name`.
    pub(super) async fn refuse_ambiguous(
        &self,
        name: &str,
        head: &Parts,
        active: &ActiveRequest,
        destination: &Destination<'_>,
        body: &mut Incoming,
    ) -> Response<ReplyBody> {
        let message = format!("{name} is there more than once");
        if name == AUTHORIZATION {
            return self
                .deny(
                    &Denial::Malformed(message.into()),
                    head,
                    active,
                    destination,
                    body,
                )
                .await;
        }
        Refusal::invalid(StatusCode::BAD_REQUEST, message).into_response()
    }

    /// The id of a denied request. Reads only as much of the body as needed.
    async fn id_of_denied(
        &self,
        head: &Parts,
        active: &ActiveRequest,
        body: &mut Incoming,
    ) -> Option<Json> {
        // A client that waits for "100 Continue" has not sent its body.
        if head.method != Method::POST || head.headers.contains_key(EXPECT) {
            return None;
        }
        let time = self
            .settings
            .body_timeout
            .min(self.settings.refused_body.time);
        partial::id_in_head(&body::beginning(body, ID_WITHIN, time, active).await)
    }

    /// The response to a refused request. If further scopes are needed, it has a challenge.
    pub(super) fn refusal_response(
        &self,
        refusal: Refusal,
        destination: &Destination<'_>,
    ) -> Response<ReplyBody> {
        let Some(required) = refusal.required_scopes.as_deref() else {
            return refusal.into_response();
        };
        let metadata = self.metadata_url(destination);
        let error = Some(("insufficient_scope", refusal.message()));
        let challenges = challenges(error, required, metadata.as_deref());
        let mut response = refusal.into_response();
        for challenge in challenges {
            response.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn metadata_url(&self, destination: &Destination<'_>) -> Option<String> {
        let guard = self.settings.guard.load();
        self.settings
            .protection
            .load()
            .metadata_url(guard.public_url(), destination.resource)
    }

    fn challenges(
        &self,
        denial: &Denial,
        headers: &HeaderMap,
        destination: &Destination<'_>,
    ) -> Vec<HeaderValue> {
        let (description, metadata) = (denial.to_string(), self.metadata_url(destination));
        let scopes = match denial {
            // Keys have fixed scopes, so only tokens can ask for more.
            Denial::Missing | Denial::Invalid(_) | Denial::InvalidProof(_)
                if metadata.is_some() =>
            {
                wanted_scopes(
                    self.settings.protection.load().scopes_at(destination.path),
                    &Fields::find(headers),
                )
            }
            _ => Vec::new(),
        };
        let error = match denial {
            Denial::Missing => None,
            Denial::Invalid(_) => Some(("invalid_token", description.as_str())),
            Denial::InvalidProof(_) => Some(("invalid_dpop_proof", description.as_str())),
            Denial::Malformed(_) => Some(("invalid_request", description.as_str())),
            Denial::Forbidden(_) | Denial::Throttled { .. } | Denial::Unavailable(_) => {
                return Vec::new();
            }
        };
        challenges(error, &scopes, metadata.as_deref())
    }
}

/// One challenge for each way to present a token. Without metadata there are no tokens that could
/// be bound to a key.
fn challenges(
    error: Option<(&'static str, &str)>,
    scopes: &[Arc<str>],
    metadata: Option<&str>,
) -> Vec<HeaderValue> {
    let schemes = [Some(Scheme::Bearer), metadata.map(|_| Scheme::Dpop)];
    let challenge = |scheme| {
        Challenge {
            scheme,
            error,
            scopes,
            metadata,
        }
        .to_value()
    };
    schemes.into_iter().flatten().map(challenge).collect()
}

fn status(denial: &Denial) -> StatusCode {
    match denial {
        Denial::Missing | Denial::Invalid(_) | Denial::InvalidProof(_) => StatusCode::UNAUTHORIZED,
        Denial::Malformed(_) => StatusCode::BAD_REQUEST,
        Denial::Forbidden(_) => StatusCode::FORBIDDEN,
        Denial::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
        Denial::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn error(denial: &Denial) -> RpcError {
    let code = match denial {
        Denial::Missing
        | Denial::Invalid(_)
        | Denial::InvalidProof(_)
        | Denial::Throttled { .. } => code::NOT_AUTHENTICATED,
        Denial::Malformed(_) => code::INVALID_REQUEST,
        Denial::Forbidden(_) => code::NOT_PERMITTED,
        Denial::Unavailable(_) => code::INTERNAL,
    };
    RpcError::new(code, denial.to_string())
}

/// The scopes that a client should ask for: the scopes of its operation if its headers name one,
/// else the usual ones. This is only a hint; the body decides what is enforced.
fn wanted_scopes(scopes: &ScopePolicy, fields: &Fields<'_>) -> Vec<Arc<str>> {
    let text = |field: Field<'_>| {
        field
            .single_value()
            .ok()
            .flatten()
            .map(|(_, text)| text.to_owned())
    };
    let required = match text(fields.method).map(|method| McpMethod::from_name(&method)) {
        Some(McpMethod::CallTool) => {
            let name = text(fields.name).unwrap_or_default();
            // Only clients with an identity may learn which server has a tool.
            scopes.required_scopes(&Operation::Tool(Item {
                server: "",
                name: name.into(),
            }))
        }
        Some(method) => scopes.required_scopes(&Operation::from_method(&method)),
        None => Vec::new(),
    };
    if required.is_empty() {
        scopes.usual_scopes()
    } else {
        required
    }
}

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
fn denied_page(
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
