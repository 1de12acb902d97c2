//! The listeners: addresses and TLS.

use std::path::Path;

use crate::settings::ListenAddress;
use serde_json::json;

use super::life::{FOLDER, resolve};
use crate::definition::Visible;
use crate::option::{Maybe, Parsed, Reader, checked, choice, options};
use crate::syntax::Node;

options! {
    /// TLS of a listener over TCP. The files are read again when they change, without ending a
    /// connection.
    pub struct Tls: "tls", "in `tls`";
    options {
        /// The file with the certificate, followed by intermediate certificates, in PEM form.
        /// Required.
        "cert" => cert: String = String::new(), FOLDER, example "server.pem";
        /// The file with its private key, in PEM form, not encrypted. Required.
        "key" => key: String = String::new(), FOLDER, example "server.key";
        /// The file with the certificates, in PEM form, of the authorities that sign clients'
        /// certificates.
        "clientCa" => client_ca: Option<String> = None, Maybe(FOLDER), example "# clients-ca.pem";
        /// Whether clients show a certificate: `none` requests none, `optional` also serves clients
        /// without one, `required` refuses them. A certificate that `clientCa` has not signed, or
        /// that has expired, is never accepted. Default: `required` with `clientCa`, else `none`.
        "clientAuth" => client_auth: Option<ClientAuthChoice> = None, Maybe(CLIENT_AUTH), example "# required";
    }
}

choice! {
    /// Whether clients show a certificate.
    ClientAuthChoice, CLIENT_AUTH {
        /// The listener requests no certificate.
        None = "none",
        /// Clients may show one.
        Optional = "optional",
        /// Clients must show one.
        Required = "required",
    }
}

/// The scheme of a listener's URLs.
pub fn scheme(tls: &Option<Tls>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

impl Tls {
    /// The file with the authorities for clients' certificates, and whether clients need one;
    /// `None` if none is requested.
    pub fn client_ca(&self) -> Option<(&str, bool)> {
        let file = self.client_ca.as_deref()?;
        match self.client_auth.unwrap_or(ClientAuthChoice::Required) {
            ClientAuthChoice::None => None,
            ClientAuthChoice::Optional => Some((file, false)),
            ClientAuthChoice::Required => Some((file, true)),
        }
    }

    /// The files in use.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [self.cert.as_str(), &self.key]
            .into_iter()
            .chain(self.client_ca().map(|(file, _)| file))
    }

    /// Makes paths relative to `folder`.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        let files = [
            Some(&mut self.cert),
            Some(&mut self.key),
            self.client_ca.as_mut(),
        ];
        for file in files.into_iter().flatten().filter(|file| !file.is_empty()) {
            resolve(file, folder);
        }
    }
}

/// Reports missing and contradictory parts.
pub(crate) fn check_tls(reader: &mut Reader<'_>, node: &Node, tls: &Tls) {
    let has = |key| node.given_field(key).is_some();
    for key in ["cert", "key"] {
        if !has(key) {
            let help = "name the files, such as `tls: {cert: server.pem, key: server.key}`";
            reader.error(node.span, format!("`{key}` is missing in `tls`"), help);
        }
    }
    let asks = matches!(
        tls.client_auth,
        Some(ClientAuthChoice::Optional | ClientAuthChoice::Required)
    );
    if asks && !has("clientCa") {
        let help = "name the file with the certificates of those who sign certificates of clients";
        reader.error(
            node.span,
            "`clientAuth` asks for certificates, and `clientCa` is missing in `tls`",
            help,
        );
    }
}

/// The address of a listener.
pub(crate) const ADDRESS: Parsed<ListenAddress> = checked!(
    Visible::All,
    |text| text.parse().ok(),
    "is not an address with a port",
    "write an IP address and a port, such as `127.0.0.1:8080`, `0.0.0.0:8080` or `[::1]:8080`, a port of \
     this machine, such as `:8080`, or a Unix socket, such as `unix:/run/fanlight.sock`",
    |address: &ListenAddress| json!(address.to_string())
);
