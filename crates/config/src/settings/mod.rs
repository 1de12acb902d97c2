//! Settings that the configuration file and other crates share: secrets, addresses of listeners,
//! transports and eras of servers, confinement of their processes, the address of Valkey, signature
//! algorithms, and reading files that the configuration names.

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
pub use endpoints::Endpoints;
pub use listen::{ListenAddress, NotAnAddress};
pub use loopback::is_loopback;
pub use own_variables::is_own_variable;
pub use read::read_bounded;
pub use sandbox::{Landlock, SYSTEM_FOLDERS, Sandbox};
pub use secret::Secret;
pub use server::{EraChoice, SessionPolicy};
pub use transport::{Transport, origin_of, split_path};
pub use valkey::{NotAValkeyUrl, ValkeyKind, ValkeyUrl};
