//! What a connection declares to a legacy server on behalf of its clients, and what the server may
//! therefore ask.
//!
//! Must not know: how questions travel.

use bytes::Bytes;
use fanlight_protocol::capability::Missing;
use fanlight_protocol::{Json, Method};

use crate::client::CallContext;

/// Bytes of capabilities or client information at most. They are kept for as long as the
/// connection; no client needs nearly as many.
const LARGEST: usize = 16 << 10;

/// What `initialize` says of the client.
#[derive(Debug)]
pub(crate) struct Declared {
    capabilities: Json,
    client_info: Option<Json>,
}

impl Declared {
    /// Nothing can be asked, and nobody is named.
    pub(crate) fn nothing() -> Self {
        Self { capabilities: Json::empty_object(), client_info: None }
    }

    /// The very bytes of a client's capabilities and, if it is `named`, of its information.
    pub(crate) fn by(context: &CallContext, named: bool) -> Self {
        let client_info = context.client_info.as_ref().filter(|_| named).and_then(kept);
        Self { capabilities: kept(&context.capabilities).unwrap_or_else(Json::empty_object), client_info }
    }

    /// What tells clients without a session apart: the text of their capabilities, if they have any.
    pub(crate) fn key(context: &CallContext) -> Option<Bytes> {
        let capabilities = &context.capabilities;
        let any = fits(capabilities) && capabilities.members().next().is_some();
        any.then(|| Bytes::copy_from_slice(capabilities.bytes()))
    }

    pub(crate) fn capabilities(&self) -> &Json {
        &self.capabilities
    }

    /// The client's `Implementation` object; Fanlight's own is to be used if absent.
    pub(crate) fn client_info(&self) -> Option<&Json> {
        self.client_info.as_ref()
    }

    /// Whether no capability is declared.
    pub(crate) fn is_empty(&self) -> bool {
        self.capabilities.members().next().is_none()
    }

    /// What the client lacks to be asked this; `None` if it may be asked.
    pub(crate) fn missing(&self, method: &Method, params: Option<&Json>) -> Option<Missing> {
        Missing::for_question(&self.capabilities, method, params)
    }
}

/// The value apart from the message it came in, unless it is too large to be kept.
fn kept(value: &Json) -> Option<Json> {
    fits(value).then(|| value.detached())
}

fn fits(value: &Json) -> bool {
    value.is_object() && value.bytes().len() <= LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_unless_there_are_too_many() {
        let mut context = (*CallContext::internal()).clone();
        context.capabilities = Json::literal(r#"{ "roots" : {"x":1.0} }"#);
        context.client_info = Some(Json::literal(r#"{"name":"\u0041"}"#));
        let declared = Declared::by(&context, true);
        assert_eq!(declared.capabilities().as_text(), r#"{ "roots" : {"x":1.0} }"#);
        assert_eq!(declared.client_info().map(Json::as_text), Some(r#"{"name":"\u0041"}"#));
        assert!(Declared::by(&context, false).client_info().is_none());
        let large = format!(r#"{{"roots":{{"x":"{}"}}}}"#, "x".repeat(LARGEST));
        context.capabilities = Json::parse(large.into(), 8).unwrap();
        assert!(Declared::by(&context, true).is_empty());
        assert_eq!(Declared::key(&context), None);
    }
}
