//! Where a line puts what its server sends outside of calls.
//!
//! Must not know: what becomes of it.

use std::sync::Arc;

use fanlight_protocol::{Json, Method, Notification, Request};
use tokio::sync::mpsc;

use super::{Hub, Origin};
use fanlight_canonical::SessionKey;

/// Questions and withdrawals on their way to who keeps them, at most.
const WAITING: usize = 32;

/// What a server asks outside of calls.
#[derive(Debug)]
pub(crate) enum Asked {
    Question(Request),
    /// It waits no longer for the answer to the question with this id.
    Withdrawn(Json),
}

/// The way out of one line.
#[derive(Clone)]
pub(crate) struct Outlet {
    hub: Arc<Hub>,
    origin: Origin,
    asked: mpsc::Sender<Asked>,
}

impl Outlet {
    /// The outlet of a line, and where its questions come out.
    pub(crate) fn new(hub: Arc<Hub>, origin: Origin) -> (Self, mpsc::Receiver<Asked>) {
        let (asked, questions) = mpsc::channel(WAITING);
        (Self { hub, origin, asked }, questions)
    }

    /// Passes a notification on to everybody it is for.
    pub(crate) fn deliver(&self, notification: Notification) {
        self.hub.deliver(self.origin, notification);
    }

    /// Passes on what came on the stream of a call of `session` but concerns everybody. Only what
    /// comes on the base line does: every other is heard by its own client at most. The status of a
    /// task concerns those who named the task, wherever it comes.
    pub(crate) fn deliver_beside(&self, notification: Notification, session: Option<SessionKey>) {
        if self.origin == Origin::Base || notification.method == Method::TaskStatus {
            self.hub.deliver_beside(self.origin, notification, session);
        }
    }

    /// Hands a question over to be asked; says whether it was taken.
    pub(crate) fn ask(&self, request: &Request) -> bool {
        let session = matches!(self.origin, Origin::Session(_));
        session && self.asked.try_send(Asked::Question(request.clone())).is_ok()
    }

    /// The server waits no longer for an answer.
    pub(crate) fn withdraw(&self, id: &Json) {
        if matches!(self.origin, Origin::Session(_)) {
            // With so many unread, it is soon found that nobody waits for the answer.
            let _ = self.asked.try_send(Asked::Withdrawn(id.clone()));
        }
    }
}
