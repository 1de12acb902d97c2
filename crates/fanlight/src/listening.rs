//! The listeners' addresses, sockets and TLS, from the configuration.

use fanlight_config::Config;
use fanlight_frontend::{HttpVersions, ListenAddress, ListeningSocket};
use fanlight_http::LoadedTls;

/// Listens at `address`. The error suggests `option` to choose another address.
pub(crate) fn bind(address: &ListenAddress, option: &str) -> Result<ListeningSocket, String> {
    ListeningSocket::bind(address).map_err(|error| {
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
