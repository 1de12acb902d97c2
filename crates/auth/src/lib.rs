//! Authentication of clients. [`Authenticator`] asks the configured methods in a fixed order; each method is a module.

mod authenticator;

pub use authenticator::Authenticator;
