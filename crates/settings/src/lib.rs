//! Settings that the configuration file and the edges have in common: secrets, where a listener listens, how a server is
//! reached, what its process gets, and how files that the configuration names are read.

mod listen;
mod own_variables;
mod read;
mod sandbox;
mod secret;
mod transport;

pub use listen::{ListenAddress, NotAnAddress};
pub use own_variables::is_own_variable;
pub use read::read_bounded;
pub use sandbox::{Landlock, SYSTEM_FOLDERS, Sandbox};
pub use secret::Secret;
pub use transport::{Transport, origin_of};
