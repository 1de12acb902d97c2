//! Authentication of clients by other means than OAuth.

use std::time::SystemTime;

use ipnet::IpNet;

use super::values::{FILE, HEADER, NETWORK};
use crate::option::kind::{Each, Maybe};
use crate::option::options;

options! {
    /// Keys, which clients send as `Authorization: Bearer <key>`. `fanlight keys` makes, lists and
    /// revokes them.
    pub struct KeyFile: "keys", "in `keys`";
    options {
        /// The file with the digests of the keys, relative to the folder of this file. A change
        /// takes effect at once.
        "file" => file: String = String::new(), FILE, example "keys.yaml";
    }
    fields {
        /// The keys in that file.
        keys: Vec<Key> = Vec::new();
    }
}

/// A key of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name of its clients, which is their principal.
    pub name: String,
    /// The SHA-256 digest of the key.
    pub sha256: [u8; 32],
    /// The groups of its clients.
    pub groups: Vec<String>,
    /// Their scopes; `None` for all.
    pub scopes: Option<Vec<String>>,
    /// The time at which it expires, if any.
    pub expires: Option<SystemTime>,
    /// The paths of the endpoints for which it is valid; `None` for all.
    pub endpoints: Option<Vec<String>>,
}

options! {
    /// Headers in which a reverse proxy names the user that it has authenticated. They count only
    /// on connections from the addresses in `from`, and the proxy must remove these headers from
    /// its clients' requests.
    pub struct Proxy: "proxy", "in `proxy`";
    options {
        /// The header with the name of the user.
        "header" => header: String = String::new(), HEADER, example "X-Forwarded-User";
        /// The header with the user's groups, separated by commas. Default: none.
        "groups" => groups: Option<String> = None, Maybe(HEADER), example "X-Forwarded-Groups";
        /// The addresses of the proxy, as networks.
        "from" => from: Vec<IpNet> = Vec::new(), Each(NETWORK), example "[10.0.0.0/8]";
    }
}
