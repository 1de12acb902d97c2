//! The offered tools of a server, and the visible items of endpoints.

use serde_json::{Value as Json, json};

use crate::definition::{Form, Visible};
use crate::option::{Each, Kind, Maybe, NameMap, Parsed, Reader, choice, options};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Span};

options! {
    /// Calls of a server's tools that need an approval. Patterns match the server's own names; `*`
    /// stands for any characters.
    pub struct Approval: "approval", "in `approval` of a server";
    options {
        /// The tools whose calls need approval.
        "tools" => tools: Vec<String> = Vec::new(), PATTERNS, example "[\"delete_*\"]";
        /// The approver of a call. `operator` is a person with the role `approver` or `operator` of
        /// the admin listener, `other` such a person who is certainly not the caller, and `caller`
        /// the person at the client, whom the client asks. A client that cannot ask leaves the
        /// approval to operators.
        "by" => by: ApproverChoice = ApproverChoice::Operator, APPROVER;
    }
}

choice! {
    /// The approver of a call.
    ApproverChoice, APPROVER {
        /// An operator or approver.
        Operator = "operator",
        /// An operator or approver who is certainly not the caller.
        Other = "other",
        /// The person at the client.
        Caller = "caller",
    }
}

/// Names or URIs, in which `*` stands for any characters.
pub(crate) const PATTERNS: Each<String> = Each(Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        if text.value.is_empty() {
            reader.error(
                text.span,
                "this name of a tool is empty",
                "write the name of a tool, or `*` for all",
            );
        }
        check_pattern(reader, text.span, &text.value);
        Some(text.value)
    },
    show: |pattern| json!(pattern),
});

/// Reports special characters of other programs' patterns, since such a pattern would match
/// nothing.
pub(crate) fn check_pattern(reader: &mut Reader<'_>, span: Span, pattern: &str) {
    let is_special = |&(at, c): &(usize, char)| match c {
        '[' | '{' => true,
        '?' => !begins_query(pattern, at),
        _ => false,
    };
    if let Some((_, special)) = pattern.char_indices().find(is_special) {
        let message = format!(
            "`{special}` has no meaning in the pattern {}: only `*` is special",
            quoted(pattern)
        );
        reader.error(
            span,
            message,
            "write `*`, which stands for any characters, or one pattern for each name",
        );
    }
}

/// Whether the `?` at this position of a pattern begins a URI's query: a name and `=` follow.
fn begins_query(pattern: &str, at: usize) -> bool {
    let (before, after) = pattern.split_at(at);
    let name = after
        .get(1..)
        .and_then(|query| query.split_once('='))
        .map_or("", |(name, _)| name);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.~%+".contains(c);
    before.contains(':') && !before.contains('?') && !name.is_empty() && name.chars().all(fits)
}

/// A mapping whose keys are patterns of names.
pub(crate) struct PatternMap<K>(pub(crate) NameMap<K>);

impl<K: Kind> Kind for PatternMap<K> {
    type Value = <NameMap<K> as Kind>::Value;

    fn form(&self) -> Form {
        self.0.form()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        for entry in entry.value.entries() {
            check_pattern(reader, entry.key_span, &entry.key);
        }
        self.0.read(reader, entry)
    }

    fn show(&self, value: &Self::Value) -> Json {
        self.0.show(value)
    }
}

options! {
    /// The items of one kind that a server or an endpoint shows. `*` stands for any characters.
    /// Patterns of a server match its own names; patterns of an endpoint match a server and its own
    /// name or URI: `git/log_*`, `log_*` for every server, or `git__log_*` with the server's
    /// prefix.
    pub struct EntryFilter: "filter", "in `tools`, `prompts` or `resources`";
    options {
        /// The shown items. Default: all.
        "allow" => allow: Option<Vec<String>> = None, Maybe(PATTERNS), example "[\"git__*\", \"files__read_*\"]";
        /// Hidden items, even if `allow` matches them.
        "deny" => deny: Vec<String> = Vec::new(), PATTERNS, example "[\"*delete*\"]";
    }
}
