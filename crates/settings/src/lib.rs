//! Settings that the configuration file and the server edge have in common: secrets, and how a server is reached.

mod sandbox;
mod secret;
mod transport;

pub use sandbox::{Landlock, Sandbox};
pub use secret::Secret;
pub use transport::{Transport, origin_of};
