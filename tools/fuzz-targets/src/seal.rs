//! Sealed text (cursors, suspended calls): unsealed text does not open, and sealed text does.

use std::sync::LazyLock;

use fanlight_protocol::seal::{Keys, Seal};

use crate::cost::{Cost, bounded};

static SEAL: LazyLock<Seal> =
    LazyLock::new(|| Seal::new(&Keys::new([[9; 32]]), b"fuzz").expect("a key of the right length"));

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(bounded(data.len(), Cost::TEXT, || SEAL.open(text)), None);
    }
    let sealed = SEAL.seal(data).expect("sealing does not fail");
    assert_eq!(
        bounded(sealed.len(), Cost::TEXT, || SEAL.open(&sealed)).as_deref(),
        Some(data)
    );
}
