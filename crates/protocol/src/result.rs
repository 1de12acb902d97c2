//! Views over results, which read members and never rewrite any.
//!
//! A view is the result's text. Members that no view names are read through [`ResultView::json`].

use crate::json::Json;
use crate::meta;

/// The members of a result that say for how long, and for whom, it may be kept (2026-07-28 server/utilities/caching).
pub const CACHING_HINTS: [&str; 2] = ["ttlMs", "cacheScope"];

/// Whether a result says for how long, or for whom, it may be kept.
#[must_use]
pub fn has_caching_hints(result: &Json) -> bool {
    CACHING_HINTS.iter().any(|hint| result.get(hint).is_some())
}

/// Whether a result says that it is the same for all.
#[must_use]
pub fn is_public(result: &Json) -> bool {
    result
        .get("cacheScope")
        .is_some_and(|scope| scope.as_text() == "\"public\"")
}

/// Whether a result is for one principal alone. One with hints that does not say `public` is taken to be so.
#[must_use]
pub fn is_private(result: &Json) -> bool {
    has_caching_hints(result) && !is_public(result)
}

/// What all results have in common (2026-07-28 schema, Result).
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
                #[must_use]
                pub fn $accessor(&self) -> Option<Json> {
                    self.0.get($member)
                }
            )*
        }
    )*};
}

views! {
    /// Result of `initialize` or `server/discover`: how a server describes itself.
    ServerDescription {
        protocol_version = "protocolVersion",
        capabilities = "capabilities",
        instructions = "instructions",
    }
    /// Result of `tools/list`.
    ListToolsResult { tools = "tools", next_cursor = "nextCursor" }
    /// Result of `tools/call`.
    CallToolResult { is_error = "isError" }
    /// A result that says nothing but that the request succeeded, and any result of a method that
    /// Fanlight does not know.
    AnyResult {}
}

impl ServerDescription {
    /// Who the server says it is: `serverInfo` of an `initialize` result, else the `_meta` key
    /// that 2026-07-28 has for it.
    #[must_use]
    pub fn server_info(&self) -> Option<Json> {
        self.0
            .get("serverInfo")
            .or_else(|| self.meta()?.get(meta::SERVER_INFO))
    }

    /// Whether it is the result of `initialize`, which describes the server in the session that it has opened.
    #[must_use]
    pub fn is_of_session(&self) -> bool {
        self.protocol_version().is_some()
    }
}
