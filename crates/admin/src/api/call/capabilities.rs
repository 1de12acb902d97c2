//! The capabilities that a server's requests need and an operator's call lacks.

use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::{Json, Method};

/// Collects the missing capabilities.
#[derive(Debug)]
pub(super) struct MissingCapabilities {
    declared: Json,
    missing: Vec<MissingCapability>,
}

impl MissingCapabilities {
    /// An empty collection for a client with the `declared` capabilities.
    pub(super) fn new(declared: Json) -> Self {
        Self {
            declared,
            missing: Vec::new(),
        }
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if
    /// there were none.
    pub(super) fn required_capabilities(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    /// Notes missing capabilities that a request needs. Returns whether there are any.
    pub(super) fn lacks(&mut self, method: &Method, params: Option<&Json>) -> bool {
        let needed = ClientCapability::for_request(method, params);
        let missing = needed.and_then(|need| MissingCapability::check(&self.declared, need));
        if let Some(missing) = missing {
            self.note(missing);
        }
        missing.is_some()
    }

    /// Notes a missing capability once.
    pub(super) fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}
