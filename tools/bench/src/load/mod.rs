//! The load generator: HTTP/1.1 and stdio clients of both eras that check every byte of the
//! answers.

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod head;
pub(crate) mod idle;
pub(crate) mod pipe;
pub(crate) mod request;
pub(crate) mod session;
mod timer;
