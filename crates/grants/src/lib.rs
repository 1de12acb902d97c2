//! Users' grants at servers: stored encrypted in `stateDir`, renewed before they expire, and
//! requested on Fanlight's pages. The store also holds what Fanlight remembers about servers.

mod access;
mod audit;
mod connection;
mod error;
pub mod fetch;
mod folder;
mod grants;
mod links;
pub mod oauth;
mod operators;
mod pages;
mod peers;
mod record;
mod sealing_key;
mod server;
mod sign_in;
mod store;
mod uses;

pub use access::{NoAccess, UserAccess};
pub use audit::{GrantChange, GrantChangeEnd, GrantChangeKind, GrantRecord, NotOnRecord};
pub use connection::{Purged, UserConnection, all_connections, connections, purge, purge_of};
pub use error::SignInError;
pub use folder::Folder;
pub use grants::{ExchangedAccess, Grants};
pub use links::Links;
pub use operators::OperatorSignIn;
pub use pages::{SignInPages, SignInRules};
pub use record::{Grant, UserKey};
pub use sealing_key::{KeyPlace, Keyring, NoKeyring, SealingKeyError};
pub use server::{Method, ServerSettings, SignInMethod, Wanted};
pub use sign_in::{Begun, Callback, Offer, issuer_name};
pub use store::{
    CommonEntries, CommonError, Exchange, Exchanged, Exported, FILE, Kind, Lease, LeaseOutcome,
    Leased, Owner, Record, Stamp, Store, StoreError, holds_users,
};
