//! The connection to Valkey. One task keeps it; all parts of the process use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_config::settings::ValkeyKind;
use parking_lot::Mutex;
use redis::{
    ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError, ScriptInvocation, ServerErrorKind,
};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::server::Link;

pub use crate::server::{Certificates, Settings};

/// How long a request waits for Valkey. If that is exceeded, the request counts as not done, and
/// Valkey as unavailable. A constant: callers on the way of a call then do something else.
pub const WITHIN: Duration = Duration::from_millis(500);
/// The shortest and the longest pause between attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The state in Valkey that several processes share.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// The certificates for the next connection.
    certificates: ArcSwap<Certificates>,
    /// `None` while Valkey is unavailable.
    link: ArcSwapOption<Link>,
    broken: Notify,
    /// Notified of other certificates for the servers of a cluster, to which the cluster's client
    /// connects by itself.
    renewed: Notify,
    /// The number of the last attempt to connect. Later reports from an earlier connection mean
    /// nothing.
    attempt: AtomicU64,
    /// Notified at the end of each attempt to connect.
    tried: Notify,
    /// Rises whenever another process reports a change. It also rises with each connection, since
    /// earlier reports may have been missed.
    changes: watch::Sender<u64>,
    state: Mutex<State>,
    answered: AtomicU64,
    failed: AtomicU64,
    replication: Replication,
}

/// The wait for replicas of Valkey. Only one request waits at a time, since all later ones on the
/// connection wait, too.
struct Replication {
    turn: Semaphore,
    /// The number of such requests begun so far.
    begun: AtomicU64,
    /// The number of the last finished one, and its outcome.
    last: Mutex<(u64, Result<bool, SharedError>)>,
}

/// The state of the connection, with its start; if Valkey is unavailable, with the reason.
struct State {
    since: SystemTime,
    trouble: Option<Arc<str>>,
}

/// The connection's state for operators.
#[derive(Clone, Debug)]
pub struct Report {
    /// The location of Valkey, without user and password.
    pub url: String,
    /// The start of the current state.
    pub since: SystemTime,
    /// The reason why Valkey is unavailable; `None` while connected.
    pub trouble: Option<Arc<str>>,
    /// The number of requests that Valkey has answered.
    pub answered: u64,
    /// The number of failed requests, including those that were not sent because Valkey was
    /// unavailable.
    pub failed: u64,
}

/// The reason why a request to Valkey failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// Valkey is unavailable, so the request was certainly not done.
    #[error("Valkey cannot be reached: {0}")]
    Away(Arc<str>),
    /// Valkey has not answered, so the request may have been done.
    #[error("Valkey did not answer within {} ms", WITHIN.as_millis())]
    Unanswered,
    /// Valkey has refused the request.
    #[error("Valkey has refused: {0}")]
    Refused(String),
}

/// The reason why settings are unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Valkey at {url} cannot be used: {reason}")]
pub struct Unusable {
    url: String,
    reason: String,
}

impl Shared {
    /// Creates the shared state, which connects when [`Self::keep`] runs.
    ///
    /// # Errors
    ///
    /// If the settings are unusable, most likely because of the certificates.
    pub fn new(settings: Settings, certificates: Certificates) -> Result<Self, Unusable> {
        check(&settings, &certificates)?;
        let state = State {
            since: SystemTime::now(),
            trouble: Some("not connected yet".into()),
        };
        Ok(Self(Arc::new(Inner {
            settings,
            certificates: ArcSwap::from_pointee(certificates),
            link: ArcSwapOption::empty(),
            broken: Notify::new(),
            renewed: Notify::new(),
            attempt: AtomicU64::new(0),
            tried: Notify::new(),
            changes: watch::Sender::new(0),
            state: Mutex::new(state),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            replication: Replication {
                turn: Semaphore::new(1),
                begun: AtomicU64::new(0),
                last: Mutex::new((0, Ok(true))),
            },
        })))
    }

    /// Checks that other certificates can be used for connections; returns whether they differ from
    /// the current ones.
    ///
    /// # Errors
    ///
    /// If they are unusable.
    pub fn check(&self, certificates: &Certificates) -> Result<bool, Unusable> {
        check(&self.0.settings, certificates)?;
        Ok(**self.0.certificates.load() != *certificates)
    }

    /// Uses other certificates for later connections.
    pub fn renew(&self, certificates: Certificates) {
        self.0.certificates.store(Arc::new(certificates));
        if self.is_cluster() {
            self.0.renewed.notify_one();
        }
    }

    /// Connects, and reconnects whenever the connection breaks or must use other certificates,
    /// until `end`.
    pub async fn keep(self, end: CancellationToken) {
        end.run_until_cancelled(async {
            let mut pause = RETRY.0;
            loop {
                let is_connected = self.connect().await;
                self.0.tried.notify_one();
                if is_connected {
                    pause = RETRY.0;
                    tokio::select! {
                        () = self.0.broken.notified() => {}
                        () = self.0.renewed.notified() => {}
                    }
                }
                // Jitter, so that not all replicas reconnect at once.
                sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause = (pause * 2).min(RETRY.1);
            }
        })
        .await;
    }

    /// Makes a key. One server of a cluster has all keys with the same `tag`, so that one script
    /// can use them together.
    pub fn key(&self, tag: &str, rest: &str) -> String {
        format!("{}:{{{tag}}}:{rest}", self.0.settings.group)
    }

    /// Whether different servers may have keys with different tags, so that one script cannot use
    /// them together.
    pub fn is_cluster(&self) -> bool {
        self.0.settings.url.kind == ValkeyKind::Cluster
    }

    /// Runs a script atomically.
    ///
    /// # Errors
    ///
    /// If Valkey has not run it, or has not reported so in time.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, SharedError> {
        self.ask(|mut link| async move { script.invoke_async(&mut link).await })
            .await
    }

    /// Runs a script that may run more than once. Repeats it until Valkey has answered, at most
    /// until `deadline`: Valkey may just have been unavailable.
    ///
    /// # Errors
    ///
    /// The errors of the last attempt.
    pub async fn run_until<T: FromRedisValue>(
        &self,
        deadline: Instant,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, SharedError> {
        loop {
            match self.run(script).await {
                Err(SharedError::Away(_) | SharedError::Unanswered)
                    if Instant::now() < deadline =>
                {
                    sleep(RETRY.0).await;
                }
                done => return done,
            }
        }
    }

    /// Waits until earlier writes have reached one replica of Valkey, if it has any. Returns
    /// whether they did within this time; a cluster is not asked. Callers that come during a wait
    /// then wait together.
    ///
    /// # Errors
    ///
    /// If Valkey has not reported so in time.
    pub async fn wait_for_replication(&self, within: Duration) -> Result<bool, SharedError> {
        let Replication { turn, begun, last } = &self.0.replication;
        let before = begun.load(Ordering::SeqCst);
        let _turn = turn.acquire().await.map_err(|_| SharedError::Unanswered)?;
        let (number, outcome) = last.lock().clone();
        if number > before {
            return outcome;
        }
        let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = self.wait(within).await;
        *last.lock() = (number, outcome.clone());
        outcome
    }

    async fn wait(&self, within: Duration) -> Result<bool, SharedError> {
        let millis = u64::try_from(within.min(WITHIN / 2).as_millis()).unwrap_or(u64::MAX);
        self.ask(|mut link| async move {
            if matches!(link, Link::Cluster(_)) {
                return Ok(true);
            }
            let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut link).await?;
            let has_replicas =
                matches!(role.get(2), Some(redis::Value::Array(replicas)) if !replicas.is_empty());
            if !has_replicas {
                return Ok(true);
            }
            redis::cmd("WAIT")
                .arg(1)
                .arg(millis)
                .query_async::<u64>(&mut link)
                .await
                .map(|count| count > 0)
        })
        .await
    }

    async fn ask<T, F>(&self, ask: impl FnOnce(Link) -> F) -> Result<T, SharedError>
    where
        F: Future<Output = redis::RedisResult<T>>,
    {
        let Some(link) = self.0.link.load_full() else {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
            return Err(SharedError::Away(self.trouble()));
        };
        let answer = timeout(WITHIN, ask(Link::clone(&link))).await;
        let counter = if matches!(answer, Ok(Ok(_))) {
            &self.0.answered
        } else {
            &self.0.failed
        };
        counter.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if is_of_connection(&error) => {
                self.note_lost(Some(&link), &text_of(&error));
                Err(SharedError::Unanswered)
            }
            Ok(Err(error)) => Err(SharedError::Refused(text_of(&error))),
            Err(_) => {
                self.note_lost(Some(&link), &SharedError::Unanswered.to_string());
                Err(SharedError::Unanswered)
            }
        }
    }

    /// Notifies when content in Valkey may have changed, and when Valkey is available again.
    /// Whoever has a copy then reads it again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The channel on which scripts announce changes to processes with copies.
    pub fn channel(&self) -> String {
        format!("{}:changes", self.0.settings.group)
    }

    /// Waits for the first attempt to connect.
    ///
    /// # Errors
    ///
    /// If the attempt fails.
    pub async fn connected(&self) -> Result<(), SharedError> {
        self.0.tried.notified().await;
        if self.is_away() {
            Err(SharedError::Away(self.trouble()))
        } else {
            Ok(())
        }
    }

    /// Whether Valkey is certainly unavailable now.
    pub fn is_away(&self) -> bool {
        self.0.link.load().is_none()
    }

    /// The unique number of the current connection; `None` while Valkey is unavailable. Writes over
    /// an earlier connection may be lost.
    pub fn connection(&self) -> Option<u64> {
        // Only in a cluster can there be an attempt during a connection, and a cluster keeps what
        // was written over it.
        (!self.is_away()).then(|| self.0.attempt.load(Ordering::Relaxed))
    }

    /// The connection's state for operators.
    pub fn report(&self) -> Report {
        let state = self.0.state.lock();
        Report {
            url: self.0.settings.url.to_string(),
            since: state.since,
            trouble: state.trouble.clone(),
            answered: self.0.answered.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
        }
    }

    /// Tries to connect; returns whether it succeeded.
    async fn connect(&self) -> bool {
        let pushed = {
            let inner = Arc::downgrade(&self.0);
            let attempt = self.0.attempt.fetch_add(1, Ordering::Relaxed) + 1;
            move |info: PushInfo| {
                if let Some(inner) = inner.upgrade() {
                    Self(inner).handle_push(&info.kind, attempt);
                }
                Ok::<(), redis::aio::SendError>(())
            }
        };
        let (certificates, channel) = (self.0.certificates.load_full(), self.channel());
        let settings = &self.0.settings;
        let connecting = settings.connect(&certificates, WITHIN, pushed, &channel);
        let connected = timeout(settings.longest_connect(), connecting).await;
        match connected {
            Ok(Ok(link)) => {
                self.0.link.store(Some(Arc::new(link)));
                self.now(None);
                self.0.changes.send_modify(|count| *count += 1);
                info!(valkey = %self.0.settings.url, "connected to Valkey");
                true
            }
            Ok(Err(error)) => self.not_connected(&text_of(&error)),
            Err(_) => self.not_connected("connecting takes too long"),
        }
    }

    /// Handles an unrequested message from the server, on the connection of this attempt.
    fn handle_push(&self, kind: &PushKind, attempt: u64) {
        if self.0.attempt.load(Ordering::Relaxed) != attempt {
            return;
        }
        match kind {
            // In a cluster, other servers may still be reachable, and the cluster's client
            // resubscribes by itself. Reading shows what was published meanwhile.
            PushKind::Disconnection
                if !matches!(self.0.link.load().as_deref(), Some(Link::Cluster(_))) =>
            {
                self.note_lost(None, "the connection broke");
            }
            PushKind::Message | PushKind::Subscribe => {
                self.0.changes.send_modify(|count| *count += 1);
            }
            _ => {}
        }
    }

    fn not_connected(&self, why: &str) -> bool {
        if self.0.state.lock().trouble.as_deref() != Some(why) {
            warn!(valkey = %self.0.settings.url, "cannot connect to Valkey: {why}");
        }
        // A connection with earlier certificates must not be used any longer.
        self.0.link.store(None);
        self.now(Some(why));
        false
    }

    /// Records that Valkey is unavailable, unless there is a newer connection than `link`. `None`
    /// means the current one.
    fn note_lost(&self, link: Option<&Arc<Link>>, why: &str) {
        let present = self.0.link.load_full();
        let is_present = match (&present, link) {
            (Some(present), Some(link)) => Arc::ptr_eq(present, link),
            (present, _) => present.is_some(),
        };
        if !is_present {
            return;
        }
        self.0.link.store(None);
        self.now(Some(why));
        warn!(valkey = %self.0.settings.url, "Valkey is away: {why}");
        self.0.broken.notify_one();
    }

    fn now(&self, trouble: Option<&str>) {
        let mut state = self.0.state.lock();
        if state.trouble.is_none() != trouble.is_none() {
            state.since = SystemTime::now();
        }
        state.trouble = trouble.map(Arc::from);
    }

    fn trouble(&self) -> Arc<str> {
        self.0
            .state
            .lock()
            .trouble
            .clone()
            .unwrap_or_else(|| "the connection broke".into())
    }
}

fn check(settings: &Settings, certificates: &Certificates) -> Result<(), Unusable> {
    settings.check(certificates).map_err(|error| Unusable {
        url: settings.url.to_string(),
        reason: text_of(&error),
    })
}

/// Whether an error makes this connection useless: it broke, or its server became a replica or is
/// loading data.
fn is_of_connection(error: &RedisError) -> bool {
    let of_server = [
        ServerErrorKind::ReadOnly,
        ServerErrorKind::BusyLoading,
        ServerErrorKind::MasterDown,
    ];
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Server(kind) => of_server.contains(&kind),
        _ => false,
    }
}

/// The text of an error, on one line.
fn text_of(error: &RedisError) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

fanlight_protocol::opaque!(Shared);
