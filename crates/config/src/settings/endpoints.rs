//! The endpoints of a server with several.

use std::fmt;
use std::time::Duration;

use crate::settings::transport::origin_of;

/// The endpoints of a server with several replicas.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// The URLs in the file's order; empty for a server with only its transport's URL.
    pub urls: Vec<String>,
    /// The interval of looking up the URLs' hosts: each address of a host is an endpoint. `None` if
    /// each URL is one endpoint.
    pub resolve: Option<Duration>,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| origin_of(url)).collect();
        f.debug_struct("Endpoints")
            .field("urls", &urls)
            .field("resolve", &self.resolve)
            .finish()
    }
}
