//! The interface between the core and a server.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::{Era, Notification, Response, ServerDescription, sha256};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::{BackendError, Call, CallContext, Caller, Listen, Listening, SessionKey};

/// The future of a server's answer. Dropping it cancels the request at the server.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, BackendError>>;

/// One MCP server of any era and transport.
pub trait BackendClient: Send + Sync + 'static {
    /// The server's name in the configuration.
    fn name(&self) -> &str;

    /// The server's description of itself for clients like this one; connects first if needed. It
    /// is a view of the text of the `initialize` or `server/discover` result. A server that serves
    /// several eras may describe itself differently in each.
    fn describe<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription>;

    /// Sends one request and waits for its response, which may be a JSON-RPC error of the server.
    ///
    /// Results are views of the received text ([`Response::view`]). Notifications that belong to
    /// the request, and requests of the server to the client, are sent to [`Call::messages`] before
    /// this resolves. A call that may have run is never sent a second time.
    fn request(&self, call: Call) -> Pending<'_, Response>;

    /// Whether a request does no harm if it runs twice. It reads by definition, or it calls a tool
    /// that the server has described as repeatable within the last few seconds.
    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        let _ = call;
        Box::pin(std::future::ready(false))
    }

    /// Listens to messages that the server sends outside of calls. Resolves once the server has
    /// said which part of the interest it honours; messages may arrive earlier.
    ///
    /// Listening survives the loss of a connection. Because messages may have been missed, all list
    /// changes and updates within the interest are announced after reconnecting.
    fn listen(&self, listen: Listen) -> Pending<'_, Listening>;

    /// Forwards a client's notification, if the client's session has its own connection.
    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        let _ = (notification, client);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Continues the client's session in this process, with the sessions at servers that another
    /// replica opened for it. The server picks its own from these. Must not block.
    fn continue_session(&self, client: &Arc<CallContext>) {
        let _ = client;
    }

    /// Ends the client's session. The server's client may drop all its state for it.
    fn end_session(&self, session: SessionKey);

    /// The state of the server, without waiting for anything.
    fn status(&self) -> BackendStatus;

    /// Waits for a connection made later than `since`, and returns when the last one was made. It
    /// is Fanlight's own connection, or a client's while Fanlight's rests. Earlier readings may be
    /// outdated, because the server may be another process.
    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        let _ = since;
        Box::pin(std::future::pending())
    }

    /// How client sessions are served, and why, for operators. `None` if that is configured or does
    /// not matter.
    fn session_choice(&self) -> Pending<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The traits that decide how the core uses the server.
    fn traits(&self) -> BackendTraits {
        BackendTraits::default()
    }

    /// The parts of the server, for operators.
    fn parts(&self) -> BackendParts {
        BackendParts::default()
    }

    /// The output of the server's processes apart from messages; empty if it has none.
    fn process_output(&self) -> ProcessOutput {
        ProcessOutput::default()
    }
}

/// The traits of a server that decide how the core uses it. They never change.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendTraits {
    /// Whether the server's process may be ended while nothing uses it. Its lists are then served
    /// from memory.
    pub may_rest: bool,
    /// Whether each principal uses its own credentials at the server. Then lists belong to
    /// principals too.
    pub knows_principals: bool,
    /// The original name of the tool that replaces all others in the list until the user has signed
    /// in.
    pub stand_in: Option<&'static str>,
}

/// The parts of a server.
#[derive(Clone, Debug, Default)]
pub struct BackendParts {
    /// The endpoints of a server that has several; otherwise empty.
    pub endpoints: Vec<EndpointStatus>,
    /// The running processes, oldest first.
    pub processes: Vec<RunningProcess>,
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct BackendStatus {
    /// Whether the first attempt to connect has ended, successfully or not, or takes longer than
    /// requests wait.
    pub attempted: bool,
    /// The state of the connection to the server.
    pub state: BackendState,
    /// The era in use, once the handshake has told it.
    pub era: Option<Era>,
    /// The revision in use, once the handshake has told it.
    pub revision: Option<&'static str>,
    /// `stdio`, `http`, or `sse` for the deprecated HTTP+SSE transport.
    pub transport: &'static str,
    /// The current attempt to connect.
    pub starting: Option<Starting>,
    /// The failure of the last attempt to connect, until one succeeds.
    pub failure: Option<BackendError>,
}

/// The state of one of several endpoints of a server.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// The endpoint's address for operators: scheme, host and port, and the IP address if the host
    /// has several.
    pub place: String,
    /// The state of the connection to the endpoint.
    pub state: BackendState,
    /// The number of requests running there.
    pub running: usize,
    /// The recent latency of its calls.
    pub latency: Duration,
    /// Set if the endpoint was removed from the server, and only gets requests that belong to it.
    pub is_leaving: bool,
}

/// The canary of a server, for operators.
#[derive(Clone, Debug)]
pub struct CanaryStatus {
    /// The canary's entry in the configuration.
    pub server: Arc<str>,
    /// Selects the clients that it serves.
    pub rule: Arc<CanaryRule>,
    /// The canary's state.
    pub status: BackendStatus,
}

/// The mirror of a server, for operators.
#[derive(Clone, Debug)]
pub struct MirrorStatus {
    /// The mirror's entry in the configuration.
    pub server: Arc<str>,
    /// The share of requests that are copied, from 0 to 1.
    pub share: f64,
    /// The mirror's state.
    pub status: BackendStatus,
    /// The number of copies by outcome, in the order of
    /// [`MirrorOutcome::ALL`](crate::MirrorOutcome::ALL).
    pub counts: [u64; 4],
    /// The last answers that differed, newest first.
    pub differences: Vec<MirrorDifference>,
}

/// An answer of a mirror that differed from its server's answer.
#[derive(Clone, Debug)]
pub struct MirrorDifference {
    /// The time when the difference was found.
    pub at: SystemTime,
    /// The method of the request.
    pub method: Box<str>,
    /// The item that the request named: a tool, or a resource without its query.
    pub item: Option<Box<str>>,
    /// The differences, one line each.
    pub lines: Vec<String>,
    /// The trace of the copy, if it was sampled.
    pub trace: Option<Box<str>>,
}

/// A running attempt to connect to a server, or to start its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// When it began.
    pub since: SystemTime,
    /// How long it has taken so far.
    pub elapsed: Duration,
    /// The last line that the process wrote to standard error.
    pub last_line: Option<Arc<str>>,
}

/// The state of the connection to a server, as every view for operators shows it.
#[derive(Clone, Debug)]
pub enum BackendState {
    /// Not connected; the next request connects.
    Idle,
    /// A connection is being made.
    Connecting,
    /// Requests can be sent.
    Ready,
    /// Connected and answering checks, but not calls. Calls fail at once until a trial call is
    /// answered.
    Ejected {
        /// The reason.
        error: BackendError,
        /// The time until a trial call is sent.
        retry_in: Duration,
    },
    /// The last attempt failed. The next one is due after `retry_in` at the latest.
    Down {
        /// The reason.
        error: BackendError,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// Too many attempts have failed in a row. After a while, the next request makes another
    /// attempt.
    Failed {
        /// The reason of the last failure.
        error: BackendError,
    },
}

impl BackendState {
    /// Whether requests can be sent. An ejected server counts, since only calls show that it answers
    /// again, and a gateway that is not ready gets none.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Ready | Self::Idle | Self::Ejected { .. })
    }

    /// The order of states of which one has to represent a server, the best first.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Ejected { .. } => 1,
            Self::Idle | Self::Connecting => 2,
            Self::Down { .. } => 3,
            Self::Failed { .. } => 4,
        }
    }
}

/// The most pages of one list.
pub const LIST_PAGES: usize = 1000;

/// The most entries of one list.
pub const LIST_ENTRIES: usize = 100_000;

/// The most bytes of one list.
pub const LIST_BYTES: usize = 64 << 20;

/// How long changes of a list are collected, so that a burst is read and announced once.
pub const LIST_SETTLE: Duration = Duration::from_millis(100);

/// The last lines that a server's processes have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOutput {
    /// The lines, oldest first.
    pub lines: Vec<ProcessLine>,
    /// The number of earlier lines that are no longer kept.
    pub dropped: u64,
    /// The time when the log began; `None` if there is none. Another time means another log, of a
    /// server that was restarted.
    pub began: Option<SystemTime>,
    /// The running processes, oldest first.
    pub running: Vec<RunningProcess>,
}

/// A running process of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    /// The number in the log.
    pub process: u64,
    /// The process id. On Linux, the id of the guard that started the process and ends with it.
    pub id: Option<u32>,
    /// The owner: Fanlight, a principal or a kind of clients.
    pub owner: String,
    /// When it was started.
    pub since: SystemTime,
}

/// One line that a process has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    /// The time when the line was read.
    pub at: SystemTime,
    /// The process that wrote it. A server's processes are counted from 1.
    pub process: u64,
    /// The stream that it was written to.
    pub stream: ProcessStream,
    /// The line, with invisible characters escaped; long lines are cut.
    pub text: Arc<str>,
}

fanlight_protocol::named! {
    /// A stream that a process writes to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProcessStream {
        /// Standard error.
        Stderr = "stderr",
        /// Standard output, for a line that was not a message.
        Stdout = "stdout",
    }
}

/// Selects the clients of a server that its canary serves.
///
/// A principal stays at one version, and so does a session of a client without authentication. The
/// decision depends on names alone, so it is the same in every process and after every restart. A
/// greater share includes all clients of a smaller one.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryRule {
    /// The server whose clients are selected.
    pub server: Box<str>,
    /// The share of clients that the canary serves, from 0 to 1.
    pub share: f64,
}

impl CanaryRule {
    /// Whether the canary serves this caller. It never serves Fanlight itself or operators.
    #[must_use]
    pub fn takes(&self, caller: &Caller) -> bool {
        let principal = caller.principal();
        let is_client = principal.is_named() || principal.is_anonymous();
        if !is_client || self.share <= 0.0 {
            return false;
        }
        let session = caller
            .session_opened_as()
            .filter(|_| principal.is_anonymous());
        let place = match session {
            // The number is the same in every replica that continues the session.
            Some(opened_as) => self.place(&opened_as.to_be_bytes()),
            None => self.place(&principal.to_bytes()),
        };
        place < self.share
    }

    /// A number from 0 up to 1, spread evenly over all keys.
    fn place(&self, key: &[u8]) -> f64 {
        // No server name contains the byte between the two.
        let digest = sha256([self.server.as_bytes(), &[0xff], key]);
        let first: Option<[u8; 4]> = digest.first_chunk().copied();
        first.map_or(1.0, |first| {
            f64::from(u32::from_be_bytes(first)) / (f64::from(u32::MAX) + 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::SessionKey;
    use crate::identity::Principal;

    fn rule(share: f64) -> CanaryRule {
        CanaryRule {
            server: "billing".into(),
            share,
        }
    }

    fn caller(number: u32) -> Caller {
        Caller::request_of(Principal::new("issuer", &format!("user-{number}")))
    }

    fn taken(rule: &CanaryRule) -> Vec<u32> {
        (0..2000)
            .filter(|number| rule.takes(&caller(*number)))
            .collect()
    }

    #[test]
    fn share_of_principals_is_taken_and_grows_without_losing_any() {
        let of = |share| taken(&rule(share));
        assert!(of(0.0).is_empty());
        assert_eq!(of(1.0).len(), 2000);
        let (some, half) = (of(0.1), of(0.5));
        assert!((150..250).contains(&some.len()), "{}", some.len());
        assert!((900..1100).contains(&half.len()), "{}", half.len());
        assert!(some.iter().all(|number| half.contains(number)));
    }

    /// Other replicas and later releases must decide alike.
    #[test]
    fn decision_is_the_same_in_every_process() {
        assert_eq!(
            taken(&rule(0.005)),
            [
                138, 347, 420, 561, 661, 784, 953, 1334, 1412, 1492, 1859, 1907
            ]
        );
        let other = CanaryRule {
            server: "search".into(),
            ..rule(0.5)
        };
        assert_ne!(
            taken(&other),
            taken(&rule(0.5)),
            "not the same users everywhere"
        );
    }

    #[test]
    fn sessions_without_authentication_are_spread() {
        let sessions = |principal: Principal| {
            let of = |key| Caller::session_of(principal.clone(), SessionKey(key));
            (0..1000).filter(|key| rule(0.5).takes(&of(*key))).count()
        };
        assert!((400..600).contains(&sessions(Principal::anonymous())));
        assert!([0, 1000].contains(&sessions(Principal::new("issuer", "ann"))));
    }

    #[test]
    fn session_that_another_process_continues_stays_at_its_version() {
        let rule = rule(0.5);
        let opened = |number| Caller::session_of(Principal::anonymous(), SessionKey(number));
        let continued = |number| {
            Caller::continued_session_of(
                Principal::anonymous(),
                SessionKey(1_000_000 - number),
                number,
            )
        };
        assert!(
            (0..1000).all(|number| rule.takes(&opened(number)) == rule.takes(&continued(number)))
        );
    }

    #[test]
    fn fanlight_itself_and_operators_stay_at_the_server() {
        let all = rule(1.0);
        assert!(
            !all.takes(&Caller::gateway())
                && !all.takes(&Caller::request_of(Principal::operator()))
        );
        assert!(all.takes(&Caller::request_of(Principal::anonymous())));
    }
}
