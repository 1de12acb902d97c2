//! Scripted servers with tasks. A task goes through given states, one per request about it. The
//! last state stays, and a state that wants input stays until it gets some.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::support::server::{Reply, Seen, Server, event, legacy, ok, status};

pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

pub(super) struct Tasks {
    pub(super) server: Server,
    states: Arc<Mutex<VecDeque<String>>>,
}

impl Tasks {
    /// A modern server. `needs` can only be called as a task, `may` becomes one if possible, and
    /// `never` does not; their result is `result`.
    pub(super) async fn modern(states: &[&str], result: &'static str) -> Self {
        Self::modern_with(states, result, |_| None).await
    }

    /// Like [`Self::modern`], with other answers to some requests.
    pub(super) async fn modern_with(
        states: &[&str],
        result: &'static str,
        answer: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::start(states, move |seen, states| {
            if let Some(reply) = answer(seen) {
                return reply;
            }
            let declares = seen.params().as_text().contains(EXTENSION);
            match (seen.method().as_str(), name(seen).as_str()) {
                ("server/discover", _) => seen.result(&format!(
                    r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}},"extensions":{{"{EXTENSION}":{{}}}}}}}}"#
                )),
                ("tools/call", "needs") if !declares => seen.error(
                    400,
                    &format!(r#"{{"code":-32021,"message":"no","data":{{"requiredCapabilities":{{"extensions":{{"{EXTENSION}":{{}}}}}}}}}}"#),
                ),
                ("tools/call", "needs" | "may") if declares => seen.result(
                    r#"{"resultType":"task", "taskId":"t\u0031","status":"working","ttlMs":6e4,"x":1.0,"pollIntervalMs":1,"_meta":{"m":1.0}}"#,
                ),
                ("tools/call", "unasked") => seen.result(r#"{"resultType":"task","taskId":"t1","status":"working","ttlMs":null}"#),
                ("tools/call", "picky") => seen.error(400, r#"{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}"#),
                ("tools/call", "asks") => seen.result(r#"{"resultType":"input_required","requestState":"s"}"#),
                ("tools/call", _) => seen.result(result),
                ("tasks/update" | "tasks/cancel", _) => {
                    next(states);
                    seen.result(r#"{"resultType":"complete"}"#)
                }
                ("tasks/get", _) => state(seen, states, "inputRequests"),
                _ => status(500),
            }
        })
        .await
    }

    /// A legacy server. `needs` must be called as a task; its result is `result`. `answer` gives
    /// the answer to `tasks/result`.
    pub(super) async fn legacy(
        states: &[&str],
        answer: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::start(states, move |seen, states| {
            if let Some(reply) = answer(seen) {
                return reply;
            }
            if seen.method() == "initialize" {
                return initialized(seen, "s");
            }
            if let Some(reply) = legacy(seen, "s") {
                return reply;
            }
            let as_task = seen.params().get("task").is_some();
            match (seen.method().as_str(), name(seen).as_str()) {
                ("tools/list", _) => seen.result(
                    r#"{"tools":[{"name":"needs","execution":{"taskSupport":"required"}},{"name":"may","execution":{"taskSupport":"optional"}}]}"#,
                ),
                ("tools/call", "needs") if !as_task => seen.error(200, r#"{"code":-32601,"message":"as a task only"}"#),
                ("tools/call", _) if as_task => seen.result(
                    r#"{ "task":{"taskId":"t\u0031","status":"working","ttl":6e4,"x":1.0,"pollInterval":1},"_meta":{"m":1.0}}"#,
                ),
                ("tools/call", _) => seen.result(r#"{"plain":1.0}"#),
                ("tasks/cancel", _) => seen.result(r#"{"taskId":"t1","status":"cancelled","ttl":null}"#),
                ("tasks/get", _) => state(seen, states, "input_required"),
                // The answer to a server request.
                ("", _) if seen.verb == "POST" => {
                    next(states);
                    Reply::Whole(202, String::new(), "text/plain", String::new())
                }
                _ => status(500),
            }
        })
        .await
    }

    async fn start(
        given: &[&str],
        answer: impl Fn(&Seen, &mut VecDeque<String>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let states = Arc::new(Mutex::new(
            given
                .iter()
                .map(|state| (*state).to_owned())
                .collect::<VecDeque<_>>(),
        ));
        let scripted = Arc::clone(&states);
        let server = Server::start(move |seen| answer(seen, &mut scripted.lock().unwrap())).await;
        Self { server, states }
    }

    /// Sets the state of the task from now on.
    pub(super) fn is(&self, state: &str) {
        *self.states.lock().unwrap() = VecDeque::from([state.to_owned()]);
    }
}

pub(super) fn initialized(seen: &Seen, session: &str) -> Reply {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tasks":{{"list":{{}},"cancel":{{}},"requests":{{"tools":{{"call":{{}}}}}}}}}}}}}}"#,
        seen.id()
    );
    Reply::Whole(
        200,
        format!("Mcp-Session-Id: {session}\r\n"),
        "application/json",
        body,
    )
}

/// The answer to this request as one event of its stream.
pub(super) fn answer_event(seen: &Seen, result: &str) -> String {
    event(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        seen.id()
    ))
}

pub(super) fn name(seen: &Seen) -> String {
    let name = seen.params().get("name");
    name.map(|name| name.as_str().unwrap().into_owned())
        .unwrap_or_default()
}

/// The answer with the next state. `!` closes the connection, and `#` before a text makes it an
/// error.
fn state(seen: &Seen, states: &mut VecDeque<String>, stays: &str) -> Reply {
    let state = states.front().cloned().unwrap();
    if !state.contains(stays) {
        next(states);
    }
    match state.strip_prefix('#') {
        Some(error) => seen.error(200, error),
        None if state == "!" => Reply::Close,
        None => ok(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{state}}}"#,
            seen.id()
        )),
    }
}

fn next(states: &mut VecDeque<String>) {
    if states.len() > 1 {
        states.pop_front();
    }
}
