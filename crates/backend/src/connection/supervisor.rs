//! Keeping one backend connected: connect, watch, reconnect with jittered exponential backoff.
//!
//! One task per connection runs [`Supervisor::run`]; all others read its [`State`]. The base
//! connection is kept up at all times, that of a client only while it is used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Json, Revision};
use fanlight_telemetry::{ConnectSpan, Outcome, Parent};
use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Loss};
use crate::handshake::{Handshake, Known};
use crate::request::TransportContext;
use crate::settings::{EraChoice, Timeouts};
use crate::transport::Transport;
use crate::transport::backoff::Backoff;
use crate::transport::http::{HttpEndpoint, HttpTransport};
use crate::transport::stdio::{self, ProcessSettings};
use fanlight_canonical::BackendError;

/// A process that ran this long did not fail at its start.
const STABLE: Duration = Duration::from_secs(5);

/// How a backend is doing.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The revision agreed on last.
    pub(crate) revision: Option<Revision>,
    /// Whether an attempt to connect has ended, well or badly.
    pub(crate) attempted: bool,
    /// How many attempts have begun.
    pub(crate) attempts: u64,
}

#[derive(Clone)]
pub(crate) enum Phase {
    /// Not connected; the next request connects.
    Idle,
    Connecting {
        /// Why the last attempt failed, if the one before this did.
        after: Option<BackendError>,
    },
    Ready(Arc<Connection>),
    Down {
        error: BackendError,
        /// When the next attempt is made without a request.
        until: Instant,
        /// From when on a request has it made.
        on_demand: Instant,
    },
    Stopped,
}

impl State {
    /// What a request can go by; `None` while that is being found out.
    pub(crate) fn verdict(&self) -> Option<Result<Arc<Connection>, BackendError>> {
        match &self.phase {
            Phase::Ready(connection) if !connection.is_lost() => Some(Ok(Arc::clone(connection))),
            // The supervisor is about to notice the loss.
            Phase::Ready(_) | Phase::Connecting { .. } | Phase::Idle => None,
            Phase::Down { error, .. } => Some(Err(error.clone())),
            Phase::Stopped => Some(Err(BackendError::ShuttingDown)),
        }
    }
}

/// How transports to the backend are opened.
pub(crate) enum Target {
    Http(Arc<HttpEndpoint>),
    Stdio(ProcessSettings),
    /// The settings cannot be used.
    Unusable(BackendError),
}

/// How all connections of one backend are made.
pub(crate) struct ConnectSettings {
    pub(crate) context: TransportContext,
    pub(crate) target: Target,
    pub(crate) choice: EraChoice,
    pub(crate) timeouts: Timeouts,
    /// The server is said to be of the deprecated HTTP+SSE transport.
    pub(crate) sse_first: bool,
    /// Fanlight's own `Implementation` object.
    pub(crate) own_info: Json,
    pub(crate) shutdown: CancellationToken,
}

pub(crate) struct Supervisor {
    pub(crate) context: TransportContext,
    pub(crate) settings: Arc<ConnectSettings>,
    /// The connection is a client's, not the base one.
    pub(crate) for_client: Option<ForClient>,
    /// The request that the first connection is made for.
    pub(crate) asked_by: Parent,
    pub(crate) wanted: Arc<Notify>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) shutdown: CancellationToken,
}

/// What a client's connection goes by instead of finding it out.
#[derive(Clone, Copy)]
pub(crate) struct ForClient {
    /// What the base connection found.
    pub(crate) known: Known,
    /// Whether it was in doubt before.
    pub(crate) reprobed: bool,
    /// The base connection is modern, and the client is to be served in the legacy era.
    pub(crate) is_second_era: bool,
}

impl Supervisor {
    /// Keeps the connection until the shutdown.
    pub(crate) async fn run(self) {
        let shutdown = self.shutdown.clone();
        shutdown.run_until_cancelled(self.keep_connected()).await;
        let last =
            self.state.send_replace(State { phase: Phase::Stopped, revision: None, attempted: true, attempts: 0 });
        self.set_up(false);
        if let Phase::Ready(connection) = last.phase {
            // Boxed, as all that is large and seldom: there is such a task for each session.
            Box::pin(connection.close()).await;
        }
    }

    async fn keep_connected(&self) {
        let mut backoff = Backoff::new(self.settings.timeouts.reconnect);
        let given = self.for_client.map(|given| given.known);
        let mut remembered = given;
        let mut last_loss = self.for_client.filter(|given| given.reprobed).map(|_| Loss::EraDoubt);
        let mut early_ends = 0_u32;
        let mut asked_by = &self.asked_by;
        let counters = self.context.telemetry.metrics();
        let (mut was_started, mut was_connected) = (false, false);
        let (mut failure, mut is_demanded) = (None, false);
        loop {
            if !std::mem::take(&mut is_demanded) {
                self.wait_until_wanted().await;
            }
            self.enter(Phase::Connecting { after: failure.take() });
            let is_process = matches!(self.settings.target, Target::Stdio(_));
            if std::mem::replace(&mut was_started, true) && is_process {
                counters.restarted();
            }
            let connecting = asked_by.connecting(&self.context.telemetry);
            asked_by = &self.context.root;
            let error = match Box::pin(self.connect(remembered, last_loss, connecting)).await {
                Ok(connection) => {
                    if std::mem::replace(&mut was_connected, true) {
                        counters.reconnected();
                    }
                    remembered = Some(connection.known());
                    let loss = self.watch(&connection).await;
                    last_loss = Some(loss);
                    if loss == Loss::EraDoubt {
                        remembered = given;
                    }
                    let is_stable = !connection.is_channel() || connection.age() >= STABLE;
                    if is_stable {
                        backoff.reset();
                        early_ends = 0;
                    }
                    if let Some(error) = connection.given_up() {
                        // For the calls to come, none of which has been sent.
                        error.while_connecting()
                    } else {
                        early_ends += u32::from(!is_stable);
                        if early_ends <= 1 {
                            continue;
                        }
                        let what = if connection.known().sse { "event stream" } else { "process" };
                        BackendError::Unreachable { reason: format!("its {what} keeps ending soon after its start") }
                    }
                }
                Err(error) => {
                    // If the server was reached, its era may be what is wrong.
                    if !matches!(error, BackendError::Unreachable { .. } | BackendError::Unauthorized { .. }) {
                        remembered = given;
                    }
                    error
                }
            };
            let delay = backoff.next_delay();
            let backend = &*self.context.name;
            match self.for_client {
                // Mostly the server has no such era.
                Some(given) if given.is_second_era => {
                    tracing::debug!(backend, %error, "no connection in the legacy era (of a client)");
                }
                _ => tracing::warn!(backend, %error, retry_in = ?delay, "backend is down"),
            }
            is_demanded = self.stay_down(error.clone(), delay).await;
            failure = Some(error);
        }
    }

    /// Makes no attempt for `delay`, which is for the background alone: a request has one made earlier. Returns whether
    /// there was one.
    async fn stay_down(&self, error: BackendError, delay: Duration) -> bool {
        let now = Instant::now();
        let (until, on_demand) = (now + delay, now + self.settings.timeouts.reconnect_on_demand.min(delay));
        self.enter(Phase::Down { error, until, on_demand });
        let demanded = async {
            loop {
                self.wanted.notified().await;
                // Requests that came earlier have failed at once.
                if Instant::now() >= on_demand {
                    return;
                }
            }
        };
        tokio::select! {
            () = sleep_until(until) => false,
            () = demanded => true,
        }
    }

    async fn wait_until_wanted(&self) {
        if self.for_client.is_some() {
            self.enter(Phase::Idle);
            self.wanted.notified().await;
        }
    }

    async fn connect(
        &self,
        remembered: Option<Known>,
        last_loss: Option<Loss>,
        span: ConnectSpan,
    ) -> Result<Arc<Connection>, BackendError> {
        let trace = span.parent();
        let handshake = Handshake {
            context: &self.context,
            choice: self.settings.choice,
            remembered,
            is_second_era: self.for_client.is_some_and(|given| given.is_second_era),
            sse_first: self.settings.sse_first,
            probe_timeout: self.settings.timeouts.probe,
            own_info: &self.settings.own_info,
            trace: &trace,
        };
        let limit = match handshake.is_second_era {
            // A modern server that does not answer `initialize` at all has no use for it.
            true => self.settings.timeouts.connect.min(self.settings.timeouts.probe),
            false => self.settings.timeouts.connect,
        };
        let agreed = timeout(limit, handshake.run(|| self.open()))
            .await
            .unwrap_or(Err(BackendError::Timeout { after: limit, sent: false }));
        span.finish(&match &agreed {
            Ok(_) => Outcome::Finished,
            Err(error) => Outcome::failed(error.error_type()),
        });
        let agreed = agreed.map_err(BackendError::while_connecting)?;
        let reprobed = last_loss == Some(Loss::EraDoubt);
        Ok(Arc::new(Connection::new(self.context.clone(), agreed, reprobed)))
    }

    fn open(&self) -> Result<Transport, BackendError> {
        match &self.settings.target {
            Target::Http(endpoint) => {
                Ok(Transport::Http(Box::new(HttpTransport::new(Arc::clone(endpoint), self.context.clone()))))
            }
            Target::Stdio(settings) => Ok(Transport::Stdio(stdio::start(settings, self.context.clone())?)),
            Target::Unusable(error) => Err(error.clone()),
        }
    }

    /// Offers a connection until it is lost.
    async fn watch(&self, connection: &Arc<Connection>) -> Loss {
        let (era, revision) = (connection.era(), connection.revision());
        self.log(&format_args!("backend is connected: {era}, {revision}"));
        let phase = Phase::Ready(Arc::clone(connection));
        self.state.send_modify(|state| {
            let attempts = state.attempts;
            *state = State { phase, revision: Some(revision), attempted: true, attempts };
        });
        self.set_up(true);
        // Doubts of the handshake have been resolved.
        let _ = connection.doubted().now_or_never();
        let loss = loop {
            tokio::select! {
                loss = connection.lost() => break loss,
                () = connection.doubted() => Box::pin(connection.prove(self.settings.timeouts.ping)).await,
            }
        };
        self.set_up(false);
        self.log(&format_args!("connection to backend is lost: {loss:?}"));
        if loss == Loss::EraDoubt {
            // It still serves the requests that it has: what one of them met must not end the others.
            let connection = Arc::clone(connection);
            self.context.tasks.spawn(async move { connection.close_when_idle().await });
        }
        loss
    }

    /// Counts the backend as usable or not; connections of clients say nothing of that.
    fn set_up(&self, up: bool) {
        if self.for_client.is_none() {
            self.context.telemetry.metrics().set_up(up);
        }
    }

    /// Connections of clients are logged at a lower level.
    fn log(&self, news: &fmt::Arguments<'_>) {
        let backend = &*self.context.name;
        match self.for_client {
            None => tracing::info!(backend, "{news}"),
            Some(_) => tracing::debug!(backend, "{news} (of a client)"),
        }
    }

    fn enter(&self, phase: Phase) {
        self.state.send_modify(|state| {
            let is_attempt = matches!(phase, Phase::Connecting { .. });
            state.attempted |= !is_attempt;
            state.attempts += u64::from(is_attempt);
            state.phase = phase;
        });
    }
}
