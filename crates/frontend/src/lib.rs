//! The client side: the HTTP listener, stdio, and all differences between client eras.
//!
//! Each message passes through `ingress`, which checks it by the rules of its era (`eras`), finds
//! its session (`session`, `streams`) and starts its call in the core (`call`, `suspended`). The
//! transports are `http`, and `channel` for stdio and the deprecated HTTP+SSE transport.

mod call;
mod channel;
mod eras;
mod error;
pub mod forwarding;
mod gates;
mod guardrail;
mod http;
mod ingress;
mod insight;
mod protection;
mod session;
mod session_records;
mod settings;
mod streams;
mod suspended;
mod trace;

pub use channel::stdio::{serve_stdio, serve_stdio_observed};
pub use eras::description::{discover_result, initialize_result};
pub use eras::fault::message_error as message_fault;
pub use error::FrontendError;
pub use fanlight_http::{
    ClientCa, Guard, HttpVersions, ListenAddress, ListeningSocket, LiveGuard, LiveTls, Origins,
    PublicUrl, SocketReceiver, SocketSender, TlsError, TlsFiles, TlsServer, TrustedProxies,
    sockets,
};
pub use guardrail::{CallHook, HookAnswer, JudgedCall, LiveHooks};
pub use http::{LiveLimits, LiveListener, ReplicaListener, serve_http, serve_http_observed};
pub use insight::Insight;
pub use protection::{
    CommonLimit, CommonLimits, LiveProtection, NotTaken, ProtectionSettings, RateDimensions,
    RateRule, RateState, RateUse, RequestMatch, ScopeSettings, ToolNames, ToolScopes,
};
pub use session_records::{Claim, Claimed, Mark, Released, SessionRecords};
pub use settings::{FrontendSettings, RefusedBody, byte_budget, max_suspended_calls};
