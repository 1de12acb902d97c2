//! Decides for each hop whether the trace context was propagated. It uses the gateway's spans and
//! the ids that the server's answer repeats.

use std::collections::BTreeSet;

use crate::observe::spans::{Kind, Span};

/// The ids that the client sent, in lower-case hexadecimal.
pub(super) struct Sent<'a> {
    pub(super) trace: &'a str,
    /// The span in `_meta`.
    pub(super) meta: &'a str,
    /// The span in the headers.
    pub(super) header: &'a str,
    pub(super) method: &'a str,
}

/// One hop of the message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) from: String,
    pub(super) to: String,
    /// The carriers of the trace context, or the reason why it was not propagated.
    pub(super) carried: Result<Vec<&'static str>, String>,
    /// The span recorded for the hop, if there is one.
    pub(super) span: Option<String>,
    /// Duration of the span in nanoseconds.
    pub(super) duration: u64,
    /// Further findings, one line each.
    pub(super) notes: Vec<String>,
}

/// The hops of the call, the client's first.
pub(super) fn judge(sent: &Sent<'_>, spans: &[Span], answer: &str) -> Vec<Hop> {
    let server = spans.iter().find(|span| {
        span.kind == Kind::Server
            && span.trace == sent.trace
            && span.attribute("mcp.method.name") == Some(sent.method)
    });
    let mut hops = vec![arrival(sent, server)];
    let Some(server) = server else { return hops };
    let calls: Vec<&Span> = spans
        .iter()
        .filter(|span| {
            span.kind == Kind::Client && span.attribute("mcp.method.name") == Some(sent.method)
        })
        .filter(|span| is_below(span, &server.id, spans))
        .collect();
    let repeated = repeated(answer, sent.trace);
    let spans_sent: Vec<&str> = calls
        .iter()
        .map(|call| call.id.as_str())
        .chain([sent.meta, sent.header])
        .collect();
    let strange: Vec<&str> = repeated
        .iter()
        .map(String::as_str)
        .filter(|id| !spans_sent.contains(id))
        .collect();
    for call in &calls {
        hops.push(departure(sent, server, call, &repeated, &strange));
    }
    if calls.is_empty() {
        hops.push(not_forwarded(server));
    }
    hops
}

fn arrival(sent: &Sent<'_>, server: Option<&Span>) -> Hop {
    let mut hop = hop("client", "fanlight", server);
    let Some(server) = server else {
        hop.carried = Err(
            "Fanlight started a trace of its own or recorded none: see `telemetry.trustInbound` \
             and `limits.traces` of its configuration"
                .to_owned(),
        );
        return hop;
    };
    let mut by = Vec::new();
    let is_linked = |id: &str| {
        server
            .links
            .iter()
            .any(|(trace, span)| trace == sent.trace && span == id)
    };
    for (carrier, id) in [("_meta", sent.meta), ("headers", sent.header)] {
        if server.parent.as_deref() == Some(id) {
            by.push(carrier);
            hop.notes.push(format!(
                "{carrier:<8} {id} is the parent of SERVER {}",
                server.id
            ));
        } else if is_linked(id) {
            by.push(carrier);
            hop.notes
                .push(format!("{carrier:<8} {id} is linked from it"));
        } else {
            hop.notes.push(format!("{carrier:<8} {id} did not arrive"));
        }
    }
    hop.carried = if by.contains(&"_meta") {
        Ok(by)
    } else {
        Err("the span in `_meta` did not become the parent".to_owned())
    };
    hop
}

fn departure(
    sent: &Sent<'_>,
    server: &Span,
    call: &Span,
    repeated: &BTreeSet<String>,
    strange: &[&str],
) -> Hop {
    let backend = call
        .attribute("fanlight.backend.name")
        .unwrap_or("a backend")
        .to_owned();
    let mut hop = hop("fanlight", &backend, Some(call));
    hop.notes
        .push(format!("CLIENT {} below SERVER {}", call.id, server.id));
    let by = match call.attribute("network.transport") {
        Some("pipe") => vec!["_meta"],
        _ => vec!["_meta", "headers"],
    };
    let not_sent = ["connect_failed", "overloaded", "ejected"];
    let error = call.attribute("error.type");
    hop.carried = if let Some(error) = error.filter(|error| not_sent.contains(error)) {
        Err(format!("nothing was sent: {error}"))
    } else if let Some(span) = strange.first() {
        Err(format!("the server's answer names another span, {span}"))
    } else {
        Ok(by)
    };
    hop.notes.push(if repeated.contains(&call.id) {
        "the answer repeats that span: the server received it".to_owned()
    } else if repeated.contains(sent.meta) {
        "the answer repeats the client's span: this gateway exports no spans, so it forwards the client's context"
            .to_owned()
    } else if repeated.contains(sent.header) {
        "the answer repeats the span of the client's headers".to_owned()
    } else {
        "not confirmed by the server: its answer does not repeat the span".to_owned()
    });
    hop.notes
        .extend(error.map(|error| format!("ended with {error}")));
    hop
}

fn not_forwarded(server: &Span) -> Hop {
    let mut hop = hop("fanlight", "backend", None);
    let error = server
        .attribute("error.type")
        .or_else(|| server.attribute("rpc.response.status_code"));
    let reason = match (server.attribute("fanlight.cache.hit"), error) {
        (Some("true"), _) => {
            "the answer came from the catalogue, not from a server: name a tool".to_owned()
        }
        (_, Some(error)) => format!("no server was called: {error}"),
        _ => "no server was called".to_owned(),
    };
    hop.carried = Err(reason);
    hop
}

fn hop(from: &str, to: &str, span: Option<&Span>) -> Hop {
    Hop {
        from: from.to_owned(),
        to: to.to_owned(),
        carried: Ok(Vec::new()),
        span: span.map(|span| span.id.clone()),
        duration: span.map(Span::duration).unwrap_or_default(),
        notes: Vec::new(),
    }
}

/// Whether `span` is a descendant of the span `top`.
fn is_below(span: &Span, top: &str, spans: &[Span]) -> bool {
    let mut at = span;
    // A chain cannot be longer than the number of spans.
    for _ in 0..spans.len() {
        match at.parent.as_deref() {
            Some(parent) if parent == top => return true,
            Some(parent) => match spans.iter().find(|span| span.id == parent) {
                Some(next) => at = next,
                None => return false,
            },
            None => return false,
        }
    }
    false
}

/// The spans of `trace` in a text's `traceparent` values.
fn repeated(text: &str, trace: &str) -> BTreeSet<String> {
    let before = format!("00-{trace}-");
    let spans = text
        .split(&before)
        .skip(1)
        .filter_map(|rest| rest.get(..16));
    spans
        .filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
