//! The stdio transport: one child process, shared by all requests on the link.
//!
//! Four things run for a process: the caller's future, the writer of its standard input, the
//! reader of its standard output together with the minder of its life ([`process`]), and the
//! reader of its standard error.
//!
//! Must not know: what requests mean, or how a server's era is found.

mod child;
mod pending;
mod process;
mod reader;
mod stderr;
mod writer;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fanlight_protocol::json::on_one_line;
use fanlight_protocol::{Era, Method, Revision};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::BackendError;
use crate::exchange::{LinkContext, Outgoing, Reply, cancelled_text};
use crate::question::{OPEN, OpenQuestions};
use crate::settings::Secret;
use crate::throttle::Throttle;
use pending::{Asked, PendingCalls, Waiting};

/// Messages that wait to be written at most; senders wait while there are so many.
const OUTGOING: usize = 256;

/// How a process is started.
pub(crate) struct ProcessSettings {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) cwd: Option<PathBuf>,
}

/// A running process. Dropping this ends it.
pub(crate) struct StdioLink {
    shared: Arc<Shared>,
    _end: DropGuard,
}

type Conversed<T> = Result<Result<T, oneshot::error::RecvError>, BackendError>;

/// What the tasks of one process share.
struct Shared {
    context: LinkContext,
    pending: PendingCalls,
    outgoing: mpsc::Sender<Bytes>,
    /// The revision agreed on.
    revision: OnceLock<Revision>,
    /// Asks the process to end.
    end: CancellationToken,
    /// Nothing will be answered any more.
    gone: CancellationToken,
    warnings: Warnings,
}

#[derive(Default)]
struct Warnings {
    ambiguous_log: Throttle,
    slow_client: Throttle,
    oversize: Throttle,
}

impl StdioLink {
    /// Starts the process.
    pub(crate) fn start(settings: &ProcessSettings, context: LinkContext) -> Result<Self, BackendError> {
        let spawned = child::spawn(settings)?;
        let (outgoing, queue) = mpsc::channel(OUTGOING);
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            pending: PendingCalls::default(),
            outgoing,
            revision: OnceLock::new(),
            end: end.clone(),
            gone: CancellationToken::new(),
            warnings: Warnings::default(),
            context,
        });
        process::run(spawned, queue, &shared);
        Ok(Self { shared, _end: end.drop_guard() })
    }

    /// Takes up what the handshake agreed on.
    pub(crate) fn adopt(&self, revision: Revision) {
        let _ = self.shared.revision.set(revision);
    }

    pub(crate) fn gone(&self) -> CancellationToken {
        self.shared.gone.clone()
    }

    /// Begins to end the process.
    pub(crate) fn close(&self) {
        self.shared.end.cancel();
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn exchange(&self, request: Outgoing<'_>) -> Result<Reply, BackendError> {
        let (answer, answered) = oneshot::channel();
        // Where nothing is declared nothing can be asked.
        let (asks, asked) = match self.shared.context.declared.is_empty() {
            true => (None, None),
            false => Some(mpsc::channel(2 * OPEN)).unzip(),
        };
        let waiting = Waiting {
            answer,
            token: request.token,
            task: request.task.clone(),
            messages: request.messages.clone(),
            context: Arc::clone(request.context),
            clock: Arc::clone(request.clock),
            subscription: *request.method == Method::Listen,
            asks,
            trace: request.sending.parent().clone(),
        };
        // Nothing was sent to a process that has ended already.
        self.shared.pending.insert(request.id, waiting).map_err(|_| ended())?;
        let mut place = Place { shared: &self.shared, id: request.id, sent: false, cancellable: request.cancellable };
        self.write(&request.text).await?;
        place.sent = true;
        let outcome = match asked {
            Some(asked) => self.converse(answered, asked).await?,
            None => answered.await,
        };
        match outcome {
            Ok(outcome) => outcome.map(|response| Reply::Answer { response, session: None }),
            Err(_) => Err(BackendError::Exited { status: None }),
        }
    }

    /// Waits for the answer to a request, and answers what the server asks meanwhile.
    async fn converse<T>(&self, answered: oneshot::Receiver<T>, mut asked: mpsc::Receiver<Asked>) -> Conversed<T> {
        let mut questions = OpenQuestions::default();
        let mut answered = pin!(answered);
        loop {
            tokio::select! {
                biased;
                outcome = &mut answered => return Ok(outcome),
                Some(asked) = asked.recv() => match asked {
                    Asked::Question(question) => questions.add(question),
                    Asked::Withdrawn(id) => questions.withdraw(&id),
                },
                settled = questions.next() => {
                    // The call's time runs again while the process does not take the answer.
                    drop(settled.stopped);
                    self.write(&settled.text).await?;
                }
            }
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        self.write(&text).await
    }

    async fn write(&self, text: &Bytes) -> Result<(), BackendError> {
        // The framing allows no line break within a message.
        self.shared.outgoing.send(on_one_line(text)).await.map_err(|_| ended())
    }
}

fn ended() -> BackendError {
    BackendError::Unreachable { reason: "its process has ended".into() }
}

impl Shared {
    fn is_modern(&self) -> bool {
        self.revision.get().is_some_and(|revision| revision.era() == Era::Modern)
    }

    /// Sends what nobody waits for, unless the process does not read what it is sent.
    fn write_aside(&self, text: Bytes) {
        if self.outgoing.try_send(on_one_line(&text)).is_err() {
            tracing::debug!(backend = &*self.context.name, "message dropped: too many wait to be written");
        }
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
