//! Pages for people, beside the endpoints. This module checks and limits their requests; other code
//! answers them.

use bytes::Bytes;
use fanlight_credentials::{ConnectionFacts, PageRequest, Pages};
use fanlight_http::peer_of;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;

use super::super::activity::ActiveRequest;
use super::super::body;
use super::super::reply::{self, Refusal, ReplyBody};
use super::Endpoint;

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
