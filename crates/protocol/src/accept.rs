//! The `Accept` header (RFC 9110, 12.5.1) as MCP needs it: whether a client accepts JSON and event
//! streams.
//!
//! Written by hand, because existing crates reject the whole header for one malformed range
//! (`headers-accept`) or are unmaintained (`accept-header`). They also allocate for each range.

use crate::sse;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// The media types of responses that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// One JSON object.
    pub json: bool,
    /// An event stream.
    pub events: bool,
}

impl Accepts {
    /// The media types that a client without `Accept` accepts.
    pub const ANY: Self = Self {
        json: true,
        events: true,
    };

    /// Evaluates the values of the header, which are read twice. The most specific range that
    /// matches a type decides. A malformed range matches nothing.
    pub fn evaluate<'a, V: Iterator<Item = &'a str>>(values: impl Fn() -> V) -> Self {
        let allowed = |wanted: &str| {
            let ranges = values().flat_map(|value| value.split(',')).map(range);
            let matching =
                ranges.filter_map(|(range, zero)| Some((specificity(range, wanted)?, !zero)));
            // Of equally specific ranges, one that allows the type decides.
            matching.max().is_some_and(|(_, allowed)| allowed)
        };
        Self {
            json: allowed(JSON),
            events: allowed(sse::CONTENT_TYPE),
        }
    }
}

/// A media range, and whether its weight is zero.
fn range(element: &str) -> (&str, bool) {
    let weight = element.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let zero = weight.is_some_and(|weight| {
        weight
            .strip_prefix('0')
            .is_some_and(|rest| rest.bytes().all(|byte| matches!(byte, b'.' | b'0')))
    });
    (essence(element), zero)
}

/// The specificity of `range`, if it matches the type `wanted`.
fn specificity(range: &str, wanted: &str) -> Option<u8> {
    if range.eq_ignore_ascii_case(wanted) {
        return Some(2);
    }
    let (group, all) = range.split_once('/')?;
    match (group, all) {
        ("*", "*") => Some(0),
        (group, "*")
            if wanted
                .split('/')
                .next()
                .is_some_and(|own| own.eq_ignore_ascii_case(group)) =>
        {
            Some(1)
        }
        _ => None,
    }
}

/// A media type without its parameters.
pub fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_follows_rfc_9110() {
        for (value, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("application/json", true, false),
            ("TEXT/Event-Stream;charset=utf-8", false, true),
            ("*/*", true, true),
            ("application/*", true, false),
            ("text/*;q=0.1", false, true),
            ("*/*;q=0", false, false),
            ("application/json;q=0, */*", false, true),
            ("application/json ; Q=0.000 , */* ; q=0.5", false, true),
            ("application/*;q=0, application/json", true, false),
            ("text/html", false, false),
            ("", false, false),
            (",,;q=1,garbage", false, false),
        ] {
            assert_eq!(
                Accepts::evaluate(|| [value].into_iter()),
                Accepts { json, events },
                "{value}"
            );
        }
    }
}
