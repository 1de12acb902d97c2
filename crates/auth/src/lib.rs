//! Authentication of clients. [`Authenticator`] asks the configured methods in a fixed order; each method is a module.

mod authenticator;
mod bearer;

pub use authenticator::Authenticator;
