//! Pages beside the endpoints. This module checks and limits the requests for pages that people
//! see, which other code answers. Protected resource metadata names the authorization servers of an
//! endpoint. It is public: pages of every origin may read it, and it contains only configuration.
//!
//! Source: RFC 9728, 2 and 3; 2026-07-28 basic/authorization/authorization-server-discovery.

use bytes::Bytes;
use fanlight_canonical::DEFAULT_PATH;
use fanlight_config::settings::Algorithm;
use fanlight_credentials::{ConnectionFacts, PageRequest, Pages, resource_url};
use fanlight_http::peer_of;
use fanlight_protocol::{Chunks, Json, ObjectBuilder, RpcError, code};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;

use super::Endpoint;
use crate::http::activity::ActiveRequest;
use crate::http::challenge::joined;
use crate::http::reply::{self, Refusal, ReplyBody};
use crate::http::{body, cors};
use crate::protection::{Protection, WELL_KNOWN};

/// The maximum length of a form, which has a key or an access token.
const LONGEST_FORM: usize = 64 << 10;
const METHODS: &str = "GET, HEAD, POST";

/// Whether a request changes nothing. Browsers may then make it from pages of other sites, such as
/// an authorization server that redirects back, or a site with a link.
pub(super) fn only_shows(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
}

impl Endpoint {
    /// Answers a request for a page.
    pub(super) async fn page(
        &self,
        pages: &dyn Pages,
        head: &Parts,
        body: &mut Incoming,
        connection: &ConnectionFacts,
        active: &ActiveRequest,
    ) -> Response<ReplyBody> {
        if !only_shows(head) && head.method != Method::POST {
            return Refusal::method(METHODS).into_response();
        }
        let form =
            body::beginning(body, LONGEST_FORM + 1, self.settings.body_timeout, active).await;
        if form.len() > LONGEST_FORM {
            return Refusal::invalid(StatusCode::PAYLOAD_TOO_LARGE, "this form is too long")
                .into_response();
        }
        let guard = self.settings.guard.load();
        let public_url = guard.public_url().map(|url| url.as_str().to_owned());
        let client = connection
            .peer
            .map(|peer| guard.trusted_proxies().client(peer, &head.headers).ip());
        drop(guard);
        let client = client.map(peer_of);
        let request = PageRequest {
            head,
            form: &form,
            connection,
            client,
            public_url: public_url.as_deref(),
        };
        response_of(pages.answer(request).await)
    }
}

fn response_of(page: Response<String>) -> Response<ReplyBody> {
    let (mut parts, text) = page.into_parts();
    let is_json = is_json(&parts.headers);
    // Written with the body.
    parts.headers.remove(CONTENT_TYPE);
    let mut response = match (text.is_empty(), is_json) {
        (true, _) => reply::empty(parts.status),
        (false, true) => reply::json(parts.status, Bytes::from(text).into()),
        (false, false) => reply::page(parts.status, text.into()),
    };
    response.headers_mut().extend(parts.headers);
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The path prefix of documents about the host (RFC 8615). The metadata is the only one.
pub(super) const PREFIX: &str = "/.well-known/";
const METADATA_METHODS: &str = "GET, HEAD, OPTIONS";
/// Short, so that clients soon notice a new authorization server.
const MAX_AGE: &str = "public, max-age=60";

impl Endpoint {
    /// Answers a request for a document about the host.
    pub(super) fn well_known(&self, head: &Parts) -> Response<ReplyBody> {
        let mut response = match head.method {
            Method::GET | Method::HEAD => self.metadata(head),
            Method::OPTIONS => cors::preflight(&head.headers, &[], METADATA_METHODS),
            _ => Refusal::method(METADATA_METHODS).into_response(),
        };
        // Without this header a page could not tell "not found" from a failure.
        response
            .headers_mut()
            .insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    }

    fn metadata(&self, head: &Parts) -> Response<ReplyBody> {
        let protection = self.settings.protection.load();
        let suffix = head.uri.path().strip_prefix(WELL_KNOWN);
        let suffix = suffix.filter(|suffix| suffix.is_empty() || suffix.starts_with('/'));
        let guard = self.settings.guard.load();
        // A proxy does not remove the prefix of the public URL here.
        let prefix = guard.public_url().map_or("", |url| url.parts().1);
        let within = |path: &str| {
            let rest = path.strip_prefix(prefix)?;
            let is_below = rest.is_empty() || rest.starts_with('/');
            self.resource_at(Some(rest).filter(|_| is_below)?)
        };
        let resource = suffix.and_then(|path| within(path).or_else(|| self.resource_at(path)));
        let found =
            resource
                .zip(guard.public_url())
                .and_then(|((resource, endpoint), public_url)| {
                    document(
                        &protection,
                        &resource_url(public_url.as_str(), &resource),
                        &endpoint,
                    )
                });
        let Some(document) = found else {
            let error = RpcError::new(code::INVALID_REQUEST, "nothing is served here");
            return Refusal::new(StatusCode::NOT_FOUND, error).into_response();
        };
        let mut text = Chunks::default();
        text.push(document.into_bytes());
        let (len, mut response) = (text.len(), reply::json(StatusCode::OK, text));
        if head.method == Method::HEAD {
            response = reply::empty(StatusCode::OK);
            response.headers_mut().insert(CONTENT_LENGTH, len.into());
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static(MAX_AGE));
        response
    }

    /// The resource path and endpoint path that the metadata at `path` describes; `None` if there
    /// is none. The root form describes the default endpoint, unless another endpoint is at the
    /// root.
    fn resource_at(&self, path: &str) -> Option<(String, String)> {
        let (core, default) = (&self.ingress.core, DEFAULT_PATH);
        let is_root = path.trim_end_matches('/').is_empty();
        if let Some(endpoint) = core.endpoint(if is_root { "/" } else { path }) {
            let path = endpoint.full_path();
            return Some((path.to_owned(), path.to_owned()));
        }
        // The HTTP+SSE transport serves the default endpoint.
        let resource = if is_root {
            Some(default)
        } else {
            self.sse_transport.resource_of(path)
        };
        core.endpoint(default)?;
        Some((resource?.to_owned(), default.to_owned()))
    }
}

/// The metadata of the resource at `url`; `None` if it has none. `endpoint` is the path of the
/// resource's endpoint.
fn document(protection: &Protection, url: &str, endpoint: &str) -> Option<Json> {
    let servers = &protection.authorization_servers;
    if servers.is_empty() {
        return None;
    }
    let servers = Json::strings(servers.iter().map(String::as_str));
    let scopes = joined(&protection.scopes_at(endpoint).usual_scopes());
    let supported = (!scopes.is_empty()).then(|| Json::strings(scopes.split(' ')));
    let name = url.split_once("://").map_or(url, |(_, rest)| rest);
    let document = ObjectBuilder::new()
        .string("resource", url)
        .member("authorization_servers", &servers)
        .optional("scopes_supported", supported.as_ref())
        .member("bearer_methods_supported", &Json::strings(["header"]))
        .member(
            "dpop_signing_alg_values_supported",
            &Json::strings(Algorithm::names()),
        )
        .string("resource_name", &format!("MCP server {name}"))
        .finish();
    Some(document)
}
