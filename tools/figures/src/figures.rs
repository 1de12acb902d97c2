//! The figures, and the table that shows them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::document::Document;
use crate::pages;
use crate::sources;

/// The counted figures.
#[derive(Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) rows: Vec<Row>,
}

/// One figure.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) value: usize,
    /// The largest value that the figure may have, if there is a bound. It is lowered when the value
    /// falls, and raised only in a commit that does nothing else and says why.
    pub(crate) bound: Option<usize>,
}

impl Figures {
    /// Counts the code below `root`.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub(crate) fn count(root: &Path) -> io::Result<Self> {
        let sources = sources::read(root)?;
        let mut files: Vec<_> = sources.iter().map(|source| source.code.lines).collect();
        let mut functions: Vec<_> = sources
            .iter()
            .flat_map(|source| &source.code.functions)
            .copied()
            .collect();
        let crates = fs::read_dir(root.join("crates"))?.count();
        files.sort_unstable();
        functions.sort_unstable();
        let row = |name, value, bound| Row { name, value, bound };
        Ok(Self {
            rows: vec![
                row(
                    "tokens of the program, without comments and tests",
                    sources.iter().map(|source| source.code.tokens).sum(),
                    Some(981_700),
                ),
                row(
                    "lines of code of the program",
                    sources.iter().map(|source| source.code.lines).sum(),
                    None,
                ),
                row("crates", crates, Some(20)),
                row(
                    "words of `docs`, without code, tables and generated pages",
                    pages::words(&root.join("docs"))?,
                    Some(29_700),
                ),
                row(
                    "lines of the README",
                    fs::read_to_string(root.join("README.md"))?.lines().count(),
                    Some(120),
                ),
                row("packages of the program", packages(root)?, Some(375)),
                row("lines of a file, median", percentile(&files, 50), None),
                row(
                    "lines of a function, median",
                    percentile(&functions, 50),
                    None,
                ),
                row(
                    "lines of a function, 90th percentile",
                    percentile(&functions, 90),
                    Some(28),
                ),
                row(
                    "options of the configuration",
                    fanlight_config::option_count(),
                    Some(217),
                ),
                row(
                    "files on the way of a `tools/call`",
                    Document::read(root)?.call_files().len(),
                    Some(60),
                ),
            ],
        })
    }

    /// The figures as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table = "| figure | value | bound |\n|---|--:|--:|\n".to_owned();
        for Row { name, value, bound } in &self.rows {
            let bound = bound.map_or_else(String::new, |bound| format!("≤ {}", grouped(bound)));
            _ = writeln!(table, "| {name} | {} | {bound} |", grouped(*value));
        }
        table
    }
}

/// Counts the packages that the program is compiled from on Linux, with its default features.
fn packages(root: &Path) -> io::Result<usize> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--package", "fanlight"])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}"])
        .current_dir(root)
        .output()?;
    if !tree.status.success() {
        let problem = String::from_utf8_lossy(&tree.stderr).into_owned();
        return Err(io::Error::other(problem));
    }
    let lines = String::from_utf8_lossy(&tree.stdout);
    // Cargo repeats packages, and marks some lines after the name and the version.
    let packages: BTreeSet<_> = lines
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>())
        .collect();
    Ok(packages.len())
}

/// The smallest value that `percent` of the sorted `values` do not exceed.
fn percentile(values: &[usize], percent: usize) -> usize {
    let rank = (values.len() * percent).div_ceil(100);
    values
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

/// `number` with a comma between thousands.
fn grouped(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_a_value_of_the_list() {
        let values: Vec<_> = (1..=10).collect();
        assert_eq!(
            [0, 50, 90, 91, 100].map(|percent| percentile(&values, percent)),
            [1, 5, 9, 10, 10]
        );
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 72_005, 1_000_000].map(grouped),
            ["0", "999", "1,000", "72,005", "1,000,000"]
        );
    }
}
