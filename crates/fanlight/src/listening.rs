//! The listeners' addresses, sockets and TLS, from the configuration.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::Path;

use fanlight_config::settings::read_bounded;
use fanlight_config::{AuthChoice, Config, MAX_FILE_SIZE, Tls};
use fanlight_frontend::{
    BindOptions, ClientCa, HttpVersions, ListenAddress, ListeningSocket, TlsFiles, TlsServer,
};
use fanlight_replicas::link::{LinkFiles, LinkTls};

/// The scheme of a listener's URLs.
pub(crate) fn scheme(tls: &Option<Tls>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

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

/// The options of the operators' socket.
pub(crate) fn of_operators(config: &Config) -> BindOptions {
    BindOptions {
        reuse_port: config.reuse_port,
        mode: config.admin.socket_mode,
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

/// The TLS of a listener, loaded from its files.
#[derive(Clone, Debug)]
pub(crate) struct LoadedTls {
    pub(crate) server: TlsServer,
    pub(crate) marks: TlsMarks,
}

/// Digests that change with the files of a listener's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsMarks {
    /// The digest of its certificate and key.
    own: u64,
    /// The digest of the requirements for client certificates.
    pub(crate) clients: u64,
}

/// TLS of the listener for clients.
pub(crate) fn tls_of_clients(config: &Config) -> Result<Option<LoadedTls>, String> {
    config
        .tls
        .as_ref()
        .map(|tls| FilesRead::of(tls, "tls")?.listener(HttpVersions::OneAndTwo))
        .transpose()
}

/// TLS of the listener for operators.
pub(crate) fn tls_of_operators(config: &Config) -> Result<Option<LoadedTls>, String> {
    config
        .admin
        .tls
        .as_ref()
        .map(|tls| FilesRead::of(tls, "admin.tls")?.listener(HttpVersions::One))
        .transpose()
}

/// TLS between replicas, which all have to show a certificate. It covers the listener for the
/// others, and the link to them.
pub(crate) fn tls_of_replicas(tls: &Tls) -> Result<(LoadedTls, LinkTls), String> {
    let read = FilesRead::of(tls, "replicas.tls")?;
    let authority = read.ca.as_ref().filter(|(_, is_optional)| !is_optional);
    let (authority, _) = authority
        .ok_or("`replicas.tls` has no `clientCa`, or does not require certificates of it")?;
    let link = LinkTls::new(LinkFiles {
        certificate: &read.certificate,
        key: &read.key,
        authority,
    });
    Ok((
        read.listener(HttpVersions::OneAndTwo)?,
        link.map_err(|error| read.unusable(&error))?,
    ))
}

/// The files of a TLS option.
struct FilesRead<'a> {
    option: &'static str,
    tls: &'a Tls,
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The authorities of client certificates, and whether a client may have no certificate.
    ca: Option<(Vec<u8>, bool)>,
}

impl<'a> FilesRead<'a> {
    fn of(tls: &'a Tls, option: &'static str) -> Result<Self, String> {
        let ca = tls
            .client_ca()
            .map(|(file, is_required)| Ok::<_, String>((read(file, option)?, !is_required)));
        let (certificate, key) = (read(&tls.cert, option)?, read(&tls.key, option)?);
        Ok(Self {
            option,
            tls,
            certificate,
            key,
            ca: ca.transpose()?,
        })
    }

    fn listener(&self, versions: HttpVersions) -> Result<LoadedTls, String> {
        let ca = self.ca.as_ref();
        let client_ca = ca.map(|(certificates, is_optional)| ClientCa {
            certificates,
            is_optional: *is_optional,
        });
        let files = TlsFiles {
            certificate: &self.certificate,
            key: &self.key,
            client_ca,
        };
        let server = TlsServer::new(files, versions).map_err(|error| self.unusable(&error))?;
        let marks = TlsMarks {
            own: mark(&(&self.certificate, &self.key)),
            clients: mark(&self.ca),
        };
        Ok(LoadedTls { server, marks })
    }

    fn unusable(&self, error: &dyn std::error::Error) -> String {
        let files: Vec<_> = self.tls.files().collect();
        format!(
            "`{}` cannot be used: {error}; its files: {}",
            self.option,
            files.join(", ")
        )
    }
}

fn mark(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &str, option: &str) -> Result<Vec<u8>, String> {
    match read_bounded(Path::new(path), MAX_FILE_SIZE) {
        Ok(bytes) if bytes.len() <= MAX_FILE_SIZE => Ok(bytes),
        Ok(_) => Err(format!("`{option}` cannot be used: {path} is too large")),
        Err(error) => Err(format!(
            "`{option}` cannot be used: cannot read {path}: {error}"
        )),
    }
}
