//! Authentication of clients. [`Authenticator`] tries the configured methods in a fixed order; each
//! method is a module.

mod algorithm;
mod authenticator;
mod bearer;
mod certificate;
mod id_token;
mod issuer;
mod json;
mod keys;
mod proxy;
mod settings;
#[cfg(test)]
mod testing;
mod token;
mod unknown_keys;
#[cfg(any(test, feature = "test-support"))]
pub mod untrusted;

pub use authenticator::Authenticator;
pub use keys::{NewKey, digest as key_digest};
pub use settings::{IssuerSettings, OAuthLimits, OAuthSettings, ProxySettings, Settings};
pub use token::possession::{NotKnown, UsedOnce};
pub use unknown_keys::{Shown, UnknownKeys};
