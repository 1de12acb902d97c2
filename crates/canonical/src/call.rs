//! Requests in canonical form.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use fanlight_protocol::{
    Era, Json, LogLevel, Method, Notification, RpcError, TaskDialect, capability, code,
};
use fanlight_telemetry::Parent;
use parking_lot::Mutex;

use crate::{Caller, Peer, Principal, ServerMessages, SessionKey};

/// A request in canonical form: as it arrives at the core, and as the core sends it to a server.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// `params` with the client's bytes, except for names that the core has translated. Per-hop
    /// keys of `_meta` may still be in it; the server edge replaces them by its own.
    pub params: Option<Json>,
    /// The properties of the client that the edges need.
    pub context: Arc<CallContext>,
    /// Takes the messages that the server sends for this request before its response.
    pub messages: ServerMessages,
}

impl Call {
    /// A request whose server can send no messages before its response.
    pub fn new(method: Method, params: Option<Json>, context: Arc<CallContext>) -> Self {
        Self {
            method,
            params,
            context,
            messages: ServerMessages::discard(),
        }
    }

    /// The member `key` of `params`.
    pub fn param(&self, key: &str) -> Option<Json> {
        self.params.as_ref()?.get(key)
    }

    /// The cursor of a request for a list. An empty one means the first page, as for servers of
    /// official libraries; Fanlight makes none.
    pub fn cursor(&self) -> Option<Json> {
        self.param("cursor")
            .filter(|cursor| !cursor.is_null() && cursor.as_text() != "\"\"")
    }
}

/// The properties of a call's client that the edges need.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The caller that the request is made for.
    pub caller: Caller,
    /// The peer whose share of a limit the request uses.
    pub peer: Peer,
    /// The address that the client connects from, if it uses a network. It is unspecified if a
    /// trusted proxy does not name it clearly.
    pub address: Option<IpAddr>,
    /// The kind of protocol that the client speaks.
    pub era: Era,
    /// The client's `Implementation` object, if it gave one.
    pub client_info: Option<Json>,
    /// The client's `ClientCapabilities` object, which limits what the server may ask of it during
    /// this call.
    pub capabilities: Json,
    /// The least severe log message that the client asked for; `None` if it set no level.
    pub log_level: Option<LogLevel>,
    /// Whether the client gave a progress token.
    pub wants_progress: bool,
    /// The request, if it belongs to a session. For a notification, the request that it names.
    pub request: Option<Arc<SessionRequest>>,
    /// The client's dialect of tasks; `None` if it has none.
    pub tasks: Option<TaskDialect>,
    /// The span of the request. The spans of all work for it are its children.
    pub trace: Parent,
    /// The facts for the request's line in the audit log that are only known later; `None` if no
    /// audit log records it.
    pub noted: Option<AuditFacts>,
    /// Set if the request must run at most once, whatever its server says.
    pub once: OnceLock<()>,
    /// Whether the client says that its user follows an earlier link to sign in.
    pub has_accepted_link: OnceLock<()>,
    /// The first gate that refused the request while it was resolved, or before or while it ran.
    pub gate: OnceLock<&'static str>,
}

/// The facts about a request for its line in the audit log. Each is set at most once.
#[derive(Clone, Debug, Default)]
pub struct AuditFacts {
    /// The subject of the request. Empty if it names nothing.
    pub about: OnceLock<About>,
    /// The id of the approval that the call needed.
    pub approval: OnceLock<Box<str>>,
    /// Set if a guardrail has replaced the result.
    pub replaced: OnceLock<()>,
    /// The code of the error with which Fanlight ended the request while it ran.
    pub code: OnceLock<i64>,
}

/// The server and the item that a request is about, even if its client may not see them.
#[derive(Clone, Debug)]
pub struct About {
    /// The server, by its name in the configuration; `None` if no server or several are concerned.
    pub server: Option<Box<str>>,
    /// The server's own name of the item, or the client's name if no server is known to have it.
    pub item: Option<Box<str>>,
    /// The canary that got the request instead of the server, if one did.
    pub canary: Option<Box<str>>,
}

/// The error for a request that an operator has cancelled.
pub fn cancelled_by_operator() -> RpcError {
    let message =
        "an operator of this gateway has cancelled the request; it may have been carried out";
    RpcError::new(code::CANCELLED_BY_OPERATOR, message).may_have_run(true)
}

impl CallContext {
    /// The context of requests for lists that all clients are served. `trace` is the span of the
    /// request that needs the list, if there is one.
    pub fn for_lists(trace: &Parent) -> Arc<Self> {
        Self::for_lists_with(Self::list_capabilities(), trace)
    }

    /// Like [`CallContext::for_lists`], with these capabilities.
    pub fn for_lists_with(capabilities: Json, trace: &Parent) -> Arc<Self> {
        Arc::new(Self {
            capabilities,
            ..Self::own(trace)
        })
    }

    /// Like [`CallContext::for_lists_with`], for lists that belong to one principal.
    pub fn for_lists_of(reader: &Principal, capabilities: Json, trace: &Parent) -> Arc<Self> {
        let caller = Caller::request_of(reader.clone());
        Arc::new(Self {
            caller,
            capabilities,
            ..Self::own(trace)
        })
    }

    /// The capabilities that Fanlight declares when it reads lists: everything that it knows.
    pub fn list_capabilities() -> Json {
        Json::literal(capability::ALL_OF_MODERN)
    }

    /// The context of a request that Fanlight makes on its own behalf.
    pub fn internal() -> Arc<Self> {
        Self::for_trace(&Parent::default())
    }

    /// The context of a request that Fanlight makes on its own behalf, as part of `trace`.
    pub fn for_trace(trace: &Parent) -> Arc<Self> {
        Arc::new(Self::own(trace))
    }

    /// Whether both requests come from one client, as far as known.
    pub fn is_of_client(&self, other: &Self) -> bool {
        self.caller == other.caller
            || (self.caller.client().is_some()
                && self.caller.client() == other.caller.client()
                && self.caller.holder() == other.caller.holder()
                && self.client_info == other.client_info)
    }

    /// A copy of the context for a request that Fanlight makes for the client without reporting
    /// progress.
    pub fn without_progress(&self) -> Arc<Self> {
        Arc::new(Self {
            wants_progress: false,
            request: None,
            ..self.clone()
        })
    }

    /// The client's session, if it has one.
    pub fn session(&self) -> Option<SessionKey> {
        self.caller.session()
    }

    /// Whether the request must run at most once: it is neither repeated nor mirrored, whatever its
    /// server says.
    #[must_use]
    pub fn runs_once(&self) -> bool {
        self.once.get().is_some()
    }

    /// Notes that a gate refuses the request, on its span and for the audit log. Clients do not see
    /// that.
    pub fn refused_by(&self, gate: &'static str) {
        self.trace.refused_by(gate);
        let _ = self.gate.set(gate);
    }

    /// Notes that a gate refuses the request; returns the error with the gate's name.
    pub fn refuse(&self, gate: &'static str, error: RpcError) -> RpcError {
        self.refused_by(gate);
        error.with_gate(gate)
    }

    /// Makes the request run at most once from now on. This cannot be undone.
    pub fn run_once(&self) {
        let _ = self.once.set(());
    }

    fn own(trace: &Parent) -> Self {
        Self {
            caller: Caller::gateway(),
            peer: Peer::Local,
            address: None,
            era: Era::Modern,
            client_info: None,
            capabilities: Json::empty_object(),
            log_level: None,
            wants_progress: false,
            request: None,
            tasks: None,
            trace: trace.clone(),
            noted: None,
            once: OnceLock::new(),
            has_accepted_link: OnceLock::new(),
            gate: OnceLock::new(),
        }
    }
}

/// A running request of a client's session. The client edge creates it, and the server edge records
/// how the request was sent. So a client notification that names the request can follow it.
#[derive(Debug, Default)]
pub struct SessionRequest {
    progress_token: Option<Json>,
    sent: Mutex<Sent>,
    /// The params of the client's notification that has cancelled it.
    pub cancellation: OnceLock<Json>,
}

#[derive(Debug, Default)]
enum Sent {
    #[default]
    NotYet,
    To {
        backend: Arc<str>,
        named: SentAs,
    },
    /// The request went to several servers, so an id on the client's side has no single
    /// counterpart.
    ToSeveral,
}

/// The server's ids for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAs {
    /// The request id.
    pub id: i64,
    /// The progress token, if there is one.
    pub token: Option<i64>,
}

impl SessionRequest {
    /// A request with the client's own progress token.
    pub fn new(progress_token: Option<Json>) -> Self {
        Self {
            progress_token,
            ..Self::default()
        }
    }

    /// The client's own progress token.
    pub fn progress_token(&self) -> Option<&Json> {
        self.progress_token.as_ref()
    }

    /// Records that the request has been sent to a server.
    pub fn sent_to(&self, backend: &Arc<str>, named: SentAs) {
        let mut sent = self.sent.lock();
        *sent = match &*sent {
            Sent::To { backend: known, .. } if known != backend => Sent::ToSeveral,
            Sent::ToSeveral => Sent::ToSeveral,
            Sent::To { .. } | Sent::NotYet => Sent::To {
                backend: Arc::clone(backend),
                named,
            },
        };
    }

    /// The server's ids for the request, if it was sent to this server alone.
    pub fn ids_at(&self, backend: &str) -> Option<SentAs> {
        match &*self.sent.lock() {
            Sent::To {
                backend: known,
                named,
            } if **known == *backend => Some(*named),
            _ => None,
        }
    }
}

impl SentAs {
    /// Puts the server's ids into a notification that names the request. `None` if it names a token
    /// that the server does not have.
    #[must_use]
    pub fn rename(self, notification: &Notification) -> Option<Notification> {
        let number = |number: i64| Json::parse(number.to_string().into(), 1).ok();
        let renamed = notification.with_param("requestId", &number(self.id)?);
        if notification.param("progressToken").is_none() {
            return Some(renamed);
        }
        Some(renamed.with_param("progressToken", &number(self.token?)?))
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Method;

    use super::*;

    #[test]
    fn request_is_known_to_the_only_backend_that_it_was_sent_to() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (request, first) = (SessionRequest::new(None), SentAs { id: 1, token: None });
        assert_eq!(request.ids_at("a"), None);
        request.sent_to(&a, first);
        assert_eq!(
            (request.ids_at("a"), request.ids_at("b")),
            (Some(first), None)
        );
        let again = SentAs {
            id: 7,
            token: Some(7),
        };
        request.sent_to(&a, again);
        assert_eq!(request.ids_at("a"), Some(again));
        request.sent_to(&b, first);
        assert_eq!((request.ids_at("a"), request.ids_at("b")), (None, None));
        request.sent_to(&a, again);
        assert_eq!(request.ids_at("a"), None);
    }

    #[test]
    fn notification_gets_the_names_of_the_server() {
        let notification = |params: &'static str| {
            Notification::new(
                Method::from_name("notifications/x"),
                Some(&Json::literal(params)),
            )
        };
        let renamed = |named: SentAs, params| {
            Some(
                named
                    .rename(&notification(params))?
                    .params()?
                    .as_text()
                    .to_owned(),
            )
        };
        let both = SentAs {
            id: 7,
            token: Some(9),
        };
        let params = r#"{ "k":1E400,"progressToken":"c", "requestId":1}"#;
        assert_eq!(
            renamed(both, params).unwrap(),
            r#"{ "k":1E400,"progressToken":9, "requestId":7}"#
        );
        let no_token = SentAs { id: 7, token: None };
        assert_eq!(renamed(no_token, params), None);
        assert_eq!(
            renamed(no_token, r#"{"requestId":"r"}"#).unwrap(),
            r#"{"requestId":7}"#
        );
    }
}
