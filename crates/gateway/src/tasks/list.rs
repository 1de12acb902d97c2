//! `tasks/list`, merged over all backends that list their tasks, for one client.
//!
//! Nothing of it is kept: tasks belong to clients and change all the time. The parts follow each
//! other in configuration order. A page ends where a backend's own page does that has more; the
//! cursor then holds the backend's own, so that the next page goes on there.
//!
//! Must not know: what a task is for.

use fanlight_canonical::{BackendError, Call, Outcome};
use fanlight_protocol::capability::has_tasks_extension;
use fanlight_protocol::json::{ArrayBuilder, Json, Kind, ObjectBuilder, rewrite_object};
use fanlight_protocol::{Response, RpcError};
use futures_util::future::join_all;

use super::Tasks;
use super::owners::How;
use crate::catalogue::{answered, cut_off};
use crate::cursor::{CursorSeal, TasksPosition};
use crate::fault;
use crate::merge::{self, Contribution, Except, Merged};

const MEMBER: &str = "tasks";
const NEXT: &str = "nextCursor";
const CURSOR: &str = "cursor";

/// What one backend has for a page.
enum Part {
    /// It lists no tasks.
    Nothing,
    Page(Json),
    /// It could not be asked, or did not say.
    Failed(Outcome, String),
}

impl Tasks {
    pub(super) async fn list(&self, call: &Call, seal: &CursorSeal) -> Result<Response, RpcError> {
        let cursor = call.params.as_ref().and_then(|params| params.get(CURSOR)).filter(|cursor| !cursor.is_null());
        let mut page = Page { tasks: self, call, seal, contributions: Vec::new(), next: None, any: false };
        let mut rest = 0;
        if let Some(cursor) = cursor {
            let position = cursor.as_str().and_then(|text| seal.open_tasks(&text)).ok_or_else(|| {
                fault::invalid_params("params.cursor is no cursor of this list; start from the first page")
            })?;
            // A backend that has gone from the configuration has nothing left to list.
            let backend = usize::try_from(position.backend).unwrap_or(usize::MAX);
            if backend < self.sources.backends.len() {
                let part = self.part(backend, params_at(call, Some(&position.cursor)), call).await;
                page.add(backend, part);
            }
            rest = backend.saturating_add(1);
            page.any = true;
        }
        if page.next.is_none() {
            let first = params_at(call, None);
            let backends = rest.min(self.sources.backends.len())..self.sources.backends.len();
            let parts = join_all(backends.clone().map(|backend| self.part(backend, first.clone(), call))).await;
            for (backend, part) in backends.zip(parts) {
                page.add(backend, part);
                if page.next.is_some() {
                    break;
                }
            }
        }
        call.context.trace.partial_failures(merge::failures(&page.contributions));
        if page.any { Ok(page.response()) } else { Err(fault::unknown_method(call.method.as_str())) }
    }

    /// One page of one backend, for the client of `call`.
    async fn part(&self, backend: usize, params: Json, call: &Call) -> Part {
        let asked = async {
            let capabilities = self.sources.capabilities(backend).await?;
            let lists = capabilities.get("tasks").and_then(|tasks| tasks.get("list"));
            // A server with the extension has no list of its own, but its edge keeps one.
            if !lists.is_some_and(|list| list.is_object()) && !has_tasks_extension(&capabilities) {
                return Ok(None);
            }
            let call = Call { params: Some(params), ..call.clone() };
            self.sources.request(backend, call).await.map(Some)
        };
        match self.sources.briefly(asked).await {
            Ok(None) => Part::Nothing,
            Ok(Some(response)) => match response.result() {
                Some(result) => Part::Page(result),
                None => Part::Failed(Outcome::Error, answered(&response.body())),
            },
            Err(error) => Part::failed(&error),
        }
    }
}

impl Part {
    fn failed(error: &BackendError) -> Self {
        Self::Failed(error.outcome(), error.to_string())
    }
}

/// A page in the making.
struct Page<'a> {
    tasks: &'a Tasks,
    call: &'a Call,
    seal: &'a CursorSeal,
    contributions: Vec<Contribution>,
    /// Where the next page begins, once that is in the middle of a backend's list.
    next: Option<String>,
    /// Whether any backend lists tasks, or may.
    any: bool,
}

impl Page<'_> {
    fn add(&mut self, backend: usize, part: Part) {
        let name = self.tasks.sources.name(backend).to_owned();
        let mut contribution = Contribution { backend: name, outcome: Outcome::Ok, reason: None, results: Vec::new() };
        self.any |= !matches!(part, Part::Nothing);
        match part {
            Part::Nothing => {}
            Part::Failed(outcome, reason) => {
                tracing::debug!(backend = contribution.backend, reason, "the list of tasks is incomplete");
                (contribution.outcome, contribution.reason) = (outcome, Some(reason));
            }
            Part::Page(result) => {
                let more = result.get(NEXT).filter(|next| next.kind() == Kind::String);
                self.learn(backend, &result);
                contribution.results.push(result);
                if let Some(cursor) = more {
                    let place = u32::try_from(backend).ok();
                    self.next = place.and_then(|backend| self.seal.seal_tasks(&TasksPosition { backend, cursor }));
                    if self.next.is_none() {
                        let reason = cut_off("its cursor is too long to be passed on");
                        (contribution.outcome, contribution.reason) = (Outcome::Error, Some(reason));
                    }
                }
            }
        }
        self.contributions.push(contribution);
    }

    fn learn(&self, backend: usize, result: &Json) {
        for task in entries(result) {
            self.tasks.owners.learn(self.call.context.session(), &task, backend, How::Seen);
        }
    }

    fn response(&self) -> Response {
        let mut all = ArrayBuilder::default();
        for task in self.contributions.iter().flat_map(|one| &one.results).flat_map(entries) {
            all.push(&task);
        }
        let mut result = ObjectBuilder::new();
        result.member(MEMBER, &all.finish());
        if let Some(cursor) = &self.next {
            result.string(NEXT, cursor);
        }
        let except = Except { members: &[MEMBER, NEXT, "resultType"], replaced: &[] };
        let Merged { members, meta } = merge::merge(&self.contributions, except, &[]);
        for (key, value) in &members {
            result.raw_member(key, value);
        }
        if let Some(meta) = &meta {
            result.member("_meta", meta);
        }
        Response::from_result(&result.finish())
    }
}

fn entries(result: &Json) -> Vec<Json> {
    let list = result.get(MEMBER).unwrap_or_else(Json::null);
    list.elements().map(|element| list.slice(element)).collect()
}

/// The client's params with a backend's own cursor, or none, in place of the client's.
fn params_at(call: &Call, cursor: Option<&Json>) -> Json {
    let params = call.params.clone().unwrap_or_else(Json::empty_object);
    let added = cursor.map(|cursor| format!("\"{CURSOR}\":{}", cursor.as_text())).unwrap_or_default();
    rewrite_object(&params, |member| !member.is(&params, CURSOR), added.as_bytes())
}
