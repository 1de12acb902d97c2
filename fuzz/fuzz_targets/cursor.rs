//! List cursors from clients: text that was not sealed does not open, and no sealed content panics.
#![no_main]

use std::sync::LazyLock;

use fanlight_gateway::cursor::CursorSeal;
use fanlight_protocol::seal::{Keys, Seal};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::new([[9; 32]]));
static CURSORS: LazyLock<CursorSeal> = LazyLock::new(|| CursorSeal::new(&KEYS).expect("a key of the right length"));
/// Seals for the purpose that cursors are bound to.
static SEAL: LazyLock<Seal> = LazyLock::new(|| Seal::new(&KEYS, &[1]).expect("a key of the right length"));

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(CURSORS.open(text).is_none() && CURSORS.open_tasks(text).is_none());
    }
    let sealed = SEAL.seal(data).expect("sealing does not fail");
    let (place, tasks) = (CURSORS.open(&sealed), CURSORS.open_tasks(&sealed));
    // What begins a cursor of the list of tasks is the number of no other list.
    assert!(place.is_none_or(|place| place.list == u8::MAX || tasks.is_none()));
});
