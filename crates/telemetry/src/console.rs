//! `--trace-console` prints each finished trace, as the caller renders it.
//!
//! A trace is finished when its top span ends. The top span has no parent in this process.

use std::io;

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

use crate::otlp_json;
use crate::worker;

/// The limit of the spans that wait for their top span. There is no option: the oldest ones are
/// not printed.
const MOST_WAITING: usize = 4096;

/// Assembles traces and writes them to `out`.
#[derive(Debug)]
pub(crate) struct Console<W> {
    out: W,
    render: fn(&str) -> String,
    waiting: Vec<SpanData>,
}

impl<W: io::Write> Console<W> {
    pub(crate) fn new(out: W, render: fn(&str) -> String) -> Self {
        Self {
            out,
            render,
            waiting: Vec::new(),
        }
    }

    /// Prints `top` and its descendants among the waiting spans.
    fn print(&mut self, top: SpanData) -> io::Result<()> {
        let trace = top.span_context.trace_id();
        let mut spans = vec![top];
        let mut next = 0;
        while let Some(parent) = spans.get(next).map(|span| span.span_context.span_id()) {
            let children = self.waiting.extract_if(.., |span| {
                span.parent_span_id == parent && span.span_context.trace_id() == trace
            });
            spans.extend(children);
            next += 1;
        }
        let text = otlp_json::traces(&Resource::builder_empty().build(), spans);
        writeln!(self.out, "trace {trace}\n{}", (self.render)(&text))?;
        self.out.flush()
    }
}

impl<W: io::Write + Send + 'static> worker::Write for Console<W> {
    fn write(&mut self, spans: Vec<SpanData>) -> io::Result<()> {
        for span in spans {
            if span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote {
                self.print(span)?;
                continue;
            }
            if self.waiting.len() == MOST_WAITING {
                self.waiting.remove(0);
            }
            self.waiting.push(span);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{
        Span as _, SpanBuilder, SpanKind, TraceContextExt, Tracer as _, TracerProvider as _,
    };
    use opentelemetry::{Context, KeyValue};
    use opentelemetry_sdk::trace::{SdkTracerProvider, Span};

    use super::*;
    use crate::names::{BACKEND_NAME, ERROR_TYPE};
    use crate::worker::Write as _;

    fn begin(name: &'static str, kind: SpanKind, parent: Option<&Span>) -> Span {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let around = parent.map_or_else(Context::new, |parent| {
            Context::new().with_remote_span_context(parent.span_context().clone())
        });
        tracer.build_with_context(SpanBuilder::from_name(name).with_kind(kind), &around)
    }

    fn data(span: &Span) -> SpanData {
        span.exported_data().unwrap()
    }

    /// The names of the trace's spans, one a line.
    fn names(trace: &str) -> String {
        let trace: serde_json::Value = serde_json::from_str(trace).unwrap();
        let spans = trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
        let names = spans.unwrap().iter().map(|span| span["name"].to_string());
        names.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn finished_trace_is_printed_from_its_top_span_down() {
        let top = begin("tools/call add", SpanKind::Server, None);
        let mut child = begin("tools/call \u{1b}[31madd", SpanKind::Client, Some(&top));
        child.set_attribute(KeyValue::new(BACKEND_NAME, "calc"));
        child.set_attribute(KeyValue::new(ERROR_TYPE, "timeout"));
        child.add_event("notifications/progress", Vec::new());
        let grandchild = begin("elicitation/create", SpanKind::Server, Some(&child));
        let stranger = begin(
            "ping",
            SpanKind::Client,
            Some(&begin("other", SpanKind::Server, None)),
        );
        let mut console = Console::new(Vec::new(), names);
        console
            .write(vec![data(&grandchild), data(&stranger), data(&child)])
            .unwrap();
        assert!(console.out.is_empty(), "nothing is finished yet");
        console.write(vec![data(&top)]).unwrap();
        let text = String::from_utf8(console.out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("trace "), "{text}");
        let below = [
            "tools/call add",
            "tools/call \\u001b[31madd",
            "elicitation/create",
        ];
        assert_eq!(lines[1..], below.map(|name| format!("\"{name}\"")));
        assert_eq!(console.waiting.len(), 1);
    }
}
