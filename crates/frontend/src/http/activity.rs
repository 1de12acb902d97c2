//! Detects connections that are idle, slow or stuck for too long.
//!
//! A connection is closed in three cases:
//! - The head of a request arrives too slowly.
//! - No request was running for too long. hyper's own head timeout does not distinguish this case
//!   from the first.
//! - The client reads too little for too long.
//!
//! One timer per connection checks the recorded I/O, so no request sets a timer. A limit may
//! therefore be noticed late, by at most the head timeout.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fanlight_http::{Usage, UsageKind};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::limits::ConnectionLimits;

/// The requests of unknown senders on one connection of another replica, from which on it ends. A
/// replica sends some if its peer has just started again.
const STRANGERS: usize = 100;

/// How long a client may read nothing, or next to nothing, before its connection counts as
/// replaceable. A constant, since it matters only while other clients need the connection.
const NOT_TAKEN: Duration = Duration::from_secs(1);

/// The recorded activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    /// Cancelled when the connection must end after its running requests.
    shutdown: CancellationToken,
    /// Cancelled when the connection must end at once.
    cut: CancellationToken,
    /// Bytes per second; a client that reads this fast never counts as stuck.
    write_rate: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: usize,
    receiving: Waiting,
    /// Streams of clients that only listen.
    listening: Waiting,
    /// Requests of other connections whose results this connection carries.
    background: usize,
    /// Requests whose sender was not known, at the listener for replicas.
    strangers: usize,
    /// Whether a request has arrived on the connection.
    has_served: bool,
    /// Whether a head is arriving: the connection is new, or bytes have come since the last request
    /// ended.
    is_head_arriving: bool,
    /// Whether this is HTTP/2. There, frames between requests may belong to none, so only idleness
    /// counts.
    is_multiplexed: bool,
    /// The time when the last request ended or the head began to arrive.
    since: Instant,
    /// The time since which the client reads nothing of a pending write.
    blocked_since: Option<Instant>,
    /// How long the client had read nothing when it last read something. The value of the bytes it
    /// reads, at `write_rate`, and the time without pending writes are subtracted.
    arrears: Duration,
    /// The time when the client last read something after a pause.
    unblocked: Instant,
    /// Pieces of HTTP/2 responses that are not written yet, with their start times.
    unsent: HashMap<u64, Instant>,
    next_piece: u64,
}

/// Waiting requests of one connection.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    count: usize,
    /// The time since which one waits.
    since: Instant,
}

impl Waiting {
    fn add(&mut self) {
        if self.count == 0 {
            self.since = Instant::now();
        }
        self.count += 1;
    }
}

/// The reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// No request for too long; closing loses nothing.
    Idle,
    /// A head does not arrive, or the client does not read a response.
    Stuck,
}

impl Activity {
    /// The activity of a newly accepted connection, which waits for its first head.
    pub(crate) fn new(
        limits: &ConnectionLimits,
        shutdown: CancellationToken,
        cut: CancellationToken,
    ) -> Arc<Self> {
        let ConnectionLimits {
            header_timeout,
            idle_timeout,
            write_timeout,
            write_rate,
            ..
        } = *limits;
        let now = Instant::now();
        let state = State {
            requests: 0,
            receiving: Waiting {
                count: 0,
                since: now,
            },
            listening: Waiting {
                count: 0,
                since: now,
            },
            background: 0,
            strangers: 0,
            has_served: false,
            is_head_arriving: true,
            is_multiplexed: false,
            since: now,
            blocked_since: None,
            arrears: Duration::ZERO,
            unblocked: now,
            unsent: HashMap::new(),
            next_piece: 0,
        };
        Arc::new(Self {
            header_timeout,
            idle_timeout,
            write_timeout,
            shutdown,
            cut,
            write_rate: write_rate.max(1),
            state: Mutex::new(state),
        })
    }

    /// Cancelled when the connection must end after its running requests.
    pub(super) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Records the arrival of a request. The request ends when the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, is_multiplexed: bool) -> ActiveRequest {
        let mut state = self.state.lock();
        state.requests += 1;
        state.has_served = true;
        state.is_head_arriving = false;
        state.is_multiplexed = is_multiplexed;
        ActiveRequest {
            activity: Arc::clone(self),
            listens: false,
        }
    }

    /// The current use of the connection.
    pub(super) fn usage(&self) -> Usage {
        let state = self.state.lock();
        let waiting = state.receiving.count + state.listening.count;
        let (kind, since) = match (state.requests, state.not_taken_since()) {
            // hyper already has the whole answer.
            (0, _) if state.blocked_since.is_some() => (UsageKind::WaitsForClient, state.since),
            (0, _) if state.has_served => (UsageKind::Idle, state.since),
            (0, _) => (UsageKind::Unused, state.since),
            (_, Some(since)) => (UsageKind::WaitsForClient, since),
            (all, None) if all > waiting || state.background > 0 => (UsageKind::Works, state.since),
            _ if state.listening.count > 0 => (UsageKind::Listens, state.listening.since),
            _ => (UsageKind::WaitsForClient, state.receiving.since),
        };
        Usage { kind, since }
    }

    /// Whether a request has arrived on the connection.
    pub(super) fn has_served(&self) -> bool {
        self.state.lock().has_served
    }

    /// Whether a write waits for the client to read.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.state.lock().blocked_since.is_some()
    }

    /// Records that bytes have been read.
    pub(super) fn record_read(&self) {
        let mut state = self.state.lock();
        if state.requests == 0 && !state.is_multiplexed && !state.is_head_arriving {
            state.is_head_arriving = true;
            state.since = Instant::now();
        }
    }

    /// Records the number of bytes that a write took; `None` if it has to wait.
    pub(super) fn record_write(&self, taken: Option<usize>) {
        let mut state = self.state.lock();
        match (taken, state.blocked_since) {
            (Some(_), None) | (None, Some(_)) => {}
            (Some(taken), Some(since)) => {
                let now = Instant::now();
                let worth =
                    Duration::from_secs(u64::try_from(taken).unwrap_or(u64::MAX)) / self.write_rate;
                state.arrears = (state.arrears + (now - since)).saturating_sub(worth);
                (state.blocked_since, state.unblocked) = (None, now);
            }
            (None, None) => {
                let now = Instant::now();
                state.arrears = state.arrears.saturating_sub(now - state.unblocked);
                state.blocked_since = Some(now);
            }
        }
    }

    /// Records a pending piece of an HTTP/2 response. Dropping the result records that it is
    /// written.
    pub(super) fn begin_piece(self: &Arc<Self>) -> UnsentPiece {
        let mut state = self.state.lock();
        let number = state.next_piece;
        state.next_piece += 1;
        state.unsent.insert(number, Instant::now());
        UnsentPiece {
            activity: Arc::clone(self),
            number,
        }
    }

    /// Waits for `grace`, and then until the connection has to be closed.
    pub(super) async fn expired(&self, grace: Duration) -> Expired {
        sleep(grace).await;
        loop {
            match self.next_expiry() {
                (expired, left) if left.is_zero() => return expired,
                (_, left) => sleep(left.min(self.header_timeout)).await,
            }
        }
    }

    /// The timeout that would expire next, and the time left until then.
    fn next_expiry(&self) -> (Expired, Duration) {
        let state = self.state.lock();
        let left = |since: Instant, limit: Duration| limit.saturating_sub(since.elapsed());
        // The stream of a piece should be reset before that, if possible.
        let longest = self.write_timeout + self.header_timeout;
        if let Some(since) = state
            .unsent
            .values()
            .min()
            .filter(|since| since.elapsed() >= longest)
        {
            return (Expired::Stuck, left(*since, longest));
        }
        if let Some(since) = state.blocked_since {
            (
                Expired::Stuck,
                left(since, self.write_timeout.saturating_sub(state.arrears)),
            )
        } else if state.requests > 0 {
            (
                Expired::Idle,
                self.header_timeout.max(Duration::from_millis(1)),
            )
        } else if state.is_head_arriving && !state.is_multiplexed {
            (Expired::Stuck, left(state.since, self.header_timeout))
        } else {
            (Expired::Idle, left(state.since, self.idle_timeout))
        }
    }
}

/// A piece of an HTTP/2 response that is not written yet.
#[derive(Debug)]
pub(crate) struct UnsentPiece {
    activity: Arc<Activity>,
    number: u64,
}

impl Drop for UnsentPiece {
    fn drop(&mut self) {
        self.activity.state.lock().unsent.remove(&self.number);
    }
}

impl State {
    /// The time since which the client reads nothing, or next to nothing, if that is long enough to
    /// count.
    fn not_taken_since(&self) -> Option<Instant> {
        let blocked = self
            .blocked_since
            .map(|since| since.checked_sub(self.arrears).unwrap_or(since));
        let oldest = blocked
            .into_iter()
            .chain(self.unsent.values().copied())
            .min()?;
        (oldest.elapsed() >= NOT_TAKEN).then_some(oldest)
    }
}

/// A request without an answer yet. Its connection is not idle while this exists.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    activity: Arc<Activity>,
    listens: bool,
}

impl ActiveRequest {
    /// Marks the body as incomplete while the result exists.
    pub(crate) fn receive(&self) -> Receiving<'_> {
        self.activity.state.lock().receiving.add();
        Receiving(&self.activity)
    }

    /// Makes a guard for each further request whose result the connection carries.
    pub(crate) fn background(&self) -> impl Fn() -> BackgroundRequest + Send + Sync + use<> {
        let activity = Arc::clone(&self.activity);
        move || {
            activity.state.lock().background += 1;
            BackgroundRequest(Arc::clone(&activity))
        }
    }

    /// Marks the client as only listening from now on.
    pub(crate) fn listen(&mut self) {
        if !std::mem::replace(&mut self.listens, true) {
            self.activity.state.lock().listening.add();
        }
    }
}

impl ActiveRequest {
    /// Counts the request as one of an unknown sender; too many end the connection at once.
    pub(super) fn count_stranger(&self) {
        let mut state = self.activity.state.lock();
        state.strangers += 1;
        if state.strangers > STRANGERS {
            self.activity.cut.cancel();
        }
    }

    /// Cancelled when the request's connection must end. Streams without an end of their own stop
    /// then.
    pub(super) fn shutdown(&self) -> &CancellationToken {
        self.activity.shutdown()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.requests -= 1;
        state.listening.count -= usize::from(self.listens);
        state.since = Instant::now();
    }
}

/// A request from another connection whose result this one carries.
#[derive(Debug)]
pub(crate) struct BackgroundRequest(Arc<Activity>);

impl Drop for BackgroundRequest {
    fn drop(&mut self) {
        self.0.state.lock().background -= 1;
    }
}

/// A request with an incomplete body.
#[derive(Debug)]
pub(crate) struct Receiving<'a>(&'a Activity);

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().receiving.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::FrontendSettings;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);
    const WRITE: Duration = Duration::from_secs(60);
    const RATE: u32 = 1 << 10;

    fn activity() -> Arc<Activity> {
        let limits = ConnectionLimits {
            header_timeout: HEAD,
            idle_timeout: IDLE,
            write_timeout: WRITE,
            write_rate: RATE,
            ..ConnectionLimits::from(&FrontendSettings::default())
        };
        Activity::new(&limits, CancellationToken::new(), CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_expires_after_head_timeout() {
        let activity = activity();
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_expires_after_idle_timeout() {
        let activity = activity();
        drop(activity.begin_request(false));
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn dripping_head_counts_from_its_first_byte() {
        let activity = activity();
        drop(activity.begin_request(false));
        activity.record_read();
        tokio::time::advance(HEAD / 2).await;
        activity.record_read();
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn active_request_keeps_the_connection_open() {
        let activity = activity();
        let request = activity.begin_request(false);
        assert!(
            tokio::time::timeout(IDLE * 100, activity.expired(Duration::ZERO))
                .await
                .is_err()
        );
        drop(request);
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
    }

    /// A client reads this many bytes per second; returns how long it is served.
    async fn served(bytes: usize) -> Duration {
        let activity = activity();
        let _request = activity.begin_request(true);
        activity.record_write(None);
        let start = Instant::now();
        let reading = async {
            loop {
                sleep(Duration::from_secs(1)).await;
                if bytes > 0 {
                    activity.record_write(Some(bytes));
                    activity.record_write(None);
                }
                if start.elapsed() > 100 * WRITE {
                    return;
                }
            }
        };
        tokio::select! {
            expired = activity.expired(Duration::ZERO) => assert_eq!(expired, Expired::Stuck),
            () = reading => {}
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_next_to_nothing_is_stuck() {
        for (bytes, longest) in [
            (0, WRITE + HEAD),
            (1, WRITE + HEAD),
            (512, 2 * WRITE + HEAD),
        ] {
            let served = served(bytes).await;
            assert!(
                served >= WRITE && served <= longest,
                "{bytes} bytes a second: {served:?}"
            );
        }
        assert!(served(1100).await > 100 * WRITE);
    }

    #[tokio::test(start_paused = true)]
    async fn arrears_are_forgotten_while_nothing_waits_to_be_taken() {
        let activity = activity();
        let _request = activity.begin_request(true);
        for _ in 0..20 {
            activity.record_write(None);
            tokio::time::advance(WRITE / 2).await;
            assert!(activity.next_expiry().1 > Duration::ZERO);
            activity.record_write(Some(1));
            tokio::time::advance(WRITE / 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_with_a_piece_that_is_never_sent_is_stuck() {
        let activity = activity();
        let _request = activity.begin_request(true);
        let piece = activity.begin_piece();
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert!(start.elapsed() >= WRITE + HEAD && start.elapsed() <= WRITE + 2 * HEAD);
        drop(piece);
        assert!(
            tokio::time::timeout(IDLE * 100, activity.expired(Duration::ZERO))
                .await
                .is_err()
        );
    }

    fn kind(activity: &Activity) -> UsageKind {
        activity.usage().kind
    }

    #[tokio::test(start_paused = true)]
    async fn usage_is_that_of_the_most_valuable_request() {
        let activity = activity();
        assert_eq!(kind(&activity), UsageKind::Unused);
        let slow = activity.begin_request(true);
        assert_eq!(kind(&activity), UsageKind::Works);
        let receiving = slow.receive();
        assert_eq!(kind(&activity), UsageKind::WaitsForClient);
        let mut listener = activity.begin_request(true);
        assert_eq!(kind(&activity), UsageKind::Works);
        listener.listen();
        assert_eq!(kind(&activity), UsageKind::Listens);
        drop(receiving);
        assert_eq!(kind(&activity), UsageKind::Works);
        drop(slow);
        assert_eq!(kind(&activity), UsageKind::Listens);
        let background = listener.background()();
        assert_eq!(kind(&activity), UsageKind::Works);
        drop(background);
        assert_eq!(kind(&activity), UsageKind::Listens);
        drop(listener);
        assert_eq!(kind(&activity), UsageKind::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_is_not_taken_makes_the_connection_wait_for_its_client() {
        let activity = activity();
        let request = activity.begin_request(true);
        activity.record_write(None);
        assert_eq!(kind(&activity), UsageKind::Works);
        // A few single bytes do not help.
        for _ in 0..3 {
            tokio::time::advance(NOT_TAKEN / 2).await;
            activity.record_write(Some(1));
            activity.record_write(None);
        }
        assert_eq!(kind(&activity), UsageKind::WaitsForClient);
        activity.record_write(Some(1 << 20));
        assert_eq!(kind(&activity), UsageKind::Works);
        let piece = activity.begin_piece();
        tokio::time::advance(NOT_TAKEN).await;
        assert_eq!(kind(&activity), UsageKind::WaitsForClient);
        drop((piece, request));
        assert_eq!(kind(&activity), UsageKind::Idle);
        activity.record_write(None);
        assert_eq!(kind(&activity), UsageKind::WaitsForClient);
    }
}
