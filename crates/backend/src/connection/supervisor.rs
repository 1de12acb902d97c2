//! Keeps one server connected: connects, watches, and reconnects with jittered exponential backoff.
//!
//! One task per connection runs [`Supervisor::run`]; all others read its [`State`]. The base
//! connection is always kept up, a client's connection only while it is used.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanlight_fair::limit;
use fanlight_protocol::Json;
use fanlight_telemetry::{ErrorType, InternalSpan, Outcome, Parent};
use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Measured};
use super::supervised::{Phase, State};
use crate::connection::{Connection, Loss};
use crate::handshake::{self, Agreed, Handshake, Known};
use crate::outage::{Extent, Line, Outage};
use crate::remedy;
use crate::request::{BackendContext, TransportContext};
use crate::settings::{
    BackendTimeouts, EraChoice, LONGEST_PAUSE, ProcessPolicy, STABLE_CONNECTION, Serves,
    start_total,
};
use crate::transport::Transport;
use crate::transport::http::{HttpEndpoint, HttpTransport};
use crate::transport::stdio::{self, ProcessSettings};
use fanlight_canonical::{BackendError, Backoff, FailureDetails, Plain};

/// A server's answer to a ping, which is sent after calls have timed out; without one, its process is ended.
const PING: Duration = Duration::from_secs(5);

/// The pause after a failed start of a process that failed many times in a row, before a call starts it again.
fn failed_retry() -> Duration {
    limit("failedRetry", Duration::from_secs(60))
}

/// The pause that a server asks for.
fn pause_of(error: &BackendError) -> Duration {
    error.retry_after().unwrap_or_default().min(LONGEST_PAUSE)
}

/// How to open transports to the server.
pub(crate) enum Target {
    Http(Arc<HttpEndpoint>),
    Stdio(Box<ProcessSettings>),
    /// The settings cannot be used.
    Unusable(BackendError),
}

/// The settings for all connections to one server.
pub(crate) struct ConnectSettings {
    pub(crate) context: Arc<BackendContext>,
    pub(crate) target: Target,
    pub(crate) choice: EraChoice,
    pub(crate) timeouts: BackendTimeouts,
    /// Whether the configuration says that the server uses the deprecated HTTP+SSE transport.
    pub(crate) sse_first: bool,
    /// Fanlight's own `Implementation` object.
    pub(crate) own_info: Json,
    /// The name under which session records store the server's sessions, if it may have any.
    pub(crate) place: Option<Arc<str>>,
    /// The time of the last base connection, or of a client's made while the base rested.
    pub(crate) connected: watch::Sender<Option<Instant>>,
    /// Whether the base connection rests.
    pub(crate) rests: AtomicBool,
    /// Notified when the state of the base connection changes.
    pub(crate) states: watch::Sender<()>,
    /// The usual start time of its processes.
    pub(crate) starts: Measured,
    pub(crate) shutdown: CancellationToken,
}

impl ConnectSettings {
    /// The policy for starting processes; `None` if the server has none.
    pub(crate) fn process(&self) -> Option<&ProcessPolicy> {
        match &self.target {
            Target::Stdio(settings) => Some(&settings.policy),
            Target::Http(_) | Target::Unusable(_) => None,
        }
    }
}

pub(crate) struct Supervisor {
    pub(crate) context: Arc<TransportContext>,
    pub(crate) settings: Arc<ConnectSettings>,
    /// Facts for a client's connection; `None` for the base connection.
    pub(crate) for_client: Option<ForClient>,
    /// The request that needs the first connection.
    pub(crate) asked_by: Parent,
    pub(crate) wanted: Arc<Notify>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) shutdown: CancellationToken,
    /// A connection whose session is being recorded.
    pub(crate) opening: Mutex<Option<Arc<Connection>>>,
}

/// Facts that a client's connection need not determine itself.
#[derive(Clone, Copy)]
pub(crate) struct ForClient {
    /// The findings of the base connection.
    pub(crate) known: Known,
    /// Whether the era was in doubt before.
    pub(crate) reprobed: bool,
    /// Whether this connection is legacy for a client, although the base connection is modern.
    pub(crate) is_second_era: bool,
    /// Whether the server is known to serve that era.
    pub(crate) is_proven: bool,
}

impl Supervisor {
    /// Keeps the connection until the shutdown. Each session and suspended call has such a task, so
    /// large and rare parts are boxed.
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send {
        async move {
            {
                // `run_until_cancelled` would store the future twice.
                let mut kept = pin!(self.keep_connected());
                tokio::select! { biased; () = self.shutdown.cancelled() => {} () = kept.as_mut() => {} }
            }
            let last = self.state.send_replace(State {
                phase: Phase::Stopped,
                attempted: true,
                ..State::default()
            });
            match last.phase {
                Phase::Ready(connection) => {
                    self.session_ended(&connection, None);
                    Box::pin(connection.close()).await;
                }
                _ => Box::pin(self.close_unused()).await,
            }
        }
    }

    /// Ends a session without requests of this process: another process opened it, or it was being
    /// recorded.
    async fn close_unused(&self) {
        let opening = self.opening.lock().take();
        if let Some(connection) = opening {
            connection.close().await;
        } else if let Some(agreed) = self.continued() {
            agreed.transport.close().await;
        }
    }

    /// The session of another process to continue, with that process's agreement with the server.
    fn continued(&self) -> Option<Agreed> {
        let Target::Http(endpoint) = &self.settings.target else {
            return None;
        };
        let session = self.context.kept.as_ref()?.take()?;
        handshake::resume_session(self.http(endpoint), session, &self.settings.own_info)
    }

    async fn keep_connected(&self) {
        let mut backoff = Backoff::new(self.settings.timeouts.reconnect);
        let given = self.for_client.map(|given| given.known);
        let mut remembered = given;
        let mut last_loss = self
            .for_client
            .filter(|given| given.reprobed)
            .map(|_| Loss::EraDoubt);
        let mut early_ends = 0_u32;
        let mut asked_by = &self.asked_by;
        let counters = self.context.telemetry.metrics();
        let (mut was_started, mut was_connected) = (false, false);
        let (mut failure, mut is_demanded) = (None, false);
        let process = self.settings.process();
        let mut rests =
            matches!(self.state.borrow().phase, Phase::Idle) && self.for_client.is_none();
        let (mut failures, most) = (0_usize, process.map_or(0, |_| limit("startAttempts", 20)));
        loop {
            let rested = std::mem::take(&mut rests);
            if !std::mem::take(&mut is_demanded) && (rested || self.for_client.is_some()) {
                self.wait_for_use().await;
            }
            let attempt = Attempt::new();
            self.enter(Phase::Connecting {
                after: failure.take(),
                attempt: attempt.clone(),
            });
            let is_process = matches!(self.settings.target, Target::Stdio(_));
            if std::mem::replace(&mut was_started, true) && is_process && !rested {
                counters.restarted();
            }
            let connecting = asked_by.begin_connecting(&self.context.telemetry);
            asked_by = &self.context.root;
            let error =
                match Box::pin(self.connect(remembered, last_loss, connecting, &attempt)).await {
                    Ok(connection) => {
                        if std::mem::replace(&mut was_connected, true) && !rested {
                            counters.reconnected();
                        }
                        remembered = Some(connection.facts());
                        let loss = self.watch(&connection).await;
                        last_loss = Some(loss);
                        if loss == Loss::Unused {
                            rests = true;
                            (early_ends, failures) = (0, 0);
                            backoff.reset();
                            continue;
                        }
                        if loss == Loss::EraDoubt {
                            remembered = given;
                        }
                        let is_stable =
                            !connection.is_channel() || connection.age() >= STABLE_CONNECTION;
                        if is_stable {
                            backoff.reset();
                            (early_ends, failures) = (0, 0);
                        }
                        if loss == Loss::Unresponsive {
                            let timeout = self.context.health.policy.timeout;
                            let reason = format!("it answered no check within {timeout:?}");
                            BackendError::GivenUp { reason }.while_connecting()
                        } else if let Some(error) = connection.failure() {
                            // The error is for future calls, none of which has been sent.
                            error.while_connecting()
                        } else {
                            early_ends += u32::from(!is_stable);
                            if early_ends <= 1 {
                                continue;
                            }
                            let what = if connection.facts().sse {
                                "event stream"
                            } else {
                                "process"
                            };
                            BackendError::Unreachable {
                                reason: format!("its {what} keeps ending soon after its start"),
                            }
                        }
                    }
                    Err(error) => {
                        // A reachable server may have failed because of its era.
                        if !error.is_unreachable()
                            && !matches!(error, BackendError::Unauthorized { .. })
                        {
                            remembered = given;
                        }
                        error
                    }
                };
            let error = Box::pin(self.explained(error, &attempt)).await;
            let is_refused = matches!(error.cause(), BackendError::Unauthorized { .. });
            let delay = if is_refused {
                backoff.delay_after_refusal()
            } else {
                backoff.next_delay().max(pause_of(&error))
            };
            let backend = &*self.context.name;
            match self.for_client {
                // Usually the server has no such era.
                Some(given) if given.is_second_era => {
                    tracing::debug!(backend, %error, "no connection in the legacy era (of a client)");
                }
                _ => {
                    counters.connect_failed();
                    self.log_failure(&error, delay);
                }
            }
            failures = failures.saturating_add(1);
            // Another attempt would change nothing.
            let is_unusable = matches!(self.settings.target, Target::Unusable(_));
            let is_failed =
                is_unusable || (most > 0 && failures >= most && self.for_client.is_none());
            if is_failed && failures == most {
                let retry = Plain(failed_retry());
                tracing::error!(backend, failures, %retry, "server has failed: only a call starts it again");
            }
            is_demanded = self
                .stay_down(error.clone(), delay, (is_failed, is_refused))
                .await;
            failure = Some(error);
        }
    }

    /// Waits for `delay` before the next attempt; a request can start one earlier. Returns whether
    /// a request did.
    async fn stay_down(
        &self,
        error: BackendError,
        delay: Duration,
        (is_failed, is_refused): (bool, bool),
    ) -> bool {
        let (now, timeouts) = (Instant::now(), &self.settings.timeouts);
        let until = (!is_failed).then(|| now + delay);
        // Listening clients ask again and again.
        let least = if is_refused {
            delay / 4
        } else {
            pause_of(&error)
        };
        let on_demand = now
            + if is_failed {
                failed_retry()
            } else {
                timeouts.reconnect_on_demand.max(least).min(delay)
            };
        self.enter(Phase::Down {
            error,
            until,
            on_demand,
        });
        let demanded = async {
            loop {
                self.wanted.notified().await;
                // Earlier requests have failed at once. New credentials must not wait for long.
                if is_refused {
                    return sleep_until(on_demand).await;
                }
                if Instant::now() >= on_demand {
                    return;
                }
            }
        };
        tokio::select! {
            Some(()) = OptionFuture::from(until.map(sleep_until)) => false,
            () = demanded => true,
        }
    }

    /// Waits without a connection until a request needs one.
    async fn wait_for_use(&self) {
        self.enter(Phase::Idle);
        self.wanted.notified().await;
    }

    async fn connect(
        &self,
        remembered: Option<Known>,
        last_loss: Option<Loss>,
        span: InternalSpan,
        attempt: &Attempt,
    ) -> Result<Arc<Connection>, BackendError> {
        if let Some(agreed) = self.continued() {
            span.finish(&Outcome::Finished);
            return Ok(Arc::new(Connection::new(
                Arc::clone(&self.context),
                agreed,
                false,
            )));
        }
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
        let is_trial = self
            .for_client
            .is_some_and(|given| given.is_second_era && !given.is_proven);
        let BackendTimeouts { start, probe, .. } = self.settings.timeouts;
        let (silence, total) = match (is_trial, &self.settings.target) {
            // A modern server that does not answer `initialize` at all does not know it. A process
            // needs time to start in either era.
            (true, Target::Http(_)) => (start.min(probe), start.min(probe)),
            (false, Target::Http(_)) | (_, Target::Unusable(_)) => (start, start),
            (_, Target::Stdio(_)) => (start, start_total()),
        };
        let agreed = tokio::select! {
            biased;
            agreed = handshake.run(|| self.open(attempt)) => agreed,
            after = attempt.expired(&self.context.process_log, silence, total) => {
                Err(BackendError::Timeout { after, sent: false })
            }
            never = attempt.report(&self.context.name, &self.context.process_log), if !self.is_of_clients() => {
                match never {}
            }
        };
        span.finish(&match &agreed {
            Ok(_) => Outcome::Finished,
            Err(error) => Outcome::failed(error.error_type()),
        });
        let agreed = agreed.map_err(BackendError::while_connecting)?;
        if let Target::Stdio(_) = self.settings.target {
            self.settings.starts.record(attempt.elapsed());
        }
        let reprobed = matches!(last_loss, Some(Loss::EraDoubt | Loss::SessionGone));
        let connection = Arc::new(Connection::new(Arc::clone(&self.context), agreed, reprobed));
        // Recorded before a request is sent in the session.
        if let Some((kept, session)) = self.context.kept.as_ref().zip(connection.session()) {
            *self.opening.lock() = Some(Arc::clone(&connection));
            Box::pin(kept.record_opened(session)).await;
            *self.opening.lock() = None;
        }
        Ok(connection)
    }

    fn http(&self, endpoint: &Arc<HttpEndpoint>) -> HttpTransport {
        HttpTransport::new(Arc::clone(endpoint), Arc::clone(&self.context))
    }

    /// The attempt's error with its process's last output, which often names the cause, and a
    /// remedy.
    async fn explained(&self, error: BackendError, attempt: &Attempt) -> BackendError {
        let output = match attempt.process_number() {
            Some(number) => Some(self.context.process_log.last_of(number).await),
            None => None,
        };
        let (remedy, challenge) = match &self.settings.target {
            Target::Stdio(settings) => (
                remedy::find_for_process(settings, &error, output.as_ref()),
                None,
            ),
            Target::Http(endpoint) => (
                remedy::find_for_url(endpoint, &error).await,
                endpoint.challenge().map(Into::into),
            ),
            Target::Unusable(_) => (None, None),
        };
        error.with_details(FailureDetails {
            remedy,
            challenge,
            ..output.unwrap_or_default()
        })
    }

    /// Opens a transport for an attempt.
    async fn open(&self, attempt: &Attempt) -> Result<Transport, BackendError> {
        match &self.settings.target {
            Target::Http(endpoint) => Ok(Transport::Http(Box::new(self.http(endpoint)))),
            Target::Stdio(settings) => Ok(Transport::Stdio(
                stdio::start(settings, Arc::clone(&self.context), attempt.process()).await?,
            )),
            Target::Unusable(error) => Err(error.clone()),
        }
    }

    /// Offers a connection until it is lost.
    async fn watch(&self, connection: &Arc<Connection>) -> Loss {
        self.log_connection(connection);
        // Recorded before use: data that is read on the connection is newer.
        if self.for_client.is_none() || self.settings.rests.load(Ordering::Relaxed) {
            self.settings.connected.send_replace(Some(Instant::now()));
        }
        let phase = Phase::Ready(Arc::clone(connection));
        self.change(|state| {
            *state = State {
                phase,
                revision: Some(connection.revision()),
                description: Some(connection.description()),
                attempted: true,
                attempts: state.attempts,
            };
        });
        // Earlier requests already have a connection.
        let _ = self.wanted.notified().now_or_never();
        if self.for_client.is_none() {
            self.context.health.set_ejected(false);
        }
        // Doubts from the handshake are resolved.
        let _ = connection.doubted().now_or_never();
        let mut base = self
            .for_client
            .is_none()
            .then(|| Box::pin(self.watch_base(connection)));
        let loss = loop {
            tokio::select! {
                loss = connection.lost() => break loss,
                () = connection.doubted() => Box::pin(connection.prove(limit("ping", PING))).await,
                Some(()) = OptionFuture::from(base.as_mut().map(Pin::as_mut)) => {}
            }
        };
        self.session_ended(connection, loss.error_type());
        if loss != Loss::EraDoubt {
            connection.forget_session();
        }
        if loss == Loss::Unresponsive {
            self.context.health.set_ejected(true);
            self.context.telemetry.metrics().count_ejection();
        }
        self.log(&format_args!("connection to server lost: {loss:?}"));
        if matches!(loss, Loss::EraDoubt | Loss::Unused) {
            // The old connection finishes its requests: one request's failure must not end the
            // others.
            let connection = Arc::clone(connection);
            self.context.tasks.spawn(async move {
                connection.usage.ended().await;
                connection.close().await;
            });
        }
        loss
    }

    /// Counts the end of a session at a legacy server.
    fn session_ended(&self, connection: &Connection, error: Option<ErrorType>) {
        if connection.revision().has_sessions {
            self.context
                .telemetry
                .session_ended(connection.revision(), connection.age(), error);
        }
    }

    /// Checks the base connection when due, and gives it up when unused; never returns.
    async fn watch_base(&self, connection: &Connection) {
        let checks = async {
            loop {
                self.context.health.check_is_due().await;
                connection.prove(self.context.health.policy.timeout).await;
            }
        };
        tokio::join!(checks, self.retire_when_unused(connection));
        pending::<()>().await;
    }

    /// Ends the base connection after it has been unused for the configured time.
    async fn retire_when_unused(&self, connection: &Connection) {
        match self.settings.process().and_then(|policy| policy.idle) {
            Some(idle) => {
                connection
                    .retire_when_unused(idle, || {
                        self.context.outlet.registry.needs_more_than_lists()
                    })
                    .await;
            }
            None => pending().await,
        }
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        let [base, of_clients] = &self.context.outages;
        let outage = if self.for_client.is_none() {
            base
        } else {
            of_clients
        };
        outage.lock()
    }

    /// Logs a failed attempt, unless one was logged a moment ago.
    fn log_failure(&self, error: &BackendError, delay: Duration) {
        let (backend, retry_in) = (&*self.context.name, Plain(delay));
        // Nothing is wrong with the server.
        if error.sign_in().is_some() {
            tracing::debug!(backend, %error, "the server's user has to sign in");
            return;
        }
        let line = self.outage().record_failure();
        match line {
            Some(Line::Began) => tracing::warn!(backend, %error, %retry_in, "server is down"),
            Some(Line::GoesOn(Extent { after, failures })) => {
                let (what, after) = (error.summary(), Plain(after));
                tracing::warn!(backend, failures, %after, error = what, "server is still down");
            }
            None => tracing::debug!(backend, %error, %retry_in, "server is down"),
        }
    }

    /// Logs a new connection, and how long there was none.
    fn log_connection(&self, connection: &Connection) {
        let (era, revision) = (connection.era(), connection.revision());
        let ended = self.outage().record_success();
        match ended {
            Some(Extent { after, failures }) => {
                let after = Plain(after);
                self.log(&format_args!(
                    "server is connected: {era}, {revision}; it was down for {after} ({failures} failed attempts)"
                ));
            }
            None => self.log(&format_args!("server is connected: {era}, {revision}")),
        }
    }

    /// Whether the connection belongs to one client, not to Fanlight.
    fn is_of_clients(&self) -> bool {
        self.for_client.is_some()
            || self
                .settings
                .process()
                .is_some_and(|policy| policy.serves == Serves::One)
    }

    /// Logs news; for client connections at a lower level.
    fn log(&self, news: &fmt::Arguments<'_>) {
        let backend = &*self.context.name;
        if self.is_of_clients() {
            tracing::debug!(backend, "{news} (of a client)");
        } else {
            tracing::info!(backend, "{news}");
        }
    }

    fn enter(&self, phase: Phase) {
        self.change(|state| {
            let is_attempt = matches!(phase, Phase::Connecting { .. });
            state.attempted |= !is_attempt;
            state.attempts += u64::from(is_attempt);
            state.phase = phase;
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
        if self.for_client.is_none() {
            let rests = matches!(self.state.borrow().phase, Phase::Idle);
            self.settings.rests.store(rests, Ordering::Relaxed);
            self.settings.states.send_replace(());
        }
    }
}
