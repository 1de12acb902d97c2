//! The state that the tasks of a scripted server share with its test: the rules, and the recorded
//! messages.

use std::sync::{Arc, Mutex};

use crate::slicer;
use tokio::sync::watch;

use super::reply::End;
use super::{Era, Fault, Protection, Received, Reply, Stream};
use crate::revisions::{MODERN, NEWEST_LEGACY};
use crate::schema::{Checks, Direction, Peer};

/// The state shared between the server's tasks and the test.
pub(super) struct Shared {
    pub(super) era: Era,
    pub(super) rules: Mutex<Vec<Rule>>,
    /// Sessions whose requests are answered with 404.
    pub(super) forgotten: Mutex<Vec<String>>,
    pub(super) received: watch::Sender<Vec<Arc<Received>>>,
    /// Methods of requests that the client closed before the response.
    pub(super) abandoned: watch::Sender<Vec<String>>,
    pub(super) children: watch::Sender<Vec<u32>>,
    /// Children that have ended, or have lost their input.
    pub(super) ended: watch::Sender<Vec<u32>>,
    /// The streams that the test writes, in the order of their opening.
    pub(super) streams: watch::Sender<Vec<Stream>>,
    /// The credentials that clients need over HTTP.
    pub(super) protection: Mutex<Option<Protection>>,
    pub(super) checks: Checks,
    client: Peer,
}

pub(super) struct Rule {
    pub(super) method: String,
    pub(super) target: Option<String>,
    pub(super) once: bool,
    pub(super) reply: Reply,
}

impl Shared {
    pub(super) fn new(era: Era) -> Self {
        let checks = Checks::new(Direction::ToBackend);
        let client = checks.peer("client");
        client.negotiated(if era == Era::Modern {
            MODERN
        } else {
            NEWEST_LEGACY
        });
        Self {
            era,
            rules: Mutex::default(),
            forgotten: Mutex::default(),
            received: watch::Sender::default(),
            abandoned: watch::Sender::default(),
            children: watch::Sender::default(),
            ended: watch::Sender::default(),
            streams: watch::Sender::default(),
            protection: Mutex::default(),
            checks,
            client,
        }
    }

    pub(super) fn record(&self, received: Received) -> Arc<Received> {
        if !received.text.is_empty() {
            // A panic in a task of the server would be lost, so the server's owner fails the test.
            let _ = self.client.violations(&received.text);
        }
        let received = Arc::new(received);
        self.received
            .send_modify(|all| all.push(Arc::clone(&received)));
        received
    }

    /// Records a message to the client for the schema checks: the client's response is validated by
    /// its request, other messages by the negotiated revision.
    pub(super) fn record_sent(&self, message: &str) {
        self.client.sent(message, None);
        // A search comes first, since slicing a long result takes long.
        let names_revision = message.contains("protocolVersion");
        let agreed = names_revision
            .then(|| slicer::member(message, "result.protocolVersion"))
            .flatten();
        if let Some(revision) = agreed.and_then(slicer::plain_string) {
            self.client.negotiated(revision);
        }
    }

    /// Waits for the client's response to a server request in the session of `call`, with this raw
    /// id.
    pub(super) async fn answer_to(&self, id: &str, call: &Received) -> Arc<Received> {
        let session = call.header("mcp-session-id");
        let fits = |message: &&Arc<Received>| {
            message.is_response()
                && message.member("id") == Some(id)
                && message.header("mcp-session-id") == session
        };
        let mut all = self.received.subscribe();
        // Waits as long as the client stays: the test that waits for the call has its own time-out.
        let all = all
            .wait_for(|all| all.iter().any(|message| fits(&message)))
            .await
            .expect("the server runs");
        all.iter().find(fits).map(Arc::clone).expect("just found")
    }

    /// Passes a stream to the test.
    pub(super) fn opened(&self, stream: Stream) {
        self.streams.send_modify(|streams| streams.push(stream));
    }

    /// The reply of a rule for this message, else the default of the era; `None` if it is no
    /// request.
    pub(super) fn reply(&self, received: &Received) -> Option<Reply> {
        let forgotten = self.forgotten.lock().unwrap();
        if received
            .header("mcp-session-id")
            .is_some_and(|session| forgotten.iter().any(|one| one == session))
        {
            return Some(Reply::fault(Fault::Status(
                404,
                "text/plain",
                "no such session",
            )));
        }
        drop(forgotten);
        if let Some(mut reply) = self.ruled(received) {
            while let End::Chosen(choose) = &reply.end {
                reply = choose(received);
            }
            return Some(reply);
        }
        received.member("id").filter(|_| !received.is_response())?;
        Some(self.era.reply(received.method()))
    }

    fn ruled(&self, received: &Received) -> Option<Reply> {
        let mut rules = self.rules.lock().unwrap();
        let fits = |rule: &Rule| {
            rule.method == received.method()
                && rule
                    .target
                    .as_deref()
                    .is_none_or(|target| received.target() == Some(target))
        };
        if let Some(first) = rules.iter().position(|rule| rule.once && fits(rule)) {
            return Some(rules.remove(first).reply);
        }
        let specific = rules
            .iter()
            .rev()
            .find(|rule| rule.target.is_some() && fits(rule));
        specific
            .or_else(|| rules.iter().rev().find(|rule| fits(rule)))
            .map(|rule| rule.reply.clone())
    }
}
