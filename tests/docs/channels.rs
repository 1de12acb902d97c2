//! Checks that no page promises a way to get Fanlight that does not exist. Future ways are under a
//! heading "Once released".

use std::path::Path;

use crate::page::Page;

/// The heading above future ways.
const LATER: &str = "Once released";
/// Words of channels without a publication.
const UNPUBLISHED: [&str; 9] = [
    "npx fanlight",
    "uvx fanlight",
    "npm install --global fanlight",
    "pip install fanlight",
    "pipx install fanlight",
    "releases/download/",
    "--tag v0",
    "apt install ./fanlight",
    "dnf install ./fanlight",
];
/// The image, which a page may name if it also says how to build it.
const IMAGE: &str = "fanlight-mcp/fanlight:";
const BUILD: &str = "docker build --file deploy/docker/Dockerfile --tag fanlight-mcp/fanlight:";

/// The promises of a page, each with its line.
fn promises(page: &Page) -> Vec<String> {
    let mut later: Option<usize> = None;
    let builds_image = page.text().contains(BUILD);
    let mut found = Vec::new();
    for (index, line) in page.text().lines().enumerate() {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if level > 0 && line.get(level..).is_some_and(|rest| rest.starts_with(' ')) {
            let ends = later.is_some_and(|later| level <= later);
            later = if line.contains(LATER) {
                Some(level)
            } else {
                later.filter(|_| !ends)
            };
        }
        let is_promise = UNPUBLISHED.iter().any(|channel| line.contains(channel))
            || (line.contains(IMAGE) && !builds_image);
        if later.is_none() && is_promise {
            found.push(format!("{}:{}: {line}", page.path.display(), index + 1));
        }
    }
    found
}

#[test]
fn pages_promise_no_channel_that_does_not_exist() {
    // The packages' pages are published with them; earlier versions are history.
    let is_exempt =
        |path: &Path| path.starts_with("deploy/packages") || path.ends_with("CHANGELOG.md");
    let found: Vec<_> = Page::all()
        .iter()
        .filter(|page| !is_exempt(&page.path))
        .flat_map(promises)
        .collect();
    assert!(
        found.is_empty(),
        "{} promises:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn promise_is_found_unless_it_is_for_later() {
    let text = "# A\n\nnpx fanlight\n\n## Once released\n\nuvx fanlight\n\n### More\n\npip install fanlight\n\n## B\n\n\
                fanlight-mcp/fanlight:1\n";
    let lines: Vec<_> = promises(&Page::parse("a.md", text));
    assert_eq!(
        lines,
        ["a.md:3: npx fanlight", "a.md:15: fanlight-mcp/fanlight:1"]
    );
}
