//! `/api/sessions`: clients' sessions and suspended calls. Sessions' ids are never shown.

use std::time::Duration;

use axum::extract::State;
use fanlight_telemetry::clients::{ClientsView, SessionView, SuspendedCallView};

use super::{Answer, Query};
use crate::{AdminState, Refusal, Verbatim, millis, reply};

const DEFAULT: usize = 200;
const MOST: usize = 10_000;

answers! {
    /// Clients' sessions, and calls that wait for clients.
    pub(crate) struct Sessions {
        session_count: usize,
        suspended_call_count: usize,
        stream_count: usize,
        sessions: Vec<ClientSession>,
        suspended_calls: Vec<SuspendedCall>,
    }

    /// A session.
    struct ClientSession {
        /// The path of its endpoint.
        endpoint: Option<String>,
        principal: Option<String>,
        /// The method that identified the principal: `token`, `key`, `certificate`, `proxy` or
        /// `socket`.
        source: Option<&'static str>,
        /// The first 16 digits of the SHA-256 digest of its id; null over stdio.
        digest: Option<String>,
        /// `http`, `sse` or `stdio`.
        transport: &'static str,
        revision: Option<&'static str>,
        /// The client's information about itself.
        #[cfg_attr(test, schema(value_type = serde_json::Value))]
        client_info: Option<Verbatim>,
        /// Requests that are running.
        running: usize,
        /// Requests of servers that the client has not answered.
        questions: usize,
        streams: usize,
        /// The time without a request; null while one runs.
        idle_ms: Option<f64>,
    }

    /// A call that waits for its client.
    struct SuspendedCall {
        method: String,
        name: Option<String>,
        /// The methods of the requested input.
        asked: Vec<String>,
        round: u32,
        waiting_ms: f64,
        left_ms: f64,
    }
}

/// Lists sessions, most recently used first, and suspended calls, next to expire first. `limit`
/// applies to each list.
pub(super) async fn answer(State(admin): AdminState, query: Query) -> Answer {
    list(admin.subject.clients.view(), &query).map(|sessions| reply::answer(&sessions))
}

fn list(mut clients: ClientsView, query: &Query) -> Result<Sessions, Refusal> {
    let limit = query.number("limit", DEFAULT, MOST)?;
    clients.sessions.sort_by(|a, b| {
        (a.idle.unwrap_or(Duration::ZERO), &a.digest)
            .cmp(&(b.idle.unwrap_or(Duration::ZERO), &b.digest))
    });
    clients.suspended.sort_by_key(|call| call.left);
    Ok(Sessions {
        session_count: clients.sessions.len(),
        suspended_call_count: clients.suspended.len(),
        stream_count: clients.streams,
        sessions: clients
            .sessions
            .into_iter()
            .take(limit)
            .map(session)
            .collect(),
        suspended_calls: clients
            .suspended
            .into_iter()
            .take(limit)
            .map(call)
            .collect(),
    })
}

fn session(session: SessionView) -> ClientSession {
    let (principal, source) = session
        .identity
        .map(|(name, source)| (name.to_string(), source))
        .unzip();
    ClientSession {
        endpoint: session.endpoint.map(|path| path.to_string()),
        principal,
        source,
        digest: Some(session.digest).filter(|digest| !digest.is_empty()),
        transport: session.transport,
        revision: session.revision,
        client_info: session.client_info.map(Verbatim),
        running: session.running,
        questions: session.server_requests,
        streams: session.streams,
        idle_ms: session.idle.map(millis),
    }
}

fn call(call: SuspendedCallView) -> SuspendedCall {
    SuspendedCall {
        method: call.method,
        name: call.name,
        asked: call.requests,
        round: call.round,
        waiting_ms: millis(call.waiting),
        left_ms: millis(call.left),
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Json;

    use super::*;

    fn session_view(digest: &str, idle: Option<u64>) -> SessionView {
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
        let sessions = vec![
            session_view("c", Some(9)),
            session_view("a", None),
            session_view("b", Some(3)),
        ];
        let clients = ClientsView {
            sessions,
            suspended: vec![suspended],
            streams: 4,
        };
        let answer = list(clients, &Query("limit=2".to_owned())).unwrap();
        let answer: serde_json::Value = serde_json::to_value(&answer).unwrap();
        assert_eq!(
            (
                &answer["sessionCount"],
                &answer["suspendedCallCount"],
                &answer["streamCount"]
            ),
            (&3.into(), &1.into(), &4.into())
        );
        let digests: Vec<_> = answer["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["digest"].as_str().unwrap())
            .collect();
        assert_eq!(digests, ["a", "b"]);
        assert_eq!(
            (
                &answer["sessions"][0]["principal"],
                &answer["sessions"][0]["source"]
            ),
            (&"ann".into(), &"token".into())
        );
        assert_eq!(answer["sessions"][0]["idleMs"], serde_json::Value::Null);
        assert_eq!(answer["sessions"][1]["clientInfo"]["name"], "<b>x</b>");
        assert_eq!(
            answer["suspendedCalls"][0]["asked"][0],
            "elicitation/create"
        );
        assert_eq!(answer["suspendedCalls"][0]["leftMs"], 1000.0);
    }
}
