//! The report about a server.

use fanlight_config::Transport;
use fanlight_protocol::Era;
use serde::Serialize;

/// The results of judging a server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The program that judged, with its version.
    pub judge: String,
    /// The time of judging.
    pub at: String,
    /// The server, without its arguments, path and query, because these may contain secrets.
    pub target: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Whether the server is usable and violates no rule of the specification.
    pub is_good: bool,
    /// The results in each era.
    pub eras: Vec<EraReport>,
    /// The findings for the server's author, the worst first.
    pub findings: Vec<Finding>,
}

/// The results of one era.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EraReport {
    /// `legacy` or `modern`.
    pub era: String,
    /// Whether it serves clients of this era.
    pub is_served: bool,
    /// The reason why the server does not serve the era.
    pub reason: Option<String>,
    /// The transport, if it differs from the report's: the deprecated `HTTP+SSE`.
    pub transport: Option<&'static str>,
    /// The negotiated revision.
    pub revision: Option<String>,
    /// All revisions that the server names, in the modern era.
    pub revisions: Vec<String>,
    /// The server's name and version.
    pub server: Option<Who>,
    /// The capabilities that it declares.
    pub capabilities: Vec<String>,
    /// The length of its instructions.
    pub instructions_bytes: usize,
    /// The lists.
    pub lists: Vec<ListReport>,
    /// The times of its answers.
    pub timings: Vec<Timing>,
    /// The times of small requests.
    pub pings: Option<Pings>,
}

/// A server's own name and version.
#[derive(Clone, Debug, Serialize)]
pub struct Who {
    /// `name`
    pub name: String,
    /// `version`
    pub version: String,
}

/// A list of a server.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListReport {
    /// The member with its entries, such as `tools`.
    pub kind: String,
    /// The entries.
    pub entries: Vec<EntryReport>,
    /// The size of all entries as JSON without white space.
    pub bytes: usize,
    /// The estimated number of tokens for a model.
    pub tokens: usize,
    /// The number of pages.
    pub pages: usize,
    /// How long clients may keep the list, in the modern era.
    pub ttl_ms: Option<u64>,
    /// Whether the server announces changes of the list.
    pub announces_changes: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryReport {
    /// The name or URI.
    pub key: String,
    /// The size as JSON without white space.
    pub bytes: usize,
    /// The estimated number of tokens for a model.
    pub tokens: usize,
    /// The faults of the entry.
    pub problems: Vec<String>,
}

/// The duration of one action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timing {
    /// The action.
    pub what: String,
    /// The duration in milliseconds.
    pub millis: f64,
}

/// The times of small requests, in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pings {
    /// The method.
    pub method: String,
    /// The number of requests.
    pub count: usize,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The maximum.
    pub max: f64,
}

/// The severity of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The server violates a rule of the specification, or is unusable.
    Error,
    /// The finding causes difficulties for some gateways or clients.
    Warning,
    /// A possible improvement.
    Note,
}

/// A fault that the author of the server may want to fix.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The name of the rule.
    pub rule: String,
    /// The fault, and how to fix it.
    pub what: String,
    /// The eras in which it occurred.
    #[serde(serialize_with = "era_names")]
    pub eras: Vec<Era>,
    /// Places, or texts of the server.
    pub examples: Vec<String>,
    /// How often it occurred in an era.
    pub count: usize,
}

fn era_names<S: serde::Serializer>(eras: &[Era], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(eras.iter().map(ToString::to_string))
}

impl Report {
    pub(crate) fn new(
        target: &Transport,
        at: String,
        eras: Vec<EraReport>,
        findings: Vec<Finding>,
    ) -> Self {
        let (target, transport) = match target {
            Transport::Stdio { command, args, .. } => (shown_command(command, args.len()), "stdio"),
            Transport::Http { url, .. } | Transport::Sse { url, .. } => (shown_url(url), "http"),
            Transport::Incomplete { .. } => (String::new(), "http"),
        };
        let judge = format!("fanlight {}", env!("CARGO_PKG_VERSION"));
        Self {
            judge,
            at,
            target,
            transport,
            is_good: false,
            eras,
            findings,
        }
    }

    /// Sorts the findings and decides whether the server is good.
    pub(crate) fn conclude(mut self) -> Self {
        if !self.is_served() && self.count(Severity::Error) == 0 {
            let reasons = self.eras.iter().filter_map(|era| era.reason.clone());
            self.findings.push(Finding {
                severity: Severity::Error,
                rule: "not-served".to_owned(),
                what: "It serves clients of neither era.".to_owned(),
                eras: vec![Era::Legacy, Era::Modern],
                examples: reasons.collect(),
                count: 1,
            });
        }
        self.findings
            .sort_by(|one, other| (one.severity, &one.rule).cmp(&(other.severity, &other.rule)));
        self.is_good = self.count(Severity::Error) == 0;
        self
    }

    /// Whether the server serves clients of either era.
    pub fn is_served(&self) -> bool {
        self.eras.iter().any(|era| era.is_served)
    }

    /// The number of findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }
}

fn shown_command(program: &str, arguments: usize) -> String {
    let name = std::path::Path::new(program)
        .file_name()
        .map_or(program.into(), |name| name.to_string_lossy());
    match arguments {
        0 => name.into_owned(),
        1 => format!("{name} (1 argument)"),
        several => format!("{name} ({several} arguments)"),
    }
}

/// The scheme, host and port of a URL.
fn shown_url(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(
        |_| "a URL".to_owned(),
        |url| url.origin().ascii_serialization(),
    )
}
