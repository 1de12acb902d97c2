//! The endpoints of the configuration in force, as the core takes them.

use std::sync::Arc;

use fanlight_canonical::{Core as _, Endpoint};
use fanlight_config::Config;
use fanlight_gateway::{EndpointEntry, EndpointSettings, EntryFilter, Gateway};

use crate::cli::EndpointArgs;
use crate::failure::Failure;
use crate::suggestions::did_you_mean;

/// The endpoints of a configuration.
pub(crate) struct Endpoints {
    configured: Vec<(String, fanlight_config::Endpoint)>,
    settings: EndpointSettings,
}

impl Endpoints {
    pub(crate) fn new(config: &Config) -> Self {
        let entry = |(path, endpoint): &(String, fanlight_config::Endpoint)| EndpointEntry {
            path: path.as_str().into(),
            servers: endpoint.servers.clone(),
            tools: filter(&endpoint.tools),
            prompts: filter(&endpoint.prompts),
            resources: filter(&endpoint.resources),
            instructions: endpoint.instructions.clone(),
        };
        let endpoints = config.endpoints.iter().map(entry).collect();
        let settings = EndpointSettings { default_path: config.path.clone(), endpoints };
        Self { configured: config.endpoints.clone(), settings }
    }

    /// Takes the endpoints of a changed configuration. Unchanged ones keep their filters, by which the core knows that
    /// they show the same.
    pub(crate) fn update(&mut self, config: &Config) {
        if self.configured != config.endpoints || self.settings.default_path != config.path {
            *self = Self::new(config);
        }
    }

    pub(crate) fn settings(&self) -> EndpointSettings {
        self.settings.clone()
    }
}

/// The endpoint at a path of the configuration.
pub(crate) fn find(gateway: &Gateway, path: &str) -> Result<Endpoint, Failure> {
    gateway.endpoint(path).ok_or_else(|| {
        let paths: Vec<_> = gateway.endpoints().into_iter().map(|(path, _)| path).collect();
        let meant = match did_you_mean(path, paths.iter().map(|path| &**path)) {
            meant if meant.is_empty() => format!("; the configuration has {}", paths.join(", ")),
            meant => meant,
        };
        Failure::usage(format!("no endpoint is at {path}{meant}"))
    })
}

impl EndpointArgs {
    /// The endpoint, or everything if none is named.
    pub(crate) fn find(&self, gateway: &Gateway) -> Result<Endpoint, Failure> {
        self.path().map_or(Ok(Endpoint::Everything), |path| find(gateway, path))
    }
}

fn filter(filter: &fanlight_config::EntryFilter) -> Option<Arc<dyn EntryFilter>> {
    (*filter != fanlight_config::EntryFilter::default()).then(|| Arc::new(Patterns(filter.clone())) as _)
}

/// A filter of the configuration.
struct Patterns(fanlight_config::EntryFilter);

impl EntryFilter for Patterns {
    fn permits(&self, name: &str) -> bool {
        self.0.permits(name)
    }

    fn denies_lower_case(&self, text: &str) -> bool {
        self.0.denies_lower_case(text)
    }

    fn permits_nothing(&self) -> bool {
        self.0.permits_nothing()
    }
}
