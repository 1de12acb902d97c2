//! Server requests (elicitation, sampling, roots) through the gateway, in every pair of eras over
//! every pair of transports (docs/eras.md, "Server requests during a call").

mod combinations;
mod late;
mod state;
mod suspended;

/// The capabilities that allow every server request.
const EVERYTHING: &str =
    r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

/// A server request that any client with roots can answer. `{call}` makes the ids of different
/// calls differ.
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;

/// An answer of the client that a test can recognize.
fn roots(name: &str) -> String {
    format!(r#"{{"roots":[{{"uri":"file:///{name}"}}]}}"#)
}
