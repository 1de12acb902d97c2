//! Clients' trace context, `traceparent` and `tracestate` in two lines: no input panics, and
//! writing reproduces the read context.

use fanlight_telemetry::TraceContext;

use crate::cost::{Cost, bounded};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (traceparent, tracestate) = text.split_once('\n').unwrap_or((text, ""));
    // Random input rarely begins with a whole traceparent, so a fixed one is tried as well.
    const WHOLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for traceparent in [traceparent, WHOLE] {
        let read = bounded(data.len(), Cost::TEXT, || {
            TraceContext::parse(traceparent, Some(tracestate))
        });
        let Some(context) = read else { continue };
        let written = context.traceparent();
        let again =
            TraceContext::parse(written.as_str(), context.tracestate().map(|state| &**state));
        let again = again.expect("a written traceparent is one");
        assert!(again.is_same_span(&context));
        assert_eq!(
            (again.is_sampled(), again.tracestate()),
            (context.is_sampled(), context.tracestate())
        );
    }
}
