//! Promises name the tests that show them.
//!
//! In the pages about security, a sentence with "never", "nobody", "nothing" or "certainly" is a
//! promise. Its paragraph, item or row names a test in a comment, `<!-- test: SUITE::NAME -->`, or
//! stands in a table with a column of tests. A name is a suite of `tests/` or a crate, then files,
//! modules or functions of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::page::{Page, files_below, root};

const PAGES: [&str; 8] = [
    "api",
    "approvals",
    "audit",
    "pins",
    "policy",
    "replicas",
    "secrets",
    "security",
];

/// The suite of names in tables without another one.
const USUAL: &str = "hostile";

const PROMISING: [&str; 4] = ["never", "nobody", "nothing", "certainly"];

#[test]
fn promises_name_their_tests() {
    let mut sources = Sources::default();
    let mut faults = Vec::new();
    for name in PAGES {
        let page = Page::read(Path::new(&format!("docs/{name}.md")));
        for promise in page.statements() {
            let place = format!("{}:{}", page.path.display(), promise.line);
            if promise.tests.is_empty() && makes_a_promise(&promise.text) {
                faults.push(format!("{place}: no test of: {}", promise.text));
            }
            let unknown = promise.tests.iter().filter(|test| !sources.have(test));
            faults.extend(unknown.map(|test| format!("{place}: there is no test {test}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn makes_a_promise(text: &str) -> bool {
    text.split(|sign: char| !sign.is_alphanumeric())
        .any(|word| PROMISING.contains(&word.to_lowercase().as_str()))
}

/// The text of the suites, read once.
#[derive(Default)]
struct Sources(BTreeMap<String, Vec<(String, String)>>);

impl Sources {
    /// Whether a suite has each part of a name, and a test in the last part.
    fn have(&mut self, test: &str) -> bool {
        let full = match test.contains("::") {
            true => test.to_owned(),
            false => format!("{USUAL}::{test}"),
        };
        let mut parts = full.split("::");
        let suite = parts.next().unwrap_or_default();
        let files = self
            .0
            .entry(suite.to_owned())
            .or_insert_with(|| read(suite));
        let parts: Vec<&str> = parts.collect();
        let Some((last, folders)) = parts.split_last() else {
            return false;
        };
        files.iter().any(|(path, text)| {
            let segments: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
            let within =
                |part: &&str| segments.contains(part) || text.contains(&format!("mod {part} {{"));
            folders.iter().all(within)
                && (within(last) && text.lines().any(is_test) || has_test(text, last))
        })
    }
}

/// Whether a line is an attribute like `#[test]` or `#[tokio::test(start_paused = true)]`.
fn is_test(line: &str) -> bool {
    line.trim_start()
        .strip_prefix("#[")
        .and_then(|line| line.split(['(', ']']).next())
        .is_some_and(|path| path.rsplit("::").next() == Some("test"))
}

fn has_test(text: &str, function: &str) -> bool {
    let before = text
        .split_once(&format!("fn {function}("))
        .map(|(before, _)| before);
    before.is_some_and(|before| before.lines().rev().take(4).any(is_test))
}

fn read(suite: &str) -> Vec<(String, String)> {
    let folders = ["tests", "crates"].map(|parent| format!("{parent}/{suite}"));
    let folder = folders.iter().find(|folder| root().join(folder).is_dir());
    let files = folder.into_iter().flat_map(|folder| files_below(folder));
    files
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            (path.to_string_lossy().into_owned(), text)
        })
        .collect()
}
