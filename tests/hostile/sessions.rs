//! Legacy sessions: guessed, and opened by the thousand.

use std::collections::HashSet;
use std::time::Duration;

use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, NEWEST_LEGACY, initialize, legacy_request,
};
use crate::target::{Bounds, Target};

/// Posts on one connection; returns the status, the id of an opened session, and the connection.
async fn post_on(
    mut connection: Connection,
    session: Option<&str>,
    body: &str,
) -> (u16, Option<String>, Connection) {
    let mut headers = JSON_HEADERS.to_vec();
    headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
    headers.extend(session.map(|_| ("MCP-Protocol-Version", NEWEST_LEGACY)));
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    let response = connection.response().await;
    let (status, opened) = (
        response.status,
        response.header("mcp-session-id").map(str::to_owned),
    );
    (status, opened, response.finish().await.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guessed_sessions_are_unknown() {
    let target = Target::start().await;
    let session = LegacySession::open(target.gateway.mcp).await;
    let id = session.session.clone().unwrap();
    let mut guesses: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    guesses.extend((0..id.len()).map(|position| {
        let mut guess = id.clone().into_bytes();
        guess[position] = if guess[position] == b'0' { b'1' } else { b'0' };
        String::from_utf8(guess).unwrap()
    }));
    guesses.extend((1..id.len()).map(|length| id[..length].to_owned()));
    guesses.extend([
        format!("{id}0"),
        format!("{id}, {id}"),
        "*".to_owned(),
        "../".repeat(20),
        "0".repeat(8000),
    ]);
    guesses.push(id.to_ascii_uppercase());
    guesses.retain(|guess| *guess != id);
    let mut connection = Connection::open(target.gateway.mcp).await;
    for guess in &guesses {
        let (status, _, reused) = post_on(
            connection,
            Some(guess),
            &legacy_request("1", "tools/call", r#""name":"guessed""#),
        )
        .await;
        connection = reused;
        assert!(matches!(status, 400 | 404), "{guess}: {status}");
    }
    let calls = target.backend.received("tools/call");
    assert!(
        calls
            .iter()
            .all(|call| call.member("params.name") != Some(r#""guessed""#))
    );
    assert_eq!(
        session
            .post(&legacy_request("1", "tools/list", ""))
            .await
            .status,
        200,
        "the real one is still there"
    );
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_sessions_are_bounded_and_spare_one_in_use() {
    const SESSIONS: usize = 3000;
    let target = Target::with(r#""limits":{"sessions":500}"#).await;
    let used = LegacySession::open(target.gateway.mcp).await;
    let mut ids = HashSet::new();
    let mut refused = 0;
    let mut connection = Connection::open(target.gateway.mcp).await;
    for number in 0..SESSIONS {
        let (status, opened, reused) = post_on(
            connection,
            None,
            &initialize(NEWEST_LEGACY, r#"{"roots":{},"sampling":{}}"#),
        )
        .await;
        connection = reused;
        refused += usize::from(status != 200);
        if let Some(id) = opened {
            assert!(ids.insert(id), "a session id was given twice");
        }
        if number % 100 == 0 {
            let alive = used
                .post(&legacy_request("1", "tools/list", ""))
                .await
                .status;
            assert_eq!(
                alive, 200,
                "the session in use is lost after {number} others"
            );
        }
    }
    assert_eq!(ids.len() + refused, SESSIONS, "each was opened or refused");
    let bounds = Bounds {
        processor: Duration::from_secs(16),
        time: Duration::from_secs(30),
        ..Bounds::SMALL
    };
    target.withstood(bounds).await;
}
