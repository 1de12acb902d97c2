//! Copies of requests for a mirror: which requests are copied, how many at a time, and with which
//! results.
//!
//! A copy is sent after the request itself was answered, so that it delays nobody. It is sent only
//! if the request is *safe*: both servers declare that running it twice does no harm, as for
//! `retry: safe`. A copy belongs to no session and declares no capabilities that let a server ask a
//! client. Everything that the mirror sends besides its answer is dropped. A copy has the mirror's
//! own credentials. If these differ between users, it has the caller's. Nothing is sent for a
//! principal without credentials.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, Call, CallContext, Caller, MirrorDifference,
    MirrorOutcome, MirrorStatus, Parent, ServerMessages,
};
use fanlight_protocol::json::rewrite_object;
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Era, Json, Method, Response, meta};
use fanlight_telemetry::metrics::BackendMetrics;
use fanlight_telemetry::{Telemetry, recorded_uri};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::difference::{self, Differences};

/// The limit of simultaneous copies. There is no option, since it limits the memory of a slow
/// mirror.
const AT_ONCE: usize = 16;
/// The size limit of a copied request's parameters and of its answer, in bytes. There is no option
/// either.
const MOST_BYTES: usize = 1 << 20;
/// The time limit of a copy. There is no option either.
const LONGEST: Duration = Duration::from_secs(60);
/// The number of differing answers stored for operators, and of lines in each.
const KEPT: usize = 20;
const KEPT_LINES: usize = 20;
/// The limit of stored characters of a request's item.
const NAMED: usize = 200;
/// The capabilities that let a server ask a client, or begin a task.
const ASKING: [&str; 4] = ["elicitation", "sampling", "roots", "tasks"];

/// A mirror, and the requests it gets.
#[derive(Clone)]
pub struct MirrorSettings {
    /// The client that sends requests to it.
    pub client: Arc<dyn BackendClient>,
    /// The share of copied requests, from 0 to 1.
    pub share: f64,
    /// Whether answers' values may be stored, as in traces of the server.
    pub keeps_values: bool,
    /// Counts the results of copies.
    pub telemetry: Telemetry,
}

impl PartialEq for MirrorSettings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
            && (self.share, self.keeps_values) == (other.share, other.keeps_values)
    }
}

/// The copies of a server's requests.
pub(super) struct Copies {
    shared: Arc<Shared>,
    /// Ends the running copies when dropped.
    _end: DropGuard,
}

struct Shared {
    server: Arc<dyn BackendClient>,
    mirror: MirrorSettings,
    permits: Arc<Semaphore>,
    counts: [AtomicU64; 4],
    metrics: Option<Arc<BackendMetrics>>,
    /// The latest differing answers, newest first.
    last: Mutex<VecDeque<MirrorDifference>>,
    end: CancellationToken,
}

impl Copies {
    pub(super) fn new(server: Arc<dyn BackendClient>, mirror: MirrorSettings) -> Self {
        let end = CancellationToken::new();
        let metrics = mirror
            .telemetry
            .metrics()
            .map(|metrics| metrics.backend(server.name()));
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let shared = Shared {
            server,
            mirror,
            permits,
            counts: Default::default(),
            metrics,
            last: Mutex::default(),
            end: end.clone(),
        };
        Self {
            shared: Arc::new(shared),
            _end: end.drop_guard(),
        }
    }

    /// Whether this request is drawn for copying, and could be safe.
    pub(super) fn wants(&self, call: &Call) -> bool {
        fastrand::f64() < self.shared.mirror.share
            && !call.context.runs_once()
            && may_be_copied(call)
    }

    /// Sends a request, and its copy after the answer.
    pub(super) async fn request(&self, call: Call) -> Result<Response, BackendError> {
        let Call {
            method,
            params,
            context,
            ..
        } = &call;
        let (method, params, context) = (method.clone(), params.clone(), Arc::clone(context));
        let answer = self.shared.server.request(call).await;
        if let Ok(response) = answer.as_ref()
            && (response.is_error() || response.is_complete())
        {
            let messages = ServerMessages::discard();
            self.send(
                Call {
                    method,
                    params,
                    context,
                    messages,
                },
                response,
            );
        }
        answer
    }

    fn send(&self, call: Call, response: &Response) {
        let shared = &self.shared;
        let bytes = response.size()
            + call
                .params
                .as_ref()
                .map_or(0, |params| params.bytes().len());
        let permit = Arc::clone(&shared.permits)
            .try_acquire_owned()
            .ok()
            .filter(|_| bytes <= MOST_BYTES);
        match permit {
            Some(permit) => {
                let (shared, end, response) =
                    (Arc::clone(shared), shared.end.clone(), response.clone());
                let copying = async move { shared.copy(call, response, permit).await };
                drop(tokio::spawn(end.run_until_cancelled_owned(copying)));
            }
            None => shared.count(MirrorOutcome::Dropped),
        }
    }

    pub(super) fn status(&self) -> MirrorStatus {
        let Shared { mirror, counts, .. } = &*self.shared;
        MirrorStatus {
            server: mirror.client.name().into(),
            share: mirror.share,
            status: mirror.client.status(),
            counts: counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            differences: self.shared.last.lock().iter().cloned().collect(),
        }
    }
}

impl Shared {
    /// Sends the copy of a request that was answered with `response`.
    async fn copy(&self, call: Call, response: Response, _permit: OwnedSemaphorePermit) {
        // Release the original memory, which counts towards the server's messages.
        let answer = response.detached();
        drop(response);
        let nobody = of_nobody(&call.context);
        let copy = Call {
            context: Arc::new(nobody.clone()),
            ..call.clone()
        };
        let deadline = Instant::now() + LONGEST;
        match timeout_at(deadline, self.may_send(&call, &copy)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return,
            Ok(Err(_)) | Err(_) => return self.count(MirrorOutcome::Failed),
        }
        let span = call.context.trace.mirroring();
        let trace = span.parent();
        let copy = Call {
            context: Arc::new(CallContext {
                trace: trace.clone(),
                ..nobody
            }),
            ..copy
        };
        let sent = trace.scope(self.mirror.client.request(copy.clone()));
        let Ok(Ok(other)) = timeout_at(deadline, sent).await else {
            self.count(MirrorOutcome::Failed);
            return span.finish_copy(MirrorOutcome::Failed.as_str());
        };
        // Comparing may take long.
        let compared = tokio::task::spawn_blocking(move || compare(&answer, &other)).await;
        let Ok(Compared {
            is_other_kind,
            differences,
        }) = compared
        else {
            return;
        };
        if !is_other_kind && differences.is_empty() {
            self.count(MirrorOutcome::Same);
            return span.finish_copy(MirrorOutcome::Same.as_str());
        }
        self.count(MirrorOutcome::Different);
        let mut kinds = differences.kinds();
        if is_other_kind {
            kinds.insert(0, "error");
        }
        self.keep(&copy, is_other_kind, &differences, &trace);
        span.finish_copy(&format!(
            "{}: {}",
            MirrorOutcome::Different.as_str(),
            kinds.join(", ")
        ));
    }

    /// Whether both servers declare a request safe; an error if the mirror cannot be asked. A
    /// mirror that is down has declared nothing yet: this connects to it first, so that the copy
    /// itself never does, which the mirror might not consider safe.
    async fn may_send(&self, call: &Call, copy: &Call) -> Result<bool, BackendError> {
        let client = &self.mirror.client;
        if !self.server.is_safe(call).await {
            return Ok(false);
        }
        if client.is_safe(copy).await {
            return Ok(true);
        }
        let is_down = matches!(
            client.status().state,
            BackendState::Down { .. } | BackendState::Failed { .. }
        );
        if !is_down || client.traits().knows_principals {
            return Ok(false);
        }
        client.describe(&CallContext::internal()).await?;
        Ok(client.is_safe(copy).await)
    }

    fn keep(&self, copy: &Call, is_other_kind: bool, differences: &Differences, trace: &Parent) {
        let mut lines = match self.mirror.keeps_values {
            true => differences.lines(),
            false => differences.lines_without_values(),
        };
        if is_other_kind {
            lines.insert(
                0,
                "one answer is an error, the other one a result".to_owned(),
            );
        }
        lines.truncate(KEPT_LINES);
        let difference = MirrorDifference {
            at: SystemTime::now(),
            method: copy.method.as_str().into(),
            item: named(copy),
            lines,
            trace: trace.ids().map(|ids| ids.trace_id.to_string().into()),
        };
        let mut last = self.last.lock();
        last.push_front(difference);
        last.truncate(KEPT);
    }

    fn count(&self, outcome: MirrorOutcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.metrics
            .iter()
            .for_each(|metrics| metrics.mirrored(outcome));
    }
}

/// Whether another server could answer a request as well. A request that continues something on one
/// server, such as a further page, a task or a round of input, has no meaning on another.
fn may_be_copied(call: &Call) -> bool {
    let reads = matches!(
        call.method,
        Method::ReadResource
            | Method::ReadDirectory
            | Method::GetSkill
            | Method::Complete
            | Method::CallTool
    );
    if !reads && !call.method.is_list() {
        return false;
    }
    let Some(params) = &call.params else {
        return true;
    };
    let continues = params.find_distinct(&["cursor", "requestState", "inputResponses", "task"]);
    // Unreadable parameters are not copied.
    continues.is_ok_and(|found| found.iter().all(Option::is_none))
}

/// The context of the copy: no session, the same principal, and no client that can be asked.
fn of_nobody(context: &CallContext) -> CallContext {
    let caller = match context.caller.is_gateway() {
        true => Caller::gateway(),
        false => Caller::request_of(context.caller.holder().clone()),
    };
    CallContext {
        caller,
        era: Era::Modern,
        capabilities: without_asking(&context.capabilities),
        log_level: None,
        wants_progress: false,
        request: None,
        tasks: None,
        trace: Parent::default(),
        noted: None,
        ..context.clone()
    }
}

/// A client's capabilities without those that let a server ask it or create a task.
fn without_asking(capabilities: &Json) -> Json {
    if !capabilities.is_object() {
        return Json::empty_object();
    }
    let is_extensions =
        |member: &fanlight_protocol::json::Member| member.is(capabilities, "extensions");
    let extensions = capabilities
        .get("extensions")
        .filter(Json::is_object)
        .map(|extensions| {
            rewrite_object(
                &extensions,
                |member| !member.is(&extensions, meta::TASKS_EXTENSION),
                &[],
            )
        });
    let added = extensions
        .map(|extensions| [br#""extensions":"#, &**extensions.bytes()].concat())
        .unwrap_or_default();
    let keep = |member: &fanlight_protocol::json::Member| {
        !is_extensions(member) && !ASKING.iter().any(|name| member.is(capabilities, name))
    };
    rewrite_object(capabilities, keep, &added)
}

/// The item of a request, for operators: a tool, or a resource in the form used by traces.
fn named(call: &Call) -> Option<Box<str>> {
    let params = call.params.as_ref()?;
    let text = |member| params.get(member)?.as_str().map(|text| text.into_owned());
    let named = match call.method {
        Method::CallTool => text("name")?,
        _ => recorded_uri(&text("uri")?).to_string(),
    };
    Some(plain(&named, NAMED).into())
}

/// The result of a comparison.
struct Compared {
    /// Whether one answer is an error, and the other one a result.
    is_other_kind: bool,
    differences: Differences,
}

fn compare(answer: &Response, other: &Response) -> Compared {
    let bodies = [answer, other].map(|answer| without_server(&answer.body()));
    // A cursor is valid only on its own server, so two servers' cursors always differ.
    let is_cursor = |body: &Json| {
        body.get("nextCursor")
            .is_some_and(|cursor| cursor.as_str().is_some())
    };
    let [left, right] = match bodies.iter().all(is_cursor) {
        true => {
            bodies.map(|body| rewrite_object(&body, |member| !member.is(&body, "nextCursor"), &[]))
        }
        false => bodies,
    };
    Compared {
        is_other_kind: answer.is_error() != other.is_error(),
        differences: difference::of_values(&left, &right),
    }
}

/// An answer without its server's identity, which always differs between versions.
fn without_server(body: &Json) -> Json {
    let Some(meta) = body
        .get("_meta")
        .filter(|meta| meta.is_object() && meta.get(meta::SERVER_INFO).is_some())
    else {
        return body.clone();
    };
    let rest = rewrite_object(&meta, |member| !member.is(&meta, meta::SERVER_INFO), &[]);
    let added = match rest.members().next() {
        Some(_) => [br#""_meta":"#, &**rest.bytes()].concat(),
        None => Vec::new(),
    };
    rewrite_object(body, |member| !member.is(body, "_meta"), &added)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, params: &'static str) -> Call {
        let (context, messages) = (CallContext::internal(), ServerMessages::discard());
        Call {
            method,
            params: Some(Json::literal(params)),
            context,
            messages,
        }
    }

    #[test]
    fn only_requests_that_begin_something_are_copied() {
        let read = r#"{"uri":"a:b"}"#;
        assert!(may_be_copied(&call(Method::ReadResource, read)));
        assert!(may_be_copied(&call(
            Method::CallTool,
            r#"{"name":"look","arguments":{"cursor":"x"}}"#
        )));
        assert!(may_be_copied(&call(Method::ListTools, "{}")));
        assert!(!may_be_copied(&call(
            Method::ListTools,
            r#"{"cursor":"x"}"#
        )));
        assert!(!may_be_copied(&call(
            Method::CallTool,
            r#"{"name":"look","requestState":"x"}"#
        )));
        assert!(!may_be_copied(&call(
            Method::CallTool,
            r#"{"name":"look","request\u0053tate":"x"}"#
        )));
        assert!(!may_be_copied(&call(
            Method::CallTool,
            r#"{"name":"look","inputResponses":{}}"#
        )));
        assert!(!may_be_copied(&call(
            Method::CallTool,
            r#"{"name":"look","task":{}}"#
        )));
        for method in [
            Method::Subscribe,
            Method::GetTask,
            Method::GetPrompt,
            Method::SetLogLevel,
            Method::Ping,
        ] {
            assert!(!may_be_copied(&call(method, read)));
        }
    }

    #[test]
    fn copy_declares_nothing_that_a_server_could_ask() {
        let client = r#"{"elicitation":{},"r\u006fots":{},"sampling":{},"tasks":{},"x":1,"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}}"#;
        let left = without_asking(&Json::literal(client));
        assert_eq!(
            left.as_text(),
            r#"{"x":1,"extensions":{"io.modelcontextprotocol/ui":{}}}"#
        );
        assert_eq!(without_asking(&Json::null()).as_text(), "{}");
    }

    #[test]
    fn name_of_the_server_is_no_difference() {
        let answer = |name: &str| {
            let text = format!(
                r#"{{"a":1,"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"{name}"}}}}}}"#
            );
            Response::from_result(&Json::parse(text.into(), 8).unwrap())
        };
        let Compared {
            is_other_kind,
            differences,
        } = compare(&answer("one"), &answer("two"));
        assert!(!is_other_kind && differences.is_empty());
        let other = Response::from_result(&Json::literal(r#"{"a":1}"#));
        assert!(compare(&answer("one"), &other).differences.is_empty());
        let error = Response::from_error(&fanlight_protocol::RpcError::new(-32000, "no"));
        assert!(compare(&other, &error).is_other_kind);
    }

    #[test]
    fn cursors_of_two_servers_are_no_difference() {
        let page = |text: &'static str| Response::from_result(&Json::literal(text));
        let (one, two) = (
            page(r#"{"a":1,"nextCursor":"x"}"#),
            page(r#"{"nextCursor":"y","a":1}"#),
        );
        assert!(compare(&one, &two).differences.is_empty());
        assert!(
            !compare(&one, &page(r#"{"a":2,"nextCursor":"y"}"#))
                .differences
                .is_empty()
        );
        assert!(!compare(&one, &page(r#"{"a":1}"#)).differences.is_empty());
    }
}
