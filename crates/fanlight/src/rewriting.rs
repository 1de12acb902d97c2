//! What the configuration changes of a server's tools and prompts, for the core.

use fanlight_config::Server;
use fanlight_gateway::Rewriting;

pub(crate) fn rewriting(_server: &Server) -> Rewriting {
    Rewriting::default()
}
