//! Views of results, which read members and never rewrite them.
//!
//! A view is the result's text. Use [`ResultView::json`] to read members without an accessor.

use crate::{Json, meta};

/// The members of a result that limit caching (2026-07-28 server/utilities/caching).
pub const CACHING_HINTS: [&str; 2] = ["ttlMs", "cacheScope"];

/// Whether a result has caching hints.
pub fn has_caching_hints(result: &Json) -> bool {
    CACHING_HINTS.iter().any(|hint| result.get(hint).is_some())
}

/// Whether a result says that it is the same for all clients.
pub fn is_public(result: &Json) -> bool {
    result
        .get("cacheScope")
        .is_some_and(|scope| scope.as_text() == "\"public\"")
}

/// Whether a result belongs to one principal alone. A result with hints but without `public` counts
/// as private.
pub fn is_private(result: &Json) -> bool {
    has_caching_hints(result) && !is_public(result)
}

/// The members that all results share (2026-07-28 schema, Result).
pub trait ResultView: From<Json> {
    /// The whole result object, as received.
    fn json(&self) -> &Json;

    /// `_meta`
    fn meta(&self) -> Option<Json> {
        self.json().get("_meta")
    }

    /// `resultType`; absent from legacy results.
    fn result_type(&self) -> Option<Json> {
        self.json().get("resultType")
    }

    /// `ttlMs`
    fn ttl_ms(&self) -> Option<Json> {
        self.json().get("ttlMs")
    }

    /// `cacheScope`
    fn cache_scope(&self) -> Option<Json> {
        self.json().get("cacheScope")
    }
}

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident { $($accessor:ident = $member:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Json);

        impl From<Json> for $name {
            fn from(result: Json) -> Self {
                Self(result)
            }
        }

        impl ResultView for $name {
            fn json(&self) -> &Json {
                &self.0
            }
        }

        impl $name {
            $(
                #[doc = concat!("`", $member, "`")]
                pub fn $accessor(&self) -> Option<Json> {
                    self.0.get($member)
                }
            )*
        }
    )*};
}

views! {
    /// The result of `initialize` or `server/discover`: how a server describes itself.
    ServerDescription {
        protocol_version = "protocolVersion",
        capabilities = "capabilities",
        instructions = "instructions",
    }
    /// The result of `tools/list`.
    ListToolsResult { tools = "tools", next_cursor = "nextCursor" }
    /// The result of `tools/call`.
    CallToolResult { is_error = "isError" }
    /// A result without members of its own, or any result of an unknown method.
    AnyResult {}
}

impl ServerDescription {
    /// The server's name and version: `serverInfo` of an `initialize` result, or the `_meta` key of
    /// 2026-07-28.
    pub fn server_info(&self) -> Option<Json> {
        self.0
            .get("serverInfo")
            .or_else(|| self.meta()?.get(meta::SERVER_INFO))
    }

    /// Whether this is the result of `initialize`, which describes the server within the opened
    /// session.
    pub fn is_of_session(&self) -> bool {
        self.protocol_version().is_some()
    }
}
