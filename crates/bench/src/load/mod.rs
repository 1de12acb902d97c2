//! The load generator: clients of both eras over HTTP/1.1 and stdio that check every byte that comes back.

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod idle;
pub(crate) mod pipe;
pub(crate) mod request;
pub(crate) mod session;
mod timer;
