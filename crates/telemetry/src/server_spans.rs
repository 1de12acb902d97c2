//! Spans that a server returns with its answer, in `_meta.otel.traces.resourceSpans` of a result
//! (SEP-2448, a draft).
//!
//! The server describes itself in them. So operators see them with the trace, but they are never
//! exported as Fanlight's spans.

use fanlight_protocol::Response;
use fanlight_protocol::json::Kind;

use crate::redact;

/// The limit of the bytes that are kept of one answer. There is no option: a server does not need
/// more to describe one call.
const MOST: usize = 64 * 1024;

/// The spans in `answer` as JSON, without secrets that a name reveals.
pub(crate) fn of(answer: &Response) -> Option<String> {
    let spans = answer
        .result()?
        .get("_meta")?
        .get("otel")?
        .get("traces")?
        .get("resourceSpans")?;
    let is_kept = spans.kind() == Kind::Array && spans.bytes().len() <= MOST;
    // A text with masked secrets may be longer than the original.
    is_kept.then(|| redact::redacted(&spans, 4 * MOST))
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Json;

    use super::*;

    fn spans(result: String) -> Option<String> {
        of(&Response::from_result(
            &Json::parse(result.into(), 32).unwrap(),
        ))
    }

    #[test]
    fn spans_of_a_server_are_kept_without_secrets() {
        let with = |spans: &str| {
            format!(
                r#"{{"content":[],"_meta":{{"otel":{{"traces":{{"resourceSpans":{spans}}}}}}}}}"#
            )
        };
        let span = r#"[{"scopeSpans":[{"spans":[{"name":"db","attributes":[{"key":"password","value":"s3cret"}]}]}]}]"#;
        let kept = spans(with(span)).unwrap();
        assert!(
            kept.contains(r#""name":"db""#) && !kept.contains("s3cret"),
            "{kept}"
        );
        assert_eq!(spans(with("{}")), None);
        assert_eq!(spans(with(&format!(r#"["{}"]"#, "x".repeat(MOST)))), None);
        assert_eq!(
            spans(r#"{"content":[],"_meta":{"otel":7}}"#.to_owned()),
            None
        );
        assert_eq!(spans(r#"{"content":[]}"#.to_owned()), None);
    }
}
