//! Keeps up what is to be heard on one line, over all its connections.
//!
//! One task per line: the base line's for all listeners, a client session's own for that session.
//!
//! Must not know: how connections are made.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Era;
use tokio::sync::{Notify, mpsc, watch};

use super::legacy::{Base, Own, Pooled};
use super::modern::Shared;
use super::questions::Asking;
use crate::connection::Connection;
use crate::connection::supervisor::{Phase, State};
use crate::hub::{Asked, Hub, Origin};
use crate::request::TransportContext;

/// See the module.
pub(crate) struct Keeper {
    pub(crate) hub: Arc<Hub>,
    pub(crate) origin: Origin,
    pub(crate) context: TransportContext,
    pub(crate) state: watch::Receiver<State>,
    /// Asks for a connection.
    pub(crate) wanted: Arc<Notify>,
    pub(crate) asked: mpsc::Receiver<Asked>,
    /// How long a server may take to agree to a subscription.
    pub(crate) patience: Duration,
}

impl Keeper {
    /// Runs until the line ends.
    pub(crate) async fn run(mut self) {
        // What a session has subscribed to on a line that gave way to others is subscribed to again.
        let mut again = match self.origin {
            Origin::Session(session) => !self.hub.remembered(session).is_empty(),
            Origin::Base | Origin::Pooled => false,
        };
        let mut state = self.state.clone();
        while let Some(connection) = connected(&mut state, || self.reconnect(again)).await {
            let keeping =
                keep(&self.hub, self.origin, &self.context, &connection, again, self.patience, &mut self.asked);
            tokio::select! {
                _ = connection.lost() => {}
                () = stopped(self.state.clone()) => {}
                () = keeping => {}
            }
            again = true;
            self.lost();
        }
        match self.origin {
            Origin::Base => self.hub.close(),
            Origin::Session(session) => self.hub.let_go(session),
            Origin::Pooled => {}
        }
    }

    /// The client's own connection was lost: whoever listens to it wants another.
    fn reconnect(&self, again: bool) {
        if let Origin::Session(session) = self.origin
            && again
            && self.hub.is_listening(session)
        {
            self.wanted.notify_one();
        }
    }

    fn lost(&mut self) {
        if let Origin::Session(session) = self.origin {
            self.hub.set_hearing(session, false);
        }
        // Nobody waits for an answer any more.
        while self.asked.try_recv().is_ok() {}
    }
}

/// Waits until there will be no connection any more.
pub(super) async fn stopped(mut state: watch::Receiver<State>) {
    // An error means the same.
    let _ = state.wait_for(|state| matches!(state.phase, Phase::Stopped)).await.map(drop);
}

/// The next connection; `None` once there will be none. `idle` is called when none is being made.
pub(super) async fn connected(state: &mut watch::Receiver<State>, idle: impl Fn()) -> Option<Arc<Connection>> {
    loop {
        let phase = state.borrow_and_update().phase.clone();
        match phase {
            Phase::Ready(connection) if !connection.is_lost() => return Some(connection),
            Phase::Stopped => return None,
            Phase::Idle => idle(),
            Phase::Ready(_) | Phase::Connecting | Phase::Down { .. } => {}
        }
        state.changed().await.ok()?;
    }
}

/// Keeps up what is to be heard on one connection, for ever.
async fn keep(
    hub: &Arc<Hub>,
    origin: Origin,
    context: &TransportContext,
    connection: &Arc<Connection>,
    again: bool,
    patience: Duration,
    asked: &mut mpsc::Receiver<Asked>,
) {
    match (origin, connection.era()) {
        (Origin::Base, Era::Modern) => {
            hub.renew();
            Shared::new((hub, &context.name), connection, context.limits.nesting, patience, again).keep().await;
        }
        (Origin::Base, Era::Legacy) => {
            hub.renew();
            Base { hub, connection, again }.keep().await;
        }
        (Origin::Session(session), Era::Legacy) => {
            let asking = Asking { hub, connection, session, limit: context.timeouts.question, tasks: &context.tasks };
            tokio::join!(asking.keep(asked), Own { hub, connection, session, again }.keep());
        }
        (Origin::Pooled, Era::Legacy) => Pooled { hub, connection }.keep().await,
        (Origin::Session(_) | Origin::Pooled, Era::Modern) => {}
    }
    std::future::pending::<()>().await;
}
