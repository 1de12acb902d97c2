//! The routes of the listener.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Redirect, Response};
use fanlight_telemetry::metrics::{Family, FamilyInfo, prometheus};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::access::{Needs, OperatorConnection, require, require_host};
use crate::reply::{Refusal, json, with_default_headers};
use crate::route::{Route, read};
use crate::{Admin, AdminState, Role, api, ready, ui};

/// The header of `/healthz` that identifies the gateway.
const INSTANCE: HeaderName = HeaderName::from_static("fanlight-instance");

/// The routes besides the API's.
fn own_routes() -> Vec<Route> {
    vec![
        Route(
            "/",
            Needs::Nothing,
            read(async || Redirect::permanent("ui")),
        ),
        Route("/healthz", Needs::Nothing, read(health)),
        // The details require a viewer.
        Route("/readyz", Needs::Nothing, read(readiness)),
        Route("/metrics", Needs::Role(Role::Viewer), read(metrics)),
        // The page has no data itself, and asks the API who the reader is.
        Route("/ui", Needs::Nothing, read(ui::index)),
        Route(
            "/ui/",
            Needs::Nothing,
            read(async || Redirect::permanent("../ui")),
        ),
        Route("/ui/{*file}", Needs::Nothing, read(ui::file)),
        // The page itself sends the issuer's parameters from its address to the API.
        Route("/sign-in/callback", Needs::Nothing, read(ui::callback)),
        Route(
            "/sign-in/callback/{issuer}",
            Needs::Nothing,
            read(ui::callback),
        ),
    ]
}

/// All routes with their access requirements.
pub(crate) fn routes() -> impl Iterator<Item = Route> {
    own_routes().into_iter().chain(api::routes())
}

/// Serves all routes. Routes are added only to the tables, whose access requirements are checked
/// here.
pub(crate) fn router(admin: &Arc<Admin>) -> Router {
    let mut router = Router::new();
    for Route(path, needs, handlers) in routes() {
        router = router.route(
            path,
            handlers.layer(from_fn_with_state((Arc::clone(admin), needs), require)),
        );
    }
    router
        .fallback(async || {
            let message =
                "this path does not exist; try /ui, /api/…, /metrics, /healthz or /readyz";
            Refusal::not_found(message)
        })
        .layer(from_fn_with_state(Arc::clone(admin), require_host))
        .layer(map_response(with_default_headers))
        .with_state(Arc::clone(admin))
}

/// The routes served when all connections are taken.
pub(crate) fn health_router(admin: &Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", read(health))
        .route("/readyz", read(readiness))
        .fallback(async || {
            let message = "all connections to the admin listener are in use; try later";
            Refusal::unavailable(message)
        })
        .layer(from_fn_with_state(Arc::clone(admin), require_host))
        .layer(map_response(with_default_headers))
        .layer(map_response(closing))
        .with_state(Arc::clone(admin))
}

/// Reports that the process runs, and the gateway's id. Commands compare the id before they send a
/// token.
async fn health(State(admin): AdminState) -> Response {
    let instance = admin
        .subject
        .operations
        .instance()
        .and_then(|text| HeaderValue::from_str(text).ok());
    let mut response = "ok".into_response();
    response
        .headers_mut()
        .extend(instance.map(|instance| (INSTANCE, instance)));
    response
}

/// Closes the connection after the response, since other clients need connections.
async fn closing(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether clients' requests can be served; the details require a viewer.
async fn readiness(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
) -> Response {
    let subject = &admin.subject;
    let is_ready = admin.latest.is_ready();
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let is_known = admin
        .identify(&admin.now(), &headers, &connection.0)
        .await
        .is_ok();
    (status, json(ready::report(subject, is_ready, is_known))).into_response()
}

async fn metrics(State(admin): AdminState) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    // For the number of open questions.
    let _ = admin.subject.approvals.list().await;
    let telemetry = &admin.subject.telemetry;
    let text = match telemetry.metrics() {
        Some(_) => telemetry.prometheus(),
        None => prometheus(&families(&admin)),
    };
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// The metrics of the parts of the gateway that do not count in telemetry.
pub(crate) fn families(admin: &Admin) -> Vec<Family> {
    let now = admin.now();
    admin
        .sessions
        .retain(|proof| now.judge(proof, SystemTime::now()).is_ok());
    let mut families = Vec::from(admin.subject.audit_log.metrics());
    if let Some(replicas) = &admin.subject.replicas {
        families.extend(replicas.metrics());
    }
    let pins = admin.subject.operations.pins();
    let holds = pins.get("held").is_some_and(|held| held.is_true());
    let held = pins.get("definitions").filter(|_| holds);
    let held = held.map_or(0, |all| all.elements().count());
    families.extend([
        OPERATOR_SESSIONS.with_value(admin.sessions.len(&now.session_limits()) as u64),
        OPEN_APPROVALS.with_value(admin.subject.approvals.open() as u64),
        HELD_DEFINITIONS.with_value(held as u64),
        api::limits::metrics(admin),
    ]);
    families
}

const OPERATOR_SESSIONS: FamilyInfo = FamilyInfo::gauge(
    "fanlight.auth.operator_sessions",
    "{session}",
    "Operators who are signed in to the page.",
);

const OPEN_APPROVALS: FamilyInfo = FamilyInfo::gauge(
    "fanlight.approvals.open",
    "{question}",
    "Calls that wait for an approver, as last listed or scraped.",
);

const HELD_DEFINITIONS: FamilyInfo = FamilyInfo::gauge(
    "fanlight.definitions.held",
    "{definition}",
    "Definitions of servers that are held until somebody approves them.",
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the tables of routes may declare routes: one added elsewhere would have no access
    /// requirements.
    #[test]
    fn routes_are_added_by_the_tables_alone() {
        let mut folders = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src"
        ))];
        let added = [
            ".route",
            ".route_service",
            ".nest",
            ".nest_service",
            ".merge",
        ]
        .map(|name| format!("{name}("));
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
            {
                if entry.is_dir() {
                    folders.push(entry);
                    continue;
                }
                let text = std::fs::read_to_string(&entry).unwrap();
                let count: usize = added
                    .iter()
                    .map(|call| text.matches(call.as_str()).count())
                    .sum();
                // One for the tables, and two for health.
                let expected = if entry.ends_with("src/router.rs") {
                    3
                } else {
                    0
                };
                assert_eq!(count, expected, "{}", entry.display());
            }
        }
    }

    #[test]
    fn everything_that_changes_needs_an_operator_and_all_of_the_api_an_own_page() {
        for Route(path, needs, _) in routes() {
            let is_public = [
                "/",
                "/healthz",
                "/readyz",
                "/ui",
                "/ui/",
                "/ui/{*file}",
                "/sign-in/callback",
                "/sign-in/callback/{issuer}",
            ]
            .contains(&path);
            assert_eq!(needs == Needs::Nothing, is_public, "{path}");
            let is_session = path.starts_with("/api/session") && !path.starts_with("/api/sessions");
            assert_eq!(needs == Needs::OwnPage, is_session, "{path}");
        }
    }
}
