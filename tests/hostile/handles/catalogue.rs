//! Checks that the tests miss no kind of handle: docs/architecture.md lists the kinds with the
//! modules that keep them. Each module that knows owners or makes unguessable values is listed
//! there or below.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Kind, behaviour};

/// Words that occur in modules that know owners or make unguessable values.
const WORDS: [&str; 7] = [
    "Holder",
    "Principal",
    "Caller",
    "SessionKey",
    "owns_what_is_of",
    "new_id",
    "getrandom",
];

/// Modules that have one of the words but keep no handles, with the reason.
const NO_HANDLES: &[(&str, &str)] = &[
    ("admin::api::call", "makes the caller of an operator's call"),
    (
        "admin::operator",
        "knows whose client an operator would be, so that nobody approves their own call",
    ),
    (
        "frontend::trace",
        "says what tells the client of a request without a session",
    ),
    (
        "frontend::forwarding",
        "says to another replica who the client of a forwarded request is",
    ),
    (
        "frontend::http::reply",
        "gives a recording the number of the session that a response opens, which is no handle",
    ),
    (
        "gateway::approvals::answer",
        "an operator's answer, which only the admin listener takes",
    ),
    (
        "gateway::approvals",
        "the call that an approval is about, with its principal",
    ),
    (
        "gateway::approvals::table",
        "approvals are found by their call and principal; operators alone see their ids",
    ),
    (
        "gateway::mirror",
        "sends copies of calls, whose answers no client gets",
    ),
    (
        "backend::request::deadline",
        "shares permits among clients; nothing is named by a client",
    ),
    (
        "backend::listening::legacy",
        "subscribes for the listeners that `subscriptions` knows",
    ),
    (
        "backend::credentials",
        "gives a principal's credentials; keeps nothing",
    ),
    (
        "backend::subscriptions::joint_updates",
        "holds a change until all processes of a principal have announced it",
    ),
    (
        "backend::subscriptions::task_progress",
        "progress of calls that have become tasks, for their own caller",
    ),
    (
        "backend::subscriptions::unsolicited",
        "what comes on a connection is for its owner",
    ),
    (
        "backend::tasks",
        "translates tasks for the caller that `owners` knows",
    ),
    (
        "backend::tasks::plain_client",
        "follows a task for the caller that has made it",
    ),
    (
        "frontend::gates::approval",
        "has somebody agree to a call of its own caller; no request takes the id of the question",
    ),
    (
        "frontend::call::input_rounds",
        "ids that name elicitations to a client; no request takes them",
    ),
    (
        "frontend::gates",
        "decides what a caller may do; keeps nothing",
    ),
    (
        "frontend::gates::rights",
        "decides what a caller may do; keeps nothing",
    ),
    (
        "frontend::http::mcp::sse_transport",
        "looks for the sessions of the holder that asks",
    ),
    (
        "frontend::ingress",
        "makes the holder that handles are compared with",
    ),
    (
        "frontend::ingress::request",
        "makes the caller of a request",
    ),
    (
        "gateway::catalogue::announce",
        "tells principals that their own lists have changed",
    ),
    (
        "gateway::topology",
        "asks which version of a server serves a caller; keeps nothing",
    ),
    (
        "gateway::topology::view",
        "names those whose lists are shown, which no request names",
    ),
    (
        "gateway::catalogue::view",
        "opens cursors for the holder that asks",
    ),
    (
        "gateway::catalogue::watch",
        "remembers for a moment which sessions a server has told, which no request names",
    ),
    ("gateway::gateway", "passes the end of a session on"),
    (
        "admin::api::session",
        "begins and ends the sessions of operators, which `admin::operator` keeps",
    ),
    (
        "backend::listening::worker",
        "sends what waited for a session's connection; keeps nothing",
    ),
    (
        "backend::transport::http::headers",
        "adds headers of the caller's own request; keeps nothing",
    ),
    (
        "backend::transport::http::endpoint",
        "sends with headers of the caller's own request; keeps nothing",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The kinds in docs/architecture.md with their modules.
fn documented() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = text
        .split("\n## Handles\n")
        .nth(1)
        .expect("the section on handles");
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        (
            cells[0].to_owned(),
            cells[1]
                .split(", ")
                .map(|module| module.trim_matches('`').to_owned())
                .collect(),
        )
    })
    .collect()
}

/// The modules of these crates with their text, without their tests.
fn modules(crates: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for crate_name in crates.iter().copied() {
        let source = root().join("crates").join(crate_name).join("src");
        let mut folders = vec![source.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let parts = path.strip_prefix(&source).unwrap().with_extension("");
                let parts: Vec<&str> = parts.iter().map(|part| part.to_str().unwrap()).collect();
                let is_test = parts.iter().any(|part| {
                    part.starts_with("test") || part.ends_with("_test") || part.ends_with("_tests")
                });
                if path.extension().is_none_or(|extension| extension != "rs") || is_test {
                    continue;
                }
                let parts = parts.into_iter().filter(|part| *part != "mod");
                let name = [crate_name]
                    .into_iter()
                    .chain(parts)
                    .collect::<Vec<_>>()
                    .join("::");
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let code = code
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"));
                found.push((name, code.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    found
}

fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        !is_part(code[..at].chars().next_back()) && !is_part(code[at + word.len()..].chars().next())
    })
}

#[test]
fn every_documented_kind_is_tried() {
    let tried: BTreeSet<String> = Kind::ALL
        .iter()
        .map(|kind| kind.name())
        .chain(behaviour::KINDS)
        .map(str::to_owned)
        .collect();
    let documented: BTreeSet<String> = documented().into_keys().collect();
    assert_eq!(tried, documented, "docs/architecture.md, Handles");
}

#[test]
fn every_module_that_knows_owners_keeps_a_documented_kind() {
    let documented: BTreeSet<String> = documented().into_values().flatten().collect();
    // The crates that clients reach, and the crates that those share.
    let (modules, common) = (
        modules(&["admin", "backend", "frontend", "gateway"]),
        modules(&["canonical"]),
    );
    let names: BTreeSet<&str> = modules
        .iter()
        .chain(&common)
        .map(|(name, _)| name.as_str())
        .collect();
    let unknown: Vec<&String> = documented
        .iter()
        .filter(|module| !names.contains(module.as_str()))
        .collect();
    assert!(
        unknown.is_empty(),
        "modules in docs/architecture.md that do not exist: {unknown:?}"
    );
    let knows = |code: &str| WORDS.iter().any(|word| has_word(code, word));
    let excused = |name: &str| NO_HANDLES.iter().any(|(module, _)| *module == name);
    let missing: Vec<&String> = modules
        .iter()
        .filter(|(name, code)| knows(code) && !documented.contains(name) && !excused(name))
        .map(|(name, _)| name)
        .collect();
    assert!(
        missing.is_empty(),
        "these modules know whose something is: list the handles that they keep in docs/architecture.md and try them, or \
         say here why they keep none: {missing:?}"
    );
    let idle: Vec<&str> = NO_HANDLES
        .iter()
        .map(|(module, _)| *module)
        .filter(|module| {
            !modules
                .iter()
                .any(|(name, code)| name == module && knows(code))
        })
        .collect();
    assert!(idle.is_empty(), "excused without need: {idle:?}");
}
