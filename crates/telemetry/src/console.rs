//! `--trace-console` prints each finished trace as an indented tree.
//!
//! A trace is finished when its top span ends. The top span has no parent in this process.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::visible::escaped;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::SpanData;

use crate::names::{BACKEND_NAME, CACHE_HIT, ERROR_TYPE, RPC_RESPONSE_STATUS_CODE};
use crate::ring::attribute;
use crate::worker;

/// The limit of the spans that wait for their top span. There is no option: further spans are
/// printed by themselves, as if their top span had ended.
const MOST_WAITING: usize = 4096;

/// Assembles traces and writes them to `out`.
#[derive(Debug)]
pub(crate) struct Console<W> {
    out: W,
    waiting: VecDeque<Arc<SpanData>>,
}

impl<W: io::Write> Console<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            waiting: VecDeque::new(),
        }
    }

    /// Prints `top` and its descendants among the waiting spans.
    fn print(&mut self, top: &SpanData) -> io::Result<()> {
        let mut text = format!("trace {}\n", top.span_context.trace_id());
        let mut of_trace = Vec::new();
        self.waiting.retain(|span| {
            let same = span.span_context.trace_id() == top.span_context.trace_id();
            if same {
                of_trace.push(Arc::clone(span));
            }
            !same
        });
        of_trace.sort_by_key(|span| span.start_time);
        branch(&mut text, top, &mut of_trace, 1);
        // The remaining spans of this trace belong to another top span.
        self.waiting.extend(of_trace);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl<W: io::Write + Send + 'static> worker::Write for Console<W> {
    fn write(&mut self, spans: &[Arc<SpanData>]) -> io::Result<()> {
        for span in spans {
            if span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote {
                self.print(span)?;
                continue;
            }
            if self.waiting.len() == MOST_WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Arc::clone(span));
        }
        Ok(())
    }
}

fn branch(text: &mut String, span: &SpanData, others: &mut Vec<Arc<SpanData>>, depth: usize) {
    line(text, span, depth);
    for event in span.events.iter() {
        text.push_str(&"  ".repeat(depth + 1));
        text.push_str("· ");
        push_plain(text, &event.name);
        text.push('\n');
    }
    let own = span.span_context.span_id();
    let (children, rest): (Vec<_>, Vec<_>) = others
        .drain(..)
        .partition(|other| other.parent_span_id == own);
    *others = rest;
    for child in children {
        branch(text, &child, others, depth + 1);
    }
}

fn line(text: &mut String, span: &SpanData, depth: usize) {
    let lasted = span
        .end_time
        .duration_since(span.start_time)
        .unwrap_or(Duration::ZERO);
    text.push_str(&"  ".repeat(depth));
    text.push_str(&format!("{:?} ", span.span_kind).to_uppercase());
    push_plain(text, &span.name);
    if let Some(backend) = attribute(span, BACKEND_NAME) {
        text.push_str(" @");
        push_plain(text, &backend.as_str());
    }
    text.push_str(&format!(" {lasted:.1?}"));
    if attribute(span, CACHE_HIT).is_some_and(|value| value.as_str() == "true") {
        text.push_str(" (from the catalogue)");
    }
    if let Some(error) = attribute(span, ERROR_TYPE) {
        text.push_str(" ERROR ");
        push_plain(text, &error.as_str());
    } else if let Some(code) = attribute(span, RPC_RESPONSE_STATUS_CODE) {
        // The sender made a mistake.
        text.push_str(" refused ");
        push_plain(text, &code.as_str());
    }
    if let Status::Error { description } = &span.status
        && !description.is_empty()
    {
        text.push_str(": ");
        push_plain(text, description);
    }
    text.push('\n');
}

/// Appends a name with its control characters escaped. Peers choose names, so a name could steer a
/// terminal or look like another one.
fn push_plain(text: &mut String, from: &str) {
    text.push_str(&escaped(from));
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{
        Span as _, SpanBuilder, SpanKind, TraceContextExt, Tracer as _, TracerProvider as _,
    };
    use opentelemetry::{Context, KeyValue};
    use opentelemetry_sdk::trace::{SdkTracerProvider, Span};

    use super::*;
    use crate::worker::Write as _;

    fn begin(name: &'static str, kind: SpanKind, parent: Option<&Span>) -> Span {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let around = parent.map_or_else(Context::new, |parent| {
            Context::new().with_remote_span_context(parent.span_context().clone())
        });
        tracer.build_with_context(SpanBuilder::from_name(name).with_kind(kind), &around)
    }

    fn data(span: &Span) -> Arc<SpanData> {
        Arc::new(span.exported_data().unwrap())
    }

    #[test]
    fn finished_trace_is_printed_as_a_tree() {
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
        let mut console = Console::new(Vec::new());
        console
            .write(&[data(&grandchild), data(&stranger), data(&child)])
            .unwrap();
        assert!(console.out.is_empty(), "nothing is finished yet");
        console.write(&[data(&top)]).unwrap();
        let text = String::from_utf8(console.out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("trace ") && lines.len() == 5, "{text}");
        assert!(lines[1].starts_with("  SERVER tools/call add "));
        assert!(
            lines[2].starts_with("    CLIENT tools/call \\u001b[31madd @calc ")
                && lines[2].ends_with("ERROR timeout")
        );
        assert_eq!(lines[3].trim(), "· notifications/progress");
        assert!(lines[4].starts_with("      SERVER elicitation/create "));
        assert_eq!(console.waiting.len(), 1);
    }
}
