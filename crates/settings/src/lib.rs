//! Settings that the configuration file and the edges have in common: secrets, where a listener listens, and how a server is
//! reached.

mod listen;
mod sandbox;
mod secret;
mod transport;

pub use listen::{ListenAddress, NotAnAddress};
pub use sandbox::{Landlock, Sandbox};
pub use secret::Secret;
pub use transport::{Transport, origin_of};
