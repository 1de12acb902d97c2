//! The perfect server, which answers by the exchanges in `cases`.

use std::time::Duration;

use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{DEFAULT_NESTING, Era, Json, Message, Method, Request};
use http::HeaderMap;
use parking_lot::Mutex;

use super::cases::{ALL, ANSWERS, Exchange, SECOND, SECOND_PAGE};
use super::comparison::braced;
use crate::mock::Author;
use crate::recording::script::{Cue, Role, Step, Take, TakeEnding, json};

const RESULT: &str = r#""result":{"#;
const COMPLETE: &str = r#""resultType":"complete","#;
/// The members of a modern list or read result about caching.
const CACHED: &str = r#""ttlMs":61000,"cacheScope":"public","#;
const NOT_FOUND: &str = r#""error":{"code":-32601,"message":"Method not found"}"#;

/// The number of times that a subscription repeats a notification: more than a conversation lasts.
const TOLD: usize = 500;

/// One of the servers behind a gateway.
#[derive(Default)]
pub(super) struct PerfectServer {
    /// True for the second server.
    pub(super) is_second: bool,
    headers: Mutex<HeaderMap>,
}

impl PerfectServer {
    pub(super) fn new(is_second: bool) -> Self {
        Self {
            is_second,
            ..Self::default()
        }
    }

    /// The latest value of a header field.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let headers = self.headers.lock();
        Some(headers.get(name)?.to_str().ok()?.to_owned())
    }
}

impl Author for PerfectServer {
    fn write(&self, era: Era, request: &Request) -> Take {
        let params = request.params.clone().unwrap_or_else(Json::empty_object);
        let exchange = self.exchange(request, &params);
        let steps = match exchange {
            Some(exchange) if request.method == Method::Listen => tell(exchange, &params),
            _ => self.respond(era, request, exchange, &params),
        };
        Take {
            connection: 0,
            index: 0,
            text: Json::null(),
            request: request.clone(),
            params,
            masked: Vec::new(),
            is_stream: steps.len() > 1,
            steps,
            ending: TakeEnding::Answered,
        }
    }

    fn read_headers(&self, headers: &HeaderMap) {
        self.headers.lock().extend(headers.clone());
    }
}

impl PerfectServer {
    /// The messages before an answer, and the answer.
    fn respond(
        &self,
        era: Era,
        request: &Request,
        exchange: Option<&Exchange>,
        params: &Json,
    ) -> Vec<Step> {
        let who = params.get("arguments").and_then(|it| it.text_at("who"));
        let who = who.unwrap_or_default();
        let mut steps: Vec<Step> = Vec::new();
        for before in exchange.map_or(&[][..], |it| &it.before) {
            let text = message(&braced(before.get()).replace("%who", &who));
            let question = text.get("id");
            let role = question.clone().map_or(Role::Notification, Role::Question);
            let awaited = question.and_then(|id| await_answer(id, &text));
            steps.push(send(0, text, role));
            steps.extend(awaited);
        }
        let method = request.method.as_str();
        let answer = answer(era, self.is_second, method, exchange, params);
        let wait = exchange.map_or(0, |it| it.wait);
        steps.push(send(wait, answer, Role::Answer(None)));
        steps
    }

    fn exchange(&self, request: &Request, params: &Json) -> Option<&'static Exchange> {
        let name = params.get("name");
        let mut exchanges = ALL.exchanges.iter();
        exchanges.find(|it| match request.method {
            Method::CallTool => {
                let is_named = name.as_ref().is_some_and(|name| name.is_str(&it.name));
                it.is_call() && is_named && self.is_second == (it.name == SECOND)
            }
            _ => it.method == request.method.as_str() && (!self.is_second || it.name.is_empty()),
        })
    }
}

/// The messages of a subscription: its confirmation, and those that the client wants, again and
/// again, since a gateway may subscribe before its client does.
fn tell(exchange: &Exchange, params: &Json) -> Vec<Step> {
    let wanted = params.get("notifications").unwrap_or_default();
    let messages = exchange.before.iter().filter_map(|it| {
        let text = message(&braced(it.get()).replace(r#""%wanted""#, wanted.as_text()));
        let is_wanted = match &*text.text_at("method")? {
            "notifications/prompts/list_changed" => wanted.get("promptsListChanged").is_some(),
            "notifications/resources/updated" => wanted.get("resourceSubscriptions").is_some(),
            _ => true,
        };
        is_wanted.then_some(text)
    });
    let messages: Vec<Json> = messages.collect();
    let told = messages.get(1..).unwrap_or_default();
    let told = std::iter::repeat_n(told, TOLD).flatten();
    let all = messages.first().into_iter().chain(told);
    all.map(|text| send(exchange.wait, text.clone(), Role::Notification))
        .collect()
}

/// The answer to a request, with the id 0.
pub(super) fn answer(
    era: Era,
    is_second: bool,
    method: &str,
    exchange: Option<&Exchange>,
    params: &Json,
) -> Json {
    let list = ListKind::from_method(&Method::from_name(method));
    let listed = match list {
        Some(ListKind::Tools) => Some(tools(is_second, params.get("cursor").is_some())),
        Some(list) if is_second => Some(format!(r#"{RESULT}"{}":[]}}"#, list.member())),
        _ => None,
    };
    let text = match (&listed, exchange) {
        (Some(listed), _) => listed,
        (_, Some(exchange)) if params.get("inputResponses").is_some() => &exchange.retried,
        (_, Some(exchange)) => &exchange.answer,
        _ => NOT_FOUND,
    };
    let cached = list.is_some() || method == "resources/read" || method == "server/discover";
    let text = match (era, text.strip_prefix(RESULT)) {
        (Era::Modern, Some(rest)) if !rest.contains(r#""resultType""#) => {
            let cached = if cached { CACHED } else { "" };
            format!("{RESULT}{COMPLETE}{cached}{rest}")
        }
        _ => text.to_owned(),
    };
    let repeated = Json::string(params.as_text());
    let text = text.replace(r#""%params""#, repeated.as_text());
    message(&format!(r#""id":0,{text}"#))
}

fn tools(is_second: bool, is_second_page: bool) -> String {
    let is_here = |it: &&Exchange| match it.name.as_str() {
        SECOND => is_second,
        name => !is_second && (name == "last") == is_second_page,
    };
    let calls = ALL.exchanges.iter().filter(|it| it.is_call());
    let tools: Vec<String> = calls
        .filter(is_here)
        .map(|it| format!(r#"{{"name":"{}",{}}}"#, it.name, it.definition))
        .collect();
    let next = match is_second || is_second_page {
        true => String::new(),
        false => {
            format!(r#","nextCursor":"{SECOND_PAGE}","_meta":{{"example.com/list":{{"a":1}}}}"#)
        }
    };
    format!(r#"{RESULT}"tools":[{}]{next}}}"#, tools.join(","))
}

/// A message with these members.
pub(super) fn message(members: &str) -> Json {
    json(format!(r#"{{"jsonrpc":"2.0",{members}}}"#).as_bytes()).unwrap_or_default()
}

fn send(wait: u64, text: Json, role: Role) -> Step {
    let after = Duration::from_millis(wait);
    Step::Send(Cue {
        after,
        index: 0,
        text,
        masked: Vec::new(),
        role,
    })
}

/// The client's answer to a question.
fn await_answer(question: Json, text: &Json) -> Option<Step> {
    let method = text.get("method")?;
    let (_, result) = ANSWERS.iter().find(|(name, _)| method.is_str(name))?;
    let text = message(&format!(r#""id":{},"result":{result}"#, question.as_text()));
    let Ok(Message::Response(answer)) = Message::parse(text.into_bytes(), DEFAULT_NESTING) else {
        return None;
    };
    Some(Step::Await {
        question,
        answer: Box::new(answer),
        masked: Vec::new(),
        index: 0,
    })
}
