//! A trace as a tree of spans, each with a bar for its start and duration.

use std::collections::HashSet;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::spans::{Kind, Span};
use super::style::{Style, duration};
use fanlight_protocol::visible::plain;

/// The least width of a terminal with bars.
const LEAST_WITH_BARS: usize = 60;
/// The least and largest width of a bar.
const BAR: (usize, usize) = (12, 60);
/// The width of a duration.
const DURATION: usize = 8;

/// The rendered lines, without a line break at the end.
pub fn render(spans: &[Span], style: Style) -> String {
    let rows = tree(spans);
    let start = spans
        .iter()
        .map(|span| span.start)
        .min()
        .unwrap_or_default();
    let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
    let bars = style.width >= LEAST_WITH_BARS;
    let longest = rows
        .iter()
        .map(|row| row.label().width())
        .max()
        .unwrap_or_default();
    let for_labels = if bars {
        style.width - DURATION - BAR.0 - 4
    } else {
        style.width.saturating_sub(DURATION + 2)
    };
    let labels = longest.min(for_labels.max(16));
    let bar = if bars {
        (style.width - labels - DURATION - 4).clamp(BAR.0, BAR.1)
    } else {
        0
    };
    let mut lines = Vec::new();
    for row in &rows {
        let label = fit(&row.label(), labels);
        let took = format!("{:>DURATION$}", duration(row.span.duration()));
        let mut line = format!("{}  {took}", row.colour(&label, style));
        if bars {
            line += "  ";
            line += &row.colour_bar(&draw(row.span, (start, end), bar), style);
        }
        lines.push(line.trim_end().to_owned());
        lines.extend(row.notes(start, style));
    }
    lines.join("\n")
}

/// A span and its position in the tree.
struct Row<'a> {
    span: &'a Span,
    /// The tree's lines before the span's name.
    branch: String,
    /// The tree's lines before the span's children and notes.
    below: String,
}

impl Row<'_> {
    fn label(&self) -> String {
        let mut label = format!(
            "{}{} {}",
            self.branch,
            self.span.kind.as_str(),
            plain(&self.span.name, 160)
        );
        if let Some(backend) = self.span.attribute("fanlight.backend.name") {
            label += &format!(" @{}", plain(backend, 60));
        }
        label
    }

    fn is_failed(&self) -> bool {
        self.span.error.is_some() || self.kind_of_error().is_some()
    }

    /// The kind of error. A mistake of the sender has only a code, no `error.type`.
    fn kind_of_error(&self) -> Option<&str> {
        self.span
            .attribute("error.type")
            .or_else(|| self.span.attribute("rpc.response.status_code"))
    }

    fn colour(&self, label: &str, style: Style) -> String {
        if self.is_failed() {
            style.bad(label)
        } else {
            label.to_owned()
        }
    }

    fn colour_bar(&self, bar: &str, style: Style) -> String {
        match self.span.kind {
            _ if self.is_failed() => style.bad(bar),
            Kind::Server => style.good(bar),
            Kind::Client => style.mark(bar),
            Kind::Internal => style.dim(bar),
        }
    }

    /// The span's error, links and events, one line each.
    fn notes(&self, start: u64, style: Style) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |text: String, paint: fn(Style, &str) -> String| {
            let room = style.width.saturating_sub(self.below.width()).max(16);
            notes.push(format!(
                "{}{}",
                style.dim(&self.below),
                paint(style, fit(&text, room).trim_end())
            ));
        };
        if self.is_failed() {
            let kind = self.kind_of_error().unwrap_or("error");
            let message = self
                .span
                .error
                .as_deref()
                .or_else(|| self.span.attribute("fanlight.error.message"));
            let message = message.filter(|message| !message.is_empty());
            let message = message
                .map(|message| format!(": {}", plain(message, 300)))
                .unwrap_or_default();
            note(format!("✗ {}{message}", plain(kind, 60)), Style::bad);
        }
        if self.span.attribute("fanlight.cache.hit") == Some("true") {
            note(
                "from the catalogue, without a server".to_owned(),
                Style::dim,
            );
        }
        for (trace, span) in &self.span.links {
            note(format!("linked to {trace} {span}"), Style::dim);
        }
        for event in &self.span.events {
            let after = duration(event.time.saturating_sub(start));
            note(
                format!("· {} at {after}", plain(&event.name, 100)),
                Style::dim,
            );
        }
        notes
    }
}

/// The spans, each below its parent. A span whose parent is missing is a root.
fn tree(spans: &[Span]) -> Vec<Row<'_>> {
    let here: HashSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let is_top = |span: &&Span| {
        span.parent
            .as_deref()
            .is_none_or(|parent| !here.contains(parent) || parent == span.id)
    };
    let mut rows = Vec::new();
    let mut seen = HashSet::new();
    // Spans that form a cycle have no root and are appended.
    for span in spans.iter().filter(is_top).chain(spans) {
        push(spans, span, Default::default(), &mut seen, &mut rows);
    }
    rows
}

fn push<'a>(
    spans: &'a [Span],
    span: &'a Span,
    (branch, below): (String, String),
    seen: &mut HashSet<&'a str>,
    rows: &mut Vec<Row<'a>>,
) {
    if !seen.insert(span.id.as_str()) {
        return;
    }
    let children: Vec<&Span> = spans
        .iter()
        .filter(|child| {
            child.parent.as_deref() == Some(span.id.as_str()) && !seen.contains(child.id.as_str())
        })
        .collect();
    let under = if children.is_empty() { "   " } else { "│  " };
    rows.push(Row {
        span,
        branch,
        below: format!("{below}{under}"),
    });
    let last = children.len();
    for (index, child) in children.into_iter().enumerate() {
        let (turn, beside) = if index + 1 == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        push(
            spans,
            child,
            (format!("{below}{turn}"), format!("{below}{beside}")),
            seen,
            rows,
        );
    }
}

/// The bar of a span within the whole trace.
fn draw(span: &Span, (start, end): (u64, u64), width: usize) -> String {
    let whole = end.saturating_sub(start).max(1) as f64;
    let at = |time: u64| (time.saturating_sub(start) as f64 / whole * width as f64) as usize;
    let from = at(span.start).min(width.saturating_sub(1));
    let length = at(span.end).saturating_sub(from).max(1);
    format!(
        "{}{}",
        " ".repeat(from),
        "━".repeat(length.min(width - from))
    )
}

/// `text` padded or truncated to exactly `width` columns.
pub fn fit(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    let whole = text.width() <= width;
    for c in text.chars() {
        let wide = c.width().unwrap_or_default();
        if used + wide
            > if whole {
                width
            } else {
                width.saturating_sub(1)
            }
        {
            break;
        }
        out.push(c);
        used += wide;
    }
    if !whole {
        out.push('…');
        used += 1;
    }
    out + &" ".repeat(width.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::spans;

    const TRACE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"t","spanId":"c1","parentSpanId":"s","name":"tools/call search","kind":3,
         "startTimeUnixNano":"1010000000","endTimeUnixNano":"1050000000",
         "attributes":[{"key":"fanlight.backend.name","value":{"stringValue":"library"}}]},
        {"traceId":"t","spanId":"s","parentSpanId":"elsewhere","name":"tools/call library__search","kind":2,
         "startTimeUnixNano":"1000000000","endTimeUnixNano":"1100000000",
         "links":[{"traceId":"u","spanId":"l"}],"events":[{"name":"notifications/progress","timeUnixNano":"1020000000"}]},
        {"traceId":"t","spanId":"c2","parentSpanId":"s","name":"tools/call \u001b[31msearch 漢字","kind":3,
         "startTimeUnixNano":"1050000000","endTimeUnixNano":"1100000000","status":{"code":2,"message":"no answer"},
         "attributes":[{"key":"error.type","value":{"stringValue":"timeout"}}]}
    ]}]}]}"#;

    fn drawn_lines(width: usize) -> Vec<String> {
        let spans = spans::read(TRACE.as_bytes()).unwrap();
        render(&spans, Style::plain(width))
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn render_puts_spans_below_their_parents() {
        let lines = drawn_lines(100);
        assert!(
            lines[0].starts_with("SERVER tools/call library__search")
                && lines[0].contains("100 ms"),
            "{lines:#?}"
        );
        assert_eq!(lines[1], "│  linked to u l");
        assert_eq!(lines[2], "│  · notifications/progress at 20.0 ms");
        assert!(
            lines[3].starts_with("├─ CLIENT tools/call search @library ")
                && lines[3].contains("40.0 ms")
        );
        assert!(
            lines[4].starts_with("└─ CLIENT tools/call \\u001b[31msearch 漢字 "),
            "{lines:#?}"
        );
        assert_eq!(lines[5], "      ✗ timeout: no answer");
        let bar = |line: &str| line.chars().filter(|c| *c == '━').count();
        assert!(
            bar(&lines[0]) > 2 * bar(&lines[3]) && bar(&lines[4]) >= bar(&lines[3]),
            "{lines:#?}"
        );
        let before = |line: &str| line.split('━').next().unwrap().width();
        assert!(
            before(&lines[4]) > before(&lines[3]) && before(&lines[3]) > before(&lines[0]),
            "{lines:#?}"
        );
    }

    #[test]
    fn render_keeps_to_the_width() {
        for width in [30, 59, 60, 80, 300] {
            for line in drawn_lines(width) {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
        assert!(drawn_lines(59).iter().all(|line| !line.contains('━')));
    }

    #[test]
    fn render_accepts_cycles_and_empty_traces() {
        let circle = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
            {"traceId":"t","spanId":"a","parentSpanId":"b","name":"x"},{"traceId":"t","spanId":"b","parentSpanId":"a","name":"y"}]}]}]}"#;
        assert_eq!(
            render(&spans::read(circle.as_bytes()).unwrap(), Style::plain(80))
                .lines()
                .count(),
            2
        );
        assert_eq!(render(&[], Style::plain(80)), "");
        assert!(spans::read(b"{}").is_err() && spans::read(b"x").is_err());
    }
}
