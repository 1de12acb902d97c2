//! Questions that a legacy server asks a client outside of calls.
//!
//! The same rules hold as during calls: only what is declared is asked, as many may be open as in
//! one call, and the client has as long to answer.
//!
//! Must not know: how questions come in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Request;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::connection::Connection;
use crate::deadline::{PausableDeadline, Pause};
use crate::hub::{Asked, Hub};
use fanlight_canonical::{ServerMessage, SessionKey};
use fanlight_telemetry::ServerSpan;

use crate::question::{OpenQuestions, Question, unasked_text};

/// How long a server may take to take an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// What asking one client needs.
pub(super) struct Asking<'a> {
    pub(super) hub: &'a Hub,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) session: SessionKey,
    /// How long the client may take to answer.
    pub(super) limit: Duration,
    pub(super) tasks: &'a TaskTracker,
}

impl Asking<'_> {
    /// Passes questions and answers on, for ever.
    pub(super) async fn keep(self, asked: &mut mpsc::Receiver<Asked>) {
        let (mut open, deadline) = (OpenQuestions::default(), Arc::<PausableDeadline>::default());
        loop {
            tokio::select! {
                biased;
                settled = open.next() => self.send(settled.text, Some(settled.pause)),
                asked = asked.recv() => match asked {
                    Some(Asked::Question(request)) => match self.ask(&request, &deadline) {
                        Ok(question) => open.add(question),
                        Err(text) => self.send(text, None),
                    },
                    Some(Asked::Withdrawn(id)) => open.withdraw(&id),
                    None => std::future::pending().await,
                }
            }
        }
    }

    /// Asks the client; the text for the server if that cannot be done.
    fn ask(&self, request: &Request, deadline: &Arc<PausableDeadline>) -> Result<Question, Bytes> {
        let Some(messages) = self.hub.listener_of(self.session) else {
            let why = "no call is running that the question could belong to, and the client does not listen";
            return Err(unasked_text(&request.id, why));
        };
        let (question, for_client) = Question::new(request, deadline, self.limit, ServerSpan::off())?;
        if !messages.try_send(ServerMessage::Request(for_client)) {
            self.hub.warn_of_slow(1);
            return Err(unasked_text(&request.id, "it does not keep up"));
        }
        Ok(question)
    }

    /// Sends what the server waits for, while further questions are taken. As long as it is on its
    /// way it counts as open.
    fn send(&self, text: Bytes, pause: Option<Pause>) {
        let connection = Arc::clone(self.connection);
        self.tasks.spawn(async move {
            let _: Result<_, _> = timeout(ANSWER, connection.tell(text)).await;
            drop(pause);
        });
    }
}
