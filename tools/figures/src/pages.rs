//! The length of the documentation.

use std::fs;
use std::io;
use std::path::Path;

/// Pages made from definitions or measurements, whose length nobody chooses.
const MADE: [&str; 3] = ["benchmark.md", "cli.md", "configuration.md"];

/// Counts the words of the pages in `folder` and below it, without code, tables and pages that are made.
pub(crate) fn words(folder: &Path) -> io::Result<usize> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            sum += words(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "md")
            && !MADE.iter().any(|made| name == *made)
        {
            sum += words_of(&fs::read_to_string(path)?);
        }
    }
    Ok(sum)
}

fn words_of(page: &str) -> usize {
    let mut is_code = false;
    page.lines()
        .map(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            let counts = !is_fence && !is_code && !line.starts_with('|');
            if counts {
                line.split_whitespace().count()
            } else {
                0
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_tables_do_not_count() {
        let page = "# One two\n\nThree four.\n```sh run\nfive\n```\n| six | seven |\n- eight\n";
        assert_eq!(words_of(page), 3 + 2 + 2);
    }
}
