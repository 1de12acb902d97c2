//! Sealed text (cursors, suspended calls): text that was not sealed does not open, and sealed text does.
#![no_main]

use std::sync::LazyLock;

use fanlight_protocol::seal::{Keys, Seal};
use libfuzzer_sys::fuzz_target;

static SEAL: LazyLock<Seal> =
    LazyLock::new(|| Seal::new(&Keys::new([[9; 32]]), b"fuzz").expect("a key of the right length"));

fuzz_target!(|input: (&str, &[u8])| {
    let (text, plain) = input;
    assert_eq!(SEAL.open(text), None);
    let sealed = SEAL.seal(plain).expect("sealing does not fail");
    assert_eq!(SEAL.open(&sealed).as_deref(), Some(plain));
});
