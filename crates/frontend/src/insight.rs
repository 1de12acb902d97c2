//! What an operator may see of the clients of a listener, at one moment: who has a session, which
//! calls are parked.
//!
//! Ids of sessions are shown as digests, since whoever has one is the client.
//!
//! Must not know: who asks, or how it is shown.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use fanlight_protocol::Json;

/// How to ask a listener about its clients. Empty until one is served with it.
#[derive(Clone, Default)]
pub struct Insight(Arc<OnceLock<Weak<dyn Observed>>>);

/// What can be asked.
pub(crate) trait Observed: Send + Sync {
    fn clients(&self) -> Clients;

    fn counts(&self) -> Counts;
}

/// How many clients a listener has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Calls that wait for a client to come back.
    pub parked: usize,
    /// Event streams that are open.
    pub streams: usize,
}

/// The clients of a listener.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Sessions of legacy clients, in no particular order.
    pub sessions: Vec<SessionView>,
    /// Calls that wait for a client to come back.
    pub parked: Vec<ParkedView>,
    /// Event streams that are open: what legacy sessions have, and subscriptions of modern clients.
    pub streams: usize,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The first 16 hexadecimal digits of the SHA-256 digest of its id, as spans have it.
    pub digest: String,
    /// What both sides speak; `None` before that is settled.
    pub revision: Option<&'static str>,
    /// `http`, or `sse` for the deprecated HTTP+SSE transport.
    pub transport: &'static str,
    /// `Implementation` object of the client, as it wrote it.
    pub client_info: Option<Json>,
    /// Requests that run.
    pub running: usize,
    /// Questions of servers that the client has not answered.
    pub questions: usize,
    /// Event streams that it has or can resume.
    pub streams: usize,
    /// How long it has had no request; `None` if it has one now, or cannot expire.
    pub idle: Option<Duration>,
}

/// A parked call.
#[derive(Clone, Debug)]
pub struct ParkedView {
    /// Its method.
    pub method: String,
    /// The tool or prompt, where it names one.
    pub name: Option<String>,
    /// The methods of what the client is asked.
    pub asked: Vec<String>,
    /// How often it has been parked.
    pub round: u32,
    /// How long it has waited.
    pub waiting: Duration,
    /// How long it will still wait.
    pub left: Duration,
}

impl Insight {
    /// The clients now; none before the listener serves or once it has ended.
    #[must_use]
    pub fn clients(&self) -> Clients {
        let observed = self.0.get().and_then(Weak::upgrade);
        observed.map(|observed| observed.clients()).unwrap_or_default()
    }

    /// How many there are; looked up often, and so without looking at each.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let observed = self.0.get().and_then(Weak::upgrade);
        observed.map(|observed| observed.counts()).unwrap_or_default()
    }

    /// Lets `observed` be asked. Only the first counts.
    pub(crate) fn begin<T: Observed + 'static>(&self, observed: &Arc<T>) {
        let weak: Weak<T> = Arc::downgrade(observed);
        // An error means that another is asked already.
        let _ = self.0.set(weak);
    }
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Insight")
    }
}

/// What is shown of a session's id: enough to tell sessions apart, useless to take one over.
pub(crate) fn shown_id(id: &str) -> String {
    digest(&SHA256, id.as_bytes()).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Observed for One {
        fn clients(&self) -> Clients {
            Clients { streams: 7, ..Clients::default() }
        }

        fn counts(&self) -> Counts {
            Counts { streams: 7, ..Counts::default() }
        }
    }

    #[test]
    fn there_is_something_to_see_while_it_is_served() {
        let insight = Insight::default();
        let given = insight.clone();
        assert_eq!(insight.clients().streams, 0);
        let one = Arc::new(One);
        given.begin(&one);
        assert_eq!((insight.clients().streams, insight.counts().streams), (7, 7));
        drop(one);
        assert_eq!(insight.clients().streams, 0);
    }

    #[test]
    fn ids_are_shown_as_digests() {
        assert_eq!(shown_id("abc"), "ba7816bf8f01cfea");
    }
}
