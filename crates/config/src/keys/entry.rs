//! The options of the file with keys.

#![allow(unreachable_pub, reason = "`options!` defines public structs")]

use std::time::SystemTime;

use super::values::{DIGEST, ENDPOINT, MOMENT, NAME};
use crate::definition::Form;
use crate::model::auth::values::{SCOPE, TEXT};
use crate::option::{Each, Maybe, OneOrMany, options};

options! {
    /// The file with keys.
    pub struct KeyList: "keyList", "at the top level";
    options {}
    keys {
        /// The keys.
        "keys" => Form::Sections(Entry::SECTION);
    }
}

options! {
    /// An entry of the file.
    pub struct Entry: "keyEntry", "in an entry of `keys`";
    options {
        /// The name of the clients with this key: their principal. While a key is being replaced,
        /// the old and the new key can have the same name.
        "name" => name: String = String::new(), NAME;
        /// The SHA-256 digest of the key, as 64 hexadecimal digits.
        "sha256" => sha256: [u8; 32] = [0; 32], DIGEST;
        /// The groups of these clients.
        "groups" => groups: Vec<String> = Vec::new(), OneOrMany(TEXT);
        /// The scopes of these clients. Default: all.
        "scopes" => scopes: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE));
        /// The time in UTC at which the key expires. Default: never.
        "expires" => expires: Option<SystemTime> = None, Maybe(MOMENT);
        /// The paths of the endpoints that accept the key. Default: all.
        "endpoints" => endpoints: Option<Vec<String>> = None, Maybe(Each(ENDPOINT));
    }
}
