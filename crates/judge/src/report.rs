//! The facts that a check collects about a server.

use fanlight_protocol::Era;
use serde::Serialize;

use crate::Target;

/// Everything that is found out about a server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The program that judged.
    pub judge: String,
    /// When it did.
    pub at: String,
    /// The server, without its arguments, path and query, in which secrets may be.
    pub target: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Whether it can be used, and breaks no rule of the specification.
    pub is_good: bool,
    /// What it does in each era.
    pub eras: Vec<EraReport>,
    /// What its author may want to change, the worst first.
    pub findings: Vec<Finding>,
}

/// What a server does in one era.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EraReport {
    /// `legacy` or `modern`.
    pub era: String,
    /// Whether it serves clients of this era.
    pub is_served: bool,
    /// Why it does not.
    pub reason: Option<String>,
    /// The transport, where it is another one than that of the report: the deprecated `HTTP+SSE`.
    pub transport: Option<&'static str>,
    /// The revision that was agreed on.
    pub revision: Option<String>,
    /// All revisions that it names, in the modern era.
    pub revisions: Vec<String>,
    /// Who it says it is.
    pub server: Option<Who>,
    /// The capabilities that it declares.
    pub capabilities: Vec<String>,
    /// The length of its instructions.
    pub instructions_bytes: usize,
    /// Its lists.
    pub lists: Vec<ListReport>,
    /// How long its answers took.
    pub timings: Vec<Timing>,
    /// How long small requests took.
    pub pings: Option<Pings>,
}

/// Who a server says it is.
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
    /// How many tokens of a model that is, about.
    pub tokens: usize,
    /// The pages that it took to read it.
    pub pages: usize,
    /// How long it may be kept, in the modern era.
    pub ttl_ms: Option<u64>,
    /// Whether changes of it are announced.
    pub announces_changes: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryReport {
    /// Its name or URI.
    pub key: String,
    /// Its size as JSON without white space.
    pub bytes: usize,
    /// How many tokens of a model that is, about.
    pub tokens: usize,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// How long something took.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timing {
    /// What.
    pub what: String,
    /// In milliseconds.
    pub millis: f64,
}

/// How long small requests took, in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pings {
    /// The method.
    pub method: String,
    /// How many there were.
    pub count: usize,
    /// Half of them took at most this.
    pub p50: f64,
    /// 95 of 100 took at most this.
    pub p95: f64,
    /// None took more than this.
    pub max: f64,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It breaks a rule of the specification, or cannot be used.
    Error,
    /// Some gateways or clients will trip on it.
    Warning,
    /// It could be better.
    Note,
}

impl Severity {
    /// As a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something that the author of the server may want to change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The name of the rule that it is about.
    pub rule: String,
    /// What is wrong, and what to do.
    pub what: String,
    /// The eras in which it was seen.
    #[serde(serialize_with = "era_names")]
    pub eras: Vec<Era>,
    /// Where, or what the server said.
    pub examples: Vec<String>,
    /// How often it was seen in an era.
    pub count: usize,
}

fn era_names<S: serde::Serializer>(eras: &[Era], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(eras.iter().map(ToString::to_string))
}

impl Report {
    pub(crate) fn new(
        target: &Target,
        at: String,
        eras: Vec<EraReport>,
        findings: Vec<Finding>,
    ) -> Self {
        let (target, transport) = match target {
            Target::Command { program, arguments } => {
                (shown_command(program, arguments.len()), "stdio")
            }
            Target::Url { url, .. } => (shown_url(url), "http"),
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

    /// Sorts the findings, and judges.
    pub(crate) fn judged(mut self) -> Self {
        let has_errors = self
            .findings
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        if !self.is_served() && !has_errors {
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
        self.findings.sort_by(|one, other| {
            one.severity
                .cmp(&other.severity)
                .then_with(|| one.rule.cmp(&other.rule))
        });
        self.is_good = self.is_served()
            && !self
                .findings
                .iter()
                .any(|finding| finding.severity == Severity::Error);
        self
    }

    /// Whether it serves clients of either era.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.eras.iter().any(|era| era.is_served)
    }

    /// The number of findings of this severity.
    #[must_use]
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

/// Scheme, host and port.
fn shown_url(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(
        |_| "a URL".to_owned(),
        |url| url.origin().ascii_serialization(),
    )
}

/// An estimate of the tokens of a model: four bytes of English text or JSON are about one.
pub(crate) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}
