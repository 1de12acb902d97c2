//! docs/architecture.md: its table of figures, and its list of files on a call's path.

use std::fs;
use std::io;
use std::path::Path;

/// The page's path from the root of the repository.
pub(crate) const PATH: &str = "docs/architecture.md";

/// The heading above the list of files, one line per folder: "- `folder`: `file`, `file`".
const CALL_FILES: &str = "### Files on the way of a call\n";

/// The text of the document.
pub(crate) struct Document(String);

impl Document {
    /// Reads the page.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        fs::read_to_string(root.join(PATH)).map(Self)
    }

    /// The files on the path of a `tools/call`, from the root of the repository.
    pub(crate) fn call_files(&self) -> Vec<String> {
        let Some((_, list)) = self.0.split_once(CALL_FILES) else {
            return Vec::new();
        };
        let list = list.split("\n#").next().unwrap_or_default();
        list.lines()
            .filter(|line| line.starts_with("- "))
            .flat_map(files_of_folder)
            .collect()
    }
}

/// The files in one line of the list.
fn files_of_folder(line: &str) -> Vec<String> {
    // Backticks enclose every second part.
    let mut names = line.split('`').skip(1).step_by(2);
    let folder = names.next().unwrap_or_default();
    names.map(|file| format!("{folder}/{file}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    /// The percentage by which a figure may differ from the table: not every change needs to update
    /// it.
    const TOLERANCE: usize = 4;

    const BEGIN: &str = "<!-- Made by `UPDATE_GENERATED=1 cargo test -p fanlight-figures`. -->\n";

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The values in the page's table.
    fn table_values(text: &str) -> Vec<usize> {
        let table = text
            .split_once(BEGIN)
            .unwrap()
            .1
            .split("<!--")
            .next()
            .unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
        rows.map(|row| {
            row.split('|')
                .nth(2)
                .unwrap()
                .trim()
                .replace(',', "")
                .parse()
                .unwrap()
        })
        .collect()
    }

    #[test]
    fn figures_are_within_their_bounds_and_near_the_table() {
        let figures = Figures::count(&root()).unwrap();
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            return fanlight_testkit::generated::assert_part(
                PATH,
                BEGIN,
                &format!("\n{}\n", figures.table()),
            );
        }
        for row in &figures.rows {
            assert!(
                row.bound.is_none_or(|bound| row.value <= bound),
                "{}: {} is more than the bound {:?}",
                row.name,
                row.value,
                row.bound
            );
        }
        let shown = table_values(&Document::read(&root()).unwrap().0);
        assert_eq!(
            shown.len(),
            figures.rows.len(),
            "{PATH} shows other figures"
        );
        for (row, shown) in figures.rows.iter().zip(shown) {
            let most = 1 + shown * TOLERANCE / 100;
            assert!(
                row.value.abs_diff(shown) <= most,
                "{}: {} counted, but {PATH} says {shown}; run this test with UPDATE_GENERATED=1",
                row.name,
                row.value
            );
        }
    }

    #[test]
    fn list_of_files_is_read_up_to_the_next_heading() {
        let text = format!(
            "# A\n- `x`: `y`\n{CALL_FILES}\nText.\n- `crates/a/src`: `b.rs`,\n`c/d.rs`\n## B\n- `x`: `y`\n"
        );
        assert_eq!(
            Document(text.replace(",\n`", ", `")).call_files(),
            ["crates/a/src/b.rs", "crates/a/src/c/d.rs"]
        );
    }

    #[test]
    fn files_on_the_way_of_a_call_exist_and_are_listed_once() {
        let mut files = Document::read(&root()).unwrap().call_files();
        assert!(
            files.len() > 20,
            "the list was not found in {PATH}: {files:?}"
        );
        for file in &files {
            assert!(
                root().join(file).is_file(),
                "{PATH} lists {file}, which does not exist"
            );
        }
        let count = files.len();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), count, "{PATH} lists a file twice");
    }
}
