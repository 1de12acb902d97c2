//! The recorded subscriptions of sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::{Caller, SessionKey};
use parking_lot::Mutex;

/// The resources that each session has subscribed to. They are used to repeat the subscriptions on
/// the session's next own connection to a legacy server, and at another endpoint.
pub(crate) struct SessionSubscriptions {
    /// The maximum number of resources per session.
    limit: usize,
    sessions: Mutex<Recorded>,
}

/// The caller and the resources of each session.
type Recorded = HashMap<SessionKey, (Caller, HashSet<Arc<str>>)>;

impl SessionSubscriptions {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            sessions: Mutex::default(),
        }
    }

    /// Adds a subscription.
    pub(crate) fn add(&self, session: &Caller, uri: &Arc<str>) {
        let Some(key) = session.session() else { return };
        let mut sessions = self.sessions.lock();
        let (owner, uris) = sessions
            .entry(key)
            .or_insert_with(|| (session.clone(), HashSet::new()));
        if owner == session && uris.len() < self.limit {
            uris.insert(Arc::clone(uri));
        }
    }

    /// Removes a subscription.
    pub(crate) fn remove(&self, session: &Caller, uri: &str) {
        let Some(key) = session.session() else { return };
        let mut sessions = self.sessions.lock();
        if let Some((owner, uris)) = sessions.get_mut(&key)
            && owner == session
            && uris.remove(uri)
            && uris.is_empty()
        {
            sessions.remove(&key);
        }
    }

    /// The subscriptions of a session.
    pub(crate) fn of(&self, session: &Caller) -> Vec<Arc<str>> {
        let sessions = self.sessions.lock();
        let recorded = session.session().and_then(|key| sessions.get(&key));
        recorded
            .into_iter()
            .filter(|(owner, _)| owner == session)
            .flat_map(|(_, uris)| uris)
            .cloned()
            .collect()
    }

    /// Removes all subscriptions of a session.
    pub(crate) fn end(&self, session: SessionKey) {
        self.sessions.lock().remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::Principal;

    use super::*;

    #[test]
    fn subscriptions_are_recorded_for_one_caller_up_to_the_limit() {
        let records = SessionSubscriptions::new(2);
        let (key, uris) = (
            SessionKey::fresh(),
            ["a:1", "a:2", "a:3"].map(Arc::<str>::from),
        );
        let of = |name| Caller::session_of(Principal::named("issuer", name), key);
        uris.iter().for_each(|uri| records.add(&of("ann"), uri));
        records.add(&of("bob"), &uris[0]);
        assert_eq!(
            (records.of(&of("ann")).len(), records.of(&of("bob")).len()),
            (2, 0)
        );
        records.remove(&of("bob"), "a:1");
        records.remove(&of("ann"), "a:2");
        assert_eq!(records.of(&of("ann")), [Arc::clone(&uris[0])]);
        records.end(key);
        assert!(records.of(&of("ann")).is_empty());
    }
}
