//! Settings that the configuration file and the edges have in common: secrets, where a listener listens, how a server is reached
//! and spoken to, what its process gets, where Valkey is, algorithms of signatures, and reading files that the configuration names.

mod algorithm;
mod endpoints;
mod listen;
mod loopback;
mod own_variables;
mod read;
mod sandbox;
mod secret;
mod server;
mod transport;
mod valkey;

pub use algorithm::Algorithm;
pub use endpoints::{EndpointUrl, Endpoints};
pub use listen::{ListenAddress, NotAnAddress};
pub use loopback::is_loopback;
pub use own_variables::is_own_variable;
pub use read::read_bounded;
pub use sandbox::{Landlock, SYSTEM_FOLDERS, Sandbox};
pub use secret::Secret;
pub use server::{EraChoice, SessionPolicy};
pub use transport::{Transport, origin_of};
pub use valkey::{NotAValkeyUrl, ValkeyKind, ValkeyUrl};
