//! The client side of OAuth, as MCP's authorization pages describe it (2026-07-28,
//! basic/authorization, and older revisions for older servers). It discovers authorization servers,
//! registers and authenticates clients, and requests, renews and revokes tokens. It knows no
//! connections to servers, no configuration and no store.
//!
//! Sources: RFC 6749, 7009, 7523, 7591, 7636, 8414, 8693, 8707, 9207, 9449, 9728.

mod authorization;
mod challenge;
mod discovery;
mod error;
mod machine;
mod proof;
mod provider;
mod random;
mod registration;
mod scopes;
pub(crate) mod sealed;
mod signing_key;
mod token;

pub use authorization::{
    AuthorizationRequest, CallbackParameters, TokenTarget, authorization_request,
};
pub use challenge::Challenge;
pub use discovery::{Discovered, ProtectedResource, discover, protected_resource};
pub use error::OAuthError;
pub use machine::{
    Headers, IdentityProvider, MachineAccess, MachineGrant, MachineSettings, PendingHeaders,
    Refused, Subject, TokenFile,
};
pub(crate) use machine::{SubjectToken, SubjectTokens};
pub use proof::{Message, PROOF, PROOF_NONCE, ProofKey};
pub use provider::{Provider, metadata};
pub use registration::{
    ClientAuthentication, ClientCredentials, ClientMetadata, ClientRegistration, ConfiguredClient,
    register,
};
pub use scopes::Scopes;
pub use signing_key::SigningKey;
pub use token::{
    ACCESS_TOKEN, Client, ID_JAG, ID_TOKEN, JWT, REFRESH_TOKEN, TokenExchange, TokenKind, TokenSet,
    TypedToken, basic,
};
