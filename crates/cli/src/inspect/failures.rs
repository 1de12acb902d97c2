//! Explains as text why servers are down.

use fanlight_canonical::{BackendError, FailureDetails};
use fanlight_gateway::Gateway;
use fanlight_protocol::visible::escaped_lines;
use fanlight_protocol::visible::plain;

use crate::out;

/// A failure in lines: what happened, the last lines of the process, and a remedy.
pub(super) fn text(backend: &str, error: &BackendError) -> String {
    let mut lines = vec![format!("server {backend:?} {}", error.summary())];
    if let Some(FailureDetails {
        stderr,
        stdout,
        remedy,
        ..
    }) = error.details()
    {
        lines.extend(stderr.iter().map(|line| format!("  stderr: {line}")));
        lines.extend(
            stdout
                .iter()
                .map(|line| format!("  stdout: {line}    (not a message)")),
        );
        lines.extend(
            remedy
                .iter()
                .map(|remedy| format!("  help: {}", remedy.text)),
        );
    }
    if error.sign_in().is_some() {
        lines.push(format!(
            "  help: `fanlight login {}` signs you in, for a gateway without `auth`",
            plain(backend, 100)
        ));
    }
    lines.join("\n")
}

/// Prints the failures of all servers that are down on standard error.
pub fn complain(gateway: &Gateway) {
    for (name, status) in gateway.status() {
        if let Some(error) = &status.failure {
            out::complain(&format!("{}\n", escaped_lines(&text(&name, error))));
        }
    }
}
