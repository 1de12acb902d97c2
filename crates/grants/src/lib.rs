//! What users have granted at servers: kept sealed in `stateDir`, renewed before it ends, and asked for on pages of Fanlight.

mod access;
mod folder;
mod grants;
mod record;
mod server;
mod sign_in;
mod store;

pub use access::{Message, NoAccess, Refused, UserAccess, Wanted};
pub use folder::Folder;
pub use grants::Grants;
pub use record::{Grant, UserKey};
pub use sign_in::{Begun, Callback, Offer, SignInError};
pub use server::{ConfiguredClient, Method, ServerSettings, SignInMethod};
pub use store::{Exported, Kind, Leased, Owner, Record, Store, StoreError};
