//! Questions of servers to clients (elicitation, sampling, roots) through the gateway, in every pair of eras over every
//! pair of transports (docs/eras.md, "When a server asks the client").

mod cells;
mod state;
mod suspended;

/// What a client must declare to be asked anything.
const EVERYTHING: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

/// A question that any backend can ask of any client that has roots. `{call}` keeps the calls apart.
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;

/// The answer to it, for a client to recognize.
fn roots(name: &str) -> String {
    format!(r#"{{"roots":[{{"uri":"file:///{name}"}}]}}"#)
}
