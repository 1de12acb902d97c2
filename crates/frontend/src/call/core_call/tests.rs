//! Order, cancellation and survival of running requests, and their end with their credentials.

use std::future::ready;

use bytes::Bytes;
use fanlight_canonical::identity::Validity;
use fanlight_canonical::{
    BackendClient, BackendStatus, Call, CallContext, Detail, Listen, Listening, Pending, SessionKey,
};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Json, Message, Method, Notification};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::RunningRequests;
use crate::session::testing::gateway;

/// A server that notifies, waits for its release, and reports when it is dropped and when it is done.
struct Probe {
    release: Notify,
    outcome: mpsc::UnboundedSender<&'static str>,
    notes: usize,
}

struct Outcome(mpsc::UnboundedSender<&'static str>, &'static str);

impl Drop for Outcome {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

impl BackendClient for Probe {
    fn name(&self) -> &str {
        "one"
    }

    fn describe<'a>(&'a self, _: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(ready(Ok(Json::empty_object().into())))
    }

    fn request(&self, Call { messages, .. }: Call) -> Pending<'_, Response> {
        Box::pin(async move {
            let mut outcome = Outcome(self.outcome.clone(), "dropped");
            for count in 0..self.notes {
                messages
                    .send(ServerMessage::Notification(note(count)))
                    .await;
            }
            self.release.notified().await;
            messages.send(ServerMessage::Notification(note(99))).await;
            outcome.1 = "done";
            Ok(Response::from_result(&Json::empty_object()))
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(ready(Ok(Listening::new(listen.interest, ()))))
    }

    fn end_session(&self, _: SessionKey) {}

    fn status(&self) -> BackendStatus {
        gateway::ready()
    }
}

fn note(count: usize) -> Notification {
    let text =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{count}}}}}"#);
    match Message::parse(Bytes::from(text), 64) {
        Ok(Message::Notification(notification)) => notification,
        other => panic!("{other:?}"),
    }
}

fn probe(notes: usize) -> (Arc<Probe>, mpsc::UnboundedReceiver<&'static str>) {
    let (outcome, outcomes) = mpsc::unbounded_channel();
    (
        Arc::new(Probe {
            release: Notify::new(),
            outcome,
            notes,
        }),
        outcomes,
    )
}

async fn start(probe: &Arc<Probe>) -> CoreCall {
    let request = Call::new(Method::CallTool, None, CallContext::internal());
    let core = gateway::gateway(Arc::clone(probe) as _, &[]);
    let operation = core.resolve(request, Detail::Known).await;
    let gates = Gates::default();
    CoreCall::start(&core, operation, gates, Some(2))
}

#[tokio::test]
async fn notifications_arrive_in_order_before_the_response() {
    let (core, _outcomes) = probe(5);
    core.release.notify_one();
    let mut call = start(&core).await;
    let mut seen = Vec::new();
    let response = loop {
        match call.next().await {
            Some(ResponseItem::Response(response)) => break response,
            Some(ResponseItem::Message(ServerMessage::Notification(note))) => {
                seen.push(note.text.as_text().to_owned());
            }
            Some(other) => panic!("{other:?}"),
            None => panic!("cancelled"),
        }
    };
    assert!(!response.is_error());
    let expected: Vec<_> = [0, 1, 2, 3, 4, 99]
        .map(|count| note(count).text.as_text().to_owned())
        .into();
    assert_eq!(seen, expected);
    assert!(call.next().await.is_none());
}

#[tokio::test]
async fn dropped_call_is_cancelled() {
    let (core, mut outcomes) = probe(1);
    let mut call = start(&core).await;
    assert!(matches!(call.next().await, Some(ResponseItem::Message(_))));
    drop(call);
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn cancelled_call_has_no_response() {
    let (core, mut outcomes) = probe(1);
    let calls = Arc::new(RunningRequests::default());
    let id = Json::literal("1");
    let mut call = start(&core).await;
    call.cancellation = Some(calls.begin(&id));
    assert!(matches!(call.next().await, Some(ResponseItem::Message(_))));
    calls.cancel(&id, None);
    assert!(call.next().await.is_none());
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn detached_call_runs_on_and_can_still_be_cancelled() {
    let (core, mut outcomes) = probe(1);
    let cut = CancellationToken::new();
    let detached = DetachedCalls::new(1, cut.clone());
    let calls = Arc::new(RunningRequests::default());
    let id = Json::literal("1");
    let begin = async || {
        let mut call = start(&core).await;
        call.cancellation = Some(calls.begin(&id));
        call.detached = Some(Arc::clone(&detached));
        call
    };

    let mut call = begin().await;
    assert!(matches!(call.next().await, Some(ResponseItem::Message(_))));
    drop(call);
    core.release.notify_one();
    assert_eq!(outcomes.recv().await, Some("done"));
    detached.finished().await;

    let mut call = begin().await;
    assert!(matches!(call.next().await, Some(ResponseItem::Message(_))));
    drop(call);
    calls.cancel(&id, None);
    assert_eq!(outcomes.recv().await, Some("dropped"));
    detached.finished().await;

    let mut call = begin().await;
    assert!(matches!(call.next().await, Some(ResponseItem::Message(_))));
    drop(call);
    cut.cancel();
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn detached_calls_are_bounded() {
    let (core, mut outcomes) = probe(0);
    let detached = DetachedCalls::new(0, CancellationToken::new());
    let mut call = start(&core).await;
    call.detached = Some(Arc::clone(&detached));
    assert!(
        std::future::poll_fn(|cx| Poll::Ready(call.poll_next(cx)))
            .await
            .is_pending()
    );
    drop(call);
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test(start_paused = true)]
async fn call_ends_soon_after_its_credentials_expire() {
    let (core, mut outcomes) = probe(0);
    let expires = Some(SystemTime::now() + Duration::from_secs(100));
    let validity = Validity {
        expires,
        ..Validity::default()
    };
    let identity = Arc::new(Identity {
        source: Source::Token,
        validity,
        ..Identity::anonymous()
    });
    let mut call = start(&core).await;
    call.set_ends(RequestEnds {
        cancellation: None,
        validity: RequestValidity::from_identity(&identity),
    });
    let begun = Instant::now();
    let Some(ResponseItem::Response(response)) = call.next().await else {
        panic!("a response")
    };
    assert_eq!(response.error_code(), Some(code::NOT_AUTHENTICATED));
    let elapsed = begun.elapsed().as_secs();
    assert!((100..160).contains(&elapsed), "{elapsed}");
    assert_eq!(outcomes.recv().await, Some("dropped"));
    assert!(call.next().await.is_none());
}

fn identity(source: Source, left: Option<Duration>) -> Identity {
    let validity = Validity {
        expires: left.map(|left| SystemTime::now() + left),
        ..Validity::default()
    };
    Identity {
        source,
        validity,
        ..Identity::anonymous()
    }
}

async fn ended(identity: &Identity, grace: u64) -> Ended {
    end_of(identity, Duration::from_secs(grace)).unwrap().await
}

#[tokio::test(start_paused = true)]
async fn identity_ends_by_expiry_or_revocation() {
    let start = Instant::now();
    assert_eq!(
        ended(&identity(Source::Token, Some(Duration::from_secs(100))), 45).await,
        Ended::Expired
    );
    assert!(
        (144..=146).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    let start = Instant::now();
    assert_eq!(
        ended(&identity(Source::Token, Some(Duration::ZERO)), 0).await,
        Ended::Expired
    );
    assert!(start.elapsed() < Duration::from_secs(1));
    let key = identity(Source::Key, None);
    key.validity.revoked.cancel();
    assert_eq!(ended(&key, 45).await, Ended::Revoked);
}

#[tokio::test]
async fn client_without_credentials_has_no_end() {
    let anonymous = Arc::new(identity(Source::Anonymous, None));
    assert!(
        end_of(&anonymous, Duration::ZERO).is_none()
            && RequestValidity::from_identity(&anonymous).is_none()
    );
}
