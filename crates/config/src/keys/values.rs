//! Texts in the file with keys: names, digests, times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use serde_json::json;

use crate::definition::Visible;
use crate::option::kind::Parsed;
use crate::units::parse_duration;

/// The longest name of a key, in bytes.
const MAX_NAME: usize = 128;

/// The name of a key: text that reads the same in logs, tables and command lines.
pub(super) const NAME: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@:/+".contains(&byte);
        let is_name = (1..=MAX_NAME).contains(&text.value.len()) && text.value.bytes().all(fits);
        if !is_name {
            let help = "write up to 128 letters, digits and `-._@:/+`";
            reader.error(
                text.span,
                format!("{} cannot be the name of a key", text.display()),
                help,
            );
        }
        is_name.then_some(text.value)
    },
    show: |name| json!(name),
};

/// A SHA-256 digest. Messages hide it, since the key itself may be there by mistake.
pub(super) const DIGEST: Parsed<[u8; 32]> = Parsed {
    visible: Visible::Nothing,
    parse: |reader, text| {
        let digest = digest(&text.value);
        if digest.is_none() {
            let help =
                "write 64 hexadecimal digits, as `fanlight keys new` does; never the key itself";
            reader.error(text.span, "this is not a SHA-256 digest", help);
        }
        digest
    },
    show: |digest| json!(hexadecimal(digest)),
};

/// A time in UTC.
pub(super) const MOMENT: Parsed<SystemTime> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let moment = moment(&text.value);
        if moment.is_none() {
            let help =
                "write a moment or a day in UTC, such as `2027-01-31T12:00:00Z` or `2027-01-31`";
            reader.error(
                text.span,
                format!("{} is not a moment", text.display()),
                help,
            );
        }
        moment
    },
    show: |moment| json!(format_moment(*moment)),
};

/// The path of an endpoint.
pub(super) const ENDPOINT: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_path = text.value.starts_with('/');
        if !is_path {
            let help = "write the path of an endpoint, such as `/mcp`: paths are compared exactly";
            reader.error(
                text.span,
                format!("{} is not the path of an endpoint", text.display()),
                help,
            );
        }
        is_path.then_some(text.value)
    },
    show: |path| json!(path),
};

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
    let digits: Vec<u8> = text
        .chars()
        .map(|c| u8::try_from(c.to_digit(16)?).ok())
        .collect::<Option<_>>()?;
    if digits.len() != 64 {
        return None;
    }
    let bytes: Vec<u8> = digits
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[high, low]| high << 4 | low)
        .collect();
    bytes.try_into().ok()
}
