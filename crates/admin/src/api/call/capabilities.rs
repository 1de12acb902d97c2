//! The capabilities that a server's requests need, and that the caller of an operator's call lacks.

use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::{Json, Method};

/// Collects the capabilities that are missing.
#[derive(Debug)]
pub(super) struct MissingCapabilities {
    declared: Json,
    missing: Vec<MissingCapability>,
}

impl MissingCapabilities {
    /// Nothing is missing yet of what a client with these capabilities lacks.
    pub(super) fn of(declared: Json) -> Self {
        Self {
            declared,
            missing: Vec::new(),
        }
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if there were none.
    pub(super) fn required(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    /// Notes what a request needs and what is not declared; returns whether there is such.
    pub(super) fn lacks(&mut self, method: &Method, params: Option<&Json>) -> bool {
        let needed = ClientCapability::of(method, params);
        let missing = needed.and_then(|need| MissingCapability::of(&self.declared, need));
        if let Some(missing) = missing {
            self.note(missing);
        }
        missing.is_some()
    }

    /// Each kind once.
    pub(super) fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}
