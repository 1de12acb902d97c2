//! The requirements for clients that use the configured endpoints, as settings of the client edge.

use std::sync::Arc;

use fanlight_canonical::rights::{ItemRule, Servers};
use fanlight_cli::hooks::request_match;
use fanlight_cli::rewriting::servers_of_rules;
use fanlight_config::{Config, RateDimension, ScopeRules};
use fanlight_frontend::{ProtectionSettings, RateDimensions, RateRule, ScopeSettings, ToolScopes};

/// The protection in `config`; none if clients are not authenticated.
pub(crate) fn settings(config: &Config) -> ProtectionSettings {
    let servers = servers_of_rules(config);
    let rates = config
        .limits
        .rates
        .iter()
        .map(|rule| rate(&servers, rule))
        .collect();
    let headers = config
        .servers
        .iter()
        .flat_map(|server| &server.forward_headers);
    let mut forwarded: Vec<_> = headers.map(|(theirs, _)| theirs.clone()).collect();
    forwarded.sort();
    forwarded.dedup();
    let Some(auth) = config.auth.methods() else {
        return ProtectionSettings {
            rates,
            forwarded,
            ..ProtectionSettings::default()
        };
    };
    let endpoint = |(path, endpoint): &(String, fanlight_config::Endpoint)| {
        (
            path.clone(),
            scopes(&servers, &[&endpoint.scopes, &auth.scopes]),
        )
    };
    ProtectionSettings {
        authorization_servers: auth
            .oauth
            .iter()
            .map(|issuer| issuer.issuer.clone())
            .collect(),
        scopes: scopes(&servers, &[&auth.scopes]),
        endpoints: config.endpoints.iter().map(endpoint).collect(),
        rates,
        forwarded,
    }
}

/// A rate limit for clients.
fn rate(servers: &Arc<Servers>, rule: &fanlight_config::RateRule) -> RateRule {
    let fanlight_config::RateRule {
        of,
        only,
        rate,
        burst,
        queue,
        shared,
    } = rule;
    let counts = |dimension| of.contains(&dimension);
    // The burst is allowed at once, and the rate on average.
    let most = burst.unwrap_or(rate.most);
    let per = rate.per.mul_f64(most as f64 / rate.most as f64);
    RateRule {
        id: format!("{rule:?}"),
        name: name(rule),
        of: RateDimensions {
            principal: counts(RateDimension::Principal),
            endpoint: counts(RateDimension::Endpoint),
            server: counts(RateDimension::Server),
            tool: counts(RateDimension::Tool),
        },
        only: request_match(servers, only),
        most,
        per,
        queue: *queue,
        common: *shared,
    }
}

/// The name of a limit for operators: its rule in short.
fn name(rule: &fanlight_config::RateRule) -> String {
    let fanlight_config::RateRule {
        of,
        only,
        rate,
        burst,
        queue,
        shared: _,
    } = rule;
    let of: Vec<_> = of.iter().map(|dimension| dimension.as_str()).collect();
    let mut name = format!("{} {rate}", of.join(","));
    for (kind, all) in [
        ("tool", &only.tools),
        ("server", &only.servers),
        ("endpoint", &only.endpoints),
    ] {
        if !all.is_empty() {
            name += &format!(" {kind}={}", all.join(","));
        }
    }
    if let Some(burst) = burst {
        name += &format!(" burst={burst}");
    }
    if !queue.is_zero() {
        name += &format!(" queue={queue:?}");
    }
    name
}

/// The scopes for each kind of operation, from the first of `rules` that has any.
fn scopes(servers: &Arc<Servers>, rules: &[&ScopeRules]) -> ScopeSettings {
    let first = |of: fn(&ScopeRules) -> &Option<Vec<String>>| {
        rules
            .iter()
            .find_map(|rules| of(rules).clone())
            .unwrap_or_default()
    };
    let tool = |(pattern, scopes): &(String, Vec<String>)| {
        let rule = ItemRule::new(servers, pattern);
        ToolScopes {
            names: Arc::new(move |server, name| rule.is_about(server, name)),
            scopes: scopes.clone(),
        }
    };
    let tools = rules
        .iter()
        .find_map(|rules| rules.tools.as_ref())
        .into_iter()
        .flatten();
    ScopeSettings {
        read: first(|rules| &rules.read),
        call: first(|rules| &rules.call),
        tools: tools.map(tool).collect(),
    }
}
