//! Two small MCP servers, so that `fanlight run` shows a working aggregated endpoint on a fresh
//! machine.
//!
//! [`serve_legacy`] is a "library" of the revisions with an `initialize` handshake (2024-11-05 to
//! 2025-11-25); [`serve_modern`] is a "workshop" of 2026-07-28 only. Both speak newline-delimited
//! JSON-RPC, as the stdio transport requires. They have features that a gateway could lose:
//! `structuredContent`, `_meta`, titles, icons, annotations.
//!
//! The crate depends on no other crate of the workspace, and a client could run these servers
//! directly. They are examples, not a basis for servers: one thread reads, and only slow calls get
//! their own thread.

mod legacy;
mod library;
mod modern;
mod rpc;
mod server;
mod workshop;

use std::io::{self, BufRead, Write};

/// Serves the "library" (revisions 2024-11-05 to 2025-11-25) until `stdin` ends; running calls end
/// with it.
///
/// # Errors
///
/// The error of reading `stdin` or writing `stdout`. Bad messages are answered, not returned as
/// errors.
pub fn serve_legacy(stdin: impl BufRead, stdout: impl Write + Send) -> io::Result<()> {
    server::serve(&legacy::Legacy::default(), stdin, stdout)
}

/// Serves the "workshop" (revision 2026-07-28) until `stdin` ends; running calls end with it.
///
/// # Errors
///
/// The error of reading `stdin` or writing `stdout`. Bad messages are answered, not returned as
/// errors.
pub fn serve_modern(stdin: impl BufRead, stdout: impl Write + Send) -> io::Result<()> {
    server::serve(&modern::Modern, stdin, stdout)
}

#[cfg(test)]
mod tests;
