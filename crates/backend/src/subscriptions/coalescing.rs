//! Limits how often a server's announcements of list changes reach clients. The first is delivered
//! at once; those that follow within a moment are delivered as one.

use std::time::Duration;

use fanlight_canonical::Caller;
use fanlight_protocol::{Method, Notification};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Origin;

/// Announcements by connection and list.
pub(super) struct Coalescing {
    /// How long announcements are collected.
    settle: Duration,
    /// A list, since few connections announce changes at the same time.
    windows: Mutex<Vec<Window>>,
}

/// The time after the delivery of an announcement.
struct Window {
    origin: Origin,
    method: Method,
    end: Instant,
    waiting: Option<Announcement>,
}

/// An announcement, and the client that has already received it.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) notification: Notification,
    pub(super) except: Option<Caller>,
}

/// The handling of an announcement.
#[derive(Debug)]
pub(super) enum Admission {
    Deliver(Announcement),
    /// It joins one that is already waiting.
    Merged,
    /// It waits: [`Coalescing::take_due`] must be called at this time.
    Waits(Instant),
}

impl Coalescing {
    pub(super) fn new(settle: Duration) -> Self {
        Self {
            settle,
            windows: Mutex::default(),
        }
    }

    pub(super) fn admit(&self, origin: &Origin, announcement: Announcement) -> Admission {
        let (now, method) = (Instant::now(), announcement.notification.method.clone());
        let mut windows = self.windows.lock();
        windows.retain(|window| window.end > now || window.waiting.is_some());
        match windows
            .iter_mut()
            .find(|window| window.method == method && window.origin == *origin)
        {
            None => {
                windows.push(Window {
                    origin: origin.clone(),
                    method,
                    end: now + self.settle,
                    waiting: None,
                });
                Admission::Deliver(announcement)
            }
            Some(Window {
                waiting: Some(waiting),
                ..
            }) => {
                // A client that has received all of them needs no more.
                let is_same = waiting.except == announcement.except;
                let Announcement {
                    notification,
                    except,
                } = announcement;
                *waiting = Announcement {
                    notification,
                    except: except.filter(|_| is_same),
                };
                Admission::Merged
            }
            Some(window) => {
                window.waiting = Some(announcement);
                Admission::Waits(window.end)
            }
        }
    }

    /// The announcement of this list that has waited long enough. The following ones wait again.
    pub(super) fn take_due(&self, origin: &Origin, method: &Method) -> Option<Announcement> {
        let mut windows = self.windows.lock();
        let window = windows
            .iter_mut()
            .find(|window| window.method == *method && window.origin == *origin)?;
        window.end = Instant::now() + self.settle;
        window.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::{Principal, SessionKey};

    use super::*;

    const SETTLE: Duration = Duration::from_millis(100);

    fn announcement(method: &Method) -> Announcement {
        Announcement {
            notification: Notification::new(method.clone(), None),
            except: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn storm_becomes_two_announcements_for_each_interval_at_most() {
        let coalescing = Coalescing::new(SETTLE);
        let (mut delivered, mut waits) = (0, Vec::new());
        for _ in 0..1000 {
            match coalescing.admit(&Origin::Base, announcement(&Method::ToolsChanged)) {
                Admission::Deliver(_) => delivered += 1,
                Admission::Waits(until) => waits.push(until),
                Admission::Merged => {}
            }
        }
        assert_eq!((delivered, waits.len()), (1, 1));
        tokio::time::sleep_until(waits[0]).await;
        assert!(
            coalescing
                .take_due(&Origin::Base, &Method::ToolsChanged)
                .is_some()
        );
        // Further announcements follow.
        let next = coalescing.admit(&Origin::Base, announcement(&Method::ToolsChanged));
        assert!(
            matches!(next, Admission::Waits(until) if until == Instant::now() + SETTLE),
            "{next:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn announcement_after_a_pause_and_those_of_others_are_delivered_at_once() {
        let coalescing = Coalescing::new(SETTLE);
        let is_delivered = |origin: &Origin, method| {
            matches!(
                coalescing.admit(origin, announcement(method)),
                Admission::Deliver(_)
            )
        };
        let session = Origin::Session(Caller::session_of(Principal::anonymous(), SessionKey(1)));
        assert!(is_delivered(&Origin::Base, &Method::ToolsChanged));
        assert!(is_delivered(&Origin::Base, &Method::PromptsChanged));
        assert!(is_delivered(&session, &Method::ToolsChanged));
        tokio::time::advance(SETTLE).await;
        assert!(is_delivered(&Origin::Base, &Method::ToolsChanged));
        assert_eq!(coalescing.windows.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn merged_announcement_reaches_all_that_missed_one_of_them() {
        let coalescing = Coalescing::new(SETTLE);
        let client = |key| Some(Caller::session_of(Principal::anonymous(), SessionKey(key)));
        for (second, left) in [(client(1), client(1)), (client(2), None), (None, None)] {
            for except in [None, client(1), second] {
                let announcement = Announcement {
                    except,
                    ..announcement(&Method::ToolsChanged)
                };
                let _ = coalescing.admit(&Origin::Base, announcement);
            }
            assert_eq!(
                coalescing
                    .take_due(&Origin::Base, &Method::ToolsChanged)
                    .unwrap()
                    .except,
                left
            );
            tokio::time::advance(SETTLE).await;
        }
    }
}
