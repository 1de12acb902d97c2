//! The task that keeps up the subscriptions of one connection across reconnects.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{Caller, Names, ServerMessage};
use fanlight_protocol::{Era, Request};
use fanlight_telemetry::ServerSpan;
use futures_util::future::{join, join3};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::legacy;
use super::modern::SharedSubscription;
use crate::connection::Connection;
use crate::connection::supervised::{Phase, State};
use crate::request::TransportContext;
use crate::request::deadline::{PausableDeadline, Pause};
use crate::request::server_request::{
    OpenServerRequests, PendingServerRequest, ServerRequestLimits, cannot_ask_text,
};
use crate::settings::DELIVERY;
use crate::subscriptions::{Origin, UnsolicitedRequest, UnsolicitedRequests, UnsolicitedSender};

/// Keeps up the subscriptions of one supervised connection. The base connection serves all
/// listeners, a session's own connection only that session.
pub(crate) struct ListeningWorker {
    pub(crate) context: Arc<TransportContext>,
    pub(crate) state: watch::Receiver<State>,
    /// Requests a connection.
    pub(crate) wanted: Arc<Notify>,
    pub(crate) requests: UnsolicitedRequests,
}

impl ListeningWorker {
    /// Runs until the supervised connection ends for good. Each session and suspended call has such
    /// a task.
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send {
        async move {
            let Self {
                context,
                mut state,
                wanted,
                mut requests,
            } = self;
            let UnsolicitedSender {
                registry, origin, ..
            } = &context.outlet;
            // An earlier connection of the session may have been closed to make room for others.
            let session = origin.session();
            let mut is_repeated =
                session.is_some_and(|session| !registry.recorded().resources(session).is_empty());
            // Messages that the server sends as soon as it is connected wait for the client to listen.
            let entry = session.and_then(|session| registry.presence(session));
            // A session that has lost its connection needs another one while it listens.
            let reconnect = |is_repeated: bool| {
                if is_repeated && context.outlet.is_of_listener() {
                    wanted.notify_one();
                }
            };
            while let Some(connection) = connected(&mut state, || reconnect(is_repeated)).await {
                let end = stopped(state.clone());
                tokio::select! {
                    _ = connection.lost() => {}
                    () = end => {}
                    () = keep(&context, &mut requests, &connection, is_repeated) => {}
                }
                is_repeated = true;
                match origin {
                    Origin::Session(session) => registry.set_own_stream(session, false),
                    Origin::Clients { principal, .. } => registry.joint_updates.set_subscribed(
                        context.outlet.process,
                        principal,
                        Names::new(),
                    ),
                    Origin::Base => {}
                }
                // The server that sent these requests is gone.
                requests.clear();
            }
            drop(entry);
            match origin {
                Origin::Base => registry.close(),
                Origin::Session(session) => registry.connection_ended(session),
                Origin::Clients { .. } => {}
            }
        }
    }
}

/// Keeps up the subscriptions on one connection; never returns. Each kind is boxed, since each
/// session has such a task, and the kinds differ in size. `tokio::join!` in a block of its own
/// would store their futures twice.
async fn keep(
    context: &TransportContext,
    requests: &mut UnsolicitedRequests,
    connection: &Arc<Connection>,
    is_repeated: bool,
) {
    let UnsolicitedSender {
        registry, origin, ..
    } = &context.outlet;
    let server_requests = |session| ServerRequests {
        context,
        connection,
        session,
    };
    match (origin, connection.era()) {
        (Origin::Base, Era::Modern) => {
            registry.reset_verdicts();
            let patience = context.timeouts.connect;
            let subscription = SharedSubscription::new(registry, connection, patience, is_repeated);
            Box::pin(subscription.keep()).await;
        }
        (Origin::Base, Era::Legacy) => {
            registry.reset_verdicts();
            let base = legacy::Base {
                registry,
                connection,
                is_repeated,
            };
            Box::pin(base.keep()).await;
        }
        (Origin::Session(session), Era::Legacy) => {
            let own = legacy::keep_own(registry, connection, session, is_repeated);
            let forwarding = server_requests(Some(session)).forward(requests);
            let telling = async {
                for early in registry.take_early(session) {
                    // An error means that the connection is lost.
                    let _ = connection.notify(&early).await;
                }
            };
            Box::pin(join3(forwarding, own, telling)).await;
        }
        (Origin::Clients { principal, is_one }, Era::Legacy) => {
            // Only a single client can be asked.
            let asks = *is_one && connection.may_ask();
            let listening = legacy::keep_for_clients(registry, connection, principal, asks);
            Box::pin(join(server_requests(None).forward(requests), listening)).await;
        }
        (Origin::Session(_) | Origin::Clients { .. }, Era::Modern) => {}
    }
    std::future::pending::<()>().await;
}

/// Waits until the connection has ended for good.
pub(crate) async fn stopped(mut state: watch::Receiver<State>) {
    // An error means that the supervisor has ended.
    let _ = state
        .wait_for(|state| matches!(state.phase, Phase::Stopped))
        .await
        .map(drop);
}

/// The next connection; `None` if there will be none. `idle` is called when none is being made.
pub(crate) async fn connected(
    state: &mut watch::Receiver<State>,
    idle: impl Fn(),
) -> Option<Arc<Connection>> {
    loop {
        let phase = state.borrow_and_update().phase.clone();
        match phase {
            Phase::Ready(connection) if !connection.is_lost() => return Some(connection),
            Phase::Stopped => return None,
            Phase::Idle => idle(),
            Phase::Ready(_) | Phase::Connecting { .. } | Phase::Down { .. } => {}
        }
        state.changed().await.ok()?;
    }
}

/// Forwards the server's requests on a connection that serves a single client.
struct ServerRequests<'a> {
    context: &'a TransportContext,
    connection: &'a Arc<Connection>,
    /// The client's session, if it has one.
    session: Option<&'a Caller>,
}

impl ServerRequests<'_> {
    /// Forwards requests and answers; never returns.
    async fn forward(self, requests: &mut UnsolicitedRequests) {
        let (mut open, deadline) = (
            OpenServerRequests::default(),
            Arc::<PausableDeadline>::default(),
        );
        loop {
            tokio::select! {
                biased;
                reply = open.next() => self.send(reply.text, reply.pause),
                request = requests.next() => match request {
                    UnsolicitedRequest::Request(request) => match self.ask(&request, &deadline) {
                        Ok(pending) => open.add(pending),
                        Err(text) => self.send(text, None),
                    },
                    UnsolicitedRequest::Cancelled(id) => open.cancel(&id),
                }
            }
        }
    }

    /// Asks the client. Returns the message for the server if that is impossible.
    fn ask(
        &self,
        request: &Request,
        outside: &Arc<PausableDeadline>,
    ) -> Result<PendingServerRequest, Bytes> {
        let registry = &self.context.outlet.registry;
        let limits = self.context.server_request_limits();
        let listener = self
            .session
            .and_then(|session| registry.listener_of(session));
        let (messages, deadline, number) = match listener {
            // These requests keep no call alive, so their number does not matter.
            Some(messages) => (messages, Arc::clone(outside), usize::MAX),
            None => {
                let why = "no call is running that the request could belong to, and the client does not listen";
                let call = self
                    .connection
                    .oldest_call()
                    .ok_or_else(|| cannot_ask_text(&request.id, why))?;
                (call.0, call.1, limits.number)
            }
        };
        let limits = ServerRequestLimits { number, ..limits };
        let (pending, for_client) =
            PendingServerRequest::new(request, &deadline, limits, ServerSpan::off())?;
        if !messages.try_send(ServerMessage::Request(for_client)) {
            registry.warn_of_slow(1);
            return Err(cannot_ask_text(&request.id, "it does not keep up"));
        }
        Ok(pending)
    }

    /// Sends a message to the server in a separate task. The request counts as open meanwhile.
    fn send(&self, text: Bytes, pause: Option<Pause>) {
        let connection = Arc::clone(self.connection);
        self.context.tasks.spawn(async move {
            let _: Result<_, _> = timeout(DELIVERY, connection.tell(text)).await;
            drop(pause);
        });
    }
}
