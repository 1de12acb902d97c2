//! Checks `Content-Type` and `Accept` of requests.

use fanlight_protocol::accept::{Accepts, JSON, essence};
use fanlight_protocol::sse;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_ENCODING};

use super::fields::{Field, Fields};
use super::reply::Refusal;

const BOTH: &str = "application/json, text/event-stream";

/// Checks the head of a POST: the body must be JSON, and the client must accept one of the two
/// response types.
pub(crate) fn check(fields: &Fields<'_>) -> Result<Accepts, Box<Refusal>> {
    content_type(fields)?;
    let accepts = accepts(fields);
    if !accepts.json && !accepts.events {
        let message = format!(
            "\"Accept\" allows neither {JSON} nor {}; list both",
            sse::CONTENT_TYPE
        );
        return Err(Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message));
    }
    Ok(accepts)
}

/// Checks the head of a GET for an event stream: the client "MUST include an `Accept` header,
/// listing `text/event-stream`" (2025-11-25 basic/transports, Listening for Messages from the
/// Server).
pub(crate) fn check_get(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    if fields.accept != Field::Absent && accepts(fields).events {
        Ok(())
    } else {
        Err(not_acceptable("GET"))
    }
}

/// Checks the head of a GET of the HTTP+SSE transport, which does not require `Accept`.
pub(crate) fn check_sse_get(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    if accepts(fields).events {
        Ok(())
    } else {
        Err(not_acceptable("GET"))
    }
}

/// The refusal of a request that only an event stream can answer.
pub(crate) fn not_acceptable(what: &str) -> Box<Refusal> {
    let message = format!(
        "{what} is answered by an event stream: list {} in \"Accept\"",
        sse::CONTENT_TYPE
    );
    Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message)
}

/// Checks that the body of a POST is declared as JSON without a content coding.
pub(crate) fn content_type(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    let refuse = |message: &str| {
        Err(Refusal::invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            message,
        ))
    };
    let Field::One(value) = fields.content_type else {
        return refuse("\"Content-Type\" must be application/json");
    };
    // Nearly all clients use this spelling, which is cheap to compare.
    if value != JSON
        && !value
            .to_str()
            .is_ok_and(|value| essence(value).eq_ignore_ascii_case(JSON))
    {
        return refuse("\"Content-Type\" must be application/json");
    }
    let is_plain = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let encoded = fields.content_encoding != Field::Absent;
    if encoded && !fields.all.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return refuse("\"Content-Encoding\" is not supported: send the body as it is");
    }
    Ok(())
}

/// The media types that `Accept` allows. Values that are not ASCII are ignored.
fn accepts(fields: &Fields<'_>) -> Accepts {
    match fields.accept {
        Field::Absent => Accepts::ANY,
        // The spelling of nearly all clients, which must accept both (2026-07-28 streamable-http).
        Field::One(only) if only == BOTH => Accepts::ANY,
        _ => Accepts::evaluate(|| {
            fields
                .all
                .get_all(ACCEPT)
                .iter()
                .filter_map(|value| value.to_str().ok())
        }),
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn accept_of_several_lines_is_one_list() {
        assert_eq!(accepts(&Fields::find(&HeaderMap::new())), Accepts::ANY);
        let split = headers(&[(ACCEPT, "application/json"), (ACCEPT, "text/event-stream")]);
        assert_eq!(accepts(&Fields::find(&split)), Accepts::ANY);
    }

    #[test]
    fn content_type_must_be_json_without_coding() {
        let ok = |pairs: &[(http::HeaderName, &str)]| {
            content_type(&Fields::find(&headers(pairs))).is_ok()
        };
        assert!(ok(&[(CONTENT_TYPE, "application/json")]));
        assert!(ok(&[(CONTENT_TYPE, "Application/JSON ; charset=UTF-8")]));
        assert!(ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_ENCODING, "identity")
        ]));
        assert!(!ok(&[]));
        assert!(!ok(&[(CONTENT_TYPE, "text/plain")]));
        assert!(!ok(&[(CONTENT_TYPE, "application/jsonx")]));
        assert!(!ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_TYPE, "text/plain")
        ]));
        assert!(!ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_ENCODING, "gzip")
        ]));
    }
}
