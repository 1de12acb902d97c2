//! The operator's own guardrails, called over HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_config::{Config, HookFailure, HookOptions, HookTime};
use fanlight_fair::LogLimit;
use fanlight_frontend::{CallHook, HookAnswer, HookMoment};
use fanlight_protocol::Json;
use reqwest::{Client, StatusCode, redirect};
use serde::Deserialize;
use tokio::time::timeout;
use tracing::warn;

use fanlight_cli::failure::Failure;

/// The size limit of an answer, in bytes.
const LONGEST: usize = 64 << 10;
/// The limit of characters in a text for clients or approvers.
const LONGEST_TEXT: usize = 500;
/// The limit of log lines about failing hooks in ten seconds.
const LINES: u32 = 5;

/// The configured hooks, called in turn.
#[derive(Debug)]
struct Hooks {
    all: Vec<HookOptions>,
    client: Client,
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
pub(crate) fn of(config: &Config) -> Result<Option<Arc<dyn CallHook>>, Failure> {
    if config.hooks.is_empty() {
        return Ok(None);
    }
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .build();
    let client = client.map_err(|error| {
        Failure::other(format!("cannot create the HTTP client for hooks: {error}"))
    })?;
    Ok(Some(Arc::new(Hooks {
        all: config.hooks.clone(),
        client,
        lines: LogLimit::new(LINES),
    })))
}

impl CallHook for Hooks {
    fn wants(&self, moment: HookMoment) -> bool {
        self.all.iter().any(|hook| is_asked(hook, moment))
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
            for hook in self.all.iter().filter(|hook| is_asked(hook, moment)) {
                match self.ask_one(hook, event, &question).await {
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
    hook.on.contains(&time)
}

impl Hooks {
    async fn ask_one(
        &self,
        hook: &HookOptions,
        event: &'static str,
        question: &Json,
    ) -> HookAnswer {
        let HookOptions {
            url,
            timeout: limit,
            on_failure,
            ..
        } = hook;
        let asked = timeout(*limit, self.answer(url, event, question)).await;
        let problem = match asked {
            Ok(Ok(answer)) => return answer,
            Ok(Err(problem)) => problem,
            Err(_) => format!("no answer within {}", shown(*limit)),
        };
        if let Some(omitted) = self.lines.admit() {
            warn!(url, event, problem, omitted, "a hook failed");
        }
        match on_failure {
            HookFailure::Allow => HookAnswer::Allow,
            HookFailure::Deny => HookAnswer::Deny("the hook is unavailable".to_owned()),
        }
    }

    async fn answer(
        &self,
        url: &str,
        event: &'static str,
        question: &Json,
    ) -> Result<HookAnswer, String> {
        let failed = |error: reqwest::Error| error.without_url().to_string();
        let request = self
            .client
            .post(url)
            .header("Content-Type", "application/json")
            .header("Fanlight-Event", event);
        let mut response = request
            .body(question.bytes().clone())
            .send()
            .await
            .map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered with {}", response.status()));
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if text.len() + chunk.len() > LONGEST {
                return Err(format!("its answer is longer than {LONGEST} bytes"));
            }
            text.extend_from_slice(&chunk);
        }
        let Said { decision, text } =
            serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let text: String = text.chars().take(LONGEST_TEXT).collect();
        Ok(match decision {
            Decision::Allow => HookAnswer::Allow,
            Decision::Deny => HookAnswer::Deny(text),
            Decision::Ask => HookAnswer::Ask(text),
        })
    }
}

fn shown(limit: Duration) -> String {
    format!("{} ms", limit.as_millis())
}
