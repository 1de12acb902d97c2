//! The protocol between Fanlight and a server.

/// The era of the protocol in which Fanlight speaks to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// The era that Fanlight finds out by asking.
    #[default]
    Auto,
    /// The era with `initialize` and sessions.
    Legacy,
    /// The stateless era with `server/discover`.
    Modern,
}

/// Whether clients share a session with a legacy server. A modern one has no sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionPolicy {
    /// Each client session has its own session, and over stdio its own process. Clients without a
    /// session share one among those with equal capabilities.
    #[default]
    PerClient,
    /// Like `PerClient`, but client sessions of one principal share a process if the server shows
    /// that it has no session state and the clients cannot be asked.
    Auto,
    /// All clients share one session, which declares no capability.
    Shared,
}
