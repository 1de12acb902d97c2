//! The endpoints of a server that has several.

use std::fmt;
use std::time::Duration;

use crate::settings::transport::origin_of;

/// Where a server is that can be reached at several places, each of which serves the same: its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Their URLs, in the order of the file; none for a server that is reached as its transport says, and nowhere else.
    pub urls: Vec<EndpointUrl>,
    /// How often the hosts of the URLs are looked up, each of whose addresses is an endpoint. `None` if each URL is one.
    pub resolve: Option<Duration>,
    /// The zone whose endpoints are preferred.
    pub zone: Option<String>,
}

/// The URL of an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    /// As the URL of a transport.
    pub url: String,
    /// The zone that it is in, if that is said.
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
