//! Sign-in links that clients with a session have received. When the user has signed in, the client
//! is told that the elicitation is complete (2025-11-25 client/elicitation, Completion
//! Notifications for URL Mode Elicitation). 2026-07-28 has no such notification: its clients repeat
//! the call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use fanlight_canonical::{
    CallContext, Caller, Listen, Principal, ServerMessage, SessionKey, SignInWish,
};
use fanlight_protocol::capability::{ClientCapability, MissingCapability};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::{Method, Notification};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of remembered links per server; the oldest are forgotten. A constant: clients
/// need not wait for the lost notifications.
const MOST: usize = 1000;
/// How long a link is remembered, which is as long as its page exists.
const LONGEST: Duration = Duration::from_secs(3600);

/// The links that clients of one server have received.
#[derive(Default)]
pub(crate) struct OpenWishes(Mutex<Table>);

#[derive(Default)]
struct Table {
    given: VecDeque<Given>,
    /// The newest listener of each session.
    listeners: HashMap<SessionKey, Listen>,
}

/// A link that a client has received.
struct Given {
    caller: Caller,
    /// The id of the elicitation.
    id: String,
    at: Instant,
}

impl OpenWishes {
    /// Remembers a link for a client that accepts a notice of its completion.
    pub(crate) fn remember(&self, to: &CallContext, wish: &SignInWish) {
        let opens_links =
            MissingCapability::check(&to.capabilities, ClientCapability::ElicitationByUrl)
                .is_none();
        if wish.url.is_none() || to.caller.session().is_none() || !opens_links {
            return;
        }
        let mut table = self.0.lock();
        table.given.retain(|given| given.at.elapsed() < LONGEST);
        if table.given.len() >= MOST {
            table.given.pop_front();
        }
        table.given.push_back(Given {
            caller: to.caller.clone(),
            id: wish.id.clone(),
            at: Instant::now(),
        });
    }

    /// Adds a listener, if it is one of a session. Until the session ends, the newest one counts.
    pub(crate) fn listen(&self, listen: &Listen) {
        if let Some(session) = listen.context.session().filter(|_| listen.interest.session) {
            self.0.lock().listeners.insert(session, listen.clone());
        }
    }

    /// The principals that have received links.
    pub(crate) fn principals(&self) -> HashSet<Principal> {
        self.0
            .lock()
            .given
            .iter()
            .map(|given| given.caller.principal().clone())
            .collect()
    }

    /// Notifies the sessions of a principal that it has signed in. Messages that do not fit are
    /// lost, as with any listener.
    pub(crate) fn fulfill(&self, principal: &Principal) {
        let mut table = self.0.lock();
        let Table {
            given, listeners, ..
        } = &mut *table;
        let is_over = |given: &Given| given.caller.principal() == principal;
        let over: Vec<_> = given.iter().filter(|given| is_over(given)).collect();
        for Given { caller, id, .. } in over {
            let session = caller.session().and_then(|key| listeners.get(&key));
            let Some(listen) = session.filter(|listen| listen.context.caller == *caller) else {
                continue;
            };
            let params = ObjectBuilder::new().string("elicitationId", id).finish();
            let complete =
                Notification::new(Method::from_name(ELICITATION_COMPLETE), Some(&params));
            let _ = listen
                .messages
                .try_send(ServerMessage::Notification(complete));
        }
        given.retain(|given| !is_over(given));
    }

    /// Removes a session that has ended.
    pub(crate) fn end_session(&self, session: SessionKey) {
        let mut table = self.0.lock();
        table
            .given
            .retain(|given| given.caller.session() != Some(session));
        table.listeners.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanlight_canonical::{Interest, ServerMessages};
    use fanlight_protocol::Json;

    use super::*;

    #[tokio::test]
    async fn session_that_listens_anew_is_told_when_its_earlier_stream_has_ended() {
        let wishes = OpenWishes::default();
        let principal = Principal::new("fanlight:key", "ann");
        let caller = Caller::session_of(principal.clone(), SessionKey::generate());
        let context = CallContext {
            caller,
            capabilities: Json::literal(r#"{"elicitation":{"url":{}}}"#),
            ..(*CallContext::internal()).clone()
        };
        let wish = SignInWish {
            id: "1".into(),
            url: Some("https://x".into()),
            message: String::new(),
        };
        wishes.remember(&context, &wish);
        let listen = |messages| Listen {
            interest: Interest {
                session: true,
                ..Interest::default()
            },
            context: Arc::new(context.clone()),
            messages,
        };
        let (first, _) = ServerMessages::channel(1);
        let (second, mut received) = ServerMessages::channel(1);
        wishes.listen(&listen(first));
        wishes.listen(&listen(second));
        wishes.fulfill(&principal);
        assert!(received.try_recv().is_some(), "the later one is told");
    }
}
