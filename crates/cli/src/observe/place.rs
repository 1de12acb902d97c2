//! The address of a running gateway's admin listener and the token for it, from `--admin` or the
//! configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use fanlight_config::settings::is_loopback;
use fanlight_config::{ListenAddress, load_admin};
use url::Url;

use crate::cli::{AdminArgs, CommonArgs};
use crate::{Result, configuration, demo, instance};

/// How many ports after the default one are tried if no port was chosen: other gateways may run on
/// the machine. Commands look for a gateway at the same ports. There is no option for this, since
/// `admin.listen` chooses a port.
pub const FURTHER_PORTS: u16 = 9;

/// The environment variable with the token. An option would show it to other users.
pub(super) const TOKEN: &str = "FANLIGHT_ADMIN_TOKEN";
/// The address without a configuration.
const DEFAULT: &str = "http://127.0.0.1:8081";
/// The host in requests over a Unix socket.
const HOST_OF_SOCKET: &str = "http://localhost";

/// The address of an admin listener, and how to connect to it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) base: Url,
    /// The path of its Unix socket, if it listens on one.
    pub(super) socket: Option<PathBuf>,
    /// The address for the host of `base`, if that is a name.
    pub(super) address: Option<SocketAddr>,
    /// A file with a certificate to trust besides the system's.
    pub(super) certificate: Option<PathBuf>,
    pub(super) token: Option<String>,
    /// The instance id that the gateway must have, if it has to be the configuration's.
    pub(super) instance: Option<String>,
    /// Whether the port is the default: the gateway may use a later one.
    pub(super) is_default: bool,
    /// Whether a gateway with another configuration is accepted, since none was named.
    pub(super) may_be_another: bool,
    /// The origin of this address, for messages.
    pub(super) source: String,
}

impl Place {
    /// The address from `--admin`, else from the configuration, else the default.
    pub(super) fn find(args: &AdminArgs, common: &CommonArgs) -> Result<Self> {
        let token = std::env::var(TOKEN)
            .ok()
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        let mut place = match &args.admin {
            Some(text) => {
                let place = Self::parse(text)?;
                // The configuration's token is for its own gateway: it is sent to no other machine.
                if place.is_local() && !common.config.is_empty() {
                    place.with_secrets_of(common)?
                } else {
                    place
                }
            }
            None => Self::configured(common)?,
        };
        place.token = token.or(place.token);
        Ok(place)
    }

    fn from_base(base: &str, source: &str) -> Option<Self> {
        let base = Url::parse(base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())?;
        let source = source.to_owned();
        let (socket, address, certificate, token, instance) = Default::default();
        Some(Self {
            base,
            socket,
            address,
            certificate,
            token,
            instance,
            is_default: false,
            may_be_another: false,
            source,
        })
    }

    /// Parses `--admin`: a URL, or an address in the form of `listen`.
    fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            usage!(
                "--admin {text:?} is not an address of an admin listener: write a URL such as \
                 {DEFAULT}, an address such as 127.0.0.1:8081 or 8081, or a Unix socket such as \
                 unix:/run/admin.sock"
            )
        };
        let place = match text.parse() {
            Ok(ListenAddress::Unix(path)) => {
                Self::from_base(HOST_OF_SOCKET, "--admin").map(|place| Self {
                    socket: Some(path),
                    ..place
                })
            }
            Ok(ListenAddress::Ip(address)) => {
                Self::from_base(&format!("http://{}", reached(address)), "--admin")
            }
            Err(_) => Self::from_base(text, "--admin"),
        };
        place.ok_or_else(wrong)
    }

    /// The address from the configuration, or the default.
    fn configured(common: &CommonArgs) -> Result<Self> {
        let Some(first) = configuration::paths(common).and_then(|paths| paths.into_iter().next())
        else {
            let place = Self::from_base(DEFAULT, "the default")
                .ok_or_else(|| failure!("the default address is wrong"))?;
            return Ok(Self {
                instance: instance::digest(&[demo::ORIGIN.into()]),
                is_default: true,
                may_be_another: !common.demo,
                ..place
            });
        };
        let (admin, source) = (
            read(&first)?,
            format!("`admin.listen` of {}", first.display()),
        );
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        let place = match &admin.listen {
            None => {
                return Err(usage!(
                    "{source} is `off`: a gateway with this configuration has no admin listener, unless it was started with \
                     --admin; name the same address here"
                ));
            }
            Some(ListenAddress::Unix(path)) => {
                Self::from_base(HOST_OF_SOCKET, &source).map(|place| Self {
                    socket: Some(path.clone()),
                    ..place
                })
            }
            Some(ListenAddress::Ip(address)) => {
                let address = reached(*address);
                // Certificates are usually for names, and one of them is the page's.
                let name = admin.public_url.as_deref().filter(|_| admin.tls.is_some());
                let name = name.and_then(|url| Url::parse(url).ok()?.domain().map(str::to_owned));
                match name {
                    Some(name) => {
                        Self::from_base(&format!("{scheme}://{name}:{}", address.port()), &source)
                            .map(|place| Self {
                                address: Some(address),
                                ..place
                            })
                    }
                    None => Self::from_base(&format!("{scheme}://{address}"), &source),
                }
            }
        };
        let place = place.ok_or_else(|| usage!("{source} cannot be reached"))?;
        // Others may have written this folder, so the user's token and variables stay on this
        // machine.
        if common.config.is_empty() && !place.is_local() {
            return Err(usage!(
                "not sending a token to {1} without your consent, which {0} in this folder names: \
                 name the file with `--config`, or the gateway with `--admin`",
                first.display(),
                place.display_name()
            ));
        }
        let (instance, is_default) = (
            instance::digest(std::slice::from_ref(&first)),
            admin.is_default,
        );
        Ok(Self {
            instance,
            is_default,
            ..place.with(admin)
        })
    }

    /// The addresses at which the gateway may listen if another process has the default port.
    pub(super) fn further(&self) -> impl Iterator<Item = Self> + '_ {
        let port = self
            .base
            .port()
            .filter(|_| self.is_default)
            .unwrap_or(u16::MAX);
        (1..=FURTHER_PORTS).filter_map(move |more| {
            let mut place = Self {
                is_default: false,
                ..self.clone()
            };
            let port = port.checked_add(more)?;
            place.base.set_port(Some(port)).ok()?;
            place
                .address
                .iter_mut()
                .for_each(|address| address.set_port(port));
            Some(place)
        })
    }

    fn with_secrets_of(self, common: &CommonArgs) -> Result<Self> {
        let first = common.config.first();
        first
            .map(|first| read(first))
            .transpose()
            .map(|admin| match admin {
                Some(admin) => self.with(admin),
                None => self,
            })
    }

    fn with(self, admin: fanlight_config::Admin) -> Self {
        let certificate = admin.tls.map(|tls| PathBuf::from(tls.cert));
        Self {
            certificate,
            token: admin.token.map(|token| token.expose().to_owned()),
            ..self
        }
    }

    /// Whether the address is on this machine.
    fn is_local(&self) -> bool {
        if let Some(address) = self.address {
            return address.ip().to_canonical().is_loopback();
        }
        self.socket.is_some() || is_loopback(self.base.host_str().unwrap_or_default())
    }

    /// The listener's name in messages, without secrets.
    pub(super) fn display_name(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => self.base.origin().ascii_serialization(),
        }
    }
}

fn read(path: &std::path::Path) -> Result<fanlight_config::Admin> {
    Ok(load_admin(path, &configuration::variable)?)
}

/// The address to connect to: for a listener on all addresses, the loopback address.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_named_by_a_url_or_an_address() {
        for (text, shown) in [
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
            (
                "https://user:secret@ops.example.com/ui?x=1",
                "https://ops.example.com",
            ),
            ("127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("0.0.0.0:9000", "http://127.0.0.1:9000"),
            ("[::]:9000", "http://[::1]:9000"),
            ("9000", "http://127.0.0.1:9000"),
            (":9000", "http://127.0.0.1:9000"),
            ("unix:/run/admin.sock", "unix:/run/admin.sock"),
        ] {
            assert_eq!(Place::parse(text).unwrap().display_name(), shown, "{text}");
        }
        for wrong in ["ftp://x", "example.com", "", "unix:"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for (text, is_local) in [
            ("unix:/run/admin.sock", true),
            ("http://localhost:1", true),
            ("[::1]:1", true),
            ("https://example.com", false),
            ("http://10.0.0.1:1", false),
            ("http://127.0.0.1.example.com", false),
        ] {
            assert_eq!(Place::parse(text).unwrap().is_local(), is_local, "{text}");
        }
    }
}
