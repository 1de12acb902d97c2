use fanlight_canonical::BackendState;

use super::*;
use crate::settings::Timeouts;

/// A client whose server cannot be reached.
struct Unreachable(Timeouts);

fn unreachable<T: Send + 'static>() -> Pending<'static, T> {
    Box::pin(std::future::ready(Err(BackendError::Unreachable { reason: "test".into() })))
}

impl BackendClient for Unreachable {
    fn name(&self) -> &'static str {
        "tested"
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        unreachable()
    }

    fn request(&self, _: Call) -> Pending<'_, Response> {
        unreachable()
    }

    fn listen(&self, _: Listen) -> Pending<'_, Listening> {
        unreachable()
    }

    fn end_session(&self, _: SessionKey) {}

    fn status(&self) -> BackendStatus {
        BackendStatus {
            attempted: true,
            state: BackendState::Idle,
            era: None,
            revision: None,
            transport: "http",
            starting: None,
            failure: None,
        }
    }
}

impl InnerClient for Unreachable {
    fn timeouts(&self) -> &Timeouts {
        &self.0
    }

    fn task_dialect(&self, _: &CallContext) -> Option<Option<TaskDialect>> {
        None
    }

    fn connect<'a>(&'a self, _: &'a CallContext) -> Pending<'a, Option<TaskDialect>> {
        unreachable()
    }

    fn requires_task<'a>(&'a self, _: &'a CallContext, _: &'a str, _: bool) -> Pending<'a, bool> {
        unreachable()
    }

    fn limit<'a>(&'a self, _: &'a CallProgress, work: Pending<'a, Response>) -> Pending<'a, Response> {
        work
    }

    fn exchange<'a>(&'a self, _: &'a Call, _: &'a CallProgress) -> Pending<'a, Response> {
        unreachable()
    }

    fn exchange_unlimited<'a>(&'a self, _: &'a Call, _: &'a CallProgress) -> Pending<'a, Response> {
        unreachable()
    }
}

#[tokio::test]
async fn legacy_status_is_translated_if_nothing_has_to_be_inlined() {
    let long = Duration::from_secs(20);
    let timeouts = Timeouts {
        connect: long,
        start: long,
        start_total: long,
        probe: long,
        call: long,
        call_total: Duration::from_secs(3600),
        question: long,
        session_idle: long,
        task: long,
        process_stop: long,
        session_end: long,
        idle_connection: long,
        ping: long,
        reconnect_on_demand: long,
        failed_retry: long,
        list_settle: long,
        reconnect: crate::RetryDelays { shortest: long, longest: long },
        resume: crate::RetryDelays { shortest: long, longest: long },
        server_retry: crate::RetryDelays { shortest: long, longest: long },
        stable_connection: long,
        era_recheck: long,
        connect_on_call: long,
        subscribe_on_call: long,
        refused_request: long,
        task_result: long,
        task_input: long,
        stream_opening: long,
        delivery: long,
        own_message: long,
        task_polls: crate::PollIntervals { usual: long, shortest: long, longest: long, failures: 14 },
        tcp_probe: long,
        tcp_unacknowledged: long,
    };
    let limits = Limits {
        concurrency: 1,
        sessions: 1,
        request_sessions: 0,
        subscriptions: 1,
        message_bytes: 1024,
        invalid_output: 1024,
        process_log: 1024,
        process_log_kept: 1024,
        open_server_requests: 1,
        task_inputs: 1,
        stream_attempts: 5,
        list_pages: 100,
        list_entries: 10_000,
        nesting: 8,
        tasks: 1,
        task_bytes: 1024,
        client_description: 1024,
        mirrored_params: 64,
        list_bytes: 1 << 20,
        server_requests: 1000,
        spare_bytes: 0,
    };
    let inner = Arc::new(Unreachable(timeouts));
    let translation = TaskTranslation::around(inner, false, &limits, TaskTracker::new(), CancellationToken::new());
    let client = CallContext::internal();
    let changed = async |status: &'static str| {
        let changed = translation.0.changed(&Json::literal(status), &client).await;
        changed.map(|changed| changed.as_text().to_owned())
    };
    let working = r#"{ "taskId":"\u0041","status":"working","ttl":6e4}"#;
    assert_eq!(changed(working).await.unwrap(), r#"{ "taskId":"\u0041","status":"working","ttlMs":6e4}"#);
    assert!(changed(r#"{"taskId":"a","status":"cancelled","ttl":null}"#).await.is_some());
    // The outcome of these has to be read from the server.
    assert_eq!(changed(r#"{"taskId":"a","status":"completed","ttl":null}"#).await, None);
    assert_eq!(changed(r#"{"taskId":"a","status":"input_required","ttl":null}"#).await, None);
}
