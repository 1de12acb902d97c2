//! Trace context from clients (`traceparent`, `tracestate`): no input panics, and what is read is written again.
#![no_main]

use fanlight_telemetry::TraceContext;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (traceparent, tracestate) = input;
    // The structured input rarely begins with a whole traceparent: one is tried besides.
    const WHOLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for traceparent in [traceparent, WHOLE] {
        let Some(context) = TraceContext::parse(traceparent, Some(tracestate)) else { continue };
        let written = context.traceparent();
        let again = TraceContext::parse(written.as_str(), context.tracestate().map(|state| &**state));
        let again = again.expect("a written traceparent is one");
        assert!(again.is_same_span(&context));
        assert_eq!((again.is_sampled(), again.tracestate()), (context.is_sampled(), context.tracestate()));
    }
});
