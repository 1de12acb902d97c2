//! Configuration files: no text panics, problems lie within the file, and neither problems nor a
//! configuration reveal a variable's value.

use std::path::Path;

use crate::cost::{Cost, Linear, bounded};

/// The value of every environment variable.
const SECRET: &str = "s3cret-0123456789abcdef";

/// The fixed part is the budget for copies of anchored values. Problems quote their lines, and a
/// file of many short lines has many problems.
const COST: Cost = Cost {
    allocations: Linear(400_000, 64),
    bytes: Linear(64 << 20, 16 << 10),
    milliseconds: 250,
};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let environment = |_: &str| Some(SECRET.to_owned());
    let read = bounded(data.len(), COST, || {
        fanlight_config::parse(text, Path::new("fuzz.yaml"), &environment)
    });
    let shown = match &read {
        Ok(loaded) => format!("{:?}", loaded.warnings),
        Err(errors) => errors.to_string(),
    };
    assert!(
        text.contains(SECRET) || !shown.contains(SECRET),
        "a secret is shown"
    );
}
