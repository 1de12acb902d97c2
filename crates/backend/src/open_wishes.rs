//! Sign-in links that clients with a session have received. When the user has signed in, the client
//! is told that the elicitation is complete (2025-11-25 client/elicitation, Completion
//! Notifications for URL Mode Elicitation). 2026-07-28 has no such notification: its clients repeat
//! the call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    CallContext, Caller, Listen, Principal, ServerMessage, ServerMessages, SessionKey, SignInWish,
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
    /// Receives messages to sessions outside of their calls, with the number of the listener.
    listeners: HashMap<Caller, (u64, ServerMessages)>,
    /// The last number given to a listener.
    last: u64,
}

/// A link that a client has received.
struct Given {
    caller: Caller,
    /// The id of the elicitation.
    id: String,
    at: Instant,
}

/// A session that listens until this is dropped.
pub(crate) struct Listener {
    of: Arc<OpenWishes>,
    caller: Caller,
    number: u64,
}

impl OpenWishes {
    /// Remembers a link for a client that can be told of its completion.
    pub(crate) fn given(&self, to: &CallContext, wish: &SignInWish) {
        let opens_links =
            MissingCapability::of(&to.capabilities, ClientCapability::ElicitationByUrl).is_none();
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

    /// Adds the listener of a session; `None` for clients without a session.
    pub(crate) fn listen(self: &Arc<Self>, listen: &Listen) -> Option<Listener> {
        let caller = listen.context.caller.clone();
        caller.session().filter(|_| listen.interest.session)?;
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table
            .listeners
            .insert(caller.clone(), (number, listen.messages.clone()));
        drop(table);
        Some(Listener {
            of: Arc::clone(self),
            caller,
            number,
        })
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

    /// Tells the sessions of a principal that it has signed in. Messages that do not fit are lost,
    /// as with any listener.
    pub(crate) fn fulfilled(&self, principal: &Principal) {
        let mut table = self.0.lock();
        let Table {
            given, listeners, ..
        } = &mut *table;
        let is_over = |given: &Given| given.caller.principal() == principal;
        let over: Vec<_> = given.iter().filter(|given| is_over(given)).collect();
        for Given { caller, id, .. } in over {
            let Some((_, messages)) = listeners.get(caller) else {
                continue;
            };
            let mut params = ObjectBuilder::new();
            params.string("elicitationId", id);
            let complete = Notification::new(
                Method::from_name(ELICITATION_COMPLETE),
                Some(&params.finish()),
            );
            let _ = messages.try_send(ServerMessage::Notification(complete));
        }
        given.retain(|given| !is_over(given));
    }

    /// Removes a session that has ended.
    pub(crate) fn end_session(&self, session: SessionKey) {
        self.0
            .lock()
            .given
            .retain(|given| given.caller.session() != Some(session));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut table = self.of.0.lock();
        // A later listener of the same session may have replaced it.
        let is_own = table
            .listeners
            .get(&self.caller)
            .is_some_and(|(number, _)| *number == self.number);
        let gone = is_own.then(|| table.listeners.remove(&self.caller));
        drop(table);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::Interest;
    use fanlight_protocol::Json;

    use super::*;

    #[tokio::test]
    async fn session_that_listens_anew_is_told_when_its_earlier_stream_has_ended() {
        let wishes = Arc::new(OpenWishes::default());
        let principal = Principal::named("fanlight:key", "ann");
        let caller = Caller::session_of(principal.clone(), SessionKey::fresh());
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
        wishes.given(&context, &wish);
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
        let earlier = wishes.listen(&listen(first));
        let _later = wishes.listen(&listen(second));
        drop(earlier);
        wishes.fulfilled(&principal);
        assert!(received.try_recv().is_some(), "the later one is told");
    }
}
