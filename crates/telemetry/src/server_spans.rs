//! Spans that a server returns with its answer, in `_meta.otel.traces.resourceSpans` of a result
//! (SEP-2448, a draft).
//!
//! The server describes itself in them. So operators see them with the trace, but they are never
//! exported as Fanlight's spans.

use fanlight_protocol::json::Kind;
use fanlight_protocol::{Json, Response};

use crate::content::{ContentKind, MOST};
use crate::record::Record;

/// Keeps the spans in `answer` with the content of the call.
pub(crate) fn keep(record: &Record, answer: &Response) {
    if record.content.get().is_some()
        && let Some(spans) = read(answer)
    {
        let at = record.start.began.later().wall();
        record.keep(at, ContentKind::ServerSpans, &spans);
    }
}

/// The spans in `answer`, unless they are too long to be kept whole.
fn read(answer: &Response) -> Option<Json> {
    let result = answer.result()?;
    let traces = result.get("_meta")?.get("otel")?.get("traces")?;
    let spans = traces.get("resourceSpans")?;
    (spans.kind() == Kind::Array && spans.bytes().len() <= MOST).then_some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_server_are_an_array_of_limited_size() {
        let spans = |result: String| {
            read(&Response::from_result(
                &Json::parse(result.into(), 32).unwrap(),
            ))
        };
        let with = |spans: &str| {
            format!(
                r#"{{"content":[],"_meta":{{"otel":{{"traces":{{"resourceSpans":{spans}}}}}}}}}"#
            )
        };
        let one = r#"[{"scopeSpans":[{"spans":[{"name":"db"}]}]}]"#;
        assert_eq!(spans(with(one)).unwrap().as_text(), one);
        assert_eq!(spans(with("{}")), None);
        assert_eq!(spans(with(&format!(r#"["{}"]"#, "x".repeat(MOST)))), None);
        assert_eq!(
            spans(r#"{"content":[],"_meta":{"otel":7}}"#.to_owned()),
            None
        );
        assert_eq!(spans(r#"{"content":[]}"#.to_owned()), None);
    }
}
