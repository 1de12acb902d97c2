//! Settings that the configuration file and the edges have in common: secrets, where a listener listens, how a server is reached
//! and spoken to, and algorithms of signatures.

mod algorithm;
mod listen;
mod sandbox;
mod secret;
mod server;
mod transport;

pub use algorithm::Algorithm;
pub use listen::{ListenAddress, NotAnAddress};
pub use sandbox::{Landlock, Sandbox};
pub use secret::Secret;
pub use server::{EraChoice, SessionPolicy};
pub use transport::{Transport, origin_of};
