//! The configured endpoints, as settings of the gateway core.

use std::sync::Arc;

use fanlight_canonical::Endpoint;
use fanlight_canonical::rights::{ItemFilter, ItemKind, Servers};
use fanlight_config::{Config, EntryFilter, Lean, Results};
use fanlight_gateway::{EndpointEntry, Gateway, LeanRules, ResultRules};

use crate::cli::EndpointArgs;
use crate::failure::Result;
use crate::rewriting::servers_of_rules;
use crate::suggestions::did_you_mean;

/// The endpoints of a configuration.
pub fn settings(config: &Config) -> Vec<EndpointEntry> {
    let servers = servers_of_rules(config);
    let entry = |(path, endpoint): &(String, fanlight_config::Endpoint)| EndpointEntry {
        path: path.as_str().into(),
        servers: endpoint.servers.clone(),
        tools: filter(&servers, ItemKind::Names, &endpoint.tools),
        prompts: filter(&servers, ItemKind::Names, &endpoint.prompts),
        resources: filter(&servers, ItemKind::Uris, &endpoint.resources),
        instructions: endpoint.instructions.clone(),
        lean: endpoint
            .lean
            .as_ref()
            .map(|lean| lean_rules(&servers, lean)),
        results: endpoint
            .results
            .as_ref()
            .map(|results| result_rules(&format!("endpoint {path}"), results)),
    };
    config.endpoints.iter().map(entry).collect()
}

/// Finds the configured endpoint at a path.
pub fn find(gateway: &Gateway, path: &str) -> Result<Endpoint> {
    gateway.endpoint(path).ok_or_else(|| {
        let paths: Vec<_> = gateway
            .endpoints()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let meant = match did_you_mean(path, paths.iter().map(|path| &**path)) {
            meant if meant.is_empty() => format!("; the configuration has {}", paths.join(", ")),
            meant => meant,
        };
        usage!("no endpoint is at {path}{meant}")
    })
}

/// The endpoint that a command names, or all servers if it names none.
pub fn find_named(args: &EndpointArgs, gateway: &Gateway) -> Result<Endpoint> {
    args.path()
        .map_or(Ok(Endpoint::Everything), |path| find(gateway, path))
}

/// The bounds of large results, of this endpoint or server.
pub fn result_rules(section: &str, results: &Results) -> ResultRules {
    ResultRules {
        section: section.into(),
        inline: results.inline,
        keep_for: results.keep_for,
        memory: results.memory,
        disk: results.disk,
    }
}

fn lean_rules(servers: &Arc<Servers>, lean: &Lean) -> LeanRules {
    let tools =
        |patterns: &[String]| ItemFilter::new(servers, ItemKind::Names, Some(patterns), &[]);
    let groups = lean.groups.iter();
    LeanRules {
        always: tools(&lean.always),
        max: lean.max,
        except: lean.except.clone(),
        groups: groups
            .map(|(name, patterns)| (name.clone(), tools(patterns)))
            .collect(),
    }
}

fn filter(servers: &Arc<Servers>, kind: ItemKind, filter: &EntryFilter) -> Option<ItemFilter> {
    let is_any = *filter != EntryFilter::default();
    is_any.then(|| ItemFilter::new(servers, kind, filter.allow.as_deref(), &filter.deny))
}
