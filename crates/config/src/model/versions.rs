//! Other versions of a server: its canary, which serves a share of its clients, and its mirror,
//! which gets copies of requests.

use serde_json::{Value as Json, json};

use super::auth::values::TEXT;
use crate::definition::Form;
use crate::option::{Kind, Reader, options};
use crate::syntax::Entry;

/// A share is counted in millionths.
const PARTS: f64 = 1_000_000.0;

/// A share from 0 (none) to 1 (all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// The share as a number from 0 to 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / PARTS
    }

    fn parse(text: &str) -> Option<Self> {
        let number: f64 = text
            .parse()
            .ok()
            .filter(|number| (0.0..=1.0).contains(number))?;
        // The value is at most a million, within the type's bounds.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 1,000,000"
        )]
        Some(Self((number * PARTS).round() as u32))
    }
}

options! {
    /// Another version of a server and its share: as canary of the clients, as mirror of the
    /// requests.
    pub struct OtherVersion: "otherVersion", "in `canary` or `mirror` of a server";
    options {
        /// Its entry in `mcpServers`. Clients do not see it.
        "server" => server: String = String::new(), TEXT, example "search-v2";
        /// The share, from 0 to 1. A canary whose share grows keeps its clients.
        "share" => share: Share = Share::default(), SHARE, example "0.1";
    }
}

/// The kind of a [`Share`].
struct ShareOption;

const SHARE: ShareOption = ShareOption;

impl Kind for ShareOption {
    type Value = Share;

    fn form(&self) -> Form {
        Form::Share
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Share> {
        let help = "write a number from 0 (none) to 1 (all), such as `0.05`";
        let text = reader.amount(entry, "a share", help)?;
        let share = Share::parse(&text.value);
        if share.is_none() {
            reader.refuse(&text, "is not a share", help);
        }
        share
    }

    fn show(&self, value: &Share) -> Json {
        match *value {
            Share(0) => json!(0),
            Share::ALL => json!(1),
            share => json!(share.as_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_from_none_to_all() {
        for (text, share) in [
            ("0", Some(0)),
            ("0.05", Some(50_000)),
            ("1", Some(1_000_000)),
            ("1e-6", Some(1)),
        ] {
            assert_eq!(Share::parse(text), share.map(Share), "{text}");
        }
        for text in ["", "-0.1", "1.01", "5%", "NaN", "inf", "half"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        assert!((Share::parse("0.3").unwrap().as_f64() - 0.3).abs() < 1e-9);
    }
}
