//! `Content-Type` and `Accept` of requests.
//!
//! By hand, since the crates that parse `Accept` reject the whole header for one malformed range (`headers-accept`) or
//! are unmaintained (`accept-header`), and allocate for each range.

use fanlight_protocol::sse;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_ENCODING};

use super::fields::{Field, Fields};
use super::reply::Refusal;

const JSON: &str = "application/json";
const BOTH: &str = "application/json, text/event-stream";

/// The media types that a client accepts; at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// One JSON object.
    pub(crate) json: bool,
    /// An event stream.
    pub(crate) events: bool,
}

/// Checks the head of a POST: its body must be JSON, and the client must accept one of the two media types of responses.
pub(crate) fn check(fields: &Fields<'_>) -> Result<Accepts, Box<Refusal>> {
    content_type(fields)?;
    let accepts = accepts(fields);
    if !accepts.json && !accepts.events {
        let message = format!("\"Accept\" allows neither {JSON} nor {}; list both", sse::CONTENT_TYPE);
        return Err(Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message));
    }
    Ok(accepts)
}

/// Checks the head of a GET, which opens an event stream: the client "MUST include an
/// `Accept` header, listing `text/event-stream`" (2025-11-25 basic/transports, Listening for Messages
/// from the Server).
pub(crate) fn check_get(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    if fields.accept != Field::Absent && accepts(fields).events { Ok(()) } else { Err(not_acceptable("GET")) }
}

/// Checks the head of a GET of the HTTP+SSE transport, where `Accept` may be missing.
pub(crate) fn check_sse_get(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    if accepts(fields).events { Ok(()) } else { Err(not_acceptable("GET")) }
}

/// The refusal of a request that only an event stream can answer.
pub(crate) fn not_acceptable(what: &str) -> Box<Refusal> {
    let message = format!("{what} is answered by an event stream: list {} in \"Accept\"", sse::CONTENT_TYPE);
    Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message)
}

/// Checks that the body of a POST is declared as JSON without a content coding.
pub(crate) fn content_type(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    let refuse = |message: &str| Err(Refusal::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    let Field::One(value) = fields.content_type else {
        return refuse("\"Content-Type\" must be application/json");
    };
    // The spelling of nearly all clients first, since comparing it is cheap.
    if value != JSON && !value.to_str().is_ok_and(|value| essence(value).eq_ignore_ascii_case(JSON)) {
        return refuse("\"Content-Type\" must be application/json");
    }
    let is_plain = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let encoded = fields.content_encoding != Field::Absent;
    if encoded && !fields.all.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return refuse("\"Content-Encoding\" is not supported: send the body as it is");
    }
    Ok(())
}

/// The media types that `Accept` allows: the most specific range that matches a type decides, and without `Accept` all
/// types are accepted (RFC 9110, 12.5.1).
fn accepts(fields: &Fields<'_>) -> Accepts {
    match fields.accept {
        Field::Absent => return Accepts { json: true, events: true },
        // The spelling of nearly all clients, which must accept both (2026-07-28 streamable-http).
        Field::One(only) if only == BOTH => return Accepts { json: true, events: true },
        _ => {}
    }
    let ranges = || {
        let values = fields.all.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(range)
    };
    let allowed = |wanted: &str| {
        let matching = ranges().filter_map(|(range, zero)| Some((specificity(range, wanted)?, !zero)));
        // Of equally specific ranges, one that allows the type decides.
        matching.max().is_some_and(|(_, allowed)| allowed)
    };
    Accepts { json: allowed(JSON), events: allowed(sse::CONTENT_TYPE) }
}

/// A media range, and whether its weight is zero.
fn range(element: &str) -> (&str, bool) {
    let weight = element.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let zero = weight.is_some_and(|weight| {
        weight.strip_prefix('0').is_some_and(|rest| rest.bytes().all(|byte| matches!(byte, b'.' | b'0')))
    });
    (essence(element), zero)
}

/// How specific `range` is, if it matches the type `wanted`.
fn specificity(range: &str, wanted: &str) -> Option<u8> {
    if range.eq_ignore_ascii_case(wanted) {
        return Some(2);
    }
    let (group, all) = range.split_once('/')?;
    match (group, all) {
        ("*", "*") => Some(0),
        (group, "*") if wanted.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(group)) => Some(1),
        _ => None,
    }
}

/// A media type without its parameters.
fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

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
            let accepts = accepts(&Fields::of(&headers(&[(ACCEPT, value)])));
            assert_eq!((accepts.json, accepts.events), (json, events), "{value}");
        }
        assert_eq!(accepts(&Fields::of(&HeaderMap::new())), Accepts { json: true, events: true });
        let split = headers(&[(ACCEPT, "application/json"), (ACCEPT, "text/event-stream")]);
        assert_eq!(accepts(&Fields::of(&split)), Accepts { json: true, events: true });
    }

    #[test]
    fn content_type_must_be_json_without_coding() {
        let ok = |pairs: &[(http::HeaderName, &str)]| content_type(&Fields::of(&headers(pairs))).is_ok();
        assert!(ok(&[(CONTENT_TYPE, "application/json")]));
        assert!(ok(&[(CONTENT_TYPE, "Application/JSON ; charset=UTF-8")]));
        assert!(ok(&[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "identity")]));
        assert!(!ok(&[]));
        assert!(!ok(&[(CONTENT_TYPE, "text/plain")]));
        assert!(!ok(&[(CONTENT_TYPE, "application/jsonx")]));
        assert!(!ok(&[(CONTENT_TYPE, "application/json"), (CONTENT_TYPE, "text/plain")]));
        assert!(!ok(&[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")]));
    }

    proptest! {
        #[test]
        fn accept_of_any_text_does_not_panic(value in "[ -~]{0,60}") {
            let _ = accepts(&Fields::of(&headers(&[(ACCEPT, &value)])));
        }
    }
}
