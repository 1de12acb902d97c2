//! Guardrails: the operator's own programs, which judge tool calls and their results.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_config::HookTime;
use fanlight_protocol::{Json, ObjectBuilder};
use futures_util::future::BoxFuture;

/// A hook's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// The call or result passes.
    Allow,
    /// The call or result is refused, with this reason for the client.
    Deny(String),
    /// The result passes, with this object in its place.
    Replace(Json),
    /// Somebody has to answer this question first. For a result it means refusal.
    Ask(String),
}

/// Guardrails that the configuration can replace while clients are served. The change takes effect
/// with the next call.
#[derive(Clone, Debug, Default)]
pub struct LiveHooks(Arc<ArcSwap<Option<Arc<dyn CallHook>>>>);

impl LiveHooks {
    /// Replaces the guardrails.
    pub fn replace(&self, hooks: Option<Arc<dyn CallHook>>) {
        self.0.store(Arc::new(hooks));
    }

    /// The current guardrails; `None` if there are none.
    pub(crate) fn load(&self) -> Option<Arc<dyn CallHook>> {
        Option::clone(&self.0.load())
    }

    /// Whether hooks judge results before clients get them.
    pub(crate) fn judge_results(&self) -> bool {
        self.load()
            .is_some_and(|hook| hook.wants(HookTime::Result, None))
    }
}

/// The operator's guardrails.
///
/// A trait because its implementation depends on this crate.
pub trait CallHook: fmt::Debug + Send + Sync {
    /// Whether a hook wants to judge `call` at this moment, or any call.
    fn wants(&self, moment: HookTime, call: Option<&JudgedCall>) -> bool;

    /// Judges a call, or its result. `question` describes it. The hook bounds its own time and
    /// always answers.
    fn ask<'a>(
        &'a self,
        moment: HookTime,
        call: &'a JudgedCall,
        question: Json,
    ) -> BoxFuture<'a, HookAnswer>;
}

/// A call that hooks judge.
#[derive(Clone, Debug)]
pub struct JudgedCall {
    /// The path of the endpoint.
    pub endpoint: Box<str>,
    /// The server; `None` if several or none could be meant.
    pub server: Option<Box<str>>,
    /// The server's own name of the tool, if a list contains it.
    pub tool: Option<Box<str>>,
    /// The call in JSON, to which the result may be added.
    pub described: ObjectBuilder,
}

impl JudgedCall {
    /// The question about the call, or about its result.
    #[must_use]
    pub fn question(&self, result: Option<&Json>) -> Json {
        let mut described = self.described.clone();
        if let Some(result) = result {
            described.member("result", result);
        }
        described.finish()
    }
}
