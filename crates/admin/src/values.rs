//! Values as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};

/// `true` or `false`.
pub(crate) fn flag(value: bool) -> Json {
    Json::literal(if value { "true" } else { "false" })
}

/// A count.
pub(crate) fn count(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> Json {
    number(duration.as_secs_f64() * 1000.0)
}

/// A time as milliseconds since the Unix epoch, to the microsecond.
pub(crate) fn moment(at: SystemTime) -> Json {
    millis(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A number with at most three decimals; `null` for NaN and infinities.
pub(crate) fn number(value: f64) -> Json {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.').to_owned();
    Json::parse(Bytes::from(text), 1).unwrap_or_else(|_| Json::null())
}

/// An array.
pub(crate) fn array(values: impl IntoIterator<Item = Json>) -> Json {
    let mut array = ArrayBuilder::default();
    for value in values {
        array.push(&value);
    }
    array.finish()
}

/// A text, or `null`.
pub(crate) fn optional(object: &mut ObjectBuilder, key: &str, text: Option<&str>) {
    object.member(key, &text.map_or_else(Json::null, Json::string));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_valid() {
        for (value, text) in [(0.0, "0"), (1.5, "1.5"), (10.0, "10"), (0.0004, "0"), (f64::NAN, "null"), (1e3, "1000")]
        {
            assert_eq!(number(value).as_text(), text);
        }
        assert_eq!(millis(Duration::from_micros(1234)).as_text(), "1.234");
        assert_eq!(moment(UNIX_EPOCH + Duration::from_secs(1)).as_text(), "1000");
        assert_eq!(count(u64::MAX), i64::MAX);
    }
}
