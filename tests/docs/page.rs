//! The pages of the documentation, as Markdown.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};

use crate::block::Block;

/// One Markdown file of the repository.
pub(crate) struct Page {
    /// The path below the root of the repository.
    pub(crate) path: PathBuf,
    text: String,
}

/// A link or an image.
pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) line: usize,
}

/// A paragraph, an item or a row, and the tests that it names.
#[derive(Default)]
pub(crate) struct Statement {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) tests: Vec<String>,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// All files below a folder of the repository, in order, without files that version control
/// ignores.
pub(crate) fn files_below(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder))
            .unwrap()
            .map(Result::unwrap)
        {
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true if ["node_modules", "target", ".venv", "__pycache__"]
                    .iter()
                    .any(|name| path.ends_with(name)) => {}
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

impl Page {
    /// The pages for users and contributors.
    pub(crate) fn all() -> Vec<Self> {
        let at_root = [
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
        ]
        .map(PathBuf::from);
        let below = ["docs", "deploy"].into_iter().flat_map(files_below);
        let pages = at_root
            .into_iter()
            .chain(below.filter(|path| path.extension().is_some_and(|end| end == "md")));
        pages.map(|path| Self::read(&path)).collect()
    }

    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(root().join(path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            path: path.to_owned(),
            text,
        }
    }

    #[cfg(test)]
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    /// The Markdown text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        Parser::new_ext(
            &self.text,
            Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH,
        )
        .into_offset_iter()
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset].matches('\n').count()
    }

    /// The anchors of the page's headings, as both GitHub and mdBook make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut heading: Option<String> = None;
        let mut seen = BTreeMap::<String, usize>::new();
        let mut anchors = Vec::new();
        for (event, _) in self.events() {
            match (event, &mut heading) {
                (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
                (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
                (Event::End(TagEnd::Heading(_)), Some(text)) => {
                    let name = anchor(text);
                    let count = seen.entry(name.clone()).or_default();
                    anchors.push(if *count == 0 {
                        name
                    } else {
                        format!("{name}-{count}")
                    });
                    *count += 1;
                    heading = None;
                }
                _ => {}
            }
        }
        anchors
    }

    /// All links and images, including those in HTML.
    pub(crate) fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for (event, range) in self.events() {
            let line = self.line(range.start);
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(Link {
                        target: dest_url.into_string(),
                        line,
                    });
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    links.extend(html_links(&html).map(|target| Link { target, line }));
                }
                _ => {}
            }
        }
        links
    }

    /// Paragraphs, items and rows. Their tests stand in comments (`<!-- test: A, B -->`), or in the
    /// column `test`, which is the last one of its table.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        let mut statements: Vec<Statement> = Vec::new();
        let (mut cell, mut names_tests, mut in_code_block) = (String::new(), false, false);
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(_)) => in_code_block = true,
                Event::End(TagEnd::CodeBlock) => in_code_block = false,
                Event::Start(
                    Tag::Paragraph
                    | Tag::Item
                    | Tag::TableHead
                    | Tag::TableRow
                    | Tag::Heading { .. },
                ) => statements.push(Statement {
                    line: self.line(range.start),
                    ..Statement::default()
                }),
                Event::Start(Tag::TableCell) => cell.clear(),
                Event::End(TagEnd::TableHead) => names_tests = cell == "test",
                Event::End(TagEnd::TableRow) if names_tests => {
                    let names = cell.split('`').skip(1).step_by(2).map(str::to_owned);
                    statements.last_mut().unwrap().tests.extend(names);
                }
                Event::Code(code) => cell.push_str(&format!("`{code}`")),
                Event::Html(html) | Event::InlineHtml(html) => {
                    let names = html
                        .trim()
                        .strip_prefix("<!-- test: ")
                        .and_then(|html| html.strip_suffix(" -->"));
                    if let (Some(names), Some(last)) = (names, statements.last_mut()) {
                        last.tests.extend(names.split(", ").map(str::to_owned));
                    }
                }
                Event::Text(text) if !in_code_block => {
                    cell.push_str(&text);
                    if let Some(last) = statements.last_mut() {
                        last.text.push_str(&text);
                    }
                }
                Event::SoftBreak => {
                    if let Some(last) = statements.last_mut() {
                        last.text.push(' ');
                    }
                }
                _ => {}
            }
        }
        statements
    }

    /// The lines of table rows that a blank line has cut off from their table.
    fn stray_rows(&self) -> Vec<usize> {
        let paragraphs = self
            .events()
            .filter(|(event, _)| matches!(event, Event::Start(Tag::Paragraph)));
        paragraphs
            .filter(|(_, range)| self.text[range.clone()].starts_with('|'))
            .map(|(_, range)| self.line(range.start))
            .collect()
    }

    /// The commands of Fanlight within sentences, with their lines; commands of earlier versions
    /// are left out.
    pub(crate) fn commands(&self) -> Vec<(usize, String)> {
        let commands = self.events().filter_map(|(event, range)| match event {
            Event::Code(code)
                if code.starts_with("fanlight ") && self.path != Path::new("CHANGELOG.md") =>
            {
                Some((self.line(range.start), code.into_string()))
            }
            _ => None,
        });
        commands.collect()
    }

    /// All blocks of code.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(String, usize, String)> = None;
        for (event, range) in self.events() {
            match (event, &mut open) {
                (Event::Start(Tag::CodeBlock(kind)), _) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info,
                        CodeBlockKind::Indented => CowStr::Borrowed(""),
                    };
                    open = Some((info.into_string(), self.line(range.start), String::new()));
                }
                (Event::Text(text), Some((_, _, block))) => block.push_str(&text),
                (Event::End(TagEnd::CodeBlock), _) => {
                    let (info, line, text) = open.take().unwrap();
                    blocks.push(Block::new(
                        format!("{}:{line}", self.path.display()),
                        &info,
                        text,
                    ));
                }
                _ => {}
            }
        }
        blocks
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The addresses in the attributes of HTML.
fn html_links(html: &str) -> impl Iterator<Item = String> {
    let values = |name: &'static str| {
        html.split(name)
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
    };
    ["src=\"", "srcset=\"", "href=\""]
        .into_iter()
        .flat_map(values)
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn rows_belong_to_tables() {
    let stray = |page: &Page| {
        page.stray_rows()
            .iter()
            .map(|line| format!("{}:{line}", page.path.display()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        Page::all().iter().flat_map(stray).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    assert_eq!(
        Page::parse("a.md", "| a |\n|---|\n| b |\n\n| c |\n").stray_rows(),
        [5]
    );
}

#[test]
fn anchors_are_made_from_headings() {
    let page = Page::parse(
        "a.md",
        "# `auth.keys`: a key, & more\n\n## Twice\n\n## Twice\n",
    );
    assert_eq!(page.anchors(), ["authkeys-a-key--more", "twice", "twice-1"]);
}

#[test]
fn links_of_markdown_and_html_are_found() {
    let page = Page::parse(
        "a.md",
        "[a](b.md#c)\n![i](d.png)\n\n<picture><source srcset=\"e.png\"><img src=\"f.png\"></picture>\n",
    );
    let links: Vec<(String, usize)> = page
        .links()
        .into_iter()
        .map(|link| (link.target, link.line))
        .collect();
    let expected = [("b.md#c", 1), ("d.png", 2), ("f.png", 4), ("e.png", 4)];
    let mut sorted = links;
    sorted.sort();
    let mut expected = expected.map(|(target, line)| (target.to_owned(), line));
    expected.sort();
    assert_eq!(sorted, expected);
}
