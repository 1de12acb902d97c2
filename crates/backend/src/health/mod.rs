//! The health of a server, judged by its calls. Several timeouts in a row cause a check; failures
//! of several tools open the [`Circuit`]. Such a server may still answer checks, and costs every
//! call its whole timeout.
//!
//! The circuit opens after several calls in a row, for at least two items, got no answer. Further
//! calls then fail at once. After a pause one call is tried; the first answer closes the circuit,
//! and each failed trial makes the pause longer. One slow tool does not open it.
//!
//! A client that saw no failure gets one immediate try, so one client's slow calls cannot lock out
//! others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_canonical::{BackendError, Backoff, Peer, Plain};
use fanlight_protocol::{Json, Method};
use fanlight_telemetry::metrics::BackendMetrics;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::settings::{HealthPolicy, RetryDelays};

/// Statistics of one server's calls.
pub(crate) struct Health {
    backend: Arc<str>,
    pub(crate) policy: HealthPolicy,
    metrics: Arc<BackendMetrics>,
    circuit: Mutex<Circuit>,
    /// Whether the circuit has recorded a failure since the last answer. Otherwise calls need not
    /// lock it.
    is_troubled: AtomicBool,
    /// The number of calls that timed out since the last answer.
    timeouts: AtomicUsize,
    doubted: Notify,
    /// Whether the server left a check unanswered and has answered nothing since.
    is_ejected: AtomicBool,
}

impl Health {
    /// Creates the statistics; `pauses` are the pauses before trials of an open circuit.
    pub(crate) fn new(
        backend: Arc<str>,
        policy: HealthPolicy,
        pauses: RetryDelays,
        metrics: Arc<BackendMetrics>,
    ) -> Self {
        Self {
            backend,
            policy,
            metrics,
            circuit: Mutex::new(Circuit::new(policy.timeouts, pauses)),
            is_troubled: AtomicBool::new(false),
            timeouts: AtomicUsize::new(0),
            doubted: Notify::new(),
            is_ejected: AtomicBool::new(false),
        }
    }

    /// Lets a call through, unless the circuit is open.
    pub(crate) fn admit(&self, client: &Peer) -> Result<Admission, BackendError> {
        if self.is_troubled() {
            self.circuit.lock().admit(client)
        } else {
            Ok(Admission::Closed)
        }
    }

    /// Records an answered call.
    pub(crate) fn call_answered(&self) {
        if self.is_troubled() {
            self.note(Circuit::close);
        }
    }

    /// Records a call without an answer.
    pub(crate) fn call_failed(&self, item: Item<'_>, client: &Peer, admission: Admission) {
        self.note(|circuit| circuit.record_failure(item, client, admission));
    }

    /// Records a call that ended without a finding.
    pub(crate) fn call_abandoned(&self, client: &Peer, admission: Admission) {
        if admission != Admission::Closed {
            self.circuit.lock().abandoned(client, admission);
        }
    }

    /// The reason why calls are refused, and for how long; `None` if they are sent.
    pub(crate) fn refusal_reason(&self) -> Option<(BackendError, Duration)> {
        if self.is_troubled() {
            self.circuit.lock().error()
        } else {
            None
        }
    }

    /// Whether a trial is due; `None` if all calls are sent.
    pub(crate) fn trial_is_due(&self) -> Option<bool> {
        if self.is_troubled() {
            self.circuit.lock().trial_is_due()
        } else {
            None
        }
    }

    fn is_troubled(&self) -> bool {
        self.is_troubled.load(Ordering::Acquire)
    }

    /// Changes the circuit, and logs the change for operators.
    fn note(&self, change: impl FnOnce(&mut Circuit) -> Option<News>) {
        let (news, pause) = {
            let mut circuit = self.circuit.lock();
            let news = change(&mut circuit);
            self.is_troubled
                .store(!circuit.is_untroubled(), Ordering::Release);
            (news, circuit.error().map(|(_, pause)| pause))
        };
        let backend = &*self.backend;
        match news {
            Some(News::Opened { failures }) => {
                self.metrics.count_ejection();
                let retry_in = Plain(pause.unwrap_or_default());
                tracing::warn!(backend, failures, %retry_in, "server gets no calls for now: it did not answer the last ones");
            }
            Some(News::Closed { after }) => {
                tracing::info!(backend, after = %Plain(after), "server gets calls again");
            }
            None => {}
        }
    }

    /// Records any answer.
    pub(crate) fn record_answer(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Records the timeout of a call that had been sent.
    pub(crate) fn record_timeout(&self) {
        let timeouts = self
            .timeouts
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if timeouts >= self.policy.timeouts {
            self.doubted.notify_one();
        }
    }

    /// Requests a check at once.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Waits until the next check is due.
    pub(crate) async fn check_is_due(&self) {
        let interval = async {
            match self.policy.interval {
                Some(interval) => tokio::time::sleep(interval).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.doubted.notified() => {}
            () = interval => {}
        }
    }

    /// Records that the server left a check unanswered (`true`), or is connected again.
    pub(crate) fn set_ejected(&self, is_ejected: bool) {
        self.is_ejected.store(is_ejected, Ordering::Relaxed);
        self.record_answer();
        // The process is new, or the server is back, so calls may be sent again.
        self.call_answered();
    }

    /// Whether the server left a check unanswered and has answered nothing since.
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }
}

/// The maximum number of remembered clients that saw a failure. Further clients get no trial of
/// their own, since each trial costs its client a timeout. A constant: it only limits memory.
const CLIENTS: usize = 64;

/// The outcome of the last calls of one server.
struct Circuit {
    /// The number of unanswered calls in a row that opens the circuit.
    most: usize,
    /// The number of unanswered calls in a row.
    failures: usize,
    /// The hash of the first such call's item.
    first: Option<u64>,
    /// Whether the calls were for more than one item.
    is_several: bool,
    /// The clients that made these calls, or have a trial of their own.
    clients: HashSet<Peer>,
    open: Option<Open>,
    pauses: Backoff,
    hasher: RandomState,
}

/// The open state: calls are refused.
struct Open {
    since: Instant,
    /// The time of the next trial.
    until: Instant,
    /// Whether a trial is running.
    is_tried: bool,
    /// The number of failed calls when the circuit opened.
    failures: usize,
}

/// The reason why a call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Closed,
    /// The call is the trial after a pause.
    Trial,
    /// The call's client has seen no failure, so it gets a trial of its own.
    OwnTrial,
}

/// A change that the end of a call caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Opened { failures: usize },
    Closed { after: Duration },
}

impl Circuit {
    fn new(most: usize, pauses: RetryDelays) -> Self {
        Self {
            most,
            failures: 0,
            first: None,
            is_several: false,
            clients: HashSet::new(),
            open: None,
            pauses: Backoff::new(pauses),
            hasher: RandomState::new(),
        }
    }

    /// Whether the last calls all succeeded.
    fn is_untroubled(&self) -> bool {
        self.failures == 0 && self.open.is_none()
    }

    /// Decides whether a call may be sent.
    fn admit(&mut self, client: &Peer) -> Result<Admission, BackendError> {
        let Some(open) = &mut self.open else {
            return Ok(Admission::Closed);
        };
        let is_untroubled = self.clients.len() < CLIENTS && self.clients.insert(client.clone());
        // The common trial takes precedence: while it is due, it attracts calls.
        if open.is_due() {
            open.is_tried = true;
            return Ok(Admission::Trial);
        }
        if is_untroubled {
            Ok(Admission::OwnTrial)
        } else {
            Err(open.error())
        }
    }

    /// The reason why calls are refused, and for how long; `None` if they are sent.
    fn error(&self) -> Option<(BackendError, Duration)> {
        let open = self.open.as_ref()?;
        Some((
            open.error(),
            open.until.saturating_duration_since(Instant::now()),
        ))
    }

    /// Whether a trial is due; `None` if all calls are sent.
    fn trial_is_due(&self) -> Option<bool> {
        self.open.as_ref().map(Open::is_due)
    }

    /// Records a call without an answer.
    fn record_failure(
        &mut self,
        item: Item<'_>,
        client: &Peer,
        admission: Admission,
    ) -> Option<News> {
        let item = self.hasher.hash_one(item);
        self.failures = self.failures.saturating_add(1);
        self.is_several |= *self.first.get_or_insert(item) != item;
        if self.clients.len() < CLIENTS {
            self.clients.insert(client.clone());
        }
        match &mut self.open {
            Some(open) if admission == Admission::Trial => {
                (open.is_tried, open.until) = (false, Instant::now() + self.pauses.next_delay());
            }
            None if self.is_several && self.failures >= self.most => {
                let (since, failures) = (Instant::now(), self.failures);
                self.open = Some(Open {
                    since,
                    until: since + self.pauses.next_delay(),
                    is_tried: false,
                    failures,
                });
                return Some(News::Opened { failures });
            }
            Some(_) | None => {}
        }
        None
    }

    /// Records a call without a verdict on the server, for example because the client cancelled it.
    fn abandoned(&mut self, client: &Peer, admission: Admission) {
        match (admission, &mut self.open) {
            (Admission::Trial, Some(open)) => open.is_tried = false,
            (Admission::OwnTrial, _) => {
                self.clients.remove(client);
            }
            _ => {}
        }
    }

    /// Records an answered call or a new connection.
    fn close(&mut self) -> Option<News> {
        (self.failures, self.first, self.is_several) = (0, None, false);
        self.clients.clear();
        self.pauses.reset();
        self.open.take().map(|open| News::Closed {
            after: open.since.elapsed(),
        })
    }
}

impl Open {
    /// Whether the next call is a trial.
    fn is_due(&self) -> bool {
        !self.is_tried && self.until <= Instant::now()
    }

    fn error(&self) -> BackendError {
        BackendError::NoAnswers {
            calls: self.failures,
        }
    }
}

/// The target of a call: a tool, a prompt, or resources in general, whose number has no limit.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Item<'a> {
    method: &'a str,
    name: Option<&'a str>,
}

impl<'a> Item<'a> {
    /// Whether calls of this method show if the server answers calls. Lists and pings do not: a
    /// server may answer those and no call.
    pub(crate) fn is_of(method: &Method) -> bool {
        matches!(
            method,
            Method::CallTool | Method::GetPrompt | Method::ReadResource
        )
    }

    pub(crate) fn new(method: &'a Method, name: Option<&'a str>) -> Self {
        Self {
            method: method.as_str(),
            name,
        }
    }

    /// The name of the called tool or prompt.
    pub(crate) fn name(params: Option<&Json>) -> Option<Cow<'_, str>> {
        params?.peek("name")?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn health(interval: Option<Duration>) -> Health {
        let pauses = RetryDelays {
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(1),
        };
        let policy = HealthPolicy {
            interval,
            timeout: Duration::ZERO,
            timeouts: 2,
        };
        Health::new(
            "b".into(),
            policy,
            pauses,
            Arc::new(BackendMetrics::unregistered()),
        )
    }

    #[test]
    fn timeouts_in_a_row_are_doubtful() {
        let health = health(None);
        let is_due = || health.check_is_due().now_or_never().is_some();
        health.record_timeout();
        health.record_answer();
        health.record_timeout();
        assert!(!is_due());
        health.record_timeout();
        assert!(is_due() && !is_due());
        health.set_ejected(false);
        health.record_timeout();
        assert!(!is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_due_at_each_interval() {
        let interval = Duration::from_secs(3);
        let health = health(Some(interval));
        let since = Instant::now();
        health.check_is_due().await;
        health.check_is_due().await;
        assert_eq!(since.elapsed(), 2 * interval);
    }
}

#[cfg(test)]
mod circuit_tests {
    use super::*;

    const PAUSES: RetryDelays = RetryDelays {
        shortest: Duration::from_secs(8),
        longest: Duration::from_secs(64),
    };

    fn ann() -> Peer {
        Peer::Address([10, 0, 0, 1].into())
    }

    fn ben() -> Peer {
        Peer::Address([10, 0, 0, 2].into())
    }

    fn tool(name: &str) -> Item<'_> {
        Item::new(&Method::CallTool, Some(name))
    }

    /// A circuit that Ann's calls of two tools have opened.
    fn opened() -> Circuit {
        let mut circuit = Circuit::new(3, PAUSES);
        let news: Vec<_> = ["a", "a", "b"]
            .map(|name| {
                let admission = circuit.admit(&ann()).unwrap();
                circuit.record_failure(tool(name), &ann(), admission)
            })
            .into();
        assert_eq!(news, [None, None, Some(News::Opened { failures: 3 })]);
        circuit
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_tool_does_not_open_the_circuit() {
        let mut circuit = Circuit::new(3, PAUSES);
        for _ in 0..20 {
            assert_eq!(
                circuit.record_failure(tool("slow"), &ann(), Admission::Closed),
                None
            );
        }
        assert_eq!(circuit.admit(&ann()), Ok(Admission::Closed));
        circuit.close();
        for name in ["a", "b", "answered", "a", "b", "answered", "a", "b"] {
            match name {
                "answered" => assert_eq!(circuit.close(), None),
                name => assert_eq!(
                    circuit.record_failure(tool(name), &ann(), Admission::Closed),
                    None
                ),
            }
        }
        assert!(!circuit.is_untroubled() && circuit.error().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn open_circuit_is_tried_by_one_call_after_each_longer_pause() {
        let mut circuit = opened();
        let mut last = Duration::ZERO;
        for round in 0..3 {
            assert!(circuit.admit(&ann()).is_err());
            let (_, pause) = circuit.error().unwrap();
            assert!(
                pause >= PAUSES.shortest * (1 << round) / 2 && pause >= last,
                "{pause:?} after {last:?}"
            );
            last = pause;
            tokio::time::advance(pause).await;
            assert_eq!(circuit.admit(&ann()), Ok(Admission::Trial));
            assert!(circuit.admit(&ann()).is_err(), "one at a time");
            assert_eq!(
                circuit.record_failure(tool("a"), &ann(), Admission::Trial),
                None
            );
        }
        tokio::time::advance(PAUSES.longest).await;
        assert_eq!(circuit.admit(&ann()), Ok(Admission::Trial));
        circuit.abandoned(&ann(), Admission::Trial);
        assert_eq!(circuit.admit(&ann()), Ok(Admission::Trial));
        assert!(matches!(circuit.close(), Some(News::Closed { after }) if after > PAUSES.longest));
        assert_eq!(
            (circuit.admit(&ann()), circuit.is_untroubled()),
            (Ok(Admission::Closed), true)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn client_cannot_keep_a_server_from_another() {
        let mut circuit = opened();
        assert_eq!(circuit.admit(&ben()), Ok(Admission::OwnTrial));
        assert!(circuit.admit(&ben()).is_err(), "once");
        circuit.abandoned(&ben(), Admission::OwnTrial);
        assert_eq!(circuit.admit(&ben()), Ok(Admission::OwnTrial));
        circuit.record_failure(tool("c"), &ben(), Admission::OwnTrial);
        assert!(circuit.admit(&ben()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn trial_that_is_due_is_begun_by_whoever_comes_first() {
        let mut circuit = opened();
        tokio::time::advance(PAUSES.longest).await;
        assert_eq!(circuit.trial_is_due(), Some(true));
        assert_eq!(circuit.admit(&ben()), Ok(Admission::Trial));
        assert_eq!(circuit.trial_is_due(), Some(false), "one at a time");
        assert!(circuit.admit(&ben()).is_err() && circuit.admit(&ann()).is_err());
        circuit.record_failure(tool("a"), &ben(), Admission::Trial);
        assert!(circuit.admit(&ben()).is_err(), "has met a failure");
    }

    #[tokio::test(start_paused = true)]
    async fn trials_of_clients_are_bounded() {
        let mut circuit = opened();
        let address = |number: u32| Peer::Address(number.to_be_bytes().into());
        let admitted = (0..1000)
            .filter(|number| circuit.admit(&address(*number)).is_ok())
            .count();
        assert_eq!(admitted, CLIENTS - 1);
    }
}
