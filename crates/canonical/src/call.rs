//! A request in canonical form.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use fanlight_identity::Principal;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Method, RpcError, capability, code};
use fanlight_telemetry::Parent;

use crate::caller::{Caller, SessionKey};
use crate::messages::ServerMessages;
use crate::peer::Peer;
use crate::session_request::SessionRequest;

/// A request in canonical form, as it goes to a server.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// `params` with the client's bytes, except for names that the core has translated. Per-hop keys
    /// of `_meta` may still be in it: the server edge replaces them with its own.
    pub params: Option<Json>,
    /// What the edges need to know of the client.
    pub context: Arc<CallContext>,
    /// Takes what the server sends for this request before its response.
    pub messages: ServerMessages,
}

/// What the edges need to know of the client behind a call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Who the request is made for.
    pub caller: Caller,
    /// Whose share of a limit it takes.
    pub peer: Peer,
    /// Where it connects from, if that is a network.
    pub address: Option<IpAddr>,
    /// Which kind of protocol it speaks.
    pub era: ClientEra,
    /// `Implementation` object of the client, if it gave one.
    pub client_info: Option<Json>,
    /// `ClientCapabilities` object: what the server may ask of the client during this call.
    pub capabilities: Json,
    /// The least severe log message the client asked for; `None` if it set no level.
    pub log_level: Option<LogLevel>,
    /// Whether the client gave a progress token.
    pub wants_progress: bool,
    /// The request, if it belongs to a session; with a notification, the request that it names.
    pub request: Option<Arc<SessionRequest>>,
    /// The client's dialect of tasks; `None` if it has none.
    pub tasks: Option<TaskDialect>,
    /// The span of the request, parent of the spans of all work done for it.
    pub trace: Parent,
    /// Where it was sent; empty until then, and for what goes to several servers. `None` where nobody puts that on record.
    pub sent_to: Option<OnceLock<SentTo>>,
    /// Set if it must run once at most, whatever its server says of that.
    pub once: OnceLock<()>,
}

/// Where a request was sent.
#[derive(Clone, Debug)]
pub struct SentTo {
    /// The server, by its name in the configuration.
    pub server: Box<str>,
    /// What the server itself calls that which the request is about.
    pub item: Option<Box<str>>,
    /// The server that it went to in place of that one, whose canary it is.
    pub canary: Option<Box<str>>,
}

/// The two kinds of protocol that clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientEra {
    /// With sessions, which begin with `initialize`.
    Legacy,
    /// Without.
    #[default]
    Modern,
}

impl ClientEra {
    /// Its name for operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The two dialects of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskDialect {
    /// The requestor asks for a task (2025-11-25 basic/utilities/tasks).
    Requested,
    /// The server decides (extension `io.modelcontextprotocol/tasks`).
    Extension,
}

/// The answer to a request that an operator has cancelled.
#[must_use]
pub fn cancelled_by_operator() -> RpcError {
    let mut data = ObjectBuilder::new();
    data.member("mayHaveRun", &Json::literal("true"));
    let message =
        "an operator of this gateway has cancelled the request; it may have been carried out";
    RpcError::new(code::CANCELLED_BY_OPERATOR, message).with_data(data.finish())
}

impl CallContext {
    /// The context of the requests by which lists are read that are served to clients of all kinds.
    /// `trace` is the span of the request that needs the list, if there is one.
    #[must_use]
    pub fn for_lists(trace: &Parent) -> Arc<Self> {
        Self::for_lists_with(Self::list_capabilities(), trace)
    }

    /// Like [`CallContext::for_lists`], declaring these capabilities.
    #[must_use]
    pub fn for_lists_with(capabilities: Json, trace: &Parent) -> Arc<Self> {
        Arc::new(Self {
            capabilities,
            ..Self::own(trace)
        })
    }

    /// Like [`CallContext::for_lists_with`], for lists that are for one principal alone.
    #[must_use]
    pub fn for_lists_of(reader: &Principal, capabilities: Json, trace: &Parent) -> Arc<Self> {
        let caller = Caller::request_of(reader.clone());
        Arc::new(Self {
            caller,
            capabilities,
            ..Self::own(trace)
        })
    }

    /// What requests declare by which lists are read: everything that Fanlight knows.
    #[must_use]
    pub fn list_capabilities() -> Json {
        Json::literal(capability::ALL_OF_MODERN)
    }

    /// The context of a request that Fanlight makes on its own behalf.
    #[must_use]
    pub fn internal() -> Arc<Self> {
        Self::within(&Parent::default())
    }

    /// The context of a request that Fanlight makes on its own behalf as part of `trace`.
    #[must_use]
    pub fn within(trace: &Parent) -> Arc<Self> {
        Arc::new(Self::own(trace))
    }

    /// The same for a request that Fanlight makes for the client, who wants no progress of that.
    #[must_use]
    pub fn without_progress(&self) -> Arc<Self> {
        Arc::new(Self {
            wants_progress: false,
            request: None,
            ..self.clone()
        })
    }

    /// The client's session, if it has one.
    #[must_use]
    pub fn session(&self) -> Option<SessionKey> {
        self.caller.session()
    }

    /// Whether the request must run once at most: it is neither repeated nor copied, whatever its server says of that.
    #[must_use]
    pub fn runs_once(&self) -> bool {
        self.once.get().is_some()
    }

    /// Has it run once at most from now on, and for good.
    pub fn run_once(&self) {
        let _ = self.once.set(());
    }

    fn own(trace: &Parent) -> Self {
        Self {
            caller: Caller::gateway(),
            peer: Peer::Local,
            address: None,
            era: ClientEra::default(),
            client_info: None,
            capabilities: Json::empty_object(),
            log_level: None,
            wants_progress: false,
            request: None,
            tasks: None,
            trace: trace.clone(),
            sent_to: None,
            once: OnceLock::new(),
        }
    }
}
