//! Lets operators look at a listener's clients.
//!
//! Session ids are shown as digests, since an id is a secret.

use std::sync::{Arc, OnceLock, Weak};

use fanlight_protocol::digest::short_digest;
use fanlight_telemetry::clients::{Clients, ClientsView, Counts};

/// Access to a listener's clients. Empty until a listener is served with it.
#[derive(Clone, Default)]
pub struct Insight(Arc<OnceLock<Weak<dyn Clients>>>);

impl Insight {
    /// Attaches `observed`. Later calls have no effect.
    pub(crate) fn begin<T: Clients>(&self, observed: &Arc<T>) {
        let weak: Weak<T> = Arc::downgrade(observed);
        // An error means that another listener is already attached.
        let _ = self.0.set(weak);
    }
}

/// Reports no clients before the listener serves and after it has ended.
impl Clients for Insight {
    fn view(&self) -> ClientsView {
        self.0
            .get()
            .and_then(Weak::upgrade)
            .map(|observed| observed.view())
            .unwrap_or_default()
    }

    fn counts(&self) -> Counts {
        self.0
            .get()
            .and_then(Weak::upgrade)
            .map(|observed| observed.counts())
            .unwrap_or_default()
    }

    fn end_session(&self, digest: &str) -> bool {
        self.0
            .get()
            .and_then(Weak::upgrade)
            .is_some_and(|observed| observed.end_session(digest))
    }
}

fanlight_protocol::opaque!(Insight);

/// The digest of a session id that operators see. It tells sessions apart, but does not give access
/// to one.
pub(crate) fn shown_id(id: &str) -> String {
    short_digest(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Clients for One {
        fn view(&self) -> ClientsView {
            ClientsView {
                streams: 7,
                ..ClientsView::default()
            }
        }

        fn counts(&self) -> Counts {
            Counts {
                streams: 7,
                ..Counts::default()
            }
        }

        fn end_session(&self, digest: &str) -> bool {
            digest == "7"
        }
    }

    #[test]
    fn insight_sees_clients_while_they_are_served() {
        let insight = Insight::default();
        let given = insight.clone();
        assert_eq!(insight.view().streams, 0);
        let one = Arc::new(One);
        given.begin(&one);
        assert_eq!((insight.view().streams, insight.counts().streams), (7, 7));
        drop(one);
        assert_eq!(insight.view().streams, 0);
    }

    #[test]
    fn session_ids_are_shown_as_digests() {
        assert_eq!(shown_id("abc"), "ba7816bf8f01cfea");
    }
}
