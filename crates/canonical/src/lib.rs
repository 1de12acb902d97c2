//! The canonical form of requests, independent of protocol era and transport. The client edge
//! (`frontend`), the core (`gateway`) and the server edge (`backend`) pass it to each other.
//!
//! The client edge calls the gateway, and that calls [`BackendClient`]. A request is resolved once
//! (`Gateway::resolve`). The decision whether it may run is based on the operation ([`Decidable`]), and
//! exactly that runs (`Gateway::run`). Listening and notifications take the same way.

mod approval;
mod backoff;
mod call;
mod caller;
mod canary;
mod client;
pub mod comparison;
mod endpoint;
mod error;
mod failure;
mod handle;
pub mod identity;
mod listen;
mod lists;
mod messages;
mod operation;
mod peer;
mod plain;
mod policy;
mod process;
pub mod rights;
mod server_sessions;
mod session_request;

pub use crate::identity::{Identity, Principal};
pub use approval::{ApprovalRule, ApprovedBy, Item};
pub use backoff::{Backoff, RetryDelays};
pub use call::{About, AuditFacts, Call, CallContext, cancelled_by_operator};
pub use caller::{Caller, ClientHeaders, SameClient, SessionKey};
pub use canary::CanaryRule;
pub use client::{
    BackendClient, BackendParts, BackendState, BackendStatus, BackendTraits, CanaryStatus,
    EndpointStatus, MirrorDifference, MirrorStatus, Pending, Starting,
};
pub use endpoint::{DEFAULT_PATH, Endpoint, Holder};
pub use error::{BackendError, Outcome, SignInWish};
pub use failure::{FailureDetails, Remedy, RemedyKind};
pub use fanlight_protocol::TaskDialect;
pub use fanlight_telemetry::metrics::MirrorOutcome;
pub use fanlight_telemetry::{Parent, Rewritten};
pub use handle::{Handle, HandleKind, HandleSeal, Keeper, ProcessRun};
pub use listen::{Interest, KEPT_PARAMS, LONGEST_URI, Listen, Listening, ListeningGuard};
pub use lists::{LIST_BYTES, LIST_ENTRIES, LIST_PAGES, LIST_SETTLE};
pub use messages::{
    ClientNotices, MessageReceiver, ServerMessage, ServerMessages, ServerRequest, StreamSignal,
};
pub use operation::{Decidable, Detail, Unresolved};
pub use peer::Peer;
pub use plain::Plain;
pub use policy::{
    AmbiguousArguments, DefinitionGuard, Policy, PolicyAction, PolicyItem, PolicyKind,
    PolicyOutcome, PolicySubject, Rights, Verdict,
};
pub use process::{ProcessLine, ProcessOutput, ProcessStream, RunningProcess};
pub use server_sessions::{
    Keeping, RequestIds, ServerSession, ServerSessions, SessionAt, SessionKeeper, place_of,
};
pub use session_request::{SentAs, SessionRequest};
