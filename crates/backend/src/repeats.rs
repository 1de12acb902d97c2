//! Repeats a request that may have run, if that is harmless: `retry: safe`.
//!
//! Requests are safe if they only read by definition (lists, `resources/read`,
//! `completion/complete`, `tasks/get`). So are calls of tools whose hints promise that a call
//! changes nothing (`readOnlyHint`), or nothing more the second time (`idempotentHint`; 2026-07-28
//! server/tools, ToolAnnotations). The specification trusts these hints only from trusted servers;
//! the option declares a server trusted.
//!
//! A request is repeated once, within the rest of its time, if its client has received nothing of
//! it. At most a fifth of all safe requests are repeated, so that a server that fails under load
//! does not get twice the load. A tool's hint must be in the list known before the call, and in one
//! read before the repetition, if possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, ServerMessage};
use fanlight_protocol::{Method, Response};
use tokio::time::{Instant, timeout};

/// The number of requests that earn one repetition. A constant, since it protects the server.
const PRICE: i64 = 5;
/// The maximum number of saved repetitions, so that one failure that affects many requests can be
/// repaired. A constant, since it protects the server.
const SAVED: i64 = 10;

/// The maximum age of a tool's hint before a copy of a call. A constant, since reading the list is
/// quick.
pub(crate) const RECENTLY: Duration = Duration::from_secs(5);

/// The repetitions that one server may still get. All clones share them, so all users of the server
/// do.
#[derive(Clone, Debug)]
pub struct Repeats(Arc<AtomicI64>);

impl Default for Repeats {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(SAVED * PRICE)))
    }
}

impl Repeats {
    /// Sends a call with `first`, which also returns what `again` has to know if the call is safe.
    /// If it is safe and broke off, sends it again with `again`. The whole takes at most `limit`,
    /// except that `first` limits itself.
    pub(crate) async fn send<T, F, G>(
        &self,
        call: Call,
        limit: Duration,
        first: impl FnOnce(Call) -> F,
        again: impl FnOnce(Call, T) -> G,
    ) -> Result<Response, BackendError>
    where
        F: Future<Output = (Option<T>, Result<Response, BackendError>)>,
        G: Future<Output = Result<Response, BackendError>>,
    {
        let (begun, was_heard) = (Instant::now(), Arc::<AtomicBool>::default());
        let watched = Call {
            messages: noting(&call, &was_heard),
            ..call.clone()
        };
        let (safe, outcome) = first(watched).await;
        if safe.is_some() {
            self.earn();
        }
        let (known, error) = match (safe, outcome) {
            (Some(known), Err(error))
                if is_broken_off(&error) && !was_heard.load(Ordering::Relaxed) && self.spend() =>
            {
                (known, error)
            }
            (_, outcome) => return outcome,
        };
        match timeout(limit.saturating_sub(begun.elapsed()), again(call, known)).await {
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

/// The call's channel, which records whether the client receives anything.
fn noting(call: &Call, was_heard: &Arc<AtomicBool>) -> fanlight_canonical::ServerMessages {
    let was_heard = Arc::clone(was_heard);
    call.messages.with_map(move |message| {
        if !matches!(message, ServerMessage::Stream(_)) {
            was_heard.store(true, Ordering::Relaxed);
        }
        Some(message)
    })
}

/// Whether a request may be safe, as far as known without its server.
pub(crate) fn could_be_safe(call: &Call) -> bool {
    !call.context.runs_once() && (call.method == Method::CallTool || reads(&call.method))
}

/// The error of a repetition that was not sent. Clients get the error of the first attempt instead.
pub(crate) fn no_longer_safe() -> BackendError {
    BackendError::Unreachable {
        reason: "its tool does not say that it can be called twice".into(),
    }
}

/// Whether requests of this method only read by definition.
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

/// Whether the answer broke off, or an intermediary's error replaced it.
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

    /// A safe first attempt.
    async fn safe<T>(attempt: impl Future<Output = T>) -> (Option<()>, T) {
        (Some(()), attempt.await)
    }

    /// Whether a call that breaks off is repeated.
    async fn is_repeated(repeats: &Repeats) -> bool {
        let mut is_repeated = false;
        let again = |call, ()| {
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
            // All users of the server share the repetitions.
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
                |call, ()| unreachable(call),
            )
            .await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
        // A request that certainly did not run is repeated elsewhere.
        let outcome = repeats
            .send(
                call(),
                Duration::from_secs(1),
                |call| safe(unreachable(call)),
                |call, ()| broken(call),
            )
            .await;
        assert!(outcome.unwrap_err().is_unreachable());
        let never = |_, ()| std::future::pending();
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
            |_, ()| -> std::future::Ready<Result<Response, BackendError>> { panic!("sent again") };
        let call = Call { messages, ..call() };
        let outcome = Repeats::default()
            .send(call, Duration::from_secs(1), first, again)
            .await;
        assert_eq!(outcome.unwrap_err(), BackendError::ClosedEarly);
    }
}
