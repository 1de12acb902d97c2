//! The JSON API (docs/api.md).

mod call;
mod catalogue;
mod endpoints;
mod events;
mod operations;
pub(crate) mod overview;
mod refusals;
mod server_log;
mod sessions;
mod traces;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::post;
use http::StatusCode;
use http::request::Parts;

use crate::access::require_own_origin;
use crate::reply::{Refusal, json};
use crate::router::{Admin, read};

/// The routes below `/api`. Endpoints that change something, and those of one server, get their routes here.
pub(crate) fn router(admin: &Arc<Admin>) -> Router<Arc<Admin>> {
    Router::new()
        .route("/overview", read(async |State(admin): State<Arc<Admin>>| json(admin.latest.with_uptime())))
        .route("/traces", read(traces::list))
        .route("/traces/{id}", read(traces::one))
        .route("/catalogue", read(catalogue::answer))
        .route("/endpoints", read(endpoints::answer))
        .route("/sessions", read(sessions::answer))
        .route("/config", read(async |State(admin): State<Arc<Admin>>| json(admin.subject.operations.config())))
        .route("/servers/{name}/log", read(server_log::answer))
        .route("/events", read(events::answer))
        .route("/call", post(call::answer).fallback(async || Refusal::method("POST")))
        .route("/sessions/{digest}/end", post(operations::end_session).fallback(async || Refusal::method("POST")))
        .route("/reload", post(operations::reload).fallback(async || Refusal::method("POST")))
        .route("/servers/{name}/{action}", post(operations::server).fallback(async || Refusal::method("POST")))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "no such part of the API; docs/api.md lists them"))
        .layer(from_fn_with_state(Arc::clone(admin), require_own_origin))
}

/// The result of a handler.
pub(crate) type Answer = Result<Response, Refusal>;

/// The query of a request.
pub(crate) struct Query(String);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.uri.query().unwrap_or_default().to_owned()))
    }
}

impl Query {
    /// The first value of this name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.0.as_bytes());
        pairs.find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.into_owned())
    }

    /// The first value of this name as a number, at most `most`.
    pub(crate) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number.min(most)),
            _ => Err(Refusal::bad_request(format!("`{name}` must be a number from 1 to {most}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_read_as_a_form() {
        let query = |text: &str| Query(text.to_owned());
        let form = query("text=a+b%26c&limit=7&tool=&error=true");
        assert_eq!(form.get("text").unwrap(), "a b&c");
        assert!(form.get("tool").is_none() && form.get("backend").is_none());
        assert_eq!(form.number("limit", 100, 500).unwrap(), 7);
        assert_eq!(form.number("other", 100, 500).unwrap(), 100);
        assert_eq!(query("limit=9999").number("limit", 100, 500).unwrap(), 500);
        assert!(query("limit=0").number("limit", 100, 500).is_err());
        assert!(query("limit=x").number("limit", 100, 500).is_err());
    }
}
