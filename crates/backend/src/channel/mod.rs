//! Many requests on one channel: what a server sends comes in one stream, and is told apart by what
//! it says. A child process is reached so, and a server of the deprecated HTTP+SSE transport.
//!
//! Must not know: how messages come in, what requests mean, or how a server's era is found.

mod pending;
mod reader;
mod writer;

use std::future::{pending, ready};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fanlight_protocol::{Era, Method, Revision};
use futures_util::future::Either;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::pending::{Asked, Outcome, PendingCalls, Waiting};
pub(crate) use self::reader::Reader;
use self::writer::Begun;
pub(crate) use self::writer::{Sending, Sent, Writer};
use crate::exchange::{LinkContext, Outgoing, Reply, cancelled_text};
use crate::question::{OPEN, OpenQuestions};
use crate::throttle::Throttle;
use fanlight_canonical::BackendError;

/// A channel to a server. Dropping this ends it.
pub(crate) struct Channel {
    shared: Arc<Shared>,
    _end: DropGuard,
}

/// What a channel and those who read and write it share.
pub(crate) struct Shared {
    pub(crate) context: LinkContext,
    pending: PendingCalls,
    writer: Writer,
    /// The revision agreed on.
    revision: OnceLock<Revision>,
    /// Asks the channel to end.
    pub(crate) end: CancellationToken,
    /// Nothing will be answered any more.
    pub(crate) gone: CancellationToken,
    warnings: Warnings,
}

#[derive(Default)]
struct Warnings {
    ambiguous_log: Throttle,
    slow_client: Throttle,
    oversize: Throttle,
}

impl Channel {
    /// A channel on which `writer` sends. Whoever reads it does so with a [`Reader`], until
    /// [`Shared::end`] is cancelled, and calls [`Shared::close`] in the end.
    pub(crate) fn new(writer: Writer, context: LinkContext) -> Self {
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            context,
            pending: PendingCalls::default(),
            writer,
            revision: OnceLock::new(),
            end: end.clone(),
            gone: CancellationToken::new(),
            warnings: Warnings::default(),
        });
        Self { shared, _end: end.drop_guard() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes up what the handshake agreed on.
    pub(crate) fn adopt(&self, revision: Revision) {
        let _ = self.shared.revision.set(revision);
    }

    pub(crate) fn gone(&self) -> CancellationToken {
        self.shared.gone.clone()
    }

    /// Begins to end the channel.
    pub(crate) fn close(&self) {
        self.shared.end.cancel();
    }

    /// Sends a request and waits for its answer. The future is to be polled at once.
    pub(crate) fn exchange<'a>(
        &'a self,
        outgoing: Outgoing<'a>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        let Outgoing { request, task, text, propagation, .. } = outgoing;
        let (answer, answered) = oneshot::channel();
        // Where nothing is declared nothing can be asked.
        let (asks, asked) = match self.shared.context.declared.is_empty() {
            true => (None, None),
            false => Some(mpsc::channel(2 * OPEN)).unzip(),
        };
        let waiting = Waiting {
            answer,
            token: request.token,
            task,
            messages: request.messages.clone(),
            context: Arc::clone(request.context),
            deadline: Arc::clone(request.deadline),
            subscription: *request.method == Method::Listen,
            asks,
            trace: request.sending.parent(),
        };
        let shared = &*self.shared;
        let begun = match shared.pending.insert(request.id, waiting) {
            Ok(()) => shared.writer.begin(text, shared.revision(), Some(&propagation)),
            // Nothing was sent on a channel that has ended already.
            Err(_) => Either::Left(ready(Err(shared.writer.ended()))),
        };
        let place = Place { shared, id: request.id, sent: false, cancellable: request.cancellable };
        shared.converse(place, begun, answered, asked)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        let sent = match self.shared.writer.begin(text, self.shared.revision(), None).await? {
            Some(sending) => sending.await?,
            None => Sent::Taken,
        };
        match sent {
            Sent::Rejected(status @ (401 | 403)) => Err(BackendError::Unauthorized { status }),
            Sent::Rejected(status) => {
                tracing::debug!(backend = &*self.shared.context.name, status, "notification not accepted");
                Ok(())
            }
            Sent::Taken => Ok(()),
        }
    }
}

/// What has become of a message on its way; never, once that is known.
async fn next_sent(sending: &mut Option<Sending>) -> Result<Sent, BackendError> {
    let Some(under_way) = sending else { return pending().await };
    let sent = under_way.await;
    *sending = None;
    sent
}

async fn next_asked(asked: &mut Option<mpsc::Receiver<Asked>>) -> Asked {
    if let Some(receiver) = asked
        && let Some(next) = receiver.recv().await
    {
        return next;
    }
    pending().await
}

impl Shared {
    /// Waits for the answer to a request, and answers what the server asks meanwhile.
    fn converse<'a>(
        &'a self,
        place: Place<'a>,
        begun: Begun<'a>,
        mut answered: oneshot::Receiver<Outcome>,
        mut asked: Option<mpsc::Receiver<Asked>>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        async move {
            let mut place = place;
            let mut sending = begun.await?;
            place.sent = true;
            let mut questions = OpenQuestions::default();
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut answered => {
                        self.writer.leave(sending);
                        let response = outcome.unwrap_or(Err(BackendError::ClosedEarly))?;
                        return Ok(Reply::Answer { response, session: None });
                    }
                    sent = next_sent(&mut sending) => match sent {
                        Ok(Sent::Taken) => {}
                        Ok(Sent::Rejected(status)) => {
                            place.sent = false;
                            return Ok(Reply::Rejected { status, error: None });
                        }
                        Err(error) => {
                            place.sent = error.may_have_run();
                            return Err(error);
                        }
                    },
                    asked = next_asked(&mut asked) => match asked {
                        Asked::Question(question) => questions.add(question),
                        Asked::Withdrawn(id) => questions.withdraw(&id),
                    },
                    // Rare, and large: in a box it makes no call's future larger.
                    settled = questions.next() => Box::pin(self.writer.answer(settled, self.revision())).await?,
                }
            }
        }
    }

    fn revision(&self) -> Option<Revision> {
        self.revision.get().copied()
    }

    fn is_modern(&self) -> bool {
        self.revision().is_some_and(|revision| revision.era() == Era::Modern)
    }

    /// Sends what nobody waits for, unless the server does not take what it is sent.
    fn write_aside(&self, text: Bytes) {
        if !self.writer.aside(text, self.revision()) {
            tracing::debug!(backend = &*self.context.name, "message dropped: too many wait to be written");
        }
    }

    /// Nothing comes any more: fails every request that waits, and every later one.
    pub(crate) fn close(&self, error: &BackendError) {
        self.end.cancel();
        self.pending.close(error);
        self.gone.cancel();
    }
}

/// A request's place among the pending ones. Given up with the future that waits.
struct Place<'a> {
    shared: &'a Shared,
    id: i64,
    sent: bool,
    cancellable: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let unanswered = self.shared.pending.remove(self.id).is_some();
        if unanswered && self.sent && self.cancellable {
            self.shared.write_aside(cancelled_text(self.id));
        }
    }
}
