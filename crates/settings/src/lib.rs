//! Settings that the configuration file and the server edge have in common: secrets, and how a server is reached.

mod secret;
mod transport;

pub use secret::Secret;
pub use transport::{Transport, origin_of};
