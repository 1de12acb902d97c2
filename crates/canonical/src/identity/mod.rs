//! The identity and rights of a client, which are the same for every listener, the core and the
//! server edge.

mod client_identity;
mod principal;

pub use client_identity::{Claims, Identity, Scopes, Source, Validity};
pub use principal::Principal;
