//! The gateway core: one catalogue of many servers, with naming, routing, fan-out and merging.
//!
//! A request arrives in canonical form ([`fanlight_canonical::Call`]), is resolved once
//! ([`resolve`](Gateway::resolve)), and then carried out
//! ([`run`](Gateway::run)). Each policy has one module: [`naming`](Naming),
//! [`merge`] (`_meta` and hints), [`cursor`], [`fault`] (errors), `tasks` (which server has a
//! task), `uris` (which server has a resource).
//!
//! HTTP, transports, eras and revisions belong to other crates: `tests/integration/layers.rs`
//! checks that this crate reaches no HTTP library.

pub mod approvals;
pub mod catalogue;
pub mod cursor;
mod extensions;
pub mod fault;
mod fit;
mod gateway;
mod list_kind;
mod listening;
pub mod merge;
mod mirror;
mod notices;
pub mod pins;
mod reads;
mod results;
mod routing;
mod search;
mod shape;
mod subscribed;
mod tasks;
mod topology;
mod uri_places;
mod uris;

pub use catalogue::ListView;
pub use gateway::{
    Decided, Gateway, GatewaySettings, ListenOperation, Notice, Operation, Shortening,
};
pub use list_kind::{KeptList, ListKind, ListStore};
pub use mirror::{Mirror, MirrorSettings};
pub use reads::CacheLimits;
pub use results::{KeptFile, ResultFiles};
pub use subscribed::SessionSubscriptions;
pub use tasks::{CommonTask, CommonTaskOwners};
pub use topology::{
    ApprovalSettings, ArgumentRule, BackendEntry, BackendId, ByteLimits, Canary, DefinitionMember,
    EndpointEntry, LeanRules, ListLimits, NamedServer, Naming, NamingPolicy, ResultRules,
    Rewriting, namings,
};

#[cfg(test)]
mod tests;
