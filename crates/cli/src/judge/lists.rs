//! Reads the lists of a server, page by page.

use std::collections::HashSet;
use std::time::Duration;

use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{Revision, estimated_tokens};
use serde_json::{Map, Value};

use crate::judge::client::Client;
use crate::judge::observed::{Observed, shorten};
use crate::judge::peer::{Answer, Broken};
use crate::judge::shape::{Shape, check_shape};
use crate::judge::{EntryReport, ListReport, rules};

/// The most pages of a list that are read.
const PAGES: usize = 1000;
/// The most entries of a list that are read.
const ENTRIES: usize = 50_000;
/// A list with more tokens takes much of a model's context.
const MANY_TOKENS: usize = 10_000;
/// Some clients refuse or cut lists with more tools.
const MANY_TOOLS: usize = 100;

/// Reads a list into its report. Returns how long it took.
pub(crate) async fn read(
    list: ListKind,
    client: &mut Client<'_>,
    report: &mut ListReport,
    observed: &mut Observed,
) -> Result<Duration, Broken> {
    let mut all = Duration::ZERO;
    let method = list.method();
    let mut cursor: Option<String> = None;
    let mut cursors = HashSet::new();
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let params = cursor
            .iter()
            .map(|cursor| ("cursor".to_owned(), Value::String(cursor.clone())));
        let (answer, took) = client
            .ask(method.as_str(), params.collect::<Map<_, _>>(), observed)
            .await?;
        all += took;
        let page = match answer {
            Answer::Result(page) => page,
            Answer::Error { code, message } => {
                // A server with resources need not have templates.
                let is_optional = list == ListKind::ResourceTemplates;
                let what =
                    "It declares a capability but answers the request for its list with an error.";
                let example = format!("{}: {code} {message}", method.as_str());
                if is_optional {
                    observed.note("list-error", what, example);
                } else {
                    observed.error("list-error", what, example);
                }
                break;
            }
        };
        report.pages += 1;
        check_shape(
            if !client.revision.result_members.is_empty() {
                Shape::ModernPage
            } else {
                Shape::Page
            },
            &page,
            observed,
        );
        report.ttl_ms = page["ttlMs"].as_u64().or(report.ttl_ms);
        match page.get(list.member()) {
            Some(Value::Array(more)) => entries.extend(more.iter().cloned()),
            _ => {
                let what = "The result of a list lacks the array with its entries.";
                observed.error(
                    "list-member",
                    what,
                    format!("{} without `{}`", method.as_str(), list.member()),
                );
            }
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        let Some(next) = &cursor else { break };
        if !cursors.insert(next.clone()) {
            let what =
                "A list has no end, because a cursor repeats. Clients that follow it never finish.";
            observed.error(
                "cursor-loop",
                what,
                format!("{}: {}", method.as_str(), shorten(next)),
            );
            // A repeated entry counts once.
            let mut known = HashSet::new();
            entries.retain(|entry| known.insert(entry.to_string()));
            break;
        }
        if report.pages >= PAGES || entries.len() >= ENTRIES {
            let what =
                "A list is too long to be read completely: gateways and clients stop somewhere.";
            observed.warn(
                "list-length",
                what,
                format!("{}: {} entries so far", method.as_str(), entries.len()),
            );
            break;
        }
    }
    judge(list, client.revision, &entries, report, observed);
    Ok(all)
}

fn judge(
    list: ListKind,
    revision: Revision,
    entries: &[Value],
    report: &mut ListReport,
    observed: &mut Observed,
) {
    let mut keys = HashSet::new();
    for entry in entries {
        let bytes = entry.to_string().len();
        let key = entry[list.key()].as_str().unwrap_or_default();
        let mut problems = rules::check_entry(list, revision, key, entry, observed);
        if !keys.insert(key) && !key.is_empty() {
            let what =
                "Two entries of a list have the same name or URI: only one of them can be used.";
            observed.error("duplicate", what, format!("{} {key}", list.member()));
            problems.push("the same name as another".to_owned());
        }
        report.bytes += bytes;
        report.entries.push(EntryReport {
            key: shorten(key),
            bytes,
            tokens: estimated_tokens(bytes),
            problems,
        });
    }
    report.tokens = estimated_tokens(report.bytes);
    let of_list = || list.method().as_str().to_owned();
    if report.tokens > MANY_TOKENS && list == ListKind::Tools {
        let what = "The list of tools is long: it takes a large part of a model's context in every conversation.";
        observed.warn(
            "list-tokens",
            what,
            format!("about {} tokens", report.tokens),
        );
    }
    if entries.len() > MANY_TOOLS && list == ListKind::Tools {
        let what =
            "There are more tools than some clients accept; a gateway can offer a part of them.";
        observed.warn("many-tools", what, format!("{} tools", entries.len()));
    }
    if entries.is_empty() && list != ListKind::ResourceTemplates && list != ListKind::Resources {
        observed.note(
            "empty-list",
            "It declares a capability but the list is empty.",
            of_list(),
        );
    }
    if !report.announces_changes {
        let what = "It does not announce changes (`listChanged`): clients and gateways find them late, by reading the list \
                    again.";
        observed.note("list-changed", what, of_list());
    }
    let is_announced = revision.has_sessions || report.announces_changes;
    if report.ttl_ms == Some(0) && !is_announced {
        let what = "`ttlMs` is 0 and changes are not announced: gateways read the list for every client again.";
        observed.warn("ttl-zero", what, of_list());
    }
}

/// The list with this member.
pub(crate) fn find_list(member: &str) -> Option<ListKind> {
    ListKind::ALL
        .into_iter()
        .find(|list| list.member() == member)
}

/// The capability that promises a list.
fn capability(list: ListKind) -> Option<&'static str> {
    match list {
        ListKind::Tools => Some("tools"),
        ListKind::Resources | ListKind::ResourceTemplates => Some("resources"),
        ListKind::Prompts => Some("prompts"),
        ListKind::Skills => None,
    }
}

/// Empty reports for the lists that these capabilities promise.
pub(crate) fn declared_lists(capabilities: &Value) -> Vec<ListReport> {
    let of = |list: ListKind| {
        let capability = capabilities
            .get(capability(list)?)
            .filter(|capability| !capability.is_null())?;
        Some(ListReport {
            kind: list.member().to_owned(),
            announces_changes: capability["listChanged"] == true,
            ..ListReport::default()
        })
    };
    ListKind::ALL.into_iter().filter_map(of).collect()
}
