//! The plan of a replay: which recorded requests are sent, and why the others are not.

use std::collections::{HashMap, HashSet};

use fanlight_canonical::comparison::{find_ids, without_meta};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{
    INPUT_RESPONSES, InputRequired, Json, Method, REQUEST_STATE, Response, rewrite_object,
};

use super::recorded::{Exchange, Recorded};

/// The members of `params` that continue a request.
const CONTINUING: [&str; 2] = [INPUT_RESPONSES, REQUEST_STATE];

/// A request to send.
pub(super) struct Planned<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) answer: &'a Response,
    /// The masked places of the answer.
    pub(super) masked: &'a [String],
    /// Whether the request may be sent twice.
    pub(super) is_safe: bool,
    /// The answers to further equal requests.
    pub(super) others: Vec<&'a Response>,
}

/// A request that is not sent.
pub(super) struct Skipped<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) why: &'static str,
}

/// The requests that are sent, and those that are skipped.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) planned: Vec<Planned<'a>>,
    pub(super) skipped: Vec<Skipped<'a>>,
}

/// The tools with these definitions that may be called twice.
fn safe_tools<'a>(tools: impl Iterator<Item = (&'a str, &'a Json)>) -> HashSet<&'a str> {
    let safe = tools.filter(|(_, tool)| {
        let hints = tool.get("annotations").unwrap_or_default();
        let says =
            |hint: &str, text: &str| hints.get(hint).is_some_and(|said| said.as_text() == text);
        says("readOnlyHint", "true")
            || (says("idempotentHint", "true") && says("destructiveHint", "false"))
    });
    safe.map(|(name, _)| name).collect()
}

/// The item that a request names; empty if it names none.
pub(super) fn subject(exchange: &Exchange) -> String {
    let member = exchange.method.subject_member().unwrap_or("ref");
    let named = exchange.params.get(member);
    let named = named.map(|named| match named.as_str() {
        Some(name) => name.into_owned(),
        None => named.as_text().to_owned(),
    });
    named.unwrap_or_default()
}

impl<'a> Plan<'a> {
    /// `now` are the tools of the new server; `is_everything`: whether unsafe requests are sent.
    pub(super) fn new(recorded: &'a Recorded, now: &[(String, Json)], is_everything: bool) -> Self {
        let tools = recorded
            .definitions
            .iter()
            .filter(|one| one.kind == ListKind::Tools);
        let before = safe_tools(tools.map(|tool| (&*tool.name, &tool.json)));
        let after = safe_tools(now.iter().map(|(name, tool)| (&**name, tool)));
        let is_there = |name: &str| now.iter().any(|(tool, _)| tool == name);
        let mut plan = Self::default();
        // Requests that were planned since the last one that may have changed something.
        let mut known: HashMap<(&str, String), usize> = HashMap::new();
        // The ids that the client knew, and those that came with answers.
        let (mut own, mut given) = (HashSet::new(), HashSet::new());
        for (at, exchange) in recorded.exchanges.iter().enumerate() {
            let (name, key) = (subject(exchange), key(exchange));
            let is_given = find_ids(&key.1).any(|id| given.contains(id) && !own.contains(id));
            if !is_given {
                own.extend(find_ids(exchange.params.as_text()));
            }
            let body = exchange.answer.as_ref().map(Response::body);
            let ids = body.iter().flat_map(|body| find_ids(body.as_text()));
            given.extend(ids.map(str::to_owned));
            let later = recorded.exchanges.get(at + 1..).unwrap_or_default();
            let last = last_round(exchange, later);
            let is_tool = exchange.method == Method::CallTool;
            let is_safe = match exchange.method {
                Method::CallTool => before.contains(&*name) && after.contains(&*name),
                _ => is_read(&exchange.method),
            };
            let why = match (
                is_silent(exchange),
                obstacle(exchange, last.answer.as_ref()),
            ) {
                (true, _) => continue,
                (_, Some(why)) => Some(why),
                _ if is_given => Some("has an id of an earlier result"),
                _ if is_tool && !is_there(&name) => Some("names a tool that is gone"),
                _ if !is_safe && !is_everything => Some("is not declared safe; --all sends it"),
                _ => None,
            };
            match (why, last.answer.as_ref()) {
                (None, Some(answer)) => {
                    let equal = known.get(&key).filter(|_| is_safe);
                    if let Some(planned) = equal.and_then(|at| plan.planned.get_mut(*at)) {
                        planned.others.push(answer);
                        continue;
                    }
                    if !is_safe {
                        known.clear();
                    }
                    known.insert(key, plan.planned.len());
                    let (masked, others) = (&*last.masked, Vec::new());
                    plan.planned.push(Planned {
                        exchange,
                        answer,
                        masked,
                        is_safe,
                        others,
                    });
                }
                (why, _) => {
                    let why = why.unwrap_or_default();
                    plan.skipped.push(Skipped { exchange, why });
                }
            }
        }
        plan
    }
}

/// The method and the parameters, without the members that belong to one request.
fn key(exchange: &Exchange) -> (&str, String) {
    let params = without_meta(&exchange.params);
    let params = rewrite_object(
        &params,
        |member| !CONTINUING.iter().any(|name| member.is(&params, name)),
        &[],
    );
    let params = params.canonical().unwrap_or(params);
    (exchange.method.as_str(), params.as_text().to_owned())
}

/// The last round of a request that needed input. Its answer is the answer to all.
fn last_round<'a>(first: &'a Exchange, later: &'a [Exchange]) -> &'a Exchange {
    let is_open = |exchange: &Exchange| exchange.answer.as_ref().is_some_and(asks);
    let mut last = first;
    if is_open(first) {
        let key_of_first = key(first);
        for next in later.iter().filter(|next| continues(next)) {
            if is_open(last) && key(next) == key_of_first {
                last = next;
            }
        }
    }
    last
}

/// Whether an answer asks for input.
fn asks(answer: &Response) -> bool {
    InputRequired::from_response(answer).is_some()
}

fn continues(exchange: &Exchange) -> bool {
    let mut members = CONTINUING.iter();
    members.any(|name| exchange.params.peek(name).is_some())
}

/// Whether the replay makes this request on its own: to connect, or to read lists with the
/// server's own cursors.
fn is_silent(exchange: &Exchange) -> bool {
    let is_own = matches!(
        exchange.method,
        Method::Initialize
            | Method::Discover
            | Method::Ping
            | Method::SetLogLevel
            | Method::Subscribe
            | Method::Unsubscribe
            | Method::Listen
    );
    is_own
        || continues(exchange)
        || ListKind::from_method(&exchange.method).is_some() && !has_cursor(exchange)
}

fn has_cursor(exchange: &Exchange) -> bool {
    exchange.params.peek("cursor").is_some()
}

fn is_read(method: &Method) -> bool {
    matches!(
        method,
        Method::ReadResource
            | Method::ReadDirectory
            | Method::GetSkill
            | Method::GetPrompt
            | Method::Complete
    )
}

/// The reason why a request has no meaning at another server.
fn obstacle(exchange: &Exchange, answer: Option<&Response>) -> Option<&'static str> {
    let is_of_task = exchange.method.is_about_tasks();
    let Some(answer) = answer else {
        return Some("has no recorded answer");
    };
    let kind = answer.peek_result("resultType");
    let is_task =
        exchange.params.peek("task").is_some() || kind.is_some_and(|kind| kind.is_str("task"));
    match () {
        () if is_of_task => Some("names a task of an earlier result"),
        () if has_cursor(exchange) => Some("has a cursor of an earlier result"),
        () if exchange.is_masked => Some("has a masked part"),
        () if is_task => Some("begins a task"),
        () if asks(answer) => Some("has no recorded answer"),
        () => None,
    }
}
