//! The listeners' addresses, sockets and TLS, from the configuration.

use fanlight_config::{AuthChoice, Config, Tls};
use fanlight_frontend::{BindOptions, HttpVersions, ListenAddress, ListeningSocket};
use fanlight_http::LoadedTls;

/// Checks that clients may be served at this address with this configuration.
pub(crate) fn check_clients(config: &Config, address: &ListenAddress) -> Result<(), String> {
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
pub(crate) fn check_operators(config: &Config, address: &ListenAddress) -> Result<(), String> {
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

/// The options of the clients' socket.
pub(crate) fn of_clients(config: &Config) -> BindOptions {
    BindOptions {
        reuse_port: config.reuse_port,
        mode: config.socket_mode,
    }
}

/// The permissions of the operators' socket file. Users who may write to it may connect.
const OPERATORS_MODE: u32 = 0o660;

/// The options of the operators' socket.
pub(crate) fn of_operators(config: &Config) -> BindOptions {
    BindOptions {
        reuse_port: config.reuse_port,
        mode: OPERATORS_MODE,
    }
}

/// Listens at `address`. The error suggests `option` to choose another address.
pub(crate) fn bind(
    address: &ListenAddress,
    option: &str,
    options: BindOptions,
) -> Result<ListeningSocket, String> {
    ListeningSocket::bind(address, options).map_err(|error| {
        let help = match address {
            ListenAddress::Unix(_) if error.kind() == std::io::ErrorKind::AddrInUse => {
                "another process listens there, or the file is not a socket; "
            }
            _ => "",
        };
        format!("cannot listen on {address}: {error}; {help}choose another address with {option}")
    })
}

/// TLS of the listener for clients.
pub(crate) fn tls_of_clients(config: &Config) -> Result<Option<LoadedTls>, String> {
    config
        .tls
        .as_ref()
        .map(|tls| LoadedTls::read(tls, "tls", HttpVersions::OneAndTwo))
        .transpose()
}

/// TLS of the listener for operators.
pub(crate) fn tls_of_operators(config: &Config) -> Result<Option<LoadedTls>, String> {
    config
        .admin
        .tls
        .as_ref()
        .map(|tls| LoadedTls::read(tls, "admin.tls", HttpVersions::One))
        .transpose()
}
