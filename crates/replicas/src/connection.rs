//! The connection to Valkey: kept by one task, used by all.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_config::settings::ValkeyKind;
use redis::{
    ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError, ScriptInvocation, ServerErrorKind,
};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::server::Link;

pub use crate::server::{Certificates, Settings};

/// How long a request waits for Valkey at most. What takes longer counts as not done, and Valkey as away. No option: what asks
/// Valkey on the way of a call has something else to do then.
pub const WITHIN: Duration = Duration::from_millis(500);
/// Pauses between attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// What several processes share, in Valkey.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// For the next connection.
    certificates: ArcSwap<Certificates>,
    /// `None` while it cannot be reached.
    link: ArcSwapOption<Link>,
    broken: Notify,
    /// There are other certificates for the servers of a cluster, to which its client connects by itself.
    renewed: Notify,
    /// The number of the last attempt to connect: what an earlier connection says later means nothing.
    attempt: AtomicU64,
    /// Told of the end of each attempt to connect.
    tried: Notify,
    /// Rises whenever another process says that it has changed something, and with each connection: it may have said so before.
    changes: watch::Sender<u64>,
    state: Mutex<State>,
    answered: AtomicU64,
    failed: AtomicU64,
    replication: Replication,
}

/// Waiting for a replica of Valkey. One request does so at a time: all that come after it on the connection wait, too.
struct Replication {
    turn: Semaphore,
    /// How many such requests have begun.
    begun: AtomicU64,
    /// The number of the last one that has ended, and its outcome.
    last: Mutex<(u64, Result<bool, SharedError>)>,
}

/// Since when it is as it is; with the reason if it cannot be reached.
struct State {
    since: SystemTime,
    trouble: Option<Arc<str>>,
}

/// The connection as operators see it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where Valkey is, without user and password.
    pub url: String,
    /// Since when it is connected, or away.
    pub since: SystemTime,
    /// Why it is away; `None` while it is connected.
    pub trouble: Option<Arc<str>>,
    /// Requests that it has answered.
    pub answered: u64,
    /// Requests that it has not answered as it should, or that were not sent because it was away.
    pub failed: u64,
}

/// Why something was not done in Valkey.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// It cannot be reached: certainly not done.
    #[error("Valkey cannot be reached: {0}")]
    Away(Arc<str>),
    /// It has not answered: it may have been done.
    #[error("Valkey did not answer within {} ms", WITHIN.as_millis())]
    Unanswered,
    /// It has refused.
    #[error("Valkey has refused: {0}")]
    Refused(String),
}

/// Why these settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Valkey at {url} cannot be used: {reason}")]
pub struct Unusable {
    url: String,
    reason: String,
}

impl Shared {
    /// With these settings; not connected until [`Self::keep`] runs.
    ///
    /// # Errors
    ///
    /// If they can't be used: the certificates, most likely.
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

    /// Checks that connections can be made with other certificates; whether these are other ones.
    ///
    /// # Errors
    ///
    /// If they can't be used.
    pub fn check(&self, certificates: &Certificates) -> Result<bool, Unusable> {
        check(&self.0.settings, certificates)?;
        Ok(**self.0.certificates.load() != *certificates)
    }

    /// Has connections that are made from now on use other certificates.
    pub fn renew(&self, certificates: Certificates) {
        self.0.certificates.store(Arc::new(certificates));
        if self.is_cluster() {
            self.0.renewed.notify_one();
        }
    }

    /// Connects, and connects again whenever the connection breaks or has to use other certificates, until `end`.
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
                // Spread, so that not all replicas come at once.
                sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause = (pause * 2).min(RETRY.1);
            }
        })
        .await;
    }

    /// A key. Those with the same `tag` are kept by the same server of a cluster, so that one script can use them together.
    #[must_use]
    pub fn key(&self, tag: &str, rest: &str) -> String {
        format!("{}:{{{tag}}}:{rest}", self.0.settings.group)
    }

    /// Whether keys with different tags may be kept by different servers, of which one script can use those of one alone.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.0.settings.url.kind == ValkeyKind::Cluster
    }

    /// Runs a script, all of it or nothing.
    ///
    /// # Errors
    ///
    /// If Valkey has not run it, or has not said so in time.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, SharedError> {
        self.ask(|mut link| async move { script.invoke_async(&mut link).await })
            .await
    }

    /// Runs a script that may run more than once, again and again until Valkey has answered, or until `deadline`: it may just have been
    /// away.
    ///
    /// # Errors
    ///
    /// Those of the last attempt.
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

    /// Waits until what was written before is at one replica of Valkey, if it has any. Whether it is there within this time;
    /// a cluster is not asked. Those who come while others wait do so together after them.
    ///
    /// # Errors
    ///
    /// If Valkey has not said so in time.
    pub async fn replicated(&self, within: Duration) -> Result<bool, SharedError> {
        let Replication { turn, begun, last } = &self.0.replication;
        let before = begun.load(Ordering::SeqCst);
        let _turn = turn.acquire().await.map_err(|_| SharedError::Unanswered)?;
        let (number, outcome) = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if number > before {
            return outcome;
        }
        let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = self.wait(within).await;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = (number, outcome.clone());
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
                self.lost(Some(&link), &text_of(&error));
                Err(SharedError::Unanswered)
            }
            Ok(Err(error)) => Err(SharedError::Refused(text_of(&error))),
            Err(_) => {
                self.lost(Some(&link), &SharedError::Unanswered.to_string());
                Err(SharedError::Unanswered)
            }
        }
    }

    /// Told when what is kept in Valkey may have changed, and when it can be reached again: whoever holds some of it reads it
    /// then.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Where scripts publish that they have changed something that others hold.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("{}:changes", self.0.settings.group)
    }

    /// Waits for the first attempt to connect.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub async fn connected(&self) -> Result<(), SharedError> {
        self.0.tried.notified().await;
        if self.is_away() {
            Err(SharedError::Away(self.trouble()))
        } else {
            Ok(())
        }
    }

    /// Whether it is certain that it cannot be reached now.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.link.load().is_none()
    }

    /// The number of the present connection, which no other has; `None` while it is away. What was written over an earlier one may
    /// be lost.
    #[must_use]
    pub fn connection(&self) -> Option<u64> {
        // An attempt is made while there is a connection only in a cluster, which has what was written over that.
        (!self.is_away()).then(|| self.0.attempt.load(Ordering::Relaxed))
    }

    /// What operators are shown.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.state();
        Report {
            url: self.0.settings.url.to_string(),
            since: state.since,
            trouble: state.trouble.clone(),
            answered: self.0.answered.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
        }
    }

    /// Whether it is connected now.
    async fn connect(&self) -> bool {
        let pushed = {
            let inner = Arc::downgrade(&self.0);
            let attempt = self.0.attempt.fetch_add(1, Ordering::Relaxed) + 1;
            move |info: PushInfo| {
                if let Some(inner) = inner.upgrade() {
                    Self(inner).pushed(&info.kind, attempt);
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

    /// Takes what the server has sent without being asked, on the connection of this attempt.
    fn pushed(&self, kind: &PushKind, attempt: u64) {
        if self.0.attempt.load(Ordering::Relaxed) != attempt {
            return;
        }
        match kind {
            // In a cluster, others may still be reached, and the client of it subscribes again by itself: what was published
            // meanwhile is known by reading it.
            PushKind::Disconnection
                if !matches!(self.0.link.load().as_deref(), Some(Link::Cluster(_))) =>
            {
                self.lost(None, "the connection broke");
            }
            PushKind::Message | PushKind::Subscribe => {
                self.0.changes.send_modify(|count| *count += 1)
            }
            _ => {}
        }
    }

    fn not_connected(&self, why: &str) -> bool {
        if self.state().trouble.as_deref() != Some(why) {
            warn!(valkey = %self.0.settings.url, "cannot connect to Valkey: {why}");
        }
        // One that still uses earlier certificates is not to be used on.
        self.0.link.store(None);
        self.now(Some(why));
        false
    }

    /// Has it be away, unless another connection has been made since; `None` stands for the present one.
    fn lost(&self, link: Option<&Arc<Link>>, why: &str) {
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
        let mut state = self.state();
        if state.trouble.is_none() != trouble.is_none() {
            state.since = SystemTime::now();
        }
        state.trouble = trouble.map(Arc::from);
    }

    fn trouble(&self) -> Arc<str> {
        self.state()
            .trouble
            .clone()
            .unwrap_or_else(|| "the connection broke".into())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(settings: &Settings, certificates: &Certificates) -> Result<(), Unusable> {
    settings.check(certificates).map_err(|error| Unusable {
        url: settings.url.to_string(),
        reason: text_of(&error),
    })
}

/// Whether an error means that this connection is of no more use: it broke, or leads to a server that became a replica of
/// another, or that is loading its data.
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

/// What an error says, on one line.
fn text_of(error: &RedisError) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.0.settings.url).finish()
    }
}
