//! Resolves host names.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Resolves host names.
pub trait LookUp: fmt::Debug + Send + Sync {
    /// All addresses of `host`, with this port.
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemNames;

impl LookUp for SystemNames {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}
