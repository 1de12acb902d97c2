//! The address of a listener.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port of TCP.
    Ip(SocketAddr),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

/// The error of a text that is no [`ListenAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an IP address with a port, such as 127.0.0.1:8080 or 0.0.0.0:8080, a port of 127.0.0.1, such as 8080, or a Unix \
     socket, such as unix:/run/fanlight.sock"
)]
pub struct NotAnAddress;

impl ListenAddress {
    /// The TCP address and port.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether only processes of this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl FromStr for ListenAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if let Some(path) = text.strip_prefix(UNIX) {
            let is_file = !path.is_empty() && !path.ends_with('/') && !path.contains('\0');
            return if is_file {
                Ok(Self::Unix(path.into()))
            } else {
                Err(NotAnAddress)
            };
        }
        // A port without an address is only for this machine; the listener of a gateway for other
        // machines needs an explicit address.
        let port = text
            .strip_prefix("localhost:")
            .or_else(|| text.strip_prefix(':'))
            .unwrap_or(text);
        match parsed_port(port) {
            Some(port) => Ok(Self::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))),
            None => text.parse().map(Self::Ip).map_err(|_| NotAnAddress),
        }
    }
}

/// A port in decimal digits only: `+80` is none.
fn parsed_port(text: &str) -> Option<u16> {
    text.parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_of_tcp_or_a_unix_socket() {
        for (text, is_local) in [
            ("127.0.0.1:80", true),
            ("[::1]:80", true),
            ("0.0.0.0:80", false),
            ("unix:/run/fanlight.sock", true),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.is_local()),
                (text, is_local)
            );
        }
        assert!(
            "[::ffff:127.0.0.1]:80"
                .parse::<ListenAddress>()
                .unwrap()
                .is_local()
        );
        for wrong in [
            "127.0.0.1",
            "unix:",
            "unix:/run/",
            "/run/fanlight.sock",
            "",
            ":",
            "localhost",
            "localhost:",
            "+80",
        ] {
            assert_eq!(wrong.parse::<ListenAddress>(), Err(NotAnAddress), "{wrong}");
        }
    }

    #[test]
    fn port_without_an_address_is_one_of_this_machine() {
        for text in ["8080", ":8080", "localhost:8080"] {
            assert_eq!(
                text.parse::<ListenAddress>().unwrap().to_string(),
                "127.0.0.1:8080",
                "{text}"
            );
        }
        for wrong in [
            "80800",
            ":-1",
            "localhost:99999",
            "example.com:80",
            "::8080",
        ] {
            assert_eq!(wrong.parse::<ListenAddress>(), Err(NotAnAddress), "{wrong}");
        }
    }
}
