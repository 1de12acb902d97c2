//! `/api/endpoints`: the clients' endpoints, and the number of entries of each.

use axum::extract::State;
use fanlight_canonical as canonical;
use fanlight_gateway::{Gateway, ListKind};

use super::Answer;
use crate::{AdminState, Refusal, reply};

answers! {
    /// The endpoints.
    pub(crate) struct Endpoints {
        endpoints: Vec<Endpoint>,
    }

    /// An endpoint.
    struct Endpoint {
        path: String,
        servers: Vec<String>,
        entries: Entries,
    }

    /// The number of entries that it shows.
    struct Entries {
        tools: usize,
        resources: usize,
        resource_templates: usize,
        prompts: usize,
        skills: usize,
    }
}

/// The endpoint at this path; without a path, all servers.
pub(super) fn endpoint_at(
    gateway: &Gateway,
    path: Option<&str>,
) -> Result<canonical::Endpoint, Refusal> {
    let Some(path) = path else {
        return Ok(canonical::Endpoint::Everything);
    };
    gateway
        .endpoint(path)
        .ok_or_else(|| Refusal::bad_request("no endpoint has the path in `endpoint`"))
}

/// Lists all endpoints in configuration order. The lists are read once for all of them.
pub(super) async fn answer(State(admin): AdminState) -> Answer {
    let gateway = &admin.subject.gateway;
    let mut endpoints = Vec::new();
    for (path, endpoint) in gateway.endpoints() {
        let count = async |kind| gateway.current_list(kind, &endpoint).await.len();
        let (tools, resources, resource_templates, prompts, skills) = tokio::join!(
            count(ListKind::Tools),
            count(ListKind::Resources),
            count(ListKind::ResourceTemplates),
            count(ListKind::Prompts),
            count(ListKind::Skills),
        );
        let entries = Entries {
            tools,
            resources,
            resource_templates,
            prompts,
            skills,
        };
        endpoints.push(Endpoint {
            servers: gateway.shown_backends(&endpoint),
            path,
            entries,
        });
    }
    Ok(reply::answer(&Endpoints { endpoints }))
}
