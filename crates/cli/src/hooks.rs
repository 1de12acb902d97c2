//! The operator's own guardrails, called over HTTP.

use std::pin::Pin;
use std::sync::Arc;

use fanlight_config::{Config, HookFailure, HookOptions, HookTime, origin_of};
use fanlight_fair::LogLimit;
use fanlight_frontend::{CallHook, HookAnswer, HookMoment};
use fanlight_grants::fetch::{self, FetchError, JSON, Requests};
use fanlight_protocol::Json;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tracing::warn;

/// The limit of characters in a text for clients or approvers.
const LONGEST_TEXT: usize = 500;
/// The limit of log lines about failing hooks in ten seconds.
const LINES: u32 = 5;

/// The configured hooks, called in turn.
#[derive(Debug)]
struct Hooks {
    all: Vec<(HookOptions, Requests)>,
    lines: LogLimit,
}

/// The answer of a hook.
#[derive(Deserialize)]
struct Said {
    decision: Decision,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allow,
    Deny,
    Ask,
}

/// The configured hooks; `None` if there are none.
pub fn of(config: &Config) -> Option<Arc<dyn CallHook>> {
    if config.hooks.is_empty() {
        return None;
    }
    let with_client = |hook: &HookOptions| {
        let requests = Requests::to_configured().within(hook.timeout);
        (hook.clone(), requests)
    };
    Some(Arc::new(Hooks {
        all: config.hooks.iter().map(with_client).collect(),
        lines: LogLimit::new(LINES),
    }))
}

impl CallHook for Hooks {
    fn wants(&self, moment: HookMoment) -> bool {
        self.all.iter().any(|(hook, _)| is_asked(hook, moment))
    }

    fn ask(
        &self,
        moment: HookMoment,
        question: Json,
    ) -> Pin<Box<dyn Future<Output = HookAnswer> + Send + '_>> {
        Box::pin(async move {
            let event = if moment == HookMoment::Call {
                "call"
            } else {
                "result"
            };
            let mut answer = HookAnswer::Allow;
            for (hook, requests) in &self.all {
                if !is_asked(hook, moment) {
                    continue;
                }
                match self.ask_one(hook, requests, event, &question).await {
                    HookAnswer::Allow => {}
                    HookAnswer::Deny(reason) => return HookAnswer::Deny(reason),
                    ask @ HookAnswer::Ask(_) => answer = ask,
                }
            }
            answer
        })
    }
}

fn is_asked(hook: &HookOptions, moment: HookMoment) -> bool {
    let time = if moment == HookMoment::Call {
        HookTime::Call
    } else {
        HookTime::Result
    };
    hook.when.contains(&time)
}

impl Hooks {
    async fn ask_one(
        &self,
        hook: &HookOptions,
        requests: &Requests,
        event: &'static str,
        question: &Json,
    ) -> HookAnswer {
        match answer(hook.url.expose(), requests, event, question).await {
            Ok(Said { decision, text }) => {
                let text = text.chars().take(LONGEST_TEXT).collect();
                return match decision {
                    Decision::Allow => HookAnswer::Allow,
                    Decision::Deny => HookAnswer::Deny(text),
                    Decision::Ask => HookAnswer::Ask(text),
                };
            }
            Err(problem) => {
                if let Some(omitted) = self.lines.admit() {
                    let url = origin_of(hook.url.expose());
                    warn!(url, event, %problem, omitted, "a hook failed");
                }
            }
        }
        match hook.on_failure {
            HookFailure::Allow => HookAnswer::Allow,
            HookFailure::Deny => HookAnswer::Deny("the hook is unavailable".to_owned()),
        }
    }
}

async fn answer(
    url: &str,
    requests: &Requests,
    event: &'static str,
    question: &Json,
) -> Result<Said, FetchError> {
    let url = fetch::url(url)?;
    let event = (
        HeaderName::from_static("fanlight-event"),
        HeaderValue::from_static(event),
    );
    let headers = HeaderMap::from_iter([event]);
    let question = question.bytes().clone();
    let answer = requests.post(&url, JSON, headers, question).await?;
    answer.ok(&url)?.json(&url)
}
