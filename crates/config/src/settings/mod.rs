//! Settings that the configuration file and other crates share: secrets, addresses of listeners,
//! transports and eras of servers, confinement of their processes, the address of Valkey, signature
//! algorithms, and reading files that the configuration names.

mod listen;
mod secret;
mod transport;
mod valkey;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use listen::{ListenAddress, NotAnAddress};
pub use secret::Secret;
pub use transport::{Transport, origin_of, split_credentials, split_path};
pub use valkey::{NotAValkeyUrl, ValkeyKind, ValkeyUrl};

fanlight_protocol::named! {
    /// An asymmetric signature algorithm (RFC 7518, 3.1; RFC 8037, 3.1). Others are not supported: with
    /// `none` anybody can sign, and with HMAC everybody who can verify.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Algorithm {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        Rs384 = "RS384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        Rs512 = "RS512",
        /// RSASSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// RSASSA-PSS with SHA-384.
        Ps384 = "PS384",
        /// RSASSA-PSS with SHA-512.
        Ps512 = "PS512",
        /// ECDSA with P-256 and SHA-256.
        Es256 = "ES256",
        /// ECDSA with P-384 and SHA-384.
        Es384 = "ES384",
        /// Ed25519.
        EdDsa = "EdDSA",
    }
}

impl Algorithm {
    /// The `alg` names, sorted.
    pub fn names() -> [&'static str; 9] {
        let mut names = Self::ALL.map(Self::as_str);
        names.sort_unstable();
        names
    }

    /// The algorithm with this `alg` name.
    pub fn from_name(name: &str) -> Option<Self> {
        // RFC 9864 deprecates the name `EdDSA` in favour of this one.
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        name.parse().ok()
    }
}

/// The endpoints of a server with several replicas.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// The URLs in the file's order; empty for a server with only its transport's URL.
    pub urls: Vec<String>,
    /// The interval of looking up the URLs' hosts: each address of a host is an endpoint. `None` if
    /// each URL is one endpoint.
    pub resolve: Option<Duration>,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| origin_of(url)).collect();
        f.debug_struct("Endpoints")
            .field("urls", &urls)
            .field("resolve", &self.resolve)
            .finish()
    }
}

/// Marks requests that follow another party's metadata. No listener of a Fanlight serves them:
/// otherwise a server could have Fanlight act as an operator of this machine.
pub const FOLLOWS_METADATA: &str = "fanlight-follows-metadata";

/// Whether a URL's host means this machine, whoever resolves it.
pub fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether a variable is Fanlight's own, or has its credentials for the collector. No server's
/// process gets it.
pub fn is_own_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("FANLIGHT_")
        || (name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS"))
}

/// The confinement of a server's process. Absent members restrict nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// The reachable files and ports.
    pub landlock: Option<Landlock>,
    /// The most bytes of private memory of each process.
    pub memory: Option<u64>,
    /// The most processes and threads of its user on the whole machine.
    pub processes: Option<u64>,
    /// The most open files of each process.
    pub files: Option<u64>,
    /// The name or number of the process's user.
    pub user: Option<String>,
}

/// The files and TCP ports that a process and its descendants can reach; the kernel enforces this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Landlock {
    /// Readable and executable files, and folders with their contents.
    pub read: Vec<PathBuf>,
    /// Readable, executable and writable files, and folders with their contents.
    pub write: Vec<PathBuf>,
    /// TCP ports to which it may connect; `None` for any.
    pub connect: Option<Vec<u16>>,
    /// TCP ports on which it may listen; `None` for any.
    pub bind: Option<Vec<u16>>,
    /// Files and folders that the server cannot read although they are in a readable one of
    /// [`SYSTEM_FOLDERS`].
    pub except: Vec<PathBuf>,
}

/// The folders with a system's programs, libraries and settings.
pub const SYSTEM_FOLDERS: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

impl Sandbox {
    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The era of the protocol in which Fanlight speaks to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EraChoice {
    /// The era that Fanlight finds out by asking.
    #[default]
    Auto,
    /// The era with `initialize` and sessions.
    Legacy,
    /// The stateless era with `server/discover`.
    Modern,
}

/// Whether clients share a session with a legacy server. A modern one has no sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionPolicy {
    /// Each client session has its own session, and over stdio its own process. Clients without a
    /// session share one among those with equal capabilities.
    #[default]
    PerClient,
    /// Like `PerClient`, but client sessions of one principal share a process if the server shows
    /// that it has no session state and the clients cannot be asked.
    Auto,
    /// All clients share one session, which declares no capability.
    Shared,
}

/// The bytes of a regular file; of a larger file than `most`, one byte more.
///
/// # Errors
///
/// The file cannot be read. Pipes, devices and folders are refused: reading one without a writer
/// would wait, and reading an endless one would never finish.
pub fn read_bounded(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens without waiting for a pipe's other end, and never makes a terminal the process's own.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    use rustix::fs::OFlags;

    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_names_that_nobody_else_can_have_are_this_machine() {
        for host in ["localhost", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "a.b",
            "localhost.a.b",
            "127.0.0.1.a.b",
            "10.0.0.1",
            "[::]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}

#[cfg(test)]
mod own_variables_tests {
    use super::*;

    #[test]
    fn own_variables_are_those_of_fanlight_and_the_headers_for_its_collector() {
        for own in [
            "FANLIGHT_KEY",
            "FANLIGHT_ADMIN_TOKEN",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            assert!(is_own_variable(own), "{own}");
        }
        for other in [
            "FANLIGHT",
            "MY_FANLIGHT_KEY",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "HOME",
            "",
        ] {
            assert!(!is_own_variable(other), "{other}");
        }
    }
}
