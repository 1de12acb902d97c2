//! The policies of the configuration in force.

use std::sync::Arc;

use fanlight_canonical::Policy as _;
use fanlight_config::{AllowedClients, Config, PolicyDefault};
use fanlight_policy::{Allowance, Allowed, Policies, PolicySettings, PolicyText, ServerFacts, Who};

/// The policies of a configuration; `None` if it does not limit clients. If nothing has changed,
/// returns `earlier`, whose cached decisions stay valid.
///
/// # Errors
///
/// All problems of the policies, a line for each.
pub fn load(
    config: &Config,
    earlier: Option<&Arc<Policies>>,
) -> Result<Option<Arc<Policies>>, String> {
    let allowances = allowances(config);
    if config.policy.texts.is_empty() && allowances.is_empty() && config.policy.default.is_none() {
        return Ok(None);
    }
    let by_default = if config.policy.texts.is_empty() {
        PolicyDefault::Allow
    } else {
        PolicyDefault::Deny
    };
    let settings = PolicySettings {
        texts: config
            .policy
            .texts
            .iter()
            .map(|(name, text)| PolicyText {
                name: name.as_str().into(),
                text: text.clone(),
            })
            .collect(),
        allowances,
        permits_by_default: config.policy.default.unwrap_or(by_default) == PolicyDefault::Allow,
        servers: config
            .servers
            .iter()
            .map(|server| ServerFacts {
                name: server.name.clone(),
                tags: server.tags.clone(),
            })
            .collect(),
    };
    if let Some(same) = earlier.filter(|earlier| earlier.number() == settings.number()) {
        return Ok(Some(Arc::clone(same)));
    }
    let memory = crate::memory::budgets(config).policy;
    let policies = Policies::with_memory(settings, memory).map_err(|wrong| {
        let lines: Vec<_> = wrong.iter().map(|one| format!("error: {one}")).collect();
        lines.join("\n")
    })?;
    Ok(Some(Arc::new(policies)))
}

/// Every `allow` of a configuration.
fn allowances(config: &Config) -> Vec<Allowance> {
    let one = |who: &AllowedClients| match who.clone() {
        AllowedClients::Group(name) => Who::Group(name),
        AllowedClients::User(name) => Who::User(name),
        AllowedClients::Scope(name) => Who::Scope(name),
        AllowedClients::Anybody => Who::Anybody,
    };
    let mut found = Vec::new();
    let mut add = |place, about, all: &[AllowedClients]| {
        let who = all.iter().map(one).collect();
        found.push(Allowance { place, about, who });
    };
    for (path, endpoint) in &config.endpoints {
        if let Some(all) = &endpoint.allow {
            let about = Allowed::Endpoint(path.clone());
            add(format!("endpoints.{path}.allow"), about, all);
        }
    }
    for server in &config.servers {
        let name = &server.name;
        if let Some(all) = &server.allow {
            let about = Allowed::Server(name.clone());
            add(format!("mcpServers.{name}.allow"), about, all);
        }
        for (pattern, all) in &server.allow_tools {
            let about = Allowed::Tools {
                server: name.clone(),
                pattern: pattern.clone(),
            };
            add(
                format!("mcpServers.{name}.allowTools.{pattern}"),
                about,
                all,
            );
        }
    }
    found
}
