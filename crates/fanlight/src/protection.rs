//! What clients need to use the endpoints of the configuration in force, as the client edge takes it.

use std::sync::Arc;

use fanlight_config::{Config, ScopeRules};
use fanlight_frontend::{ProtectionSettings, ScopeSettings, ToolScopes};
use fanlight_rights::{ItemRule, Servers};

use crate::rewriting::servers_of_rules;

/// The protection that `config` asks for; none where clients are not authenticated.
pub(crate) fn settings(config: &Config) -> ProtectionSettings {
    let Some(auth) = config.auth.methods() else { return ProtectionSettings::default() };
    let servers = servers_of_rules(config);
    let endpoint = |(path, endpoint): &(String, fanlight_config::Endpoint)| {
        (path.clone(), scopes(&servers, &[&endpoint.scopes, &auth.scopes]))
    };
    ProtectionSettings {
        authorization_servers: auth.oauth.iter().map(|issuer| issuer.issuer.clone()).collect(),
        scopes: scopes(&servers, &[&auth.scopes]),
        endpoints: config.endpoints.iter().map(endpoint).collect(),
    }
}

/// The scopes that the first of `rules` has which has any, for each kind of operation.
fn scopes(servers: &Arc<Servers>, rules: &[&ScopeRules]) -> ScopeSettings {
    let first = |of: fn(&ScopeRules) -> &Option<Vec<String>>| {
        rules.iter().find_map(|rules| of(rules).clone()).unwrap_or_default()
    };
    let tool = |(pattern, scopes): &(String, Vec<String>)| {
        let rule = ItemRule::new(servers, pattern);
        ToolScopes { names: Arc::new(move |server, name| rule.is_about(server, name)), scopes: scopes.clone() }
    };
    let tools = rules.iter().find_map(|rules| rules.tools.as_ref()).into_iter().flatten();
    ScopeSettings {
        read: first(|rules| &rules.read),
        call: first(|rules| &rules.call),
        tools: tools.map(tool).collect(),
        implies: rules.iter().find_map(|rules| rules.implies.clone()).unwrap_or_default(),
    }
}
