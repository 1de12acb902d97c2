//! The parts of a connection that [`crate::listening`] uses.
//!
//! "The server MAY send JSON-RPC requests and notifications on the stream" of a GET (2025-11-25
//! basic/transports, Listening for Messages from the Server), even requests for a running call. If
//! a call began before that stream is open, such a message could get lost, and a call with a
//! question would wait for ever. So the first call waits for the stream if its client can be asked
//! or listens.
//!
//! Over stdio each connection is a process, which may be the only one to announce a change that a
//! call makes. So a call without a session waits until its process has the subscriptions of all
//! such clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{BackendError, Call, ServerMessages};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, watch};
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::request::Reply;
use crate::request::deadline::{CallProgress, PausableDeadline};
use crate::settings::{STABLE_CONNECTION, stream_opening};
use crate::subscriptions::ProcessNumber;
use crate::transport::http::HttpTransport;

/// How long a session's first call waits if the server did not open the last session's stream in
/// time. Some servers do not even send the stream's head before the first message. A constant: it
/// is enough for a server that opens the stream, on a slow network. After a stream that opens in
/// time, the full wait applies again.
const LATE_OPENING: Duration = Duration::from_millis(100);

/// The stream outside of calls, and the running calls that a request on it may belong to.
pub(super) struct OutsideStream {
    /// Set once the stream is open, will not open, or a call has waited long enough.
    is_settled: SetOnce<()>,
    since: Instant,
    calls: Mutex<Vec<RunningCall>>,
    numbers: AtomicU64,
}

struct RunningCall {
    number: u64,
    messages: ServerMessages,
    deadline: Arc<PausableDeadline>,
}

/// A call that counts as running until this is dropped.
pub(super) struct RunningGuard<'a> {
    stream: &'a OutsideStream,
    number: u64,
}

impl OutsideStream {
    pub(super) fn new() -> Self {
        Self {
            is_settled: SetOnce::new(),
            since: Instant::now(),
            calls: Mutex::default(),
            numbers: AtomicU64::new(0),
        }
    }

    /// Adds a call once the stream is settled.
    pub(super) async fn enter(
        &self,
        connection: &Connection,
        messages: &ServerMessages,
        progress: &CallProgress,
    ) -> RunningGuard<'_> {
        let is_awaited = connection.may_ask() || connection.context.outlet.is_of_listener();
        if is_awaited && !self.is_settled.initialized() {
            let is_late = &connection.context.stream_is_late;
            let opening = stream_opening();
            let limit = if is_late.load(Ordering::Relaxed) {
                LATE_OPENING.min(opening)
            } else {
                opening
            };
            if timeout(limit, self.is_settled.wait()).await.is_err() {
                is_late.store(true, Ordering::Relaxed);
                self.settle();
            }
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (messages, deadline) = (messages.clone(), Arc::clone(&progress.deadline));
        self.calls.lock().push(RunningCall {
            number,
            messages,
            deadline,
        });
        RunningGuard {
            stream: self,
            number,
        }
    }

    fn settle(&self) {
        // An error means that it is settled already.
        let _ = self.is_settled.set(());
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.stream
            .calls
            .lock()
            .retain(|call| call.number != self.number);
    }
}

/// The generation of demand up to which the resources are subscribed.
pub(super) struct SubscribedResources(watch::Sender<u64>);

impl SubscribedResources {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Waits until the demand of `generation` is met. If the server takes longer than `patience`,
    /// later calls do not wait.
    pub(super) async fn reach(&self, generation: u64, patience: Duration) {
        let is_met = |met: &u64| *met >= generation;
        if is_met(&self.0.borrow()) {
            return;
        }
        let mut met = self.0.subscribe();
        // The sender lives as long as `self`.
        if timeout(patience, met.wait_for(is_met)).await.is_err() {
            self.0.send_replace(u64::MAX);
        }
    }
}

impl Connection {
    /// Whether the server may ask the client outside of a call's stream.
    pub(crate) fn may_ask(&self) -> bool {
        self.context.declared.can_be_asked()
    }

    /// Reports that the server has answered whether it opens the stream.
    pub(crate) fn stream_is_settled(&self) {
        if let Some(stream) = &self.outside {
            if stream.since.elapsed() <= stream_opening() {
                self.context.stream_is_late.store(false, Ordering::Relaxed);
            }
            stream.settle();
        }
    }

    /// The oldest running call whose client can be asked, with the channel to it and its time
    /// limit.
    pub(crate) fn oldest_call(&self) -> Option<(ServerMessages, Arc<PausableDeadline>)> {
        let calls = self.outside.as_ref()?.calls.lock();
        let oldest = calls
            .iter()
            .filter(|call| call.messages.is_connected())
            .min_by_key(|call| call.deadline.is_paused())?;
        Some((oldest.messages.clone(), Arc::clone(&oldest.deadline)))
    }

    /// A subscription, which is open until the server ends it or this is dropped.
    pub(crate) async fn subscribe(&self, call: Call) -> Result<Reply, BackendError> {
        let (progress, mirrored) = (CallProgress::default(), self.mirrored_members(&call));
        let (sending, propagation) = self.sending_of(&call, &progress, &mirrored);
        let (sending, messages) = sending.until_acknowledged(&call.messages);
        let mut outgoing = self.outgoing_request(&call, &progress, mirrored, propagation, &sending);
        outgoing.request.messages = &messages;
        self.transport.exchange(outgoing).await
    }

    /// The transport, if it is Streamable HTTP.
    pub(crate) fn http(&self) -> Option<&HttpTransport> {
        self.transport.http()
    }

    /// Sends a message that is not a request.
    pub(crate) async fn tell(&self, text: Bytes) -> Result<(), BackendError> {
        self.transport.notify(text).await
    }

    /// Whether the connection is old enough for the server to have forgotten the session.
    pub(crate) fn is_seasoned(&self) -> bool {
        self.is_continued || self.since.elapsed() >= STABLE_CONNECTION
    }

    /// Whether clients without a session need their subscriptions on this connection.
    pub(crate) fn subscribes_for_clients(&self) -> bool {
        self.resources.is_some()
    }

    pub(crate) fn process(&self) -> ProcessNumber {
        self.context.outlet.process
    }

    /// Reports that the resources of all demand up to `generation` are subscribed.
    pub(crate) fn resources_are_subscribed(&self, generation: u64) {
        if let Some(SubscribedResources(met)) = &self.resources {
            met.send_if_modified(|met| std::mem::replace(met, generation.max(*met)) < generation);
        }
    }
}
