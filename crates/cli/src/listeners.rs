//! Whether `fanlight run` accepts the listeners of a configuration.

use fanlight_config::{AuthChoice, Config, ListenAddress, Tls};

/// The reasons why `fanlight run` would refuse the listeners of this configuration.
pub(crate) fn refusal_reasons(config: &Config) -> Vec<String> {
    let operators = config
        .admin
        .listen
        .as_ref()
        .map(|address| check_operators(config, address));
    let checked = [Some(check_clients(config, &config.listen)), operators];
    checked
        .into_iter()
        .flatten()
        .filter_map(Result::err)
        .collect()
}

/// Checks that clients may be served at this address with this configuration.
pub fn check_clients(config: &Config, address: &ListenAddress) -> Result<(), String> {
    if config.auth == AuthChoice::Unset && !address.is_local() {
        return Err(format!(
            "clients at {address} (`listen`) can be on other machines, and the configuration does not say how they are \
             authenticated: configure `auth` (docs/security.md), or write `auth: none` to serve all of them without \
             authentication"
        ));
    }
    let has_issuers = config
        .auth
        .methods()
        .is_some_and(|auth| !auth.oauth.is_empty());
    if has_issuers
        && config.public_url.is_none()
        && !address
            .ip()
            .is_some_and(|ip| ip.ip().to_canonical().is_loopback())
    {
        return Err(format!(
            "`auth.oauth` needs `publicUrl`, since clients do not reach Fanlight at {address} (`listen`): set it to the URL \
             that they use, such as `publicUrl: https://mcp.example.com`"
        ));
    }
    check_tls(config.tls.as_ref(), "tls", address)
}

/// Checks that operators may be served at this address with this configuration.
pub fn check_operators(config: &Config, address: &ListenAddress) -> Result<(), String> {
    if !config.admin.may_listen(address) {
        return Err(format!(
            "the admin listener at {address} can be reached from other machines, and there is no token: set `admin.token` in \
             the configuration, such as `token: ${{FANLIGHT_ADMIN_TOKEN}}`, or listen on 127.0.0.1"
        ));
    }
    check_tls(config.admin.tls.as_ref(), "admin.tls", address)
}

fn check_tls(tls: Option<&Tls>, option: &str, address: &ListenAddress) -> Result<(), String> {
    match address {
        ListenAddress::Unix(_) if tls.is_some() => Err(format!(
            "Unix sockets have no TLS: remove `{option}`, or listen on a port instead of {address}"
        )),
        _ => Ok(()),
    }
}
