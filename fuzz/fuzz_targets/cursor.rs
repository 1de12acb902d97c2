//! Cursors: nothing that was not sealed opens, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use fanlight_gateway::cursor::CursorSeal;
use libfuzzer_sys::fuzz_target;

static SEAL: LazyLock<CursorSeal> =
    LazyLock::new(|| CursorSeal::new(Some([9; 32])).expect("a key of the right length"));

fuzz_target!(|text: &str| {
    assert_eq!(SEAL.open(text), None);
});
