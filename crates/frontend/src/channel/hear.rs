//! What a legacy client on a channel hears outside of its calls.
//!
//! Must not know: what it is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::timeout;

use super::connection::Connection;
use crate::session::Session;
use crate::streams::room;
use fanlight_canonical::Core;

impl<C: Core> Connection<C> {
    /// Begins to listen for the current session, if there is one that has not begun.
    pub(super) fn hear_from_now_on(self: &Arc<Self>) {
        let Some(session) = self.current_session() else { return };
        let connection = Arc::clone(self);
        self.spawn(None, async move { connection.hear(&session).await });
    }

    /// Begins to listen for `session` unless that has been done, and waits a while until the core
    /// knows. What is heard goes to the client until its session ends or no more is read of it.
    pub(super) async fn hear(self: &Arc<Self>, session: &Arc<Session>) {
        if self.closing.is_cancelled() {
            return;
        }
        let begun = session.streams.begin_listening(&self.core, session, room(&self.settings));
        if session.streams.claim() {
            self.spawn(None, Arc::clone(self).tell(Arc::downgrade(session)));
        }
        if let Some(opened) = begun {
            let patience = timeout(self.settings.stream_after, opened.cancelled());
            tokio::select! { _ = patience => {} () = self.closing.cancelled() => {} }
        }
    }

    async fn tell(self: Arc<Self>, session: std::sync::Weak<Session>) {
        loop {
            let next = poll_fn(|cx| match session.upgrade() {
                Some(session) => session.streams.poll_heard(&session, cx),
                None => Poll::Ready(None),
            });
            let text = tokio::select! {
                text = next => text,
                () = self.closing.cancelled() => None,
            };
            let Some(text) = text else { break };
            self.out.send(text.into_bytes()).await;
        }
        if let Some(session) = session.upgrade() {
            session.streams.end(&session);
        }
    }
}
