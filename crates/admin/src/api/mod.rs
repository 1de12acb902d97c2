//! The JSON API (docs/api.md).

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod backend;
mod body;
pub(crate) mod call;
pub(crate) mod catalogue;
pub(crate) mod client_calls;
pub(crate) mod connections;
pub(crate) mod content;
pub(crate) mod endpoints;
mod events;
pub(crate) mod limits;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod pins;
pub(crate) mod recording;
pub(crate) mod server_log;
mod server_state;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod sign_in;
mod stream;
pub(crate) mod tools;
pub(crate) mod traces;

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use axum::routing::{any, get};
use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::route::{Route, change, read};
use crate::{AdminState, Needs, Refusal, Role, answer, json};

/// The OpenAPI description of the API.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// The limit of characters of a filter's text; no value in a span is longer.
const LONGEST: usize = 512;
/// The latest time of a filter, in milliseconds.
const LATEST: f64 = 1e15;

const VIEWER: Needs = Needs::Role(Role::Viewer);
const APPROVER: Needs = Needs::Role(Role::Approver);
const OPERATOR: Needs = Needs::Role(Role::Operator);

/// The routes of the API with their access requirements.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route(
            "/api/overview",
            VIEWER,
            read(async |State(admin): AdminState| answer(&admin.latest.with_uptime())),
        ),
        Route("/api/traces", VIEWER, read(traces::list)),
        Route("/api/traces/{id}", VIEWER, read(traces::trace)),
        Route(
            "/api/traces/{id}/recording",
            OPERATOR,
            read(recording::export_trace),
        ),
        Route(
            "/api/content",
            OPERATOR,
            get(content::list)
                .post(content::keep)
                .fallback(async || Refusal::method("GET, HEAD, POST")),
        ),
        Route("/api/calls", VIEWER, read(client_calls::list)),
        Route(
            "/api/calls/{id}/cancel",
            OPERATOR,
            change(client_calls::cancel),
        ),
        Route("/api/approvals", VIEWER, read(approvals::list)),
        Route(
            "/api/approvals/{id}/{answer}",
            APPROVER,
            change(approvals::decide),
        ),
        Route("/api/audit", VIEWER, read(audit::entries)),
        Route("/api/usage", VIEWER, read(audit::used)),
        Route("/api/limits", VIEWER, read(limits::list)),
        Route("/api/pins", VIEWER, read(pins::list)),
        Route("/api/pins/{id}/approve", APPROVER, change(pins::approve)),
        Route("/api/connections", VIEWER, read(connections::list)),
        Route(
            "/api/connections/{id}/end",
            OPERATOR,
            change(connections::end),
        ),
        Route("/api/tools/statistics", VIEWER, read(tools::statistics)),
        Route("/api/catalogue", VIEWER, read(catalogue::answer)),
        Route("/api/endpoints", VIEWER, read(endpoints::answer)),
        Route("/api/sessions", VIEWER, read(sessions::answer)),
        Route(
            "/api/config",
            VIEWER,
            read(async |State(admin): AdminState| json(admin.subject.operations.config())),
        ),
        Route(
            "/api/connect",
            VIEWER,
            read(async |State(admin): AdminState| json(admin.subject.operations.connect())),
        ),
        Route(
            "/api/backends",
            VIEWER,
            read(async |State(admin): AdminState| answer(&admin.latest.backends())),
        ),
        Route("/api/backends/{name}", VIEWER, read(backend::answer)),
        Route(
            "/api/backends/{name}/log",
            VIEWER,
            read(server_log::server_lines),
        ),
        Route(
            "/api/servers/{name}/log",
            VIEWER,
            read(server_log::server_lines),
        ),
        Route("/api/log", VIEWER, read(server_log::all_lines)),
        Route(
            "/api/openapi.json",
            VIEWER,
            read(async || ([(CONTENT_TYPE, "application/json")], OPENAPI)),
        ),
        Route("/api/events", VIEWER, read(events::answer)),
        Route("/api/call", OPERATOR, change(call::answer)),
        Route("/api/call/answer", OPERATOR, change(call::give)),
        Route("/api/call/cancel", OPERATOR, change(call::cancel)),
        Route(
            "/api/sessions/{digest}/end",
            OPERATOR,
            change(operations::end_session),
        ),
        Route("/api/recording", OPERATOR, change(recording::answer)),
        Route("/api/recording/end", OPERATOR, change(recording::end)),
        Route("/api/reload", OPERATOR, change(operations::reload)),
        Route(
            "/api/servers/{name}/{action}",
            OPERATOR,
            change(operations::server),
        ),
        // This handler identifies the operator itself.
        Route(
            "/api/session",
            Needs::OwnPage,
            get(session::answer)
                .post(session::begin)
                .fallback(async || Refusal::method("GET, HEAD, POST")),
        ),
        Route("/api/session/end", Needs::OwnPage, change(session::end)),
        Route(
            "/api/session/issuer",
            Needs::OwnPage,
            change(sign_in::begin),
        ),
        Route(
            "/api/session/issuer/answer",
            Needs::OwnPage,
            change(sign_in::finish),
        ),
        Route("/api/{*rest}", VIEWER, any(no_such_path)),
    ]
}

async fn no_such_path() -> Refusal {
    Refusal::not_found("the API has no such path; docs/api.md lists the paths")
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
    /// The first nonempty value with this name.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.0.as_bytes());
        pairs
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.into_owned())
    }

    /// Whether the query has this name, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        url::form_urlencoded::parse(self.0.as_bytes()).any(|(key, _)| key == name)
    }

    /// The first value with this name, checked for length.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        match self.get(name) {
            Some(text) if text.chars().count() > LONGEST => Err(Refusal::bad_request(format!(
                "`{name}` has at most {LONGEST} characters"
            ))),
            text => Ok(text),
        }
    }

    /// The first value with this name as a flag.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.get(name).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(Refusal::bad_request(format!(
                "`{name}` must be true or false"
            ))),
        }
    }

    /// The first value with this name as a duration, in milliseconds.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        match self.get(name).map(|text| text.parse::<f64>()) {
            None => Ok(None),
            Some(Ok(millis)) if (0.0..=LATEST).contains(&millis) => {
                Ok(Some(Duration::from_secs_f64(millis / 1000.0)))
            }
            Some(_) => Err(Refusal::bad_request(format!(
                "`{name}` must be a number of milliseconds from 0 to {LATEST}"
            ))),
        }
    }

    /// The first value with this name as a time, in milliseconds since 1970.
    pub(crate) fn time(&self, name: &str) -> Result<Option<SystemTime>, Refusal> {
        Ok(self.duration(name)?.map(|since| UNIX_EPOCH + since))
    }

    /// The first value with this name as a number, at most `most`.
    pub(crate) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number.min(most)),
            _ => Err(Refusal::bad_request(format!(
                "`{name}` must be a number from 1 to {most}"
            ))),
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
        assert!(query("limit=1&follow").has("follow") && !query("unfollow").has("follow"));
        assert!(query("limit=0").number("limit", 100, 500).is_err());
        assert!(query("limit=x").number("limit", 100, 500).is_err());
        assert_eq!(form.text("text").unwrap().unwrap(), "a b&c");
        assert!(
            query(&format!("tool={}", "x".repeat(LONGEST + 1)))
                .text("tool")
                .is_err()
        );
        assert_eq!(
            query("since=1500").time("since").unwrap(),
            Some(UNIX_EPOCH + Duration::from_millis(1500))
        );
        assert!(
            ["-1", "1e16", "NaN", "x"]
                .iter()
                .all(|wrong| query(&format!("since={wrong}")).time("since").is_err())
        );
    }
}
