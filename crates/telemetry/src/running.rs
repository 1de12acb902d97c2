//! The running requests of clients, for operators.
//!
//! A new request takes a place among the last [`RECENT`] requests. The earlier request in that
//! place moves to a second list if it still runs, which is rare. The end of a request costs nothing
//! here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::client_name::ClientName;
use crate::record::Record;

/// How many of the latest requests have a place.
const RECENT: usize = 256;
/// The limit of earlier requests that still run. There is no option: nobody looks through more, and
/// each entry takes only a pointer.
const LONG: usize = 4096;
/// How many entries of the second list are checked for an ended request when the list is full.
const TRIED: usize = 8;

/// The running requests of clients.
#[derive(Debug)]
pub(crate) struct Running {
    next: AtomicUsize,
    recent: Box<[Mutex<Weak<Record>>]>,
    /// Requests that began before all of `recent` and still run.
    long: Mutex<Long>,
}

/// Requests that still ran when a newer request took their place.
#[derive(Debug, Default)]
struct Long {
    kept: Vec<Weak<Record>>,
    /// The next entry to check once the list is full.
    next: usize,
}

/// A running request.
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// The id of its trace, in hexadecimal.
    pub trace_id: String,
    /// The id of its span, in hexadecimal. It is used to cancel the request.
    pub span_id: String,
    /// The method, with the tool or prompt.
    pub name: String,
    /// The client that sent it.
    pub client: Option<Arc<ClientName>>,
    /// When it arrived.
    pub began: SystemTime,
    /// How long it has been running.
    pub elapsed: Duration,
    /// Whether it has been cancelled.
    pub is_cancelled: bool,
}

impl Default for Running {
    fn default() -> Self {
        let recent = (0..RECENT).map(|_| Mutex::new(Weak::new())).collect();
        Self {
            next: AtomicUsize::new(0),
            recent,
            long: Mutex::default(),
        }
    }
}

impl Running {
    /// Adds a request.
    pub(crate) fn enter(&self, request: &Arc<Record>) {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % RECENT;
        let Some(place) = self.recent.get(index) else {
            return;
        };
        let before = std::mem::replace(&mut *place.lock(), Arc::downgrade(request));
        if let Some(before) = before.upgrade()
            && before.is_running()
        {
            self.keep(Arc::downgrade(&before));
        }
    }

    /// Keeps a request that has lost its place, if there is room.
    fn keep(&self, request: Weak<Record>) {
        let mut long = self.long.lock();
        if long.kept.len() < LONG {
            long.kept.push(request);
            return;
        }
        // A client waits meanwhile, so only a few entries are checked. The next request checks the
        // following ones.
        for _ in 0..TRIED {
            let at = long.next;
            long.next = (at + 1) % LONG;
            if let Some(place) = long.kept.get_mut(at)
                && !runs(place)
            {
                *place = request;
                return;
            }
        }
    }

    /// The running requests, in no particular order.
    fn all(&self) -> Vec<Arc<Record>> {
        let mut all: Vec<Arc<Record>> = {
            let mut long = self.long.lock();
            long.kept.retain(runs);
            long.kept.iter().filter_map(Weak::upgrade).collect()
        };
        all.extend(
            self.recent
                .iter()
                .filter_map(|place| place.lock().upgrade()),
        );
        all.retain(|one| one.is_running());
        all
    }

    /// The running requests, oldest first.
    pub(crate) fn views(&self) -> Vec<RunningRequest> {
        let mut views: Vec<RunningRequest> = self.all().iter().map(|one| view(one)).collect();
        views.sort_by_key(|one| (one.began, one.span_id.clone()));
        views
    }

    /// Cancels the request whose span has this id, in hexadecimal. Returns the name of the request,
    /// if it was running.
    pub(crate) fn cancel(&self, span_id: &str) -> Option<String> {
        let all = self.all();
        let meant = all
            .iter()
            .find(|one| one.context.span_id().to_string() == span_id)?;
        meant
            .cancel_by_operator()
            .then(|| meant.name(&meant.fields.lock()).into_owned())
    }
}

fn runs(request: &Weak<Record>) -> bool {
    request
        .upgrade()
        .is_some_and(|request| request.is_running())
}

fn view(request: &Record) -> RunningRequest {
    let fields = request.fields.lock();
    RunningRequest {
        trace_id: request.trace_id().to_string(),
        span_id: request.context.span_id().to_string(),
        name: request.name(&fields).into_owned(),
        client: fields.client.clone(),
        began: request.start.began.wall(),
        elapsed: request.start.began.elapsed(),
        is_cancelled: request.is_cancelled(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll, Wake};

    use fanlight_protocol::Method;

    use super::*;
    use crate::error_type::Outcome;
    use crate::ring::tests::record_of;
    use crate::subject::Target;

    fn request() -> Arc<Record> {
        Arc::new(record_of(Method::CallTool, Target::Tool("add")))
    }

    #[test]
    fn long_request_stays_however_many_begin_after_it() {
        let running = Running::default();
        let long = request();
        running.enter(&long);
        let ended: Vec<_> = (0..RECENT * 3).map(|_| request()).collect();
        for one in &ended {
            running.enter(one);
            one.end(&Outcome::Finished, Duration::ZERO);
        }
        let views = running.views();
        assert_eq!((views.len(), views[0].name.as_str()), (1, "tools/call add"));
        long.end(&Outcome::Finished, Duration::ZERO);
        assert!(running.views().is_empty() && running.long.lock().kept.is_empty());
    }

    #[test]
    fn requests_that_are_kept_are_bounded() {
        let running = Running::default();
        let all: Vec<_> = (0..LONG + RECENT + 100).map(|_| request()).collect();
        all.iter().for_each(|one| running.enter(one));
        assert_eq!(running.views().len(), LONG + RECENT);
        // One of the next requests finds the entry of the ended request. No running request loses
        // its entry.
        all[0].end(&Outcome::Finished, Duration::ZERO);
        let further: Vec<_> = (0..LONG / TRIED).map(|_| request()).collect();
        further.iter().for_each(|one| running.enter(one));
        assert_eq!(
            running
                .long
                .lock()
                .kept
                .iter()
                .filter(|one| runs(one))
                .count(),
            LONG
        );
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn cancelled_request_is_woken_once_and_an_ended_one_is_left_alone() {
        let (running, one) = (Running::default(), request());
        running.enter(&one);
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let poll = || one.poll_cancelled_by_operator(&Context::from_waker(&waker));
        assert_eq!((poll(), poll()), (Poll::Pending, Poll::Pending));
        let id = running.views()[0].span_id.clone();
        assert_eq!(running.cancel("0000000000000099"), None);
        assert_eq!(running.cancel(&id).as_deref(), Some("tools/call add"));
        assert!(woken.0.load(Ordering::Relaxed) && one.is_cancelled() && poll().is_ready());
        one.end(&Outcome::Finished, Duration::ZERO);
        assert_eq!(running.cancel(&id), None);
        // The record of an ended request keeps no task.
        let ended = request();
        assert!(
            ended
                .poll_cancelled_by_operator(&Context::from_waker(&waker))
                .is_pending()
        );
        let held = Arc::strong_count(&woken);
        ended.end(&Outcome::Finished, Duration::ZERO);
        assert_eq!(Arc::strong_count(&woken), held - 1);
        assert!(
            ended
                .poll_cancelled_by_operator(&Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(Arc::strong_count(&woken), held - 1);
    }
}
