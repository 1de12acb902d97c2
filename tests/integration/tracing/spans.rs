//! Reads the spans in the `--trace-file`.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{TempFile, within};

pub(super) const INTERNAL: u8 = 1;
pub(super) const SERVER: u8 = 2;
pub(super) const CLIENT: u8 = 3;

/// The interval for polling the file, since appended lines cause no event.
const POLL: Duration = Duration::from_millis(20);

/// A client's `traceparent`, of a different trace for each number.
pub(super) fn from_client(number: u32, flags: &str) -> String {
    format!("00-4bf92f3577b34da6a3ce929d{number:08x}-00f067aa{number:08x}-{flags}")
}

/// The second and third field of a `traceparent`: trace and span.
pub(super) fn ids(traceparent: &str) -> (&str, &str) {
    let mut fields = traceparent.split('-').skip(1);
    (fields.next().unwrap(), fields.next().unwrap())
}

/// The file to which a gateway writes its spans.
pub(super) struct TraceFile {
    _folder: TempFile,
    path: String,
}

impl TraceFile {
    pub(super) fn new() -> Self {
        let folder = TempFile::folder();
        let path = folder
            .path()
            .join("traces.jsonl")
            .to_str()
            .unwrap()
            .to_owned();
        Self {
            _folder: folder,
            path,
        }
    }

    /// The arguments for the gateway.
    pub(super) fn arguments(&self) -> [&str; 2] {
        ["--trace-file", &self.path]
    }

    /// Waits for the spans of the trace of `traceparent` until it has one of each wanted kind and
    /// name.
    pub(super) async fn trace(&self, traceparent: &str, wanted: &[(u8, &str)]) -> Trace {
        let trace_id = ids(traceparent).0;
        let mut of_it = Trace(Vec::new());
        within(&format!("spans {wanted:?} of trace {trace_id}"), async {
            while of_it.0.is_empty()
                || wanted
                    .iter()
                    .any(|(kind, name)| of_it.all(*kind, name).is_empty())
            {
                tokio::time::sleep(POLL).await;
                of_it.0 = self.spans();
                of_it.0.retain(|span| span.0["traceId"] == trace_id);
            }
        })
        .await;
        of_it
    }

    /// The first span of this kind and name in any trace.
    pub(super) async fn first(&self, kind: u8, name: &str) -> Span {
        within(&format!("a span {name}"), async {
            loop {
                match Trace(self.spans()).all(kind, name).first() {
                    Some(first) => return (*first).clone(),
                    None => tokio::time::sleep(POLL).await,
                }
            }
        })
        .await
    }

    fn spans(&self) -> Vec<Span> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        // The last line may be incomplete.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let each = |value: &Value, member: &str| value[member].as_array().unwrap().clone();
        lines
            .flat_map(|line| each(&line, "resourceSpans"))
            .flat_map(|resource| each(&resource, "scopeSpans"))
            .flat_map(|scope| each(&scope, "spans"))
            .map(Span)
            .collect()
    }
}

/// Spans of one trace, in the order in which they ended.
#[derive(Debug)]
pub(super) struct Trace(pub(super) Vec<Span>);

impl Trace {
    pub(super) fn all(&self, kind: u8, name: &str) -> Vec<&Span> {
        self.0
            .iter()
            .filter(|span| span.0["kind"] == kind && span.0["name"] == name)
            .collect()
    }

    /// The only span of this kind and name.
    pub(super) fn one(&self, kind: u8, name: &str) -> &Span {
        let all = self.all(kind, name);
        assert_eq!(
            all.len(),
            1,
            "spans of kind {kind} called {name:?} in {self:#?}"
        );
        all[0]
    }
}

/// One span in OTLP-JSON.
#[derive(Clone)]
pub(super) struct Span(pub(super) Value);

impl Span {
    pub(super) fn id(&self) -> &str {
        self.0["spanId"].as_str().unwrap()
    }

    pub(super) fn parent(&self) -> &str {
        self.0["parentSpanId"].as_str().unwrap_or_default()
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.0["flags"].as_u64().unwrap() & 1 == 1
    }

    /// The linked spans, as in a `traceparent` without version and flags.
    pub(super) fn links(&self) -> Vec<String> {
        let links = self.0["links"].as_array().unwrap().iter();
        let text = |link: &Value, member: &str| link[member].as_str().unwrap().to_owned();
        links
            .map(|link| format!("{}-{}", text(link, "traceId"), text(link, "spanId")))
            .collect()
    }

    /// The attribute, which may occur at most once.
    pub(super) fn attribute(&self, key: &str) -> Option<&Value> {
        let mut found = self.0["attributes"]
            .as_array()?
            .iter()
            .filter(|attribute| attribute["key"] == key);
        let first = found.next().map(|attribute| &attribute["value"]);
        assert!(found.next().is_none(), "{key} twice in {self:#?}");
        first
    }

    /// A text attribute.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.attribute(key)?["stringValue"].as_str()
    }

    /// `error.type`, which requires the status ERROR.
    pub(super) fn error(&self) -> Option<&str> {
        let error = self.text("error.type");
        assert_eq!(error.is_some(), self.0["status"]["code"] == 2, "{self:#?}");
        error
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}
