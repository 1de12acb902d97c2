//! Sending a request once more that may have run, where that does no harm: `retry: safe`.
//!
//! Safe is what reads by its definition (lists, `resources/read`, `completion/complete`, `tasks/get`), and a call of a tool that
//! says of itself that it changes nothing (`readOnlyHint`), or nothing more the second time (`idempotentHint`; 2026-07-28
//! server/tools, ToolAnnotations). The specification has these hints taken as true from trusted servers only: whoever writes
//! the option says that this is one.
//!
//! A request is repeated once, in what is left of its time, if its client has heard nothing of it, and only a fifth of all safe
//! requests is: a server that fails under its load must not get twice the load. A tool has to say it twice: by the list that is
//! known before the call, and by one that is read before the repetition, where that goes.

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

/// How long what a tool says of itself is believed where it is asked for a copy of a call. No option: the list is short work.
pub(crate) const RECENTLY: Duration = Duration::from_secs(5);

/// The repetitions that one server may get. Clones share them, so that all who use the server have the same ones.
#[derive(Clone, Debug)]
pub struct Repeats(Arc<AtomicI64>);

impl Default for Repeats {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(SAVED * PRICE)))
    }
}

impl Repeats {
    /// Sends a call by `first`, which says whether it was safe, and by `again` if it was and broke off. All of that takes
    /// `limit` at most, but for `first`, which bounds itself.
    pub(crate) async fn send<F, G>(
        &self,
        call: Call,
        limit: Duration,
        first: impl FnOnce(Call) -> F,
        again: impl FnOnce(Call) -> G,
    ) -> Result<Response, BackendError>
    where
        F: Future<Output = (bool, Result<Response, BackendError>)>,
        G: Future<Output = Result<Response, BackendError>>,
    {
        let (begun, was_heard) = (Instant::now(), Arc::<AtomicBool>::default());
        let watched = Call {
            messages: noting(&call, &was_heard),
            ..call.clone()
        };
        let (is_safe, outcome) = first(watched).await;
        if is_safe {
            self.earn();
        }
        let error = match outcome {
            Err(error)
                if is_safe
                    && is_broken_off(&error)
                    && !was_heard.load(Ordering::Relaxed)
                    && self.spend() =>
            {
                error
            }
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
        let _is_full = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn spend(&self) -> bool {
        let take = |earned| (earned >= PRICE).then_some(earned - PRICE);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
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

/// Whether a request could be safe, as far as can be said without its server.
pub(crate) fn could_be_safe(call: &Call) -> bool {
    !call.context.runs_once() && (call.method == Method::CallTool || reads(&call.method))
}

/// The error of a repetition that is not sent. Clients get that of the first attempt.
pub(crate) fn no_longer_safe() -> BackendError {
    BackendError::Unreachable {
        reason: "its tool does not say that it can be called twice".into(),
    }
}

/// Whether requests of this method read by their definition.
pub(crate) fn reads(method: &Method) -> bool {
    method.is_list()
        || matches!(
            method,
            Method::ReadResource
                | Method::ReadDirectory
                | Method::GetSkill
                | Method::Complete
                | Method::GetTask
        )
}

/// Whether the answer broke off, or its place was taken by the error of something in between.
fn is_broken_off(error: &BackendError) -> bool {
    match error {
        BackendError::ClosedEarly | BackendError::Exited { .. } | BackendError::GivenUp { .. } => {
            true
        }
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
        Call {
            method: Method::ReadResource,
            params: None,
            context,
            messages,
        }
    }

    async fn broken(_call: Call) -> Result<Response, BackendError> {
        Err(BackendError::ClosedEarly)
    }

    async fn unreachable(_call: Call) -> Result<Response, BackendError> {
        Err(BackendError::Unreachable {
            reason: "gone".into(),
        })
    }

    /// The first attempt of a call that is safe.
    async fn safe<T>(attempt: impl Future<Output = T>) -> (bool, T) {
        (true, attempt.await)
    }

    /// Whether a call that breaks off is sent again.
    async fn is_repeated(repeats: &Repeats) -> bool {
        let mut is_repeated = false;
        let again = |call| {
            is_repeated = true;
            broken(call)
        };
        let _outcome = repeats
            .send(
                call(),
                Duration::from_secs(1),
                |call| safe(broken(call)),
                again,
            )
            .await;
        is_repeated
    }

    #[tokio::test(start_paused = true)]
    async fn fifth_of_all_requests_is_repeated_at_most() {
        let repeats = Repeats::default();
        let mut repeated = 0;
        for _ in 0..1000 {
            // All who use the server have the same.
            repeated += i64::from(is_repeated(&repeats.clone()).await);
        }
        assert_eq!(repeated, SAVED + (1000 - 1) / PRICE);
    }

    #[tokio::test(start_paused = true)]
    async fn error_of_a_repeated_call_says_that_it_may_have_run() {
        let repeats = Repeats::default();
        let outcome = repeats
            .send(
                call(),
                Duration::from_secs(1),
                |call| safe(broken(call)),
                unreachable,
            )
            .await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
        // What certainly did not run is somebody else's business.
        let outcome = repeats
            .send(
                call(),
                Duration::from_secs(1),
                |call| safe(unreachable(call)),
                broken,
            )
            .await;
        assert!(outcome.unwrap_err().is_unreachable());
        let never = |_| std::future::pending();
        let outcome = repeats
            .send(
                call(),
                Duration::from_secs(1),
                |call| safe(broken(call)),
                never,
            )
            .await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
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
            assert!(
                call.messages
                    .try_send(ServerMessage::Notification(progress))
            );
            safe(broken(call))
        };
        let again =
            |_| -> std::future::Ready<Result<Response, BackendError>> { panic!("sent again") };
        let call = Call { messages, ..call() };
        let outcome = Repeats::default()
            .send(call, Duration::from_secs(1), first, again)
            .await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
    }
}
