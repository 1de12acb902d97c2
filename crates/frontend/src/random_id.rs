//! Ids that cannot be guessed.

use std::fmt::Write as _;

/// 256 random bits as visible ASCII (2025-11-25 basic/transports, Session Management).
pub(crate) fn new_id() -> Result<Box<str>, getrandom::Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    Ok(random
        .iter()
        .fold(String::with_capacity(64), |mut id, byte| {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        })
        .into())
}
