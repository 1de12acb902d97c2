//! Mirrors: another version of a server that gets copies of the server's requests. This module says
//! which requests are copied, how many at a time, and with which results.
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

use fanlight_canonical::comparison::{Difference, Tolerance, compare_answers};
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, Call, CallContext, Caller, MirrorDifference,
    MirrorOutcome, MirrorStatus, Parent, Pending,
};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Era, Json, Method, Response, meta};
use fanlight_telemetry::metrics::BackendMetrics;
use fanlight_telemetry::{Telemetry, recorded_uri};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The limit of simultaneous copies. There is no option, since it limits the memory of a slow
/// mirror.
const AT_ONCE: usize = 16;
/// The size limit of a copied request's parameters and of its answer, in bytes. There is no option,
/// since it limits the memory of a slow mirror.
const MOST_BYTES: usize = 1 << 20;
/// The time limit of a copy. There is no option, since it limits the memory of a slow mirror.
const LONGEST: Duration = Duration::from_secs(60);
/// The number of differing answers stored for operators, and of lines in each.
const KEPT: usize = 20;
const KEPT_LINES: usize = 20;
/// The limit of stored characters of a request's item, of a value and of a line.
const NAMED: usize = 200;
const SHOWN: usize = 80;
const LINE: usize = 400;
/// The capabilities that permit a server to ask a client, or to begin a task.
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

/// The mirror of a server.
pub struct Mirror {
    shared: Arc<Shared>,
    /// Ends the running copies when dropped.
    _end: DropGuard,
}

struct Shared {
    server: Arc<dyn BackendClient>,
    settings: MirrorSettings,
    permits: Arc<Semaphore>,
    /// Lets one comparison run at a time, which may take several times the memory of its answers.
    comparing: Semaphore,
    counts: [AtomicU64; 4],
    metrics: Option<Arc<BackendMetrics>>,
    /// The latest differing answers, newest first.
    last: Mutex<VecDeque<MirrorDifference>>,
    end: CancellationToken,
}

impl Mirror {
    /// The mirror of `server`: `earlier` if that has the same settings.
    pub fn new(
        server: Arc<dyn BackendClient>,
        settings: MirrorSettings,
        earlier: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let is_same = |earlier: &&Arc<Self>| {
            let known = &earlier.shared;
            Arc::ptr_eq(&known.server, &server) && known.settings == settings
        };
        if let Some(earlier) = earlier.filter(is_same) {
            return Arc::clone(earlier);
        }
        let end = CancellationToken::new();
        let metrics = settings
            .telemetry
            .metrics()
            .map(|metrics| metrics.backend(server.name()));
        let shared = Shared {
            server,
            settings,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            comparing: Semaphore::new(1),
            counts: Default::default(),
            metrics,
            last: Mutex::default(),
            end: end.clone(),
        };
        Arc::new(Self {
            shared: Arc::new(shared),
            _end: end.drop_guard(),
        })
    }

    /// Sends a request to the server, and perhaps its copy to the mirror after the answer.
    pub(crate) fn request(&self, call: Call) -> Pending<'_, Response> {
        if self.wants(&call) {
            Box::pin(self.request_twice(call))
        } else {
            self.shared.server.request(call)
        }
    }

    /// Whether this request is drawn for copying, and could be safe.
    fn wants(&self, call: &Call) -> bool {
        fastrand::f64() < self.shared.settings.share
            && !call.context.runs_once()
            && may_be_copied(call)
    }

    async fn request_twice(&self, call: Call) -> Result<Response, BackendError> {
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
            self.send(Call::new(method, params, context), response);
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

    pub(crate) fn status(&self) -> MirrorStatus {
        let Shared {
            settings, counts, ..
        } = &*self.shared;
        MirrorStatus {
            server: settings.client.name().into(),
            share: settings.share,
            status: settings.client.status(),
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
        let nobody = clientless_context(&call.context);
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
        let sent = trace.scope(self.settings.client.request(copy.clone()));
        let Ok(Ok(other)) = timeout_at(deadline, sent).await else {
            self.count(MirrorOutcome::Failed);
            return span.finish_copy(MirrorOutcome::Failed.as_str());
        };
        // Comparing may take long.
        let comparing = move || compare_answers(&answer, &other, &Tolerance::default());
        let turn = self.comparing.acquire().await;
        let Ok(differences) = tokio::task::spawn_blocking(comparing).await else {
            return;
        };
        drop(turn);
        if differences.is_empty() {
            self.count(MirrorOutcome::Same);
            return span.finish_copy(MirrorOutcome::Same.as_str());
        }
        self.count(MirrorOutcome::Different);
        let mut kinds = Vec::new();
        for kind in differences.iter().map(|one| one.change.name()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        self.keep(&copy, &differences, &trace);
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
        let client = &self.settings.client;
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

    fn keep(&self, copy: &Call, differences: &[Difference], trace: &Parent) {
        let line = |one: &Difference| {
            if self.settings.keeps_values {
                one.line(|value| plain(value.as_text(), SHOWN))
            } else {
                one.to_string()
            }
        };
        // The pointer is made of names in the answer.
        let lines = differences.iter().take(KEPT_LINES);
        let lines = lines.map(|one| plain(&line(one), LINE)).collect();
        let difference = MirrorDifference {
            at: SystemTime::now(),
            method: copy.method.as_str().into(),
            item: item_name(copy),
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
            .for_each(|metrics| metrics.count_mirrored(outcome));
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
fn clientless_context(context: &CallContext) -> CallContext {
    let caller = if context.caller.is_gateway() {
        Caller::gateway()
    } else {
        Caller::request_of(context.caller.holder().clone())
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
    let kept = capabilities.without_members(&ASKING);
    match capabilities.get("extensions").filter(Json::is_object) {
        Some(extensions) => kept.with_member(
            "extensions",
            &extensions.without_members(&[meta::TASKS_EXTENSION]),
        ),
        None => kept.without_members(&["extensions"]),
    }
}

/// The item of a request, for operators: a tool, or a resource in the form used by traces.
fn item_name(call: &Call) -> Option<Box<str>> {
    let params = call.params.as_ref()?;
    let text = |member| params.text_at(member);
    let named = match call.method {
        Method::CallTool => text("name")?,
        _ => recorded_uri(&text("uri")?).to_string(),
    };
    Some(plain(&named, NAMED).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, params: &'static str) -> Call {
        let params = Some(Json::literal(params));
        Call::new(method, params, CallContext::internal())
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
}
