//! The canonical form of requests, independent of protocol era and transport. The client edge
//! (`frontend`), the core (`gateway`) and the server edge (`backend`) pass it to each other.
//!
//! The client edge calls the gateway, and that calls [`BackendClient`]. A request is resolved once
//! (`Gateway::resolve`). The decision whether it may run is based on the operation ([`Decidable`]),
//! and exactly that runs (`Gateway::run`). Listening and notifications take the same way.

mod backoff;
mod call;
mod caller;
mod client;
pub mod comparison;
mod error;
mod failure;
mod handle;
pub mod identity;
mod listen;
mod messages;
mod policy;
pub mod rights;
mod server_sessions;

pub use fanlight_protocol::TaskDialect;
pub use fanlight_telemetry::metrics::MirrorOutcome;
pub use fanlight_telemetry::{Parent, Rewritten};

pub use crate::identity::{Identity, Principal, Source, Validity};
pub use backoff::{Backoff, RetryDelays};
pub use call::{
    About, AuditFacts, Call, CallContext, SentAs, SessionRequest, cancelled_by_operator,
};
pub use caller::{
    Caller, ClientHeaders, DEFAULT_PATH, Endpoint, Holder, Peer, SameClient, SessionKey,
};
pub use client::{
    BackendClient, BackendParts, BackendState, BackendStatus, BackendTraits, CanaryRule,
    CanaryStatus, EndpointStatus, LIST_BYTES, LIST_ENTRIES, LIST_PAGES, LIST_SETTLE,
    MirrorDifference, MirrorStatus, Pending, ProcessLine, ProcessOutput, ProcessStream,
    RunningProcess, Starting,
};
pub use error::{BackendError, Outcome, Plain, SignInWish};
pub use failure::{FailureDetails, Remedy, RemedyKind};
pub use handle::{Handle, HandleKind, HandleSeal, Keeper, ProcessRun};
pub use listen::{Interest, KEPT_PARAMS, LONGEST_URI, Listen, Listening, ListeningGuard, Names};
pub use messages::{
    ClientNotices, MessageReceiver, ServerMessage, ServerMessages, ServerRequest, StreamSignal,
};
pub use policy::{
    AmbiguousArguments, ApprovalRule, ApprovedBy, Decidable, DefinitionGuard, Detail, Item, Policy,
    PolicyAction, PolicyItem, PolicyKind, PolicyOutcome, PolicySubject, Rights, Verdict,
};
pub use server_sessions::{
    Keeping, RequestIds, ServerSession, ServerSessions, SessionAt, SessionKeeper, place_of,
};
