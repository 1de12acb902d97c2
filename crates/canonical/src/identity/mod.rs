//! The identity and rights of a client, which are the same for every listener, the core and the
//! server edge.

mod identity;
mod principal;

pub use identity::{Claims, Identity, Scopes, Source, Validity};
pub use principal::Principal;
