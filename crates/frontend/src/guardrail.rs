//! Guardrails of the operator's own: a program beside Fanlight that is asked about calls of tools, and about their results.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
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

/// Guardrails that can be replaced while clients are served: those of the next call.
#[derive(Clone, Debug, Default)]
pub struct LiveHooks(Arc<ArcSwap<Option<Arc<dyn CallHook>>>>);

impl LiveHooks {
    /// Has these asked from now on.
    pub fn replace(&self, hooks: Option<Arc<dyn CallHook>>) {
        self.0.store(Arc::new(hooks));
    }

    /// Those that are asked now; `None` for none.
    pub(crate) fn load(&self) -> Option<Arc<dyn CallHook>> {
        Option::clone(&self.0.load())
    }

    /// Whether results are judged before clients get them.
    pub(crate) fn judge_results(&self) -> bool {
        self.load()
            .is_some_and(|hook| hook.wants(HookMoment::Result))
    }
}

/// Guardrails of the operator's own.
pub trait CallHook: fmt::Debug + Send + Sync {
    /// Whether it wants to be asked at this moment.
    fn wants(&self, moment: HookMoment) -> bool;

    /// Asks about a call, which is described in JSON. It answers within a time of its own, whatever happens.
    fn ask(
        &self,
        moment: HookMoment,
        question: Json,
    ) -> Pin<Box<dyn Future<Output = HookAnswer> + Send + '_>>;
}
