//! URIs of resources of several servers: who owns each, and which URI clients use.
//!
//! A URI that one server claims stays as it is. If several claim it, the first one owns it
//! ([`Claims`]). Clients know the others' resources by aliases ([`crate::Naming::alias`]) wherever
//! their URIs are in a message (`uri_places`). An unlisted URI belongs to the first server that
//! hands it out to a client ([`HandedOut`]).

mod claims;
mod handed_out;

use fanlight_protocol::json::Json;

pub(crate) use claims::Claims;
pub(crate) use handed_out::{HandedOut, Opened};

/// Whether apps may call a tool: its `visibility` includes `app`, or is missing (MCP Apps
/// 2026-01-26, Visibility).
pub(crate) fn is_for_apps(tool: &Json) -> bool {
    let ui = tool.get("_meta").and_then(|meta| meta.get("ui"));
    let Some(visibility) = ui.and_then(|ui| ui.get("visibility")) else {
        return true;
    };
    visibility.items().any(|one| one.is_str("app"))
}

/// Whether a resource is an app (MCP Apps 2026-01-26, UI Resource Format).
pub(crate) fn is_app(uri: &str) -> bool {
    uri.split_at_checked("ui:".len())
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("ui:"))
}
