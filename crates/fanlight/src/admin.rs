//! The admin listener: its address, its contents and its settings.

use fanlight_admin::{AdminSettings, SignInIssuer};
use fanlight_cli::cli::Admin;
use fanlight_cli::failure::{Failure, Result};
use fanlight_cli::listeners::check_operators;
use fanlight_cli::observe::FURTHER_PORTS;
use fanlight_config::{Auth, Config, Issuer};
use fanlight_frontend::{ListenAddress, ListeningSocket};
use fanlight_http::PublicUrl;
use tracing::{info, warn};

use crate::listening;

/// Binds the admin listener of a gateway on standard input and output, if one is configured. It is
/// off by default, since clients start many such gateways on one machine.
pub(crate) fn listen_if_configured(
    config: &mut Config,
    flag: Option<Admin>,
) -> Result<Option<ListeningSocket>> {
    if config.admin.is_default {
        config.admin.listen = None;
    }
    listen(config, flag, None)
}

/// Binds the admin listener. If the port is taken, a chosen one is an error; otherwise the next
/// free port is used.
pub(crate) fn listen(
    config: &mut Config,
    flag: Option<Admin>,
    socket: Option<ListeningSocket>,
) -> Result<Option<ListeningSocket>> {
    let is_chosen = flag.is_some() || !config.admin.is_default;
    match flag {
        Some(Admin::Off) => config.admin.listen = None,
        Some(Admin::At(address)) => config.admin.listen = Some(address),
        None => {}
    }
    // A socket of the service manager has an address already.
    if let Some(socket) = &socket {
        config.admin.listen = socket.address().ok();
    }
    let Some(address) = config.admin.listen.clone() else {
        return Ok(None);
    };
    check_operators(config, &address).map_err(Failure::usage)?;
    if socket.is_some() {
        return Ok(socket);
    }
    let listener = match listening::bind(&address, "--admin") {
        Ok(listener) => listener,
        Err(problem) if is_chosen => return Err(Failure::other(problem)),
        Err(problem) => {
            match further(&address).find_map(|next| listening::bind(&next, "--admin").ok()) {
                Some(listener) => {
                    let taken = listener
                        .address()
                        .map(|address| address.to_string())
                        .unwrap_or_default();
                    info!("another process listens on {address}: operators are served on {taken}");
                    listener
                }
                None => {
                    warn!("no admin listener: {problem}");
                    config.admin.listen = None;
                    return Ok(None);
                }
            }
        }
    };
    config.admin.listen = listener.address().ok().or(Some(address));
    Ok(Some(listener))
}

/// The addresses to try after the default one.
pub(crate) fn further(default: &ListenAddress) -> impl Iterator<Item = ListenAddress> {
    let address = default.ip();
    (1..=FURTHER_PORTS).filter_map(move |more| {
        let address = address?;
        Some(ListenAddress::Ip(
            (address.ip(), address.port().checked_add(more)?).into(),
        ))
    })
}

/// The settings of the admin listener at this address.
pub(crate) fn settings(config: &Config, address: Option<&ListenAddress>) -> AdminSettings {
    AdminSettings {
        address: address.and_then(ListenAddress::ip),
        token: config
            .admin
            .token
            .as_ref()
            .map(|token| token.expose().to_owned()),
        roles: config.admin.roles.clone(),
        comparable: config
            .auth
            .methods()
            .map(Auth::comparable)
            .unwrap_or_default(),
        sign_in: sign_in(config),
        public_url: config
            .admin
            .public_url
            .as_deref()
            .and_then(PublicUrl::parse),
        allowed_hosts: config.allowed_hosts.clone(),
        max_connections: config.limits.admin_connections,
        max_body: config.limits.request_body,
        ..AdminSettings::default()
    }
}

/// The issuers at which operators can sign in. There are none unless browsers can be sent back and
/// somebody can be an operator.
fn sign_in(config: &Config) -> Vec<SignInIssuer> {
    if config.admin.public_url.is_none() || config.admin.roles.is_empty() {
        return Vec::new();
    }
    let issuers = config
        .auth
        .methods()
        .into_iter()
        .flat_map(|auth| &auth.oauth);
    let issuer = |issuer: &Issuer| {
        Some(SignInIssuer {
            issuer: issuer.issuer.clone(),
            client_id: issuer.sign_in.as_ref()?.client_id.clone(),
        })
    };
    issuers.filter_map(issuer).collect()
}
