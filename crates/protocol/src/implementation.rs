//! Name and version that Fanlight tells peers.

use crate::{Json, ObjectBuilder};

/// The value of the header `User-Agent`.
pub const USER_AGENT: &str = concat!("fanlight/", env!("CARGO_PKG_VERSION"));

/// Fanlight as an `Implementation`, with its name and version.
pub fn implementation() -> Json {
    ObjectBuilder::new()
        .string("name", "fanlight")
        .string("version", env!("CARGO_PKG_VERSION"))
        .finish()
}
