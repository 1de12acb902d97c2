//! Several processes of Fanlight that act as one for clients.

use std::net::SocketAddr;
use std::path::Path;

use crate::settings::ValkeyUrl;
use serde_json::json;

use super::life::{FOLDER, resolve};
use super::listener::{ClientAuthChoice, Tls};
use crate::definition::Visible;
use crate::option::{Maybe, Nested, Parsed, Reader, checked, options};
use crate::syntax::Node;

options! {
    /// Several processes of Fanlight that act as one for clients. They have the same configuration,
    /// and share the state that none of them can know alone through Valkey (docs/replicas.md).
    pub struct ReplicaOptions: "replicas", "in `replicas`";
    options {
        /// The URL of Valkey: `valkey://user:password@host:6379/0`, `valkeys` for TLS,
        /// `valkeys+cluster://host1,host2` for a cluster, `valkeys+sentinel://host1,host2/name` for
        /// the primary of this name at sentinels; `redis` and `rediss` mean the same. Required.
        "valkey" => valkey: Option<ValkeyUrl> = None, Maybe(VALKEY), example "${VALKEY_URL}";
        /// A file with certificates (PEM) of the authorities for Valkey's certificate, instead of
        /// the system's authorities.
        "caFile" => ca_file: Option<String> = None, Maybe(FOLDER), example "# valkey-ca.pem";
        /// The name of these replicas, which their keys in Valkey begin with; it separates groups
        /// that share one Valkey.
        "group" => group: String = "fanlight".to_owned(), GROUP;
        /// The address and port at which other replicas reach this one; each replica has its own.
        "listen" => listen: Option<SocketAddr> = None, Maybe(REACHED_AT), example "# \"${POD_IP}:8443\"";
        /// The certificate that this replica shows to others and to Valkey; `clientCa` has the
        /// authority of all replicas' certificates.
        "tls" => tls: Option<Tls> = None, Maybe(Nested::<Tls>::KIND), example "# {cert: replica.pem, key: replica.key, clientCa: replicas-ca.pem}";
    }
}

impl ReplicaOptions {
    /// Makes paths relative to `folder`.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        self.ca_file
            .iter_mut()
            .for_each(|file| resolve(file, folder));
        self.tls.iter_mut().for_each(|tls| tls.resolve(folder));
    }
}

/// Reports missing requirements of several processes that act as one.
pub(crate) fn check_replicas(
    reader: &mut Reader<'_>,
    node: &Node,
    options: &ReplicaOptions,
    has_keys: bool,
) {
    if node.given_field("valkey").is_none() {
        let help = "write the URL of Valkey, such as `replicas: {valkey: \"valkeys://valkey.example.com\"}`, or remove `replicas`";
        reader.error(node.span, "`valkey` is missing in `replicas`", help);
    }
    let has_authority = node
        .field("tls")
        .is_some_and(|tls| tls.given_field("clientCa").is_some());
    if let Some(listen) = node.given_field("listen").filter(|_| !has_authority) {
        let help = "write `tls: {cert: replica.pem, key: replica.key, clientCa: replicas-ca.pem}`, or remove `listen`: requests are \
                    passed on between replicas alone, which show each other certificates of one authority";
        reader.error(listen.span, "`listen` needs `tls` with `clientCa`", help);
    }
    let is_demanding =
        |tls: &Tls| matches!(tls.client_auth, None | Some(ClientAuthChoice::Required));
    let choice = node.field("tls").and_then(|tls| tls.field("clientAuth"));
    if let Some(choice) = choice.filter(|_| !options.tls.as_ref().is_none_or(is_demanding)) {
        let help = "remove `clientAuth`: replicas pass requests on to each other alone";
        reader.error(
            choice.span,
            "`replicas` always require certificates of each other",
            help,
        );
    }
    if !has_keys {
        let help = "give all replicas the same keys, such as `keys: [\"${FANLIGHT_KEY}\"]`; `openssl rand -base64 32` makes one";
        reader.error(
            node.span,
            "`replicas` need `keys`: no replica could read what another has sealed",
            help,
        );
    }
}

const VALKEY: Parsed<ValkeyUrl> = checked!(
    Visible::Nothing,
    |text| ValkeyUrl::parse(text).ok(),
    // The message does not repeat the URL, which may hold a password.
    "this is not the URL of a Valkey",
    "write `valkey://host:6379`, `valkeys://user:password@host`, `valkeys+cluster://host1,host2` or \
     `valkeys+sentinel://host1,host2/name`",
    |url| json!(url.to_string())
);

const GROUP: Parsed<String> = checked!(
    |text| (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)),
    "cannot be the name of a group",
    "write 1 to 64 ASCII letters, digits and `-_.:`, such as `fanlight-production`"
);

/// An address that other machines can reach.
const REACHED_AT: Parsed<SocketAddr> = checked!(
    Visible::All,
    |text| text
        .parse()
        .ok()
        .filter(|at: &SocketAddr| !at.ip().is_unspecified()),
    "is not an address that others could reach",
    "write the address of this replica itself and a port, such as `10.0.0.7:8443` or `${POD_IP}:8443`",
    |address| json!(address.to_string())
);
