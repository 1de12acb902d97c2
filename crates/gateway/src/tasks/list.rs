//! `tasks/list` for one client, merged from all servers that list their tasks.
//!
//! Fanlight does not cache the list, because tasks belong to clients and change all the time. The
//! parts are in configuration order. A page ends with the part of a server that has more tasks; the
//! cursor then contains the server's own cursor, so that the next page continues there.

use fanlight_canonical::{Call, Outcome};
use fanlight_protocol::json::{Json, Kind, ObjectBuilder};
use fanlight_protocol::{Response, RpcError, has_tasks_extension};
use futures_util::future::join_all;

use super::Tasks;
use crate::catalogue::{answer_reason, cut_off};
use crate::cursor::{CursorSeal, TasksPosition};
use crate::fault;
use crate::merge::{self, Contribution, Except, Merged};
use crate::shape::TASK;
use crate::topology::{Filtered, Member, View};

const MEMBER: &str = "tasks";
const NEXT: &str = "nextCursor";
const CURSOR: &str = "cursor";

/// One server's part of a page.
enum Part {
    /// The server lists no tasks.
    Nothing,
    Page(Json),
    /// The server could not be asked, or did not answer with a list.
    Failed(Outcome, String),
}

impl Tasks {
    pub(super) async fn list(
        &self,
        view: &View,
        call: &Call,
        seal: &CursorSeal,
    ) -> Result<Response, RpcError> {
        let holder = call.context.caller.holder();
        let mut page = Page {
            tasks: self,
            view,
            call,
            seal,
            contributions: Vec::new(),
            shown: Vec::new(),
            next: None,
            any: false,
        };
        let mut backends: Vec<_> = view.backends().collect();
        if let Some(cursor) = call.cursor() {
            let position = cursor
                .as_str()
                .and_then(|text| seal.open_tasks(&text, holder))
                .ok_or_else(|| {
                    fault::invalid_params(
                        "params.cursor is no cursor of this list; start from the first page",
                    )
                })?;
            page.any = true;
            // A server that is no longer configured has no tasks, and neither has any after it.
            backends = view.backends_from(&position.backend).collect();
            if !backends.is_empty() {
                let backend = backends.remove(0);
                let part =
                    part_of(view, backend, params_at(call, Some(&position.cursor)), call).await;
                page.add(backend, part).await;
            }
        }
        if page.next.is_none() {
            let first = params_at(call, None);
            let parts = backends
                .into_iter()
                .map(async |backend| (backend, part_of(view, backend, first.clone(), call).await));
            for (backend, part) in join_all(parts).await {
                page.add(backend, part).await;
                if page.next.is_some() {
                    break;
                }
            }
        }
        call.context
            .trace
            .partial_failures(merge::failures(page.contributions.iter()));
        if page.any {
            Ok(page.response())
        } else {
            Err(fault::unknown_method(call.method.as_str()))
        }
    }
}

/// One page of one server, for the client of `call`.
async fn part_of(view: &View, backend: &Member, params: Json, call: &Call) -> Part {
    let asked = async {
        let capabilities = view.capabilities(backend.id).await?;
        let lists = capabilities
            .get("tasks")
            .and_then(|tasks| tasks.get("list"));
        // A server with the extension has no list of its own, but Fanlight keeps one for it.
        if !lists.is_some_and(|list| list.is_object()) && !has_tasks_extension(&capabilities) {
            return Ok(None);
        }
        let call = Call {
            params: Some(params),
            ..call.clone()
        };
        backend.request(call).await.map(Some)
    };
    match view.wait_briefly(asked).await {
        Ok(None) => Part::Nothing,
        Ok(Some(response)) => match response.result() {
            Some(result) => Part::Page(result),
            None => Part::Failed(Outcome::Error, answer_reason(&response.body())),
        },
        Err(error) => Part::Failed(error.outcome(), error.for_clients().to_string()),
    }
}

/// A page while it is built.
struct Page<'a> {
    tasks: &'a Tasks,
    view: &'a View,
    call: &'a Call,
    seal: &'a CursorSeal,
    contributions: Vec<Contribution>,
    /// The listed tasks that the client's endpoint shows.
    shown: Vec<Json>,
    /// The cursor of the next page, once that begins within a server's list.
    next: Option<String>,
    /// Whether any server lists tasks, or may.
    any: bool,
}

impl Page<'_> {
    async fn add(&mut self, backend: &Member, part: Part) {
        let mut contribution = Contribution {
            backend: backend.name().to_owned(),
            outcome: Outcome::Ok,
            reason: None,
            results: Vec::new(),
            is_stale: false,
        };
        self.any |= !matches!(part, Part::Nothing);
        match part {
            Part::Nothing => {}
            Part::Failed(outcome, reason) => {
                tracing::debug!(
                    backend = contribution.backend,
                    reason,
                    "the list of tasks is incomplete"
                );
                (contribution.outcome, contribution.reason) = (outcome, Some(reason));
            }
            Part::Page(result) => {
                let more = result.get(NEXT).filter(|next| next.kind() == Kind::String);
                let context = &self.call.context;
                let is_checked = self.view.topology().leaves_out_invalid();
                for task in result.get(MEMBER).unwrap_or_default().items() {
                    let fitted = match is_checked {
                        true => TASK.fit(&task),
                        false => Some(task),
                    };
                    let Some(task) = fitted else { continue };
                    let task = self.tasks.for_client(self.view, context, backend.id, task);
                    // The server also lists tasks of tools that the endpoint hides, and perhaps tasks
                    // of other clients.
                    if self.view.filters(Filtered::Tools) || Tasks::are_guarded(context, backend) {
                        let known = self.tasks.known(self.view, context, Some(&task)).await;
                        if known.is_none_or(|known| known.backend != backend.id) {
                            continue;
                        }
                    } else {
                        self.tasks.learn_here(context, &task, backend.id);
                    }
                    self.shown.push(task);
                }
                contribution.results.push(result);
                if let Some(cursor) = more {
                    let position = TasksPosition {
                        backend: backend.name().into(),
                        cursor,
                    };
                    self.next = self
                        .seal
                        .seal_tasks(&position, self.call.context.caller.holder());
                    if self.next.is_none() {
                        let reason = cut_off("its cursor is too long to be passed on");
                        (contribution.outcome, contribution.reason) =
                            (Outcome::Error, Some(reason));
                    }
                }
            }
        }
        self.contributions.push(contribution);
    }

    fn response(&self) -> Response {
        let all = Json::array(self.shown.iter().cloned());
        let mut result = ObjectBuilder::new();
        result
            .member(MEMBER, &all)
            .optional_string(NEXT, self.next.as_deref());
        let except = Except {
            members: &[MEMBER, NEXT, "resultType"],
            replaced: &[],
        };
        let Merged { members, meta } = merge::merge(&self.contributions, except, &[]);
        for (key, value) in &members {
            result.raw_member(key, value);
        }
        Response::from_result(&result.optional("_meta", meta.as_ref()).finish())
    }
}

/// The client's params with the client's cursor replaced by the server's own, or removed.
fn params_at(call: &Call, cursor: Option<&Json>) -> Json {
    let params = call.params.clone().unwrap_or_else(Json::empty_object);
    match cursor {
        Some(cursor) => params.with_member(CURSOR, cursor),
        None => params.without_members(&[CURSOR]),
    }
}
