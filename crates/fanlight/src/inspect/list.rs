//! `fanlight list`: the merged catalogue.

use fanlight_config::Config;
use fanlight_gateway::catalogue::{Entry, ListKind, ListView};
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};

use super::with_assembly;
use crate::cli::{EndpointArgs, Listed};
use crate::failure::Failure;
use crate::out::{self, say};
use crate::show;

const LONGEST_DESCRIPTION: usize = 100;

/// Prints the merged lists; fails if a backend's part is missing.
pub(crate) async fn list(
    config: &Config,
    what: Option<Listed>,
    json: bool,
    endpoint: &EndpointArgs,
) -> Result<(), Failure> {
    let kinds: &[ListKind] = match what {
        Some(Listed::Tools) => &[ListKind::Tools],
        Some(Listed::Resources) => &[ListKind::Resources, ListKind::ResourceTemplates],
        Some(Listed::Prompts) => &[ListKind::Prompts],
        None => &ListKind::ALL,
    };
    with_assembly(config, async |assembly| {
        let mut all = ObjectBuilder::new();
        let mut missing = Vec::new();
        let endpoint = endpoint.find(&assembly.gateway)?;
        for kind in kinds {
            let snapshot = assembly.gateway.catalogue(*kind, &endpoint).await;
            if json {
                all.member(kind.member(), &entries(&snapshot));
            } else {
                print(*kind, &snapshot);
            }
            missing.extend(incomplete(&snapshot).filter(|problem| !missing.contains(problem)).collect::<Vec<_>>());
        }
        if json {
            out::json(all.finish().as_text());
        }
        if missing.is_empty() { Ok(()) } else { Err(Failure::other(missing.join("\n"))) }
    })
    .await
}

/// The backends missing from a merged list, each with the reason.
pub(super) fn incomplete(snapshot: &ListView) -> impl Iterator<Item = String> {
    snapshot.contributions().filter_map(|contribution| {
        let reason = contribution.reason.as_ref()?;
        Some(format!("backend {:?} {}", contribution.backend, show::plain(reason, 300)))
    })
}

fn entries(snapshot: &ListView) -> Json {
    let mut list = ArrayBuilder::default();
    for entry in snapshot.entries() {
        list.push(&entry.visible);
    }
    list.finish()
}

fn print(kind: ListKind, snapshot: &ListView) {
    let (title, key) = match kind {
        ListKind::Tools => ("TOOLS", "NAME"),
        ListKind::Resources => ("RESOURCES", "URI"),
        ListKind::ResourceTemplates => ("RESOURCE TEMPLATES", "URI TEMPLATE"),
        ListKind::Prompts => ("PROMPTS", "NAME"),
        // Few servers have any.
        ListKind::Skills if snapshot.is_empty() => return,
        ListKind::Skills => ("SKILLS", "URI"),
    };
    say!("{title} ({})", snapshot.len());
    if !snapshot.is_empty() {
        let mut table = show::table(&[key, "SERVER", "DESCRIPTION"]);
        for entry in snapshot.entries() {
            table.add_row(row(entry, snapshot));
        }
        show::print(&table);
    }
    for collision in snapshot.collisions() {
        let fate = match &collision.alias {
            Some(alias) => format!("readable as {alias}"),
            None => "left out".to_owned(),
        };
        say!("  {:?} of {} is taken by {}: {fate}", collision.key, collision.other, collision.kept);
    }
    say!("");
}

fn row(entry: &Entry, snapshot: &ListView) -> [String; 3] {
    let text = |key: &str| entry.visible.get(key).and_then(|text| text.as_str().map(|text| text.into_owned()));
    let key = entry.key.as_ref().and_then(|key| key.as_str()).unwrap_or_default();
    let description = text("description").or_else(|| text("title")).or_else(|| text("name"));
    let of_skill = || entry.visible.get("frontmatter")?.get("description")?.as_str().map(|text| text.into_owned());
    let description = description.or_else(of_skill).unwrap_or_default();
    [show::plain(&key, 300), snapshot.backend_of(entry).to_owned(), show::plain(&description, LONGEST_DESCRIPTION)]
}
