//! Properties that hold for any input, one module for each parser that faces a peer or a file.
//!
//! A target panics if its property does not hold, or if reading the input costs more than its
//! length permits ([`cost`]). `fuzz/` runs the targets with random inputs. `corpus.rs` runs them
//! with the committed inputs of `fuzz/corpus`, so that `cargo test` repeats former findings. The
//! target of `http_pool` is a test of that crate.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a target reports what it has found"
)]

pub mod cost;

mod accept;
mod batch;
mod client_file;
mod config;
#[cfg(test)]
mod corpus;
mod cursor;
mod header;
mod json;
mod line;
mod message;
mod param_header;
mod partial;
mod seal;
mod sse;
mod token;
mod trace_context;
mod uri_template;

/// A check of one input.
pub type Target = fn(&[u8]);

/// All targets by name. The name is also the program's in `fuzz/fuzz_targets` and the folder's in
/// `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("accept", accept::check),
    ("batch", batch::check),
    ("client_file", client_file::check),
    ("config", config::check),
    ("cursor", cursor::check),
    ("header", header::check),
    ("json", json::check),
    ("line", line::check),
    ("message", message::check),
    ("param_header", param_header::check),
    ("partial", partial::check),
    ("seal", seal::check),
    ("sse", sse::check),
    ("token", token::check),
    ("trace_context", trace_context::check),
    ("uri_template", uri_template::check),
];

/// Checks one input of the target with this name.
///
/// # Panics
///
/// Panics if a property does not hold, or if there is no such target.
pub fn check(name: &str, input: &[u8]) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a known target");
    target(input);
}

/// The first byte of an input, as a small number for the target, and the rest.
fn with_number(input: &[u8]) -> (usize, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(number, rest)| (usize::from(*number), rest))
}
