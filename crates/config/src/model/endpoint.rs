//! One endpoint: a view of the servers for some clients.

use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::auth::ScopeRules;
use super::operators::{CONTENT, ContentChoice};
use super::policy::{AllowedClients, WHO};
use super::tools::{EntryFilter, PATTERNS};
use super::values::ANY;
use crate::definition::Form;
use crate::option::{
    Each, Fields, Kind, Maybe, NameMap, Nested, Options as _, Reader, TIME, count, options, size,
};
use crate::report::problem::quoted;
use crate::syntax::Entry;

options! {
    /// One endpoint. For its clients, everything that it hides does not exist.
    pub struct Endpoint: "endpoint", "in an endpoint";
    options {
        /// The servers that it shows, by name. Default: all.
        "servers" => servers: Option<Vec<String>> = None, Maybe(Each(ANY)), example "[files, git, search]";
        /// The tools that it shows.
        "tools" => tools: EntryFilter = EntryFilter::default(), Nested::<EntryFilter>::KIND;
        /// The prompts that it shows.
        "prompts" => prompts: EntryFilter = EntryFilter::default(), Nested::<EntryFilter>::KIND;
        /// The resources that it shows, with templates and skills.
        "resources" => resources: EntryFilter = EntryFilter::default(), Nested::<EntryFilter>::KIND;
        /// The scopes for requests to it, if they differ from `auth.scopes`.
        "scopes" => scopes: ScopeRules = ScopeRules::default(), Nested::<ScopeRules>::KIND;
        /// The clients that may use it: `group:NAME`, `user:ISSUER#SUBJECT`, `scope:NAME` or `*`.
        /// Default: everybody. It shows nothing to others.
        "allow" => allow: Option<Vec<AllowedClients>> = None, Maybe(WHO), example "[\"group:dev\"]";
        /// The instructions for its clients, instead of the servers' instructions.
        "instructions" => instructions: Option<String> = None, Maybe(ANY), example "Read only.";
        /// Lists only some tools, and lets clients find the others.
        "lean" => lean: Option<Lean> = None, Maybe(Nested::<Lean>::KIND);
        /// Shortens large results for clients and keeps them whole for a while. Holds instead of the
        /// server's.
        "results" => results: Option<Results> = None, Maybe(Nested::<Results>::KIND);
        /// The calls whose content traces keep, instead of `telemetry.content`. Of this and the
        /// server's, the narrower holds. The content is exported, too.
        "content" => content: Option<ContentChoice> = None, Maybe(CONTENT), example "# off";
    }
}

options! {
    /// A lean list of tools: some in full, and `find_tools` and `call_tool` for all others.
    /// `lean: {}` suffices.
    pub struct Lean: "lean", "in `lean` of an endpoint";
    options {
        /// The tools that are always listed. Patterns are as in `tools`. Tools with an app are listed
        /// too.
        "always" => always: Vec<String> = Vec::new(), PATTERNS, example "[\"git/status\", \"files/read_*\"]";
        /// The estimated tokens up to which a client's full list stays as it is. Default: lists are
        /// always lean.
        "max" => max: Option<usize> = None, Maybe(count(1, 10_000_000)), example "10000";
        /// Clients that search by themselves and get the full list, by the name that they declare.
        /// `*` stands for any characters.
        "except" => except: Vec<String> = Vec::new(), Each(ANY), example "[\"claude-code*\"]";
        /// Groups of tools that `find_tools` offers besides the servers, each with its patterns.
        "groups" => groups: Vec<(String, Vec<String>)> = Vec::new(), NameMap(PATTERNS), example "{reports: [\"charts/*\", \"files/write_*\"]}";
    }
}

/// Endpoints by path, in the order of the file.
pub(crate) struct Endpoints;

impl Kind for Endpoints {
    type Value = Vec<(String, Endpoint)>;

    fn form(&self) -> Form {
        Form::Paths(Endpoint::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        let help = "write each path as a key, such as `/mcp: {}`";
        let entries = reader.mapping(entry, "a mapping of paths to endpoints", help)?;
        Some(
            entries
                .iter()
                .filter_map(|entry| read_one(reader, entry))
                .collect(),
        )
    }

    fn show(&self, value: &Self::Value) -> Json {
        let shown = value
            .iter()
            .map(|(path, endpoint)| (path.clone(), Json::Object(endpoint.show())));
        Json::Object(shown.collect::<Map<_, _>>())
    }
}

fn read_one(reader: &mut Reader<'_>, entry: &Entry) -> Option<(String, Endpoint)> {
    let path = &entry.key;
    if !is_path(path) {
        let help = "write a path as clients request it, such as `/mcp/readers`: paths are compared exactly";
        reader.error(
            entry.key_span,
            format!("{} is not the path of an endpoint", quoted(path)),
            help,
        );
        return None;
    }
    if entry.value.is_null() {
        return Some((path.clone(), Endpoint::default()));
    }
    let fields = Fields::open(
        reader,
        Endpoint::SECTION,
        &format!("the endpoint {}", quoted(path)),
        &entry.value,
    )?;
    Some((path.clone(), fields.read(reader)))
}

/// Whether clients can request exactly this path, which neither they nor proxies may write
/// differently.
fn is_path(path: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(c);
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && segment.chars().all(fits);
    path == "/"
        || path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_segment))
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

options! {
    /// The bounds of large results. Clients get a longer answer shortened, and read the rest in
    /// parts. `results: {}` suffices.
    pub struct Results: "results", "in `results`";
    options {
        /// The longest answer to a tool call that passes unchanged.
        "inline" => inline: usize = 32 * KIB, size(4 * KIB, 1 << 30);
        /// The time for which whole results are kept at most. The oldest go earlier if there is no
        /// room.
        "keepFor" => keep_for: Duration = Duration::from_secs(3600), TIME;
        /// The memory for whole results.
        "memory" => memory: usize = 64 * MIB, size(MIB, 1 << 40);
        /// The room below `stateDir` for whole results, encrypted, once `memory` is full. Without
        /// `stateDir` there is none.
        "disk" => disk: usize = 1 << 30, size(0, 1 << 50);
    }
}
