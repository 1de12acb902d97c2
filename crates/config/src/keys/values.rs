//! Texts in the file with keys: names, digests, times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::json;

use crate::definition::Visible;
use crate::option::kind::{Parsed, checked};
use crate::units::parse_duration;

/// The longest name of a key, in bytes.
const MAX_NAME: usize = 128;

/// The name of a key: text that reads the same in logs, tables and command lines.
pub(super) const NAME: Parsed<String> = checked!(
    |text| (1..=MAX_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._@:/+".contains(&byte)),
    "cannot be the name of a key",
    "write up to 128 letters, digits and `-._@:/+`"
);

/// A SHA-256 digest. Messages hide it, since the key itself may be there by mistake.
pub(super) const DIGEST: Parsed<[u8; 32]> = checked!(
    Visible::Nothing,
    digest,
    "this is not a SHA-256 digest",
    "write 64 hexadecimal digits, as `fanlight keys new` does; never the key itself",
    |digest| json!(hexadecimal(digest))
);

/// A time in UTC.
pub(super) const MOMENT: Parsed<SystemTime> = checked!(
    Visible::All,
    moment,
    "is not a moment",
    "write a moment or a day in UTC, such as `2027-01-31T12:00:00Z` or `2027-01-31`",
    |moment| json!(format_moment(*moment))
);

/// The path of an endpoint.
pub(super) const ENDPOINT: Parsed<String> = checked!(
    |text| text.starts_with('/'),
    "is not the path of an endpoint",
    "write the path of an endpoint, such as `/mcp`: paths are compared exactly"
);

/// Parses a time or a day in UTC.
fn moment(text: &str) -> Option<SystemTime> {
    let is_day = text.len() == "2027-01-31".len();
    let whole = if is_day {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    humantime::parse_rfc3339(&whole).ok()
}

/// Parses a time or a day in UTC, such as `2027-01-31`, or a duration after `now`, such as `90d`.
pub fn parse_moment(text: &str, now: SystemTime) -> Option<SystemTime> {
    let after =
        || now.checked_add(parse_duration(text).filter(|_| text.ends_with(char::is_alphabetic))?);
    // This is later than any date that can be written.
    let last = UNIX_EPOCH.checked_add(Duration::from_secs(253_370_764_800))?;
    moment(text).or_else(after).filter(|moment| *moment < last)
}

/// A time in the notation of the file with keys, to the second.
pub fn format_moment(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment).to_string()
}

pub(super) fn hexadecimal(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(digest)
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
    bytes.ok()?.try_into().ok()
}
