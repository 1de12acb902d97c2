//! Checks that links between pages lead to existing files and headings, on GitHub and on the site.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::page::{Page, files_below, root};

/// Addresses of files in the repository, by which pages of the site link to files outside of it.
const REPOSITORY: [&str; 2] = [
    "https://github.com/fanlight-mcp/fanlight/blob/main/",
    "https://github.com/fanlight-mcp/fanlight/tree/main/",
];

/// The broken links of these pages; `exists` knows the other files.
fn broken(pages: &[Page], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&Path, Vec<String>> = pages
        .iter()
        .map(|page| (page.path.as_path(), page.anchors()))
        .collect();
    let mut wrong = Vec::new();
    for page in pages {
        let is_on_site = page.path.starts_with("docs");
        for link in page.links() {
            let mut say = |what: &str| {
                wrong.push(format!(
                    "{}:{}: {}: {what}",
                    page.path.display(),
                    link.line,
                    link.target
                ));
            };
            let (file, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let inside = REPOSITORY
                .iter()
                .find_map(|address| file.strip_prefix(address));
            let path = match inside {
                Some(path) => PathBuf::from(path.trim_end_matches('/')),
                None if file.contains(':') => continue,
                None if file.is_empty() => page.path.clone(),
                None => normal(&page.path.parent().unwrap().join(file)),
            };
            if inside.is_none() && is_on_site && !path.starts_with("docs") {
                say("is not on the site: link to the repository by its address");
            } else if !exists(&path) {
                say("does not exist");
            } else if !anchor.is_empty()
                && !anchors
                    .get(path.as_path())
                    .is_some_and(|all| all.iter().any(|one| one == anchor))
            {
                say("has no such heading");
            }
        }
    }
    wrong
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let wrong = broken(&Page::all(), |path| root().join(path).exists());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let pages = [
        Page::parse(
            "docs/a.md",
            "# One\n\n[x](b.md#two) [x](#one) [x](https://example.com/nothing) [x](images/i.png)\n",
        ),
        Page::parse(
            "docs/b.md",
            "# Two\n\n[x](a.md#three)\n\n[x](c.md)\n\n[x](../README.md)\n",
        ),
        Page::parse(
            "README.md",
            "[x](docs/a.md#one) [x](https://github.com/fanlight-mcp/fanlight/blob/main/deploy/none)\n",
        ),
    ];
    let exists = |path: &Path| {
        ["docs/a.md", "docs/b.md", "docs/images/i.png", "README.md"]
            .iter()
            .any(|one| path == Path::new(one))
    };
    let lines: Vec<String> = broken(&pages, exists)
        .iter()
        .map(|wrong| wrong.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        lines,
        ["docs/b.md:3", "docs/b.md:5", "docs/b.md:7", "README.md:1"]
    );
}

/// mdBook renders only the pages in SUMMARY.md.
#[test]
fn every_page_is_in_the_contents_once() {
    let summary = Page::read(Path::new("docs/SUMMARY.md"));
    let listed: Vec<PathBuf> = summary
        .links()
        .iter()
        .map(|link| Path::new("docs").join(&link.target))
        .collect();
    let unique: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let pages = Page::all();
    let on_site: BTreeSet<&PathBuf> = pages
        .iter()
        .map(|page| &page.path)
        .filter(|path| path.starts_with("docs") && *path != &summary.path)
        .collect();
    assert_eq!(unique, on_site);
}

/// Code, comments and messages name pages, too.
#[test]
fn pages_that_code_names_exist() {
    let mut wrong = Vec::new();
    for path in ["crates", "tests", "deploy", "config", "fuzz"]
        .into_iter()
        .flat_map(files_below)
    {
        let is_text = path.extension().is_some_and(|end| {
            ["rs", "yaml", "json", "js", "mjs", "py", "md", "toml"]
                .iter()
                .any(|one| end == *one)
        });
        if !is_text || path.starts_with("tests/docs") {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(&path)) else {
            continue;
        };
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|letter: char| {
                !letter.is_ascii_alphanumeric() && !['-', '_', '/', '.'].contains(&letter)
            });
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if name.ends_with(".md") && !root().join("docs").join(name).exists() {
                wrong.push(format!("{}: docs/{name}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "pages that do not exist:\n{}",
        wrong.join("\n")
    );
}
