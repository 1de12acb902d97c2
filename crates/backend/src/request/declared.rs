//! The capabilities that a connection declares to a legacy server for its clients, and the requests
//! that the server may therefore send.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fanlight_protocol::capability::{self, MissingCapability};
use fanlight_protocol::{Json, Method, Revision};

use crate::settings::CLIENT_DESCRIPTION;
use fanlight_canonical::CallContext;

/// The capabilities and client information in `initialize`.
#[derive(Debug)]
pub(crate) struct Declared {
    /// Declared instead of `capabilities`, which decide about the server's requests.
    declared: Option<Json>,
    capabilities: Json,
    /// The client's `Implementation` object; without one, Fanlight's own is used.
    pub(crate) client_info: Option<Json>,
    /// Whether the server has sent a request for the client.
    asked: AtomicBool,
}

impl Declared {
    /// No capability and no client information.
    pub(crate) fn empty() -> Self {
        Self {
            declared: None,
            capabilities: Json::empty_object(),
            client_info: None,
            asked: AtomicBool::new(false),
        }
    }

    /// Declares all capabilities, for the base connection. It reads lists for clients of all kinds,
    /// and the server should hide nothing. Client calls do not run there, and server requests on it
    /// are refused.
    pub(crate) fn for_lists() -> Self {
        Self {
            declared: Some(Json::literal(Revision::NEWEST_LEGACY.capabilities)),
            ..Self::empty()
        }
    }

    /// Declares the capabilities for reading lists, but refuses all server requests, since no
    /// client is behind the request.
    pub(crate) fn by_gateway(context: &CallContext) -> Self {
        // This set stands for all capabilities. The modern era's set lacks tasks, which are an
        // extension there.
        if context.capabilities.as_text() == capability::ALL_OF_MODERN {
            return Self::for_lists();
        }
        let declared = fits(&context.capabilities).then(|| context.capabilities.detached());
        Self {
            declared,
            ..Self::empty()
        }
    }

    /// Declares the exact bytes of a client's capabilities and, if `named`, of its information.
    /// They are kept as long as the connection, so anything above [`CLIENT_DESCRIPTION`] bytes is left out.
    pub(crate) fn from_client(context: &CallContext, named: bool) -> Self {
        let kept = |value: &Json| fits(value).then(|| value.detached());
        let capabilities = kept(&context.capabilities).unwrap_or_else(Json::empty_object);
        Self {
            capabilities,
            client_info: context
                .client_info
                .as_ref()
                .filter(|_| named)
                .and_then(kept),
            ..Self::empty()
        }
    }

    /// Whether a client with [`Declared::from_client`] accepts requests from a server.
    pub(crate) fn lets_ask(context: &CallContext) -> bool {
        fits(&context.capabilities) && capability::can_be_asked(&context.capabilities)
    }

    /// The text of a client's capabilities, if it has any. Clients without a session share a
    /// connection by this key.
    pub(crate) fn key(context: &CallContext) -> Option<Bytes> {
        let capabilities = &context.capabilities;
        let any = fits(capabilities) && capabilities.has_members();
        any.then(|| Bytes::copy_from_slice(capabilities.bytes()))
    }

    /// The `capabilities` of `initialize`.
    pub(crate) fn capabilities(&self) -> &Json {
        self.declared.as_ref().unwrap_or(&self.capabilities)
    }

    /// Whether the server may send requests.
    pub(crate) fn can_be_asked(&self) -> bool {
        capability::can_be_asked(&self.capabilities)
    }

    /// Records that the server has sent a request for the client, whose answer it may keep.
    pub(crate) fn note_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether the server has sent a request for the client.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether there is neither a capability nor a named client.
    pub(crate) fn is_empty(&self) -> bool {
        self.client_info.is_none() && !self.capabilities.has_members()
    }

    /// The capability that the client lacks for this request; `None` if the request may be sent.
    pub(crate) fn missing_capability(
        &self,
        method: &Method,
        params: Option<&Json>,
    ) -> Option<MissingCapability> {
        MissingCapability::for_server_request(&self.capabilities, method, params)
    }
}

fn fits(value: &Json) -> bool {
    value.is_object() && value.bytes().len() <= CLIENT_DESCRIPTION
}

#[cfg(test)]
mod tests {
    use fanlight_telemetry::Parent;

    use super::*;

    #[test]
    fn bytes_are_kept_unless_there_are_too_many() {
        let mut context = (*CallContext::internal()).clone();
        context.capabilities = Json::literal(r#"{ "roots" : {"x":1.0} }"#);
        context.client_info = Some(Json::literal(r#"{"name":"\u0041"}"#));
        let declared = Declared::from_client(&context, true);
        assert_eq!(
            declared.capabilities().as_text(),
            r#"{ "roots" : {"x":1.0} }"#
        );
        assert_eq!(
            declared.client_info.as_ref().map(Json::as_text),
            Some(r#"{"name":"\u0041"}"#)
        );
        assert!(
            Declared::from_client(&context, false)
                .client_info
                .as_ref()
                .is_none()
        );
        let large = format!(
            r#"{{"roots":{{"x":"{}"}}}}"#,
            "x".repeat(CLIENT_DESCRIPTION)
        );
        context.capabilities = Json::parse(large.into(), 8).unwrap();
        assert!(Declared::from_client(&context, false).is_empty());
        assert_eq!(Declared::key(&context), None);
    }

    #[test]
    fn gateway_that_declares_everything_declares_what_only_legacy_servers_know() {
        let everything = CallContext::for_lists(&Parent::default());
        let declared = Declared::by_gateway(&everything);
        assert!(declared.capabilities().get("tasks").is_some() && !declared.can_be_asked());
        let some =
            CallContext::for_lists_with(Json::literal(r#"{"roots":{}}"#), &Parent::default());
        assert_eq!(
            Declared::by_gateway(&some).capabilities().as_text(),
            r#"{"roots":{}}"#
        );
    }
}
