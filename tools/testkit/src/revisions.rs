//! The revisions of MCP.

/// The revision without a handshake.
pub const MODERN: &str = "2026-07-28";
/// The newest revision with a handshake.
pub const NEWEST_LEGACY: &str = "2025-11-25";
/// Every revision with a handshake.
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];
