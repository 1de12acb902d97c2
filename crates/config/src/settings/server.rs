//! How Fanlight speaks to a server.

/// The era of the protocol in which Fanlight speaks to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// The one that is found by asking.
    #[default]
    Auto,
    /// With `initialize` and sessions.
    Legacy,
    /// Stateless, with `server/discover`.
    Modern,
}

/// Whether clients share a session with a legacy server. A modern one has no sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionPolicy {
    /// Each client session has one of its own, over stdio a process of its own. Clients without a
    /// session share one with those that have the same capabilities.
    #[default]
    PerClient,
    /// As `PerClient`, but client sessions of one principal share a process if the server shows that it has no state for a
    /// session, and the clients cannot be asked.
    Auto,
    /// All share one, which declares no capability.
    Shared,
}
