//! The sealed `requestState` of a suspended call resumes only its own call, and only once.

use fanlight_tests::slicer::{member, plain_string};

use super::EVERYTHING;
use super::suspended::asks_for_roots;
use crate::clients::{Client, Exchange};
use crate::faults::backend;
use crate::scripted::{Backend, Era, Reply, Transport};

const CALL: &str = r#""name":"t","arguments":{"n":1}"#;
const INPUTS: &str = r#""inputResponses":{"input-1":{"roots":[]}}"#;

/// A suspended call with its client and server.
struct Suspended {
    client: Client,
    backend: Backend,
    state: String,
}

impl Suspended {
    async fn start(front: Transport, more: &str) -> Self {
        let backend = backend(Era::Legacy, Transport::Stdio).await;
        backend.once("tools/call", asks_for_roots());
        backend.on("prompts/get", Reply::result(r#"{"messages":[]}"#));
        let text = format!(r#"{{"mcpServers":{{{}}}{more}}}"#, backend.entry("only"));
        let mut client = Client::start_with(EVERYTHING, &text, Era::Modern, front).await;
        let exchange = client.request("1", "tools/call", CALL, "").await;
        let state = member(&exchange.answer, "result.requestState").and_then(plain_string);
        let state = state
            .unwrap_or_else(|| panic!("{}", exchange.answer))
            .to_owned();
        Self {
            client,
            backend,
            state,
        }
    }

    async fn retry(&mut self, method: &str, params: &str, state: &str) -> Exchange {
        self.client
            .request(
                "2",
                method,
                &format!(r#"{params},{INPUTS},"requestState":"{state}""#),
                "",
            )
            .await
    }

    /// Checks that the retry is refused and that the server has received nothing.
    async fn refused(&mut self, method: &str, params: &str, state: &str) {
        let exchange = self.retry(method, params, state).await;
        assert_eq!(
            exchange.member("error.code"),
            "-32602",
            "{method} {params} {state}: {}",
            exchange.answer
        );
        assert_eq!(self.backend.received("tools/call").len(), 1);
        assert!(
            self.backend.received("").is_empty(),
            "the backend has received nothing"
        );
    }

    /// Checks that the suspended call is unchanged: its own retry resumes it.
    async fn resumes(&mut self) {
        let state = self.state.clone();
        let exchange = self.retry("tools/call", CALL, &state).await;
        assert_eq!(exchange.member("result.roots"), "[]");
    }
}

#[tokio::test]
async fn request_state_with_any_changed_byte_is_refused() {
    for front in [Transport::Http, Transport::Stdio] {
        let mut suspended = Suspended::start(front, "").await;
        let state = suspended.state.clone();
        for position in 0..state.len() {
            let mut forged = state.clone().into_bytes();
            forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
            suspended
                .refused("tools/call", CALL, std::str::from_utf8(&forged).unwrap())
                .await;
        }
        for forged in [
            &state[1..],
            &state[..state.len() - 1],
            "",
            &format!("{state}A"),
        ] {
            suspended.refused("tools/call", CALL, forged).await;
        }
        suspended.resumes().await;
    }
}

#[tokio::test]
async fn request_state_of_another_request_is_refused() {
    for front in [Transport::Http, Transport::Stdio] {
        let mut suspended = Suspended::start(front, "").await;
        let state = suspended.state.clone();
        for (method, params) in [
            ("tools/call", r#""name":"t","arguments":{"n":2}"#),
            ("tools/call", r#""name":"t","arguments":{"n":1.0}"#),
            ("tools/call", r#""name":"t","arguments":{"n":1},"x":1"#),
            ("tools/call", r#""name":"t""#),
            ("tools/call", r#""name":"u","arguments":{"n":1}"#),
            ("prompts/get", r#""name":"t","arguments":{"n":"1"}"#),
        ] {
            suspended.refused(method, params, &state).await;
        }
        assert!(suspended.backend.received("prompts/get").is_empty());
        suspended.resumes().await;
    }
}

#[tokio::test]
async fn request_state_of_another_gateway_is_refused() {
    let other = Suspended::start(Transport::Http, "").await;
    let mut suspended = Suspended::start(Transport::Http, "").await;
    suspended.refused("tools/call", CALL, &other.state).await;
    suspended.resumes().await;
}

#[tokio::test]
async fn request_state_is_accepted_once() {
    for front in [Transport::Http, Transport::Stdio] {
        let mut suspended = Suspended::start(front, "").await;
        suspended.resumes().await;
        let state = suspended.state.clone();
        let replayed = suspended.retry("tools/call", CALL, &state).await;
        assert_eq!(replayed.member("error.code"), "-32602");
        assert_eq!(
            suspended.backend.received("tools/call").len(),
            1,
            "the call ran once"
        );
    }
}

#[tokio::test]
async fn request_state_expires_with_its_call() {
    for front in [Transport::Http, Transport::Stdio] {
        let mut suspended = Suspended::start(front, r#","x-limits":"clientAnswer=300ms""#).await;
        suspended
            .backend
            .wait_for("notifications/cancelled", 1)
            .await;
        let state = suspended.state.clone();
        let late = suspended.retry("tools/call", CALL, &state).await;
        assert_eq!(late.member("error.code"), "-32602");
        assert_eq!(suspended.backend.received("tools/call").len(), 1);
    }
}
