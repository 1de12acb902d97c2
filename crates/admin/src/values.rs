//! Values as JSON.

use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fanlight_protocol::{Json, epoch};
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

/// The nesting limit of an answer: the limit of a list of definitions, and the parts around it.
const NESTING: usize = 1024;

/// `value` as JSON, with numbers by [`ShortNumbers`].
pub(crate) fn to_json(value: &impl Serialize) -> Json {
    let mut text = Vec::new();
    // Serialization fails only for keys that are not texts, and no value here has any.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut text,
        ShortNumbers,
    ));
    written
        .ok()
        .and_then(|()| Json::parse(Bytes::from(text), NESTING).ok())
        .unwrap_or_default()
}

/// Milliseconds.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A time as milliseconds since the Unix epoch.
pub(crate) fn moment(at: SystemTime) -> f64 {
    millis(epoch::since(at))
}

/// A JSON text from a client or server, whose bytes are written unchanged.
pub(crate) struct Verbatim(pub(crate) Json);

impl Serialize for Verbatim {
    /// Writes the text unchanged, or null if it is not JSON: only the structure of long messages
    /// was checked.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.0.as_text())
            .ok()
            .serialize(serializer)
    }
}

/// Writes numbers with at most three decimals.
struct ShortNumbers;

impl Formatter for ShortNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:.3}");
        writer.write_all(text.trim_end_matches('0').trim_end_matches('.').as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn numbers_are_short_and_valid() {
        for (value, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (10.0, "10"),
            (0.0004, "0"),
            (f64::NAN, "null"),
            (1e3, "1000"),
        ] {
            assert_eq!(to_json(&value).as_text(), text);
        }
        assert_eq!(
            to_json(&millis(Duration::from_micros(1234))).as_text(),
            "1.234"
        );
        assert_eq!(
            to_json(&moment(UNIX_EPOCH + Duration::from_secs(1))).as_text(),
            "1000"
        );
    }

    #[test]
    fn texts_of_others_keep_their_bytes_if_they_are_json() {
        let text = r#"{ "n": 1.50, "deep": [[]] }"#;
        assert_eq!(
            to_json(&[Verbatim(Json::literal(text))]).as_text(),
            format!("[{text}]")
        );
        let unchecked = Json::validate_structure(Bytes::from_static(b"[01]"), 8).unwrap();
        assert_eq!(to_json(&Verbatim(unchecked)).as_text(), "null");
    }
}
