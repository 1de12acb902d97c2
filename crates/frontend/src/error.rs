//! What can end a front end. Nothing that one client does is among these.

use std::io;

/// Why a front end stopped.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The system gives no random numbers, without which nothing can be sealed.
    #[error("{0}: the system's random number generator fails")]
    NoKey(#[from] fanlight_protocol::seal::KeyError),
    /// Standard input failed.
    #[error("cannot read from the client: {0}")]
    Input(#[source] io::Error),
    /// Standard output failed: the client is gone.
    #[error("cannot write to the client: {0}")]
    Output(#[source] io::Error),
}
