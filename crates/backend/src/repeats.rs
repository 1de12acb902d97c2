//! Sending a request once more that may have run, where that does no harm: `retry: safe`.
//!
//! Safe is what reads by its definition (lists, `resources/read`, `completion/complete`, `tasks/get`), and a call of a tool that
//! says of itself that it changes nothing (`readOnlyHint`), or nothing more the second time (`idempotentHint`; 2026-07-28
//! server/tools, ToolAnnotations). The specification has these hints taken as true from trusted servers only: whoever writes
//! the option says that this is one.
//!
//! A request is repeated once, in what is left of its time, if its client has heard nothing of it, and only a fifth of all
//! requests is: a server that fails under its load must not get twice the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, ServerMessage};
use fanlight_protocol::{Method, Response};
use tokio::time::{Instant, timeout};

/// How many requests earn one repetition. No option: the bound is there for the server's sake.
const PRICE: i64 = 5;
/// The most repetitions that can be saved up, so that one failure that meets many requests can be mended. No option, likewise.
const SAVED: i64 = 10;

/// The repetitions that one server may get.
pub(crate) struct Repeats {
    earned: AtomicI64,
}

impl Repeats {
    pub(crate) fn new() -> Self {
        Self { earned: AtomicI64::new(SAVED * PRICE) }
    }

    /// Sends a safe call by `first`, and by `again` if it broke off. All of that takes `limit` at most, but for `first`, which
    /// bounds itself.
    pub(crate) async fn send<F, G>(
        &self,
        call: Call,
        limit: Duration,
        first: impl FnOnce(Call) -> F,
        again: impl FnOnce(Call) -> G,
    ) -> Result<Response, BackendError>
    where
        F: Future<Output = Result<Response, BackendError>>,
        G: Future<Output = Result<Response, BackendError>>,
    {
        self.earn();
        let (begun, was_heard) = (Instant::now(), Arc::<AtomicBool>::default());
        let watched = Call { messages: noting(&call, &was_heard), ..call.clone() };
        let error = match first(watched).await {
            Err(error) if is_broken_off(&error) && !was_heard.load(Ordering::Relaxed) && self.spend() => error,
            outcome => return outcome,
        };
        match timeout(limit.saturating_sub(begun.elapsed()), again(call)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(second)) if second.may_have_run() => Err(second),
            // The first attempt may have run.
            Ok(Err(_)) | Err(_) => Err(error),
        }
    }

    fn earn(&self) {
        let add = |earned| (earned < SAVED * PRICE).then_some(earned + 1);
        let _is_full = self.earned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn spend(&self) -> bool {
        let take = |earned| (earned >= PRICE).then_some(earned - PRICE);
        self.earned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// The channel of a call that notes whether its client is sent anything.
fn noting(call: &Call, was_heard: &Arc<AtomicBool>) -> fanlight_canonical::ServerMessages {
    let was_heard = Arc::clone(was_heard);
    call.messages.mapped(move |message| {
        if !matches!(message, ServerMessage::Stream(_)) {
            was_heard.store(true, Ordering::Relaxed);
        }
        Some(message)
    })
}

/// Whether requests of this method read by their definition.
pub(crate) fn reads(method: &Method) -> bool {
    method.is_list()
        || matches!(
            method,
            Method::ReadResource | Method::ReadDirectory | Method::GetSkill | Method::Complete | Method::GetTask
        )
}

/// Whether the answer broke off, or its place was taken by the error of something in between.
fn is_broken_off(error: &BackendError) -> bool {
    match error {
        BackendError::ClosedEarly | BackendError::Exited { .. } | BackendError::GivenUp { .. } => true,
        BackendError::Status { status } => matches!(status, 502..=504),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::{CallContext, ServerMessages};

    use super::*;

    fn call() -> Call {
        let (context, messages) = (CallContext::internal(), ServerMessages::discard());
        Call { method: Method::ReadResource, params: None, context, messages }
    }

    async fn broken(_call: Call) -> Result<Response, BackendError> {
        Err(BackendError::ClosedEarly)
    }

    async fn unreachable(_call: Call) -> Result<Response, BackendError> {
        Err(BackendError::Unreachable { reason: "gone".into() })
    }

    /// Whether a call that breaks off is sent again.
    async fn is_repeated(repeats: &Repeats) -> bool {
        let mut is_repeated = false;
        let again = |call| {
            is_repeated = true;
            broken(call)
        };
        let _outcome = repeats.send(call(), Duration::from_secs(1), broken, again).await;
        is_repeated
    }

    #[tokio::test(start_paused = true)]
    async fn fifth_of_all_requests_is_repeated_at_most() {
        let repeats = Repeats::new();
        let mut repeated = 0;
        for _ in 0..1000 {
            repeated += i64::from(is_repeated(&repeats).await);
        }
        assert_eq!(repeated, SAVED + (1000 - 1) / PRICE);
    }

    #[tokio::test(start_paused = true)]
    async fn error_of_a_repeated_call_says_that_it_may_have_run() {
        let repeats = Repeats::new();
        let outcome = repeats.send(call(), Duration::from_secs(1), broken, unreachable).await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
        // What certainly did not run is somebody else's business.
        let outcome = repeats.send(call(), Duration::from_secs(1), unreachable, broken).await;
        assert!(outcome.unwrap_err().is_unreachable());
        let never = |_| std::future::pending();
        assert_eq!(
            repeats.send(call(), Duration::from_secs(1), broken, never).await.unwrap_err(),
            BackendError::ClosedEarly
        );
    }

    #[tokio::test]
    async fn call_whose_client_has_heard_of_it_is_not_repeated() {
        let (messages, _inbox) = ServerMessages::channel(1);
        let text = fanlight_protocol::message::notification_text("notifications/progress", None);
        let Ok(fanlight_protocol::Message::Notification(progress)) =
            fanlight_protocol::Message::parse(text.bytes().clone(), 8)
        else {
            panic!()
        };
        let first = |call: Call| {
            assert!(call.messages.try_send(ServerMessage::Notification(progress)));
            broken(call)
        };
        let again = |_| -> std::future::Ready<Result<Response, BackendError>> { panic!("sent again") };
        let call = Call { messages, ..call() };
        let outcome = Repeats::new().send(call, Duration::from_secs(1), first, again).await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
    }
}
