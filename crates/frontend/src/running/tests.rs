//! Order, cancellation and survival of running requests.

use bytes::Bytes;
use fanlight_protocol::{Message, Notification};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::cancel::InFlight;

/// A core that notifies, waits to be released, and says when it is dropped and when it is done.
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

impl Core for Probe {
    async fn handle(&self, call: Call) -> Response {
        let mut outcome = Outcome(self.outcome.clone(), "dropped");
        for count in 0..self.notes {
            call.messages.send(ServerMessage::Notification(note(count))).await;
        }
        self.release.notified().await;
        call.messages.send(ServerMessage::Notification(note(99))).await;
        outcome.1 = "done";
        Response::from_result(&Json::empty_object())
    }

    async fn tool(&self, _: &str, _: &Parent) -> Option<Arc<Json>> {
        None
    }

    async fn listen(
        &self,
        listen: fanlight_canonical::Listen,
    ) -> Result<fanlight_canonical::Listening, fanlight_protocol::RpcError> {
        Ok(fanlight_canonical::Listening::new(listen.interest, ()))
    }

    fn end_session(&self, _: fanlight_canonical::SessionKey) {}
}

fn note(count: usize) -> Notification {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{count}}}}}"#);
    match Message::parse(Bytes::from(text), 64) {
        Ok(Message::Notification(notification)) => notification,
        other => panic!("{other:?}"),
    }
}

fn probe(notes: usize) -> (Arc<Probe>, mpsc::UnboundedReceiver<&'static str>) {
    let (outcome, outcomes) = mpsc::unbounded_channel();
    (Arc::new(Probe { release: Notify::new(), outcome, notes }), outcomes)
}

fn start(core: &Arc<Probe>) -> Running {
    let context = CallContext::internal().as_ref().clone();
    Running::start(core, Ask { method: Method::CallTool, params: None, context, messages: Some(2), unroll: None })
}

#[tokio::test]
async fn notifications_come_in_order_and_before_the_answer() {
    let (core, _outcomes) = probe(5);
    core.release.notify_one();
    let mut running = start(&core);
    let mut seen = Vec::new();
    let response = loop {
        match running.next().await {
            Event::Message(ServerMessage::Notification(note)) => seen.push(note.text.as_text().to_owned()),
            Event::Message(other) => panic!("{other:?}"),
            Event::Response(response) => break response,
            Event::Cancelled => panic!("cancelled"),
        }
    };
    assert!(!response.is_error());
    let expected: Vec<_> = [0, 1, 2, 3, 4, 99].map(|count| note(count).text.as_text().to_owned()).into();
    assert_eq!(seen, expected);
    assert!(matches!(running.next().await, Event::Cancelled));
}

#[tokio::test]
async fn dropping_cancels() {
    let (core, mut outcomes) = probe(1);
    let mut running = start(&core);
    assert!(matches!(running.next().await, Event::Message(_)));
    drop(running);
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn a_stop_cancels_without_an_answer() {
    let (core, mut outcomes) = probe(1);
    let calls = Arc::new(InFlight::default());
    let id = Json::literal("1");
    let mut running = start(&core).stoppable(calls.begin(&id));
    assert!(matches!(running.next().await, Event::Message(_)));
    calls.cancel(&id);
    assert!(matches!(running.next().await, Event::Cancelled));
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn a_detached_request_goes_on_and_can_still_be_cancelled() {
    let (core, mut outcomes) = probe(1);
    let cut = CancellationToken::new();
    let detached = Detached::new(1, cut.clone());
    let calls = Arc::new(InFlight::default());
    let id = Json::literal("1");
    let begin = || start(&core).stoppable(calls.begin(&id)).outliving(&detached);

    let mut running = begin();
    assert!(matches!(running.next().await, Event::Message(_)));
    drop(running);
    core.release.notify_one();
    assert_eq!(outcomes.recv().await, Some("done"));
    detached.finished().await;

    let mut running = begin();
    assert!(matches!(running.next().await, Event::Message(_)));
    drop(running);
    calls.cancel(&id);
    assert_eq!(outcomes.recv().await, Some("dropped"));
    detached.finished().await;

    let mut running = begin();
    assert!(matches!(running.next().await, Event::Message(_)));
    drop(running);
    cut.cancel();
    assert_eq!(outcomes.recv().await, Some("dropped"));
}

#[tokio::test]
async fn detached_requests_are_bounded() {
    let (core, mut outcomes) = probe(0);
    let detached = Detached::new(0, CancellationToken::new());
    let mut running = start(&core).outliving(&detached);
    assert!(poll_fn(|cx| Poll::Ready(running.poll_next(cx))).await.is_pending());
    drop(running);
    assert_eq!(outcomes.recv().await, Some("dropped"));
}
