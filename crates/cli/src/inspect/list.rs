//! `fanlight list`: the merged catalogue.

use std::sync::Arc;

use fanlight_gateway::Gateway;
use fanlight_gateway::catalogue::{Entry, ListKind, ListView};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{ArrayBuilder, Json, MAX_NESTING, ObjectBuilder, estimated_tokens};

use crate::cli::{EndpointArgs, Listed};
use crate::endpoints::find_named;
use crate::observe::Admin;
use crate::observe::columns::{self, Column};
use crate::observe::style::Style;
use crate::{Failure, Result, out, say};

const LONGEST_DESCRIPTION: usize = 100;

/// The lists to show, and how.
pub struct Wanted<'a> {
    /// The lists; `None` for all.
    pub what: Option<Listed>,
    /// Whether to print JSON.
    pub json: bool,
    /// The endpoint whose lists these are.
    pub endpoint: &'a EndpointArgs,
}

impl Wanted<'_> {
    fn kinds(&self) -> &'static [ListKind] {
        match self.what {
            Some(Listed::Tools) => &[ListKind::Tools],
            Some(Listed::Resources) => &[ListKind::Resources, ListKind::ResourceTemplates],
            Some(Listed::Prompts) => &[ListKind::Prompts],
            None => &ListKind::ALL,
        }
    }

    /// Prints the lists that `read` returns; fails if a server's part is missing.
    pub(super) async fn print(&self, read: impl AsyncFn(ListKind) -> Result<List>) -> Result {
        let mut lists = Vec::new();
        for kind in self.kinds() {
            lists.push((*kind, read(*kind).await?));
        }
        print_all(&lists, self.json)
    }
}

/// Prints the merged lists; fails if a server's part is missing.
pub async fn list(gateway: &Gateway, wanted: &Wanted<'_>) -> Result {
    let endpoint = find_named(wanted.endpoint, gateway)?;
    wanted
        .print(async |kind| Ok(List::from_view(&gateway.catalogue(kind, &endpoint).await)))
        .await
}

/// [`list`] through a running gateway.
pub async fn list_of_running(admin: &Admin, wanted: &Wanted<'_>) -> Result {
    wanted
        .print(async |kind| fetch_list(admin, kind, wanted.endpoint.path()).await)
        .await
}

/// A list of a running gateway.
pub(crate) async fn fetch_list(
    admin: &Admin,
    kind: ListKind,
    endpoint: Option<&str>,
) -> Result<List> {
    let mut query = vec![("kind", kind.member().to_owned())];
    query.extend(endpoint.map(|path| ("endpoint", path.to_owned())));
    let answer = admin.get(&["catalogue"], &query).await?;
    let answer = Json::parse(answer, MAX_NESTING)?;
    Ok(List::read(&answer.get(kind.member()).unwrap_or_default()))
}

fn print_all(lists: &[(ListKind, List)], json: bool) -> Result {
    let mut all = ObjectBuilder::new();
    for (kind, list) in lists {
        if json {
            let mut entries = ArrayBuilder::default();
            for entry in &list.entries {
                entries.push(&entry.visible);
            }
            all.member(kind.member(), &entries.finish());
        } else {
            print(*kind, list);
        }
    }
    if json {
        out::json(all.finish().as_text());
    }
    let mut missing: Vec<&str> = Vec::new();
    for problem in lists.iter().flat_map(|(_, list)| &list.missing) {
        if !missing.contains(&problem.as_str()) {
            missing.push(problem);
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::other(missing.join("\n")))
    }
}

/// A merged list to show.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Shown>,
    /// Notes on entries whose URI another server has, too.
    collisions: Vec<String>,
    /// The missing servers with reasons.
    missing: Vec<String>,
}

pub(crate) struct Shown {
    pub(crate) key: String,
    pub(crate) backend: String,
    /// The server's own name or URI.
    pub(crate) original: String,
    pub(crate) visible: Arc<Json>,
}

impl Shown {
    /// An entry as clients get it; its server is unknown.
    fn new(kind: ListKind, entry: Json) -> Self {
        Self {
            key: entry.text_at(kind.key()).unwrap_or_default(),
            backend: String::new(),
            original: String::new(),
            visible: Arc::new(entry),
        }
    }
}

impl List {
    pub(crate) fn from_view(snapshot: &ListView) -> Self {
        let shown = |entry: &Entry| Shown {
            key: entry.name().unwrap_or_default(),
            original: entry.own_name().unwrap_or_default(),
            backend: snapshot.backend_of(entry).to_owned(),
            visible: Arc::clone(&entry.visible),
        };
        let collisions = snapshot.collisions().iter().map(|collision| {
            collision_text(
                [&collision.key, &collision.other, &collision.kept],
                collision.alias.as_deref(),
            )
        });
        Self {
            entries: snapshot.entries().map(shown).collect(),
            collisions: collisions.collect(),
            missing: incomplete(snapshot).collect(),
        }
    }

    /// The entry of this name, as a client gets it.
    pub(super) fn find(&self, name: &str) -> Option<&Json> {
        let is_it = |entry: &&Shown| entry.key == name;
        self.entries.iter().find(is_it).map(|entry| &*entry.visible)
    }

    /// The names of the entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    /// Whether servers are missing.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.missing.is_empty()
    }

    /// A list with these entries, as a client gets them.
    pub(super) fn from_entries(kind: ListKind, entries: Vec<Json>) -> Self {
        let shown = |entry| Shown::new(kind, entry);
        Self {
            entries: entries.into_iter().map(shown).collect(),
            ..Self::default()
        }
    }

    /// Reads a list from an answer of `/api/catalogue`.
    fn read(list: &Json) -> Self {
        let text = |object: &Json, key: &str| object.text_at(key).unwrap_or_default();
        let all = |key: &str| list.get(key).unwrap_or_default();
        let shown = |entry: Json| Shown {
            key: text(&entry, "key"),
            backend: text(&entry, "backend"),
            original: text(&entry, "original"),
            visible: Arc::new(entry.get("entry").unwrap_or_default()),
        };
        let collision = |one: Json| {
            let [key, other, kept] = ["key", "other", "kept"].map(|key| text(&one, key));
            collision_text([&key, &other, &kept], one.text_at("alias").as_deref())
        };
        let missing = |backend: Json| {
            let reason = backend.text_at("reason")?;
            Some(missing_text(&text(&backend, "backend"), &reason))
        };
        Self {
            entries: all("entries").items().map(shown).collect(),
            collisions: all("collisions").items().map(collision).collect(),
            missing: all("backends").items().filter_map(missing).collect(),
        }
    }
}

fn collision_text([key, other, kept]: [&str; 3], alias: Option<&str>) -> String {
    let fate = alias.map_or_else(
        || "left out".to_owned(),
        |alias| format!("readable as {alias}"),
    );
    format!("{key:?} of {other} is taken by {kept}: {fate}")
}

fn missing_text(backend: &str, reason: &str) -> String {
    // The original hint is for clients.
    let reason = &reason.replace(
        "; ask the gateway's operator",
        "; `fanlight check` tells why",
    );
    format!("server {backend:?} {}", plain(reason, 300))
}

/// The servers missing from a merged list, with reasons.
pub(super) fn incomplete(snapshot: &ListView) -> impl Iterator<Item = String> {
    snapshot.contributions().filter_map(|contribution| {
        let reason = contribution.reason.as_ref()?;
        Some(missing_text(&contribution.backend, reason))
    })
}

fn print(kind: ListKind, list: &List) {
    let (title, key) = match kind {
        ListKind::Tools => ("TOOLS", "NAME"),
        ListKind::Resources => ("RESOURCES", "URI"),
        ListKind::ResourceTemplates => ("RESOURCE TEMPLATES", "URI TEMPLATE"),
        ListKind::Prompts => ("PROMPTS", "NAME"),
        // Few servers have skills.
        ListKind::Skills if list.entries.is_empty() => return,
        ListKind::Skills => ("SKILLS", "URI"),
    };
    let cost = |entry: &Shown| entry.visible.bytes().len();
    let bytes: usize = list.entries.iter().map(cost).sum();
    say!(
        "{title} ({}: {bytes} bytes, about {} tokens)",
        list.entries.len(),
        estimated_tokens(bytes)
    );
    if !list.entries.is_empty() {
        let entries = &list.entries;
        let columns = [
            Column::whole(key, entries, |entry| plain(&entry.key, 300)),
            Column::whole("SERVER", entries, |entry| entry.backend.clone()),
            Column::numbers("BYTES", entries, |entry| cost(entry).to_string()),
            Column::numbers("~TOKENS", entries, |entry| {
                estimated_tokens(cost(entry)).to_string()
            }),
            Column::words("DESCRIPTION", entries, description),
        ];
        say!(
            "{}",
            columns::render(&columns, Style::for_stdout().table_width())
        );
    }
    for collision in &list.collisions {
        say!("  {collision}");
    }
    say!("");
}

fn description(entry: &Shown) -> String {
    let keys = ["description", "title", "name"];
    let description = keys.into_iter().find_map(|key| entry.visible.text_at(key));
    let of_skill = || entry.visible.get("frontmatter")?.text_at("description");
    let description = description.or_else(of_skill).unwrap_or_default();
    plain(&description, LONGEST_DESCRIPTION)
}
