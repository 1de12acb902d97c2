//! The JSON API (docs/api.md).

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod backend;
mod body;
pub(crate) mod call;
pub(crate) mod catalogue;
pub(crate) mod client_calls;
pub(crate) mod connections;
pub(crate) mod endpoints;
mod events;
pub(crate) mod limits;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod pins;
pub(crate) mod server_log;
mod server_state;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod sign_in;
mod stream;
pub(crate) mod tools;
pub(crate) mod traces;
mod versions;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use axum::routing::{any, get};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::Admin;
use crate::access::Needs;
use crate::operator::Role;
use crate::reply::{Refusal, answer, json};
use crate::route::{Route, change, read};

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
pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/overview",
        needs: VIEWER,
        serve: || read(async |State(admin): State<Arc<Admin>>| answer(&admin.latest.with_uptime())),
    },
    Route {
        path: "/api/traces",
        needs: VIEWER,
        serve: || read(traces::list),
    },
    Route {
        path: "/api/traces/{id}",
        needs: VIEWER,
        serve: || read(traces::one),
    },
    Route {
        path: "/api/calls",
        needs: VIEWER,
        serve: || read(client_calls::list),
    },
    Route {
        path: "/api/calls/{id}/cancel",
        needs: OPERATOR,
        serve: || change(client_calls::cancel),
    },
    Route {
        path: "/api/approvals",
        needs: VIEWER,
        serve: || read(approvals::list),
    },
    Route {
        path: "/api/approvals/{id}/{answer}",
        needs: APPROVER,
        serve: || change(approvals::decide),
    },
    Route {
        path: "/api/audit",
        needs: VIEWER,
        serve: || read(audit::entries),
    },
    Route {
        path: "/api/usage",
        needs: VIEWER,
        serve: || read(audit::used),
    },
    Route {
        path: "/api/limits",
        needs: VIEWER,
        serve: || read(limits::list),
    },
    Route {
        path: "/api/pins",
        needs: VIEWER,
        serve: || read(pins::list),
    },
    Route {
        path: "/api/pins/{id}/approve",
        needs: APPROVER,
        serve: || change(pins::approve),
    },
    Route {
        path: "/api/connections",
        needs: VIEWER,
        serve: || read(connections::list),
    },
    Route {
        path: "/api/connections/{id}/end",
        needs: OPERATOR,
        serve: || change(connections::end),
    },
    Route {
        path: "/api/tools/statistics",
        needs: VIEWER,
        serve: || read(tools::statistics),
    },
    Route {
        path: "/api/catalogue",
        needs: VIEWER,
        serve: || read(catalogue::answer),
    },
    Route {
        path: "/api/endpoints",
        needs: VIEWER,
        serve: || read(endpoints::answer),
    },
    Route {
        path: "/api/sessions",
        needs: VIEWER,
        serve: || read(sessions::answer),
    },
    Route {
        path: "/api/config",
        needs: VIEWER,
        serve: || {
            read(async |State(admin): State<Arc<Admin>>| json(admin.subject.operations.config()))
        },
    },
    Route {
        path: "/api/connect",
        needs: VIEWER,
        serve: || {
            read(async |State(admin): State<Arc<Admin>>| json(admin.subject.operations.connect()))
        },
    },
    Route {
        path: "/api/backends",
        needs: VIEWER,
        serve: || read(async |State(admin): State<Arc<Admin>>| answer(&admin.latest.backends())),
    },
    Route {
        path: "/api/backends/{name}",
        needs: VIEWER,
        serve: || read(backend::answer),
    },
    Route {
        path: "/api/backends/{name}/log",
        needs: VIEWER,
        serve: || read(server_log::of_one),
    },
    Route {
        path: "/api/servers/{name}/log",
        needs: VIEWER,
        serve: || read(server_log::of_one),
    },
    Route {
        path: "/api/log",
        needs: VIEWER,
        serve: || read(server_log::of_all),
    },
    Route {
        path: "/api/openapi.json",
        needs: VIEWER,
        serve: || read(async || ([(CONTENT_TYPE, "application/json")], OPENAPI)),
    },
    Route {
        path: "/api/events",
        needs: VIEWER,
        serve: || read(events::answer),
    },
    Route {
        path: "/api/call",
        needs: OPERATOR,
        serve: || change(call::answer),
    },
    Route {
        path: "/api/call/answer",
        needs: OPERATOR,
        serve: || change(call::give),
    },
    Route {
        path: "/api/call/cancel",
        needs: OPERATOR,
        serve: || change(call::cancel),
    },
    Route {
        path: "/api/sessions/{digest}/end",
        needs: OPERATOR,
        serve: || change(operations::end_session),
    },
    Route {
        path: "/api/reload",
        needs: OPERATOR,
        serve: || change(operations::reload),
    },
    Route {
        path: "/api/servers/{name}/{action}",
        needs: OPERATOR,
        serve: || change(operations::server),
    },
    // This handler identifies the operator itself.
    Route {
        path: "/api/session",
        needs: Needs::OwnPage,
        serve: || {
            get(session::answer)
                .post(session::begin)
                .fallback(async || Refusal::method("GET, HEAD, POST"))
        },
    },
    Route {
        path: "/api/session/end",
        needs: Needs::OwnPage,
        serve: || change(session::end),
    },
    Route {
        path: "/api/session/issuer",
        needs: Needs::OwnPage,
        serve: || change(sign_in::begin),
    },
    Route {
        path: "/api/session/issuer/answer",
        needs: Needs::OwnPage,
        serve: || change(sign_in::finish),
    },
    Route {
        path: "/api/{*rest}",
        needs: VIEWER,
        serve: || any(nothing),
    },
];

async fn nothing() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "the API has no such path; docs/api.md lists the paths",
    )
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
