//! The endpoints of a server with several.

use std::fmt;
use std::time::Duration;

use crate::settings::transport::origin_of;

/// The endpoints of a server with several replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// The URLs in the file's order; empty for a server with only its transport's URL.
    pub urls: Vec<EndpointUrl>,
    /// The interval of looking up the URLs' hosts: each address of a host is an endpoint. `None` if
    /// each URL is one endpoint.
    pub resolve: Option<Duration>,
    /// The zone whose endpoints are preferred.
    pub zone: Option<String>,
}

/// The URL of an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    /// The URL, as in a transport.
    pub url: String,
    /// The endpoint's zone, if it is configured.
    pub zone: Option<String>,
}

impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = origin_of(&self.url);
        f.debug_struct("EndpointUrl")
            .field("url", &format_args!("{url}"))
            .field("zone", &self.zone)
            .finish()
    }
}
