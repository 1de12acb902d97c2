//! Which access tokens are accepted.

use std::time::Duration;

use fanlight_config::settings::{Algorithm, Secret};

/// Which access tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthSettings {
    /// Those of these issuers, which have identifiers of their own.
    pub issuers: Vec<IssuerSettings>,
    /// The URL under which clients reach this server, without a path. With the path of an endpoint it makes that
    /// endpoint's own identifier (RFC 8707), for issuers without a configured audience.
    pub public_url: Option<String>,
    /// Bounds on memory and time.
    pub limits: OAuthLimits,
}

/// An issuer of access tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Its identifier: exactly the `iss` of its tokens.
    pub issuer: String,
    /// Where its keys are; by discovery if absent.
    pub jwks_uri: Option<String>,
    /// Of its tokens' audiences one must be one of these; if there are none, the identifier of the endpoint.
    pub audience: Vec<String>,
    /// Its tokens' signatures are made with one of these; if there are none, with any.
    pub algorithms: Vec<Algorithm>,
    /// Where the claims are.
    pub claims: ClaimPaths,
    /// Claims that tokens must have, each with the values of which it must be, or have, one.
    pub require: Vec<(String, Vec<String>)>,
    /// How it is asked about its tokens; if absent, their signatures are verified.
    pub introspection: Option<IntrospectionSettings>,
}

/// The claims that say who a client is and what it may do: names of members, or JSON Pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPaths {
    /// The subject.
    pub principal: String,
    /// The groups.
    pub groups: String,
    /// The scopes. Where it is `scope` and that is absent, `scp` is read, which some issuers have instead.
    pub scopes: String,
}

impl Default for ClaimPaths {
    fn default() -> Self {
        Self {
            principal: "sub".to_owned(),
            groups: "groups".to_owned(),
            scopes: "scope".to_owned(),
        }
    }
}

/// How an issuer is asked about its tokens (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionSettings {
    /// The endpoint; by discovery if absent.
    pub endpoint: Option<String>,
    /// The name by which the issuer knows this server.
    pub client_id: String,
    /// Its password there.
    pub client_secret: Secret,
}

/// Bounds on memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OAuthLimits {
    /// Verified tokens that are remembered.
    pub tokens: usize,
    /// Wrong tokens that one peer may send per second.
    pub failures: usize,
    /// Requests to one issuer about tokens at the same time.
    pub introspections: usize,
    /// Bytes of an answer of an issuer.
    pub answer: usize,
    /// Keys of an issuer. A set of more is not read.
    pub keys: usize,
    /// For one request to an issuer.
    pub request: Duration,
    /// Keys in use are refreshed in the background after this time.
    pub refresh: Duration,
    /// Keys that could not be refreshed for this long are no longer used.
    pub stale: Duration,
    /// The least time between two readings of keys that tokens with unknown keys cause.
    pub unknown_key: Duration,
    /// How long an issuer's answer about an active token is remembered, at most.
    pub introspection: Duration,
    /// By which clocks may differ.
    pub leeway: Duration,
}

impl Default for OAuthLimits {
    fn default() -> Self {
        Self {
            tokens: 10_000,
            failures: 20,
            introspections: 32,
            answer: 256 << 10,
            keys: 100,
            request: Duration::from_secs(5),
            refresh: Duration::from_secs(15 * 60),
            stale: Duration::from_secs(24 * 3600),
            unknown_key: Duration::from_secs(60),
            introspection: Duration::from_secs(60),
            leeway: Duration::from_secs(30),
        }
    }
}
