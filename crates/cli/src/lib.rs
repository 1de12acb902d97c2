//! The commands of `fanlight` that need no assembled gateway, and the common parts of all commands: the command line,
//! the configuration, the log, secrets, messages and errors.

pub mod audit_command;
pub mod cli;
pub mod configuration;
pub mod connect;
pub mod consent;
pub mod demo;
pub mod difference;
pub mod failure;
pub mod import;
pub mod inputs;
pub mod instance;
pub mod interruption;
pub mod invocation;
pub mod judge;
pub mod keys;
pub mod list_state;
pub mod log;
pub mod manual;
pub mod memory;
pub mod observe;
pub mod out;
pub mod pins;
pub mod policy;
pub mod policy_command;
pub mod record;
mod replace;
pub mod secrets;
pub mod show;
pub mod starts;
pub mod suggestions;
pub mod telemetry;
