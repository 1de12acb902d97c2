//! `/api/sessions`: sessions of clients, and suspended calls. Never shows the id of a session.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::clients::{ClientsView, SessionView, SuspendedCallView};

use super::{Answer, Query};
use crate::Admin;
use crate::reply::{Refusal, json};
use crate::values::{array, count, millis, optional};

const DEFAULT: usize = 200;
const MOST: usize = 10_000;

/// Sessions, most recently used first, and suspended calls, those that expire next first. `limit` bounds each.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    list(admin.subject.clients.view(), &query).map(json)
}

fn list(mut clients: ClientsView, query: &Query) -> Result<Json, Refusal> {
    let limit = query.number("limit", DEFAULT, MOST)?;
    let mut answer = ObjectBuilder::new();
    answer.integer("sessionCount", count(clients.sessions.len()));
    answer.integer("suspendedCallCount", count(clients.suspended.len()));
    answer.integer("streamCount", count(clients.streams));
    clients.sessions.sort_by(|a, b| {
        (a.idle.unwrap_or(Duration::ZERO), &a.digest).cmp(&(b.idle.unwrap_or(Duration::ZERO), &b.digest))
    });
    clients.suspended.sort_by_key(|call| call.left);
    answer.member("sessions", &array(clients.sessions.iter().take(limit).map(session)));
    answer.member("suspendedCalls", &array(clients.suspended.iter().take(limit).map(call)));
    Ok(answer.finish())
}

fn session(session: &SessionView) -> Json {
    let mut object = ObjectBuilder::new();
    optional(&mut object, "endpoint", session.endpoint.as_deref());
    let (principal, source) = session.identity.as_ref().map(|(name, source)| (&**name, *source)).unzip();
    optional(&mut object, "principal", principal);
    optional(&mut object, "source", source);
    optional(&mut object, "digest", Some(session.digest.as_str()).filter(|digest| !digest.is_empty()));
    object.string("transport", session.transport);
    optional(&mut object, "revision", session.revision);
    object.member("clientInfo", &session.client_info.clone().unwrap_or_else(Json::null));
    object.integer("running", count(session.running));
    object.integer("questions", count(session.server_requests));
    object.integer("streams", count(session.streams));
    object.member("idleMs", &session.idle.map_or_else(Json::null, millis));
    object.finish()
}

fn call(call: &SuspendedCallView) -> Json {
    let mut object = ObjectBuilder::new();
    object.string("method", &call.method);
    optional(&mut object, "name", call.name.as_deref());
    object.member("asked", &array(call.requests.iter().map(|method| Json::string(method))));
    object.integer("round", i64::from(call.round));
    object.member("waitingMs", &millis(call.waiting)).member("leftMs", &millis(call.left));
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(digest: &str, idle: Option<u64>) -> SessionView {
        SessionView {
            digest: digest.into(),
            endpoint: None,
            identity: Some(("ann".into(), "token")),
            revision: Some("2025-11-25"),
            transport: "http",
            client_info: Some(Json::literal(r#"{"name":"<b>x</b>"}"#)),
            running: 1,
            server_requests: 0,
            streams: 2,
            idle: idle.map(Duration::from_millis),
        }
    }

    #[test]
    fn sessions_are_sorted_by_use_and_limited() {
        let suspended = SuspendedCallView {
            method: "tools/call".into(),
            name: None,
            requests: vec!["elicitation/create".into()],
            round: 1,
            waiting: Duration::from_millis(5),
            left: Duration::from_secs(1),
        };
        let sessions = vec![one("c", Some(9)), one("a", None), one("b", Some(3))];
        let clients = ClientsView { sessions, suspended: vec![suspended], streams: 4 };
        let answer = list(clients, &Query("limit=2".to_owned())).unwrap();
        let answer: serde_json::Value = serde_json::from_str(answer.as_text()).unwrap();
        assert_eq!(
            (&answer["sessionCount"], &answer["suspendedCallCount"], &answer["streamCount"]),
            (&3.into(), &1.into(), &4.into())
        );
        let digests: Vec<_> =
            answer["sessions"].as_array().unwrap().iter().map(|one| one["digest"].as_str().unwrap()).collect();
        assert_eq!(digests, ["a", "b"]);
        assert_eq!(
            (&answer["sessions"][0]["principal"], &answer["sessions"][0]["source"]),
            (&"ann".into(), &"token".into())
        );
        assert_eq!(answer["sessions"][0]["idleMs"], serde_json::Value::Null);
        assert_eq!(answer["sessions"][1]["clientInfo"]["name"], "<b>x</b>");
        assert_eq!(answer["suspendedCalls"][0]["asked"][0], "elicitation/create");
        assert_eq!(answer["suspendedCalls"][0]["leftMs"], 1000);
    }
}
