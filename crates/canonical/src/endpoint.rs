//! Endpoints, and holders: a principal at one endpoint, which owns handles.

use std::sync::Arc;

use crate::identity::Principal;

/// The path of the default endpoint.
pub const DEFAULT_PATH: &str = "/mcp";

/// The endpoint of a request, which decides what the client sees of the servers. Only the gateway
/// knows the configured endpoints and their contents. An endpoint that is no longer configured
/// shows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Shows everything. For Fanlight itself and for operators, never for a client.
    Everything,
    /// The endpoint of clients that name none.
    Default,
    /// Another endpoint, by its path.
    At(Arc<str>),
}

impl Endpoint {
    /// The endpoint at this path.
    pub fn from_path(path: impl Into<Arc<str>>) -> Self {
        let path = path.into();
        match &*path {
            DEFAULT_PATH => Self::Default,
            _ => Self::At(path),
        }
    }

    /// The endpoint's path, unless it is the default endpoint.
    pub fn path(&self) -> Option<&Arc<str>> {
        match self {
            Self::At(path) => Some(path),
            Self::Everything | Self::Default => None,
        }
    }

    /// The endpoint's path, also if it is the default endpoint.
    pub fn full_path(&self) -> &str {
        self.path().map_or(DEFAULT_PATH, |path| path)
    }
}

/// A principal at an endpoint, which owns handles. Sessions, cursors, tasks, suspended calls and
/// handed-out URIs belong to one holder, and do not exist for any other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    principal: Principal,
    endpoint: Endpoint,
}

impl Holder {
    /// `principal` at `endpoint`.
    pub const fn new(principal: Principal, endpoint: Endpoint) -> Self {
        Self {
            principal,
            endpoint,
        }
    }

    /// The principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The holder's bytes, which differ for each holder and are equal in every process. Seals for a
    /// client are bound to them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let principal = self.principal.to_bytes();
        let length = (principal.len() as u64).to_be_bytes();
        match &self.endpoint {
            Endpoint::Everything => [&[0][..], &length, &principal].concat(),
            Endpoint::Default => [&[1][..], &length, &principal].concat(),
            Endpoint::At(path) => [&[2][..], &length, &principal, path.as_bytes()].concat(),
        }
    }
}

/// A principal that sees everything.
impl From<Principal> for Holder {
    fn from(principal: Principal) -> Self {
        Self::new(principal, Endpoint::Everything)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_bytes_differ_as_holders_do() {
        let principals = [
            Principal::anonymous(),
            Principal::operator(),
            Principal::new("a", "b/mcp"),
        ];
        let endpoints = [
            Endpoint::Everything,
            Endpoint::Default,
            Endpoint::from_path("/mcp/readers"),
            Endpoint::from_path(""),
        ];
        let all: Vec<_> = principals
            .iter()
            .flat_map(|principal| {
                endpoints
                    .iter()
                    .map(|endpoint| Holder::new(principal.clone(), endpoint.clone()))
            })
            .chain([Holder::new(Principal::new("a", "b"), Endpoint::Default)])
            .collect();
        for (one, other) in all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)))
        {
            assert_eq!(
                one.to_bytes() == other.to_bytes(),
                one == other,
                "{one:?} {other:?}"
            );
        }
    }
}
