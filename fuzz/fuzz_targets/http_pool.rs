//! The connection pool to servers: no response contains a byte of another, whatever a server sends.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/http/tests/pool/desync.rs"]
mod desync;

fuzz_target!(|data: &[u8]| desync::run(data));
