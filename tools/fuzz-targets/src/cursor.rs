//! List cursors from clients: unsealed text does not open, and no sealed content panics.

use std::sync::LazyLock;

use fanlight_canonical::{Endpoint, HandleKind, HandleSeal, Holder, Principal};
use fanlight_gateway::cursor::CursorSeal;
use fanlight_protocol::seal::Keys;

use crate::cost::{Cost, bounded};

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::new([[9; 32]]));
static CURSORS: LazyLock<CursorSeal> =
    LazyLock::new(|| CursorSeal::new(&KEYS).expect("a key of the right length"));
const CLIENT: Holder = Holder::new(Principal::anonymous(), Endpoint::Default);
static SEAL: LazyLock<HandleSeal> =
    LazyLock::new(|| HandleSeal::new(&KEYS).expect("a key of the right length"));

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let opened = bounded(data.len(), Cost::TEXT, || {
            (
                CURSORS.open(text, &CLIENT),
                CURSORS.open_tasks(text, &CLIENT),
            )
        });
        assert!(opened.0.is_none() && opened.1.is_none());
    }
    for kind in [
        HandleKind::Cursor,
        HandleKind::TaskCursor,
        HandleKind::Session,
    ] {
        let sealed = SEAL
            .seal(kind, data, &CLIENT)
            .expect("sealing does not fail");
        let open = || {
            (
                CURSORS.open(&sealed, &CLIENT),
                CURSORS.open_tasks(&sealed, &CLIENT),
            )
        };
        let (place, tasks) = bounded(sealed.len(), Cost::TEXT, open);
        // A handle of one kind is not valid as another.
        assert!(place.is_none() || kind == HandleKind::Cursor);
        assert!(tasks.is_none() || kind == HandleKind::TaskCursor);
    }
}
