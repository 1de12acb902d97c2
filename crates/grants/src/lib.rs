//! What users have granted at servers: kept sealed in `stateDir`, refreshed before it expires, and asked for on pages of
//! Fanlight.

mod folder;
mod store;

pub use folder::Folder;
pub use store::{Kind, Leased, Owner, Record, Store, StoreError};
