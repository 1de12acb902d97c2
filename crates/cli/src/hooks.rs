//! The operator's own guardrails, called over HTTP.

use std::pin::Pin;
use std::sync::Arc;

use fanlight_canonical::rights::{ItemRule, Servers};
use fanlight_config::{Config, HookFailure, HookOptions, HookTime, RateMatch, Secret, origin_of};
use fanlight_fair::limit;
use fanlight_frontend::{CallHook, HookAnswer, JudgedCall, RequestMatch, ToolNames};
use fanlight_grants::fetch::{self, FetchError, JSON, Requests};
use fanlight_protocol::{DEFAULT_NESTING, Json};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;

use crate::rewriting::servers_of_rules;
use crate::server_auth::certificates;

/// The limit of characters in a text for clients or approvers.
const LONGEST_TEXT: usize = 500;

/// The largest question, in bytes.
const QUESTION: usize = 16 << 20;

/// The configured hooks, called in turn.
#[derive(Debug)]
struct Hooks {
    all: Vec<Hook>,
}

/// A configured hook.
#[derive(Debug)]
struct Hook {
    options: HookOptions,
    only: RequestMatch,
    requests: Requests,
    headers: HeaderMap,
}

/// The answer of a hook.
#[derive(Deserialize)]
struct Said {
    decision: Decision,
    #[serde(default)]
    text: String,
    result: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allow,
    Deny,
    Ask,
}

/// The configured hooks; `None` if there are none.
///
/// # Errors
///
/// If a hook's certificates cannot be used.
pub fn build(config: &Config) -> Result<Option<Arc<dyn CallHook>>, String> {
    if config.hooks.is_empty() {
        return Ok(None);
    }
    let servers = servers_of_rules(config);
    let prepared = |options: &HookOptions| {
        let unusable = |error: String| format!("{}: {error}", origin_of(options.url.expose()));
        let trusted = certificates(options.ca_file.as_deref()).map_err(unusable)?;
        let requests = Requests::for_configured_places().with_time_limit(options.timeout);
        let header = |(name, value): &(String, Secret)| {
            let value = fetch::secret_value(value.expose()).ok()?;
            Some((name.parse::<HeaderName>().ok()?, value))
        };
        Ok(Hook {
            only: request_match(&servers, &options.only),
            requests: requests.with_authorities(trusted),
            headers: options.headers.iter().filter_map(header).collect(),
            options: options.clone(),
        })
    };
    let all = config.hooks.iter().map(prepared);
    Ok(Some(Arc::new(Hooks {
        all: all.collect::<Result<_, String>>()?,
    })))
}

/// The requests that `only` is about.
#[must_use]
pub fn request_match(servers: &Arc<Servers>, only: &RateMatch) -> RequestMatch {
    let RateMatch {
        tools,
        servers: named,
        endpoints,
    } = only;
    let given = |all: &Vec<String>| Some(all.clone()).filter(|all| !all.is_empty());
    let rules: Vec<_> = (tools.iter())
        .map(|pattern| ItemRule::new(servers, pattern))
        .collect();
    let is_meant =
        move |server: &str, name: &str| rules.iter().any(|rule| rule.is_about(server, name));
    RequestMatch {
        tools: given(tools).map(|_| Arc::new(is_meant) as ToolNames),
        servers: given(named),
        endpoints: given(endpoints),
    }
}

impl CallHook for Hooks {
    fn wants(&self, moment: HookTime, call: Option<&JudgedCall>) -> bool {
        self.all.iter().any(|hook| hook.is_asked(moment, call))
    }

    fn ask<'a>(
        &'a self,
        moment: HookTime,
        call: &'a JudgedCall,
        mut question: Json,
    ) -> Pin<Box<dyn Future<Output = HookAnswer> + Send + 'a>> {
        Box::pin(async move {
            let mut answer = HookAnswer::Allow;
            let mut replaced = None;
            let asked = (self.all.iter()).filter(|hook| hook.is_asked(moment, Some(call)));
            for hook in asked {
                match self.ask_one(hook, moment, &question).await {
                    HookAnswer::Allow => {}
                    HookAnswer::Deny(reason) => return HookAnswer::Deny(reason),
                    // The next hook judges what the client gets.
                    HookAnswer::Replace(result) => {
                        question = call.question(Some(&result));
                        replaced = Some(result);
                    }
                    ask @ HookAnswer::Ask(_) => answer = ask,
                }
            }
            match (answer, replaced) {
                (HookAnswer::Allow, Some(result)) => HookAnswer::Replace(result),
                (answer, _) => answer,
            }
        })
    }
}

impl Hooks {
    async fn ask_one(&self, hook: &Hook, moment: HookTime, question: &Json) -> HookAnswer {
        match hook.answer(moment, question).await {
            Ok(answer) => return answer,
            Err(problem) => {
                let (url, event) = (origin_of(hook.options.url.expose()), moment.as_str());
                warn!(url, event, problem, "a hook failed");
            }
        }
        match hook.options.on_failure {
            HookFailure::Allow => HookAnswer::Allow,
            HookFailure::Deny => HookAnswer::Deny("the hook is unavailable".to_owned()),
        }
    }
}

impl Hook {
    /// Whether the hook judges a call, or any call, at this moment.
    fn is_asked(&self, moment: HookTime, call: Option<&JudgedCall>) -> bool {
        let is_about = |call: &JudgedCall| {
            let (server, tool) = (call.server.as_deref(), call.tool.as_deref());
            self.only.covers(&call.endpoint, server, tool)
        };
        self.options.when.contains(&moment) && call.is_none_or(is_about)
    }

    /// The hook's answer, or the reason why it has none that counts.
    async fn answer(&self, moment: HookTime, question: &Json) -> Result<HookAnswer, String> {
        let (size, most) = (question.bytes().len(), limit("question", QUESTION));
        if size > most {
            return Err(format!("the question has {size} bytes: more than {most}"));
        }
        let failed = |error: FetchError| error.to_string();
        let url = fetch::url(self.options.url.expose()).map_err(failed)?;
        let mut headers = self.headers.clone();
        headers.insert("fanlight-event", HeaderValue::from_static(moment.as_str()));
        let question = question.bytes().clone();
        let sent = self.requests.post(&url, JSON, headers, question).await;
        let answer = sent.and_then(|answer| answer.ok(&url)).map_err(failed)?;
        let said: Said = answer.json(&url).map_err(failed)?;
        let text = said.text.chars().take(LONGEST_TEXT).collect();
        match (said.decision, said.result) {
            (Decision::Allow, None) => Ok(HookAnswer::Allow),
            (Decision::Allow, Some(_)) if !self.options.may_replace || moment == HookTime::Call => {
                Err("it replaces a result without `mayReplace`, or before the call".to_owned())
            }
            (Decision::Allow, Some(result)) => {
                let text = result.get().as_bytes().to_vec().into();
                let result = Json::parse(text, DEFAULT_NESTING).ok();
                let result = result.filter(|it| it.is_object() && it.read_strictly().is_ok());
                (result.map(HookAnswer::Replace))
                    .ok_or_else(|| "its `result` is no object, or repeats a member".to_owned())
            }
            (Decision::Deny, _) => Ok(HookAnswer::Deny(text)),
            (Decision::Ask, _) => Ok(HookAnswer::Ask(text)),
        }
    }
}
