//! The structures of requests and answers.

#![expect(dead_code, reason = "they are read by the macro that describes them")]

pub(super) mod call;
pub(super) mod catalogue;
pub(super) mod clients;
pub(super) mod configuration;
pub(super) mod session;
pub(super) mod state;
pub(super) mod traces;
