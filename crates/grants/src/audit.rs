//! Lines of the audit log about what users grant: the log's target and its fields are those of the crate `audit`, which
//! this one does not reach.

use fanlight_identity::Principal;
use fanlight_protocol::visible::escaped;
use tracing::info;

/// What has become of what a user has granted at a server.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    SignedIn,
    KeyDeposited,
    SignedOut,
    /// Its authorization server does not renew it any more.
    Ended,
}

impl Change {
    fn as_str(self) -> &'static str {
        match self {
            Self::SignedIn => "sign-in at a server",
            Self::KeyDeposited => "key for a server",
            Self::SignedOut => "sign-out at a server",
            Self::Ended => "end of a grant",
        }
    }
}

/// Puts a change down, of the user with these bytes, at a server.
pub(crate) fn changed(change: Change, principal: &[u8], server: &str) {
    let user = Principal::from_bytes(principal).map(|user| user.describe());
    let (what, about, who) = (change.as_str(), escaped(server), user.as_deref().map(escaped));
    info!(target: "audit", what, about = &*about, who = who.as_deref(), outcome = "done", "user: {what}");
}
