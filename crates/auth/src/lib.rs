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
mod oauth_settings;
mod once;
mod proxy;
mod settings;
#[cfg(test)]
mod testing;
mod token;
mod unknown_keys;
pub mod untrusted;

pub use authenticator::Authenticator;
pub use keys::{NewKey, digest as key_digest};
pub use oauth_settings::{
    ClaimPaths, IntrospectionSettings, IssuerSettings, OAuthLimits, OAuthSettings,
};
pub use once::{NotKnown, UsedOnce};
pub use settings::{Grant, KeySettings, ProxySettings, Settings};
pub use unknown_keys::{Shown, UnknownKeys};
