//! CORS headers, which let a page of an allowed origin send requests and read responses in a
//! browser.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use fanlight_protocol::header;

use super::reply::{ReplyBody, empty};

/// Header fields that requests may have. Mirrored parameters, whose names depend on tools, and
/// fields for servers come on top.
const ALLOWED_HEADERS: &str = "Accept, Authorization, Content-Type, DPoP, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, \
     Mcp-Name, Mcp-Session-Id, baggage, traceparent, tracestate";

/// The response to a preflight request (Fetch standard, CORS-preflight fetch). Servers get the
/// fields `forwarded` of requests.
pub(crate) fn preflight(
    request: &HeaderMap,
    forwarded: &[String],
    methods: &'static str,
) -> Response<ReplyBody> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(http::header::ALLOW, HeaderValue::from_static(methods));
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(methods),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        allowed_headers(request, forwarded),
    );
    response
}

/// Lets a page of `origin` read the response, including the session id and the challenge.
pub(crate) fn expose(response: &mut Response<ReplyBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("Mcp-Session-Id, Retry-After, WWW-Authenticate"),
    );
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// The fixed names, and the others that the page asks for and may send.
fn allowed_headers(request: &HeaderMap, forwarded: &[String]) -> HeaderValue {
    let asked = request
        .get_all(ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let further = asked
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| {
            let prefix = name.get(..header::PARAM_PREFIX.len());
            prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(header::PARAM_PREFIX))
                && HeaderName::from_bytes(name.as_bytes()).is_ok()
                || forwarded.iter().any(|one| one.eq_ignore_ascii_case(name))
        });
    let all = std::iter::once(ALLOWED_HEADERS)
        .chain(further)
        .collect::<Vec<_>>()
        .join(", ");
    HeaderValue::from_str(&all).unwrap_or_else(|_| HeaderValue::from_static(ALLOWED_HEADERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preflight_allows_the_headers_of_the_protocol() {
        let mut request = HeaderMap::new();
        let asked = "content-type, mcp-param-region, x-evil, Mcp-Param-Bad Name, X-Tenant";
        request.insert(
            ACCESS_CONTROL_REQUEST_HEADERS,
            HeaderValue::from_static(asked),
        );
        let forwarded = ["x-tenant".to_owned()];
        let response = preflight(&request, &forwarded, "POST, OPTIONS");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        let allowed = response.headers()[ACCESS_CONTROL_ALLOW_HEADERS]
            .to_str()
            .unwrap();
        assert!(
            allowed.starts_with("Accept, ")
                && allowed.ends_with("traceparent, tracestate, mcp-param-region, X-Tenant"),
            "{allowed}"
        );
        assert_eq!(
            response.headers()[ACCESS_CONTROL_ALLOW_METHODS],
            "POST, OPTIONS"
        );
    }

    #[test]
    fn response_names_its_origin() {
        let mut response = empty(StatusCode::OK);
        expose(
            &mut response,
            HeaderValue::from_static("http://localhost:3000"),
        );
        assert_eq!(
            response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN],
            "http://localhost:3000"
        );
        assert_eq!(response.headers()[VARY], "Origin");
    }
}
