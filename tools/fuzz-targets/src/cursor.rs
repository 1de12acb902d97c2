//! List cursors from clients: text that was not sealed does not open, and no sealed content panics.

use std::sync::LazyLock;

use fanlight_canonical::{Endpoint, Holder, Principal};
use fanlight_gateway::cursor::CursorSeal;
use fanlight_protocol::seal::{Keys, Seal};

use crate::cost::{Cost, bounded};

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::new([[9; 32]]));
static CURSORS: LazyLock<CursorSeal> = LazyLock::new(|| CursorSeal::new(&KEYS).expect("a key of the right length"));
const CLIENT: Holder = Holder::new(Principal::anonymous(), Endpoint::Default);
/// Seals for the purpose that cursors are bound to.
static SEAL: LazyLock<Seal> = LazyLock::new(|| Seal::new(&KEYS, &[2]).expect("a key of the right length"));

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let opened =
            bounded(data.len(), Cost::TEXT, || (CURSORS.open(text, &CLIENT), CURSORS.open_tasks(text, &CLIENT)));
        assert!(opened.0.is_none() && opened.1.is_none());
    }
    let sealed = SEAL.seal_for(data, &CLIENT.to_bytes()).expect("sealing does not fail");
    let open = || (CURSORS.open(&sealed, &CLIENT), CURSORS.open_tasks(&sealed, &CLIENT));
    let (place, tasks) = bounded(sealed.len(), Cost::TEXT, open);
    // The first byte of a cursor of the list of tasks is the number of no other list.
    assert!(place.is_none() || tasks.is_none());
}
