//! Errors that end a front end. No single client can cause one.

use std::io;

/// The reason why a front end stopped.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The system has no random numbers, so nothing can be sealed.
    #[error("{0}: the system's random number generator fails")]
    NoKey(#[from] fanlight_protocol::seal::KeyError),
    /// Standard input failed.
    #[error("cannot read from the client: {0}")]
    Input(#[source] io::Error),
    /// Standard output failed: the client is gone.
    #[error("cannot write to the client: {0}")]
    Output(#[source] io::Error),
}
