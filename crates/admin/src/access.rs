//! Access to the listener: the host that a request names, the token, and the origin of the page that sends it. This is
//! where a request gets its identity.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use crate::reply::Refusal;
use crate::router::Admin;

/// Requires a host that this listener serves.
pub(crate) async fn require_host(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    admin.now().guard.check_host(request.uri(), request.headers(), None)?;
    Ok(next.run(request).await)
}

/// Requires the token, if one is configured.
pub(crate) async fn require_token(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if !admin.now().is_authorized(request.headers()) {
        return Err(Refusal::unauthorized());
    }
    Ok(next.run(request).await)
}

/// Requires that no page of another origin sends the request.
pub(crate) async fn require_own_origin(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    admin.now().guard.check_origin(request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

/// Requires the JSON content type, which a form of another site cannot send.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let kind = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim(),
        _ => "",
    };
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body must be JSON: `Content-Type: application/json`";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn body_content_type_must_be_json() {
        let is_json =
            |kind| require_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])).is_ok();
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            assert!(!is_json(other), "{other}");
        }
        assert!(require_json(&HeaderMap::new()).is_err());
    }
}
