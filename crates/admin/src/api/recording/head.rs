//! The head of a recording: each server as it is when the recording starts.

use std::time::SystemTime;

use fanlight_canonical::Endpoint;
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::pins::Definition;
use fanlight_protocol::Json;
use fanlight_telemetry::recording::{Definitions, Head, RecordedServer, Selection, VERSION};

use crate::Admin;

/// The lists of definitions.
const KINDS: [ListKind; 4] = [
    ListKind::Tools,
    ListKind::Prompts,
    ListKind::Resources,
    ListKind::ResourceTemplates,
];

/// The head of a recording that started at this time, not yet masked.
pub(super) async fn head(admin: &Admin, selection: &Selection, started: SystemTime) -> Head {
    let gateway = &admin.subject.gateway;
    let mut head = Head {
        recording: VERSION,
        fanlight: admin.subject.version.to_owned(),
        started: humantime::format_rfc3339_micros(started).to_string(),
        endpoint: selection.endpoint.as_deref().map(str::to_owned),
        ..Head::default()
    };
    // Lists that nobody has read yet are read now.
    for kind in KINDS {
        gateway.current_list(kind, &Endpoint::Everything).await;
    }
    let lists = KINDS.map(|kind| gateway.own_entries(kind, true));
    for (name, status) in gateway.status() {
        if !selection.has_server(&name) {
            continue;
        }
        let opening = gateway.description_of(&name).await.flatten();
        let each = |of: fn(&Json) -> String| {
            let [tools, prompts, resources, resource_templates] = lists.each_ref().map(|list| {
                let entries = list.get(&name).into_iter().flatten();
                entries.map(|(_, entry)| of(entry)).collect()
            });
            Definitions {
                tools,
                prompts,
                resources,
                resource_templates,
            }
        };
        let server = RecordedServer {
            revision: status.revision.map(str::to_owned),
            opening: opening.map(|opening| opening.as_text().to_owned()),
            definitions: each(|entry| entry.as_text().to_owned()),
            digests: each(|entry| {
                Definition::parse(entry)
                    .map(|one| one.digest())
                    .unwrap_or_default()
            }),
            masked: Vec::new(),
        };
        head.servers.insert(name, server);
    }
    head
}
