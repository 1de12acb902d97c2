//! The commands of `fanlight`, and their common parts: the command line, the configuration, the log,
//! secrets, messages and errors. Nothing here starts a gateway.

// Its macros are for all modules below.
#[macro_use]
pub mod failure;

pub mod add;
pub mod audit_command;
pub mod cli;
pub mod configuration;
pub mod configured_values;
pub mod connect;
pub mod consent;
pub mod demo;
pub mod endpoints;
pub mod flagged;
pub mod hooks;
pub mod import;
pub mod inputs;
pub mod inspect;
pub mod instance;
pub mod invocation;
pub mod judge;
pub mod judge_command;
pub mod keys;
pub mod known_lists;
pub mod lean_command;
pub mod list_state;
pub mod listeners;
pub mod log;
pub mod login;
pub mod manual;
pub mod memory;
pub mod mock;
pub mod notify;
pub mod observe;
pub mod out;
mod own_credentials;
pub mod pin_command;
pub mod pins;
pub mod policy;
pub mod policy_command;
mod process_group;
pub mod record;
pub mod recording;
mod replace;
pub mod replay;
pub mod result_files;
pub mod rewriting;
pub mod secrets;
pub mod server_auth;
pub mod server_credentials;
pub mod shown_names;
pub mod starts;
pub mod suggestions;
pub mod telemetry;
pub mod unmatched;
pub mod users;
mod users_view;
pub mod welcome;
pub mod witness;

pub use cli::CommonArgs;
pub use failure::{Failure, Result, interruptible};
pub use out::{complain, counted};
