//! Guardrails of the operator's own: a program beside Fanlight that is asked about calls of tools, and about their results.

use std::fmt;
use std::pin::Pin;

use fanlight_protocol::Json;

/// When a hook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookMoment {
    /// Before a call runs.
    Call,
    /// Before the client gets its result.
    Result,
}

/// What a hook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// It goes on.
    Allow,
    /// It does not, for this reason, which the client is told.
    Deny(String),
    /// Somebody is to be asked this. Of a result that is the same as no.
    Ask(String),
}

/// Guardrails of the operator's own.
pub trait CallHook: fmt::Debug + Send + Sync {
    /// Whether it wants to be asked at this moment.
    fn wants(&self, moment: HookMoment) -> bool;

    /// Asks about a call, which is described in JSON. It answers within a time of its own, whatever happens.
    fn ask(&self, moment: HookMoment, question: Json) -> Pin<Box<dyn Future<Output = HookAnswer> + Send + '_>>;
}
