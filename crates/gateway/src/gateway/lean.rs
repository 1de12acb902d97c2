//! Fanlight's own tools of lean lists: `find_tools`, which Fanlight answers, and `call_tool`, which
//! becomes the call of the named tool before anything decides about it.

use std::sync::Arc;

use fanlight_canonical::CallContext;
use fanlight_protocol::json::{Json, ObjectBuilder};
use fanlight_protocol::{Response, task_support};

use super::Gateway;
use super::operation::{Operation, OwnCall, note_item};
use crate::catalogue::{Entry, LeanList, ListView, OWN_TOOLS};
use crate::fit::find_misfit;
use crate::tasks;

/// The number of tools that `find_tools` returns by default, and the most.
const LIMIT: (usize, usize) = (5, 50);

impl Gateway {
    /// Resolves a call of one of Fanlight's own tools. `call_tool` becomes a call of the tool that it
    /// names; a call of `find_tools` keeps no arguments, so that nothing records the query.
    pub(super) async fn resolve_own_tool(&self, operation: &mut Operation) {
        let Some(params) = operation.request.params.clone() else {
            return;
        };
        let name = params.get("name").filter(|name| {
            let name = name.as_str().unwrap_or_default();
            OWN_TOOLS.iter().any(|own| name.ends_with(own))
        });
        let Some((name, rules)) = name.zip(operation.view.lean_rules()) else {
            return;
        };
        let context = &operation.request.context;
        let list = self.tools_of(&operation.view, &context.trace).await;
        let Some(lean) = list.lean(rules) else { return };
        let Some((own, schema)) = lean.own_tool(&name) else {
            return;
        };
        let arguments = params.get("arguments").unwrap_or_else(Json::empty_object);
        let call = |name: &Json| {
            params
                .without_members(&["arguments"])
                .with_member("name", name)
        };
        let misfit = find_misfit(&schema, &arguments);
        let is_search = own == OWN_TOOLS[0];
        operation.own = misfit.map(|misfit| OwnCall::Answer(refuse(&misfit)));
        operation.is_indirect = !is_search;
        if is_search || operation.own.is_some() {
            note_item(context, None, own);
            if operation.own.is_none() {
                operation.own = Some(OwnCall::Find(list.clone(), arguments));
            }
            operation.request.params = Some(call(&name));
            return;
        }
        let target = arguments.get("name").unwrap_or_default();
        let mut params = call(&target);
        if let Some(arguments) = arguments.get("arguments") {
            params = params.with_member("arguments", &arguments);
        }
        context
            .trace
            .lean_tools(&target.as_str().unwrap_or_default());
        operation.request.params = Some(params.indexed());
    }

    /// Answers a call of one of Fanlight's own tools.
    pub(super) async fn answer_own(&self, operation: &Operation, own: &OwnCall) -> Response {
        let response = match own {
            OwnCall::Read(read) => self.answer_read(operation, read).await,
            OwnCall::Answer(response) => response.clone(),
            OwnCall::Find(list, arguments) => {
                list.make_index().await;
                let lean = operation
                    .view
                    .lean_rules()
                    .and_then(|rules| list.lean(rules));
                match lean {
                    Some(lean) => find(lean, list, operation, arguments),
                    None => refuse(&(String::new(), "is unknown".to_owned())),
                }
            }
        };
        match operation.view.topology().backends() {
            [_] => response,
            _ => response.from_server(Arc::clone(&self.identity)),
        }
    }
}

impl Operation {
    /// Ends a call through `call_tool` whose arguments do not fit the tool's schema.
    pub(super) fn check_arguments(&mut self) {
        let arguments = self.params().and_then(|it| it.get("arguments"));
        let schema = self
            .listed_definition()
            .and_then(|tool| tool.get("inputSchema"));
        if let Some(schema) = schema.filter(|_| !self.is_refused()) {
            let arguments = arguments.unwrap_or_else(Json::empty_object);
            let misfit = find_misfit(&schema, &arguments);
            self.own = misfit.map(|misfit| OwnCall::Answer(refuse(&misfit)));
        }
    }
}

/// The answer to `find_tools`.
fn find(lean: &LeanList, list: &ListView, operation: &Operation, arguments: &Json) -> Response {
    let text = |key: &str| {
        let text = arguments.text_at(key);
        text.filter(|text| !text.trim().is_empty())
    };
    let (query, group) = (text("query"), text("group"));
    let (usual, most) = LIMIT;
    let wanted = arguments.get("limit").and_then(|limit| limit.as_i64());
    let wanted = wanted.map_or(usual, |limit| usize::try_from(limit).unwrap_or(0));
    let found = match group.as_deref().map(|name| (name, lean.group(name))) {
        Some((name, None)) => {
            let own: Vec<_> = lean.group_names().collect();
            let expected = format!("names no group; the groups are {}", own.join(", "));
            let misfit = ("/group".to_owned(), format!("{name:?} {expected}"));
            return refuse(&misfit);
        }
        None if query.is_none() => (Vec::new(), 0),
        group => {
            let group = group.and_then(|(_, group)| group);
            let lacking = list.lacking_extensions(&operation.request.context.capabilities);
            let limit = wanted.clamp(1, most);
            lean.find(list, query.as_deref(), group, limit, |tool| {
                !tool.needs_any(&lacking)
            })
        }
    };
    let context = &operation.request.context;
    context.trace.lean_tools(&names(&found.0));
    let mut result = ObjectBuilder::new();
    let tools = definitions(&found.0, operation, context);
    result
        .member("tools", &tools)
        .integer("more", i64::try_from(found.1).unwrap_or(i64::MAX));
    if found.0.is_empty() {
        result.member("groups", &lean.describe_groups(list));
    }
    if wanted > most {
        result.string("note", &format!("limit is at most {most}"));
    }
    let structured = result.finish();
    let mut result = content(structured.as_text());
    result.member("structuredContent", &structured);
    Response::from_result(&result.finish())
}

/// The definitions of found tools, as this client's full list has them.
fn definitions(found: &[&Entry], operation: &Operation, context: &CallContext) -> Json {
    let taking_tasks = tasks::backends_that_take_tasks(&operation.view, context);
    Json::array(found.iter().map(|tool| {
        let takes_tasks = taking_tasks.contains(&tool.backend);
        let offered = takes_tasks.then(|| task_support::optional_for_tool(&tool.visible));
        offered.flatten().unwrap_or_else(|| (*tool.visible).clone())
    }))
}

fn names(found: &[&Entry]) -> String {
    let names = found.iter().filter_map(|tool| tool.name());
    names.collect::<Vec<_>>().join(", ")
}

/// Begins a result that has only this text.
fn content(text: &str) -> ObjectBuilder {
    let block = ObjectBuilder::new()
        .string("type", "text")
        .string("text", text)
        .finish();
    let mut result = ObjectBuilder::new();
    result.member("content", &Json::array([block]));
    result
}

/// The result for arguments that do not fit.
pub(super) fn refuse((pointer, expected): &(String, String)) -> Response {
    let place = if pointer.is_empty() { "they" } else { pointer };
    tell(&format!(
        "The arguments do not fit the tool's inputSchema: {place} {expected}"
    ))
}

/// The result of a call that failed.
pub(super) fn tell(text: &str) -> Response {
    let mut result = content(text);
    result.member("isError", &Json::literal("true"));
    Response::from_result(&result.finish())
}
