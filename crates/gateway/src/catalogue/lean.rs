//! Lean lists: a few tools in full, and two tools of Fanlight that find and call the others.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use fanlight_canonical::rights::ItemFilter;
use fanlight_protocol::visible::escaped;
use fanlight_protocol::{Json, estimated_tokens};

use super::shown::{LeanGroup, LeanList, Pages, Shown};
use super::snapshot::Entry;
use super::view::ListView;
use crate::search::{SearchIndex, SearchScope, WordMatch};
use crate::topology::LeanRules;

/// The names of Fanlight's tools of lean lists, without a prefix.
pub(crate) const OWN_TOOLS: [&str; 2] = ["find_tools", "call_tool"];
/// The name of Fanlight's tool that reads large results, without a prefix.
pub(crate) const READ_RESULT: &str = "read_result";
/// The prefix of these names if a server's tool already has one of them.
pub(crate) const OWN_PREFIX: &str = "fanlight__";
/// The manifest may take this percentage of the full list's bytes, or these bytes.
const MANIFEST: (usize, usize) = (3, 1024);
/// How many names of tools the manifest gives of each group.
const EXAMPLES: usize = 3;

/// A tool that a search found, with its score and its position in the whole list.
type Scored<'a> = (&'a Entry, f32, u32);

/// A tool that a search found, for operators.
#[derive(Clone, Debug)]
pub struct FoundTool {
    /// The tool's name for clients.
    pub name: String,
    /// The server.
    pub server: String,
    /// The score of the tool.
    pub score: f32,
    /// The matches of single words.
    pub why: Vec<WordMatch>,
}

impl LeanList {
    /// The lean form of `list`; `None` while the list is short enough.
    fn new(list: &ListView, shown: &Shown, rules: &LeanRules) -> Option<Self> {
        let size = list
            .entries()
            .map(|tool| tool.visible.bytes().len() + 1)
            .sum();
        if rules.max.is_some_and(|max| estimated_tokens(size) <= max) {
            return None;
        }
        let is_always =
            |entry: &Entry| is_of_app(&entry.visible) || permits(list, &rules.always, entry);
        let groups = groups(list, shown, rules);
        let prefix = own_prefix(list, &OWN_TOOLS);
        let names = OWN_TOOLS.map(|name| format!("{prefix}{name}"));
        let most = MANIFEST.1.max(size * MANIFEST.0 / 100);
        let manifest = fit_manifest(list, &groups, most);
        let own = own_tools(&names, &manifest);
        Some(Self {
            listed: Arc::new(shown.filter(list, own.to_vec(), is_always)),
            own,
            groups,
        })
    }

    /// The tool of Fanlight that has this name for clients: its name without a prefix, and its schema.
    pub(crate) fn own_tool(&self, name: &Json) -> Option<(&'static str, Json)> {
        let is_it = |(_, tool): &(_, &Json)| {
            let own = tool.text_at("name");
            own.is_some_and(|own| name.is_str(&own))
        };
        let (own, tool) = OWN_TOOLS.into_iter().zip(&self.own).find(is_it)?;
        Some((own, tool.get("inputSchema")?))
    }

    /// The group with this name.
    pub(crate) fn group(&self, name: &str) -> Option<&LeanGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The names of all groups.
    pub(crate) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| &*group.name)
    }

    /// The groups, each described as in the manifest.
    pub(crate) fn describe_groups(&self, list: &ListView) -> Json {
        let groups = self.groups.iter();
        Json::array(groups.map(|group| Json::string(&group.describe(list, EXAMPLES))))
    }

    /// The tools that match `query`, of one group or of all, best first and at most `limit` of those
    /// that `is_offered`; and how many more match. Without a query, the tools by name.
    pub(crate) fn find<'a>(
        &self,
        list: &'a ListView,
        query: Option<&str>,
        group: Option<&LeanGroup>,
        limit: usize,
        is_offered: impl Fn(&Entry) -> bool,
    ) -> (Vec<&'a Entry>, usize) {
        let is_in = |tool: u32| group.is_none_or(|group| group.tools.binary_search(&tool).is_ok());
        let mut found = list.search(query);
        found.retain(|(entry, _, tool)| is_in(*tool) && is_offered(entry));
        let (found, more) = best(found, limit);
        (found.into_iter().map(|(entry, ..)| entry).collect(), more)
    }
}

/// The best `limit` entries in order, and the number of others. Equally good ones are in the order of
/// their names.
fn best(mut found: Vec<Scored<'_>>, limit: usize) -> (Vec<Scored<'_>>, usize) {
    let by_score = |one: &Scored<'_>, other: &Scored<'_>| -> Ordering {
        let name = |entry: &Entry| entry.key.as_ref().map(|key| key.bytes().clone());
        let by_name = || name(one.0).cmp(&name(other.0));
        other.1.total_cmp(&one.1).then_with(by_name)
    };
    let more = found.len().saturating_sub(limit);
    if more > 0 {
        found.select_nth_unstable_by(limit, by_score);
        found.truncate(limit);
    }
    found.sort_unstable_by(by_score);
    (found, more)
}

impl LeanGroup {
    /// A text with the group's name, its tools' prefix, their number, and some of their names.
    fn describe(&self, list: &ListView, examples: usize) -> String {
        let (name, prefix) = (escaped(&self.name), escaped(&self.prefix));
        let prefix = match &*prefix {
            "" => String::new(),
            prefix => format!(" ({prefix}*)"),
        };
        let names = self.tools.iter().filter_map(|tool| {
            let name = list.whole().entries.get(*tool as usize)?.name()?;
            let short = name.strip_prefix(&*self.prefix);
            Some(short.map_or(name.clone(), str::to_owned))
        });
        let names: Vec<_> = names.take(examples).collect();
        let names = escaped(&names.join(", ")).into_owned();
        let colon = if names.is_empty() { "" } else { ": " };
        format!("{name}{prefix}, {} tools{colon}{names}", self.tools.len())
    }
}

/// Whether a tool belongs to an app, so that lean lists have it (MCP Apps 2026-01-26, Resource
/// Discovery).
pub fn is_of_app(tool: &Json) -> bool {
    let meta = tool.get("_meta");
    meta.is_some_and(|meta| meta.get("ui").or(meta.get("ui/resourceUri")).is_some())
}

/// Whether the patterns permit a tool, by its server and own name.
fn permits(list: &ListView, patterns: &ItemFilter, tool: &Entry) -> bool {
    let name = tool.own_name();
    name.is_some_and(|name| patterns.permits(list.backend_of(tool), &name))
}

/// The configured groups and the servers of a list, without those that have no tool in it.
fn groups(list: &ListView, shown: &Shown, rules: &LeanRules) -> Vec<LeanGroup> {
    let configured = rules.groups.iter().map(|(name, filter)| {
        let is_in = |tool: &u32| {
            let entry = list.whole().entries.get(*tool as usize);
            entry.is_some_and(|entry| permits(list, filter, entry))
        };
        LeanGroup {
            name: name.clone(),
            prefix: String::new(),
            tools: shown.positions.iter().copied().filter(is_in).collect(),
        }
    });
    let servers = list.parts().filter_map(|(part, range)| {
        let tools = shown.positions.get(range)?.to_vec();
        // Some names have no prefix, because the configuration gives or cuts them.
        let mut prefixes = tools.iter().filter_map(|tool| {
            let entry = list.whole().entries.get(*tool as usize)?;
            let (key, original) = (entry.name()?, entry.own_name()?);
            Some(key.strip_suffix(&original)?.to_owned())
        });
        Some(LeanGroup {
            name: part.contribution.backend.clone(),
            prefix: prefixes.next().unwrap_or_default(),
            tools,
        })
    });
    let all = configured.chain(servers);
    all.filter(|group| !group.tools.is_empty()).collect()
}

/// The manifest with as many names of tools as `most` bytes permit.
fn fit_manifest(list: &ListView, groups: &[LeanGroup], most: usize) -> String {
    let line = |group: &LeanGroup, examples| format!("\n- {}", group.describe(list, examples));
    for examples in (0..=EXAMPLES).rev() {
        let text: String = groups.iter().map(|group| line(group, examples)).collect();
        if written(&text) <= most {
            return text;
        }
    }
    let mut text = String::new();
    for (at, group) in groups.iter().enumerate() {
        let (line, rest) = (line(group, 0), format!("\n- {} more", groups.len() - at));
        if written(&text) + written(&line) + written(&rest) > most {
            return text + &rest;
        }
        text += &line;
    }
    text
}

/// The bytes of a text in JSON.
fn written(text: &str) -> usize {
    Json::string(text).bytes().len() - 2
}

/// The name for clients of a tool of Fanlight.
pub(crate) fn own_name(list: &ListView, name: &str) -> String {
    own_prefix(list, &[name]) + name
}

/// The prefix for these tools of Fanlight that makes their names unique.
fn own_prefix(list: &ListView, names: &[&str]) -> String {
    let mut prefix = String::new();
    let is_taken = |name: String| list.find(&name).is_some();
    while names.iter().any(|name| is_taken(format!("{prefix}{name}"))) {
        prefix.push_str(OWN_PREFIX);
    }
    prefix
}

/// The definition of a tool of Fanlight; `rest` has its other members.
pub(crate) fn own_tool(name: &str, title: &str, description: &str, rest: &'static str) -> Json {
    Json::literal(rest)
        .with_member("name", &Json::string(name))
        .with_member("title", &Json::string(title))
        .with_member("description", &Json::string(description))
}

/// The definitions of Fanlight's tools.
fn own_tools([find, call]: &[String; 2], manifest: &str) -> [Json; 2] {
    let finds = format!(
        "Finds tools that are not listed here. Search before you decide that something cannot be done. Returns whole \
         definitions; call a found tool by its own name, or with {call}. Available, by group:{manifest}"
    );
    let calls = format!(
        "Calls a tool that {find} returned. If you can call it by its own name, do that instead."
    );
    [
        own_tool(
            find,
            "Find tools",
            &finds,
            r#"{"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few words"},"group":{"type":"string","description":"Only tools of this group; without a query, all of them by name"},"limit":{"type":"integer","description":"At most this many tools, up to 50","default":5}}},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
        ),
        own_tool(
            call,
            "Call a tool",
            &calls,
            r#"{"inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The tool's name"},"arguments":{"type":"object","description":"Its arguments, by its own inputSchema"}},"required":["name"]},"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true},"execution":{"taskSupport":"optional"}}"#,
        ),
    ]
}

impl Shown {
    /// The part with only the entries for which `keep` is true, and with tools of Fanlight.
    fn filter(&self, list: &ListView, own: Vec<Json>, keep: impl Fn(&Entry) -> bool) -> Self {
        let is_kept = |position: &&u32| {
            let entry = list.whole().entries.get(**position as usize);
            entry.is_some_and(&keep)
        };
        let mut positions = Vec::new();
        let parts = self.parts.iter().map(|(index, range)| {
            let start = positions.len();
            let of_part = self.positions.get(range.clone()).unwrap_or_default();
            positions.extend(of_part.iter().filter(is_kept).copied());
            (*index, start..positions.len())
        });
        Self {
            parts: parts.collect(),
            positions,
            rest: self.rest.clone(),
            collisions: self.collisions.clone(),
            rewritten: self.rewritten,
            pages: Pages::for_filtered_list(),
            own,
            lean: OnceLock::new(),
        }
    }
}

impl ListView {
    /// The lean form of a list of tools; `None` while the list is short enough.
    pub(crate) fn lean(&self, rules: &LeanRules) -> Option<&LeanList> {
        let shown = self.visible();
        let new = || LeanList::new(self, shown, rules).map(Box::new);
        shown.lean.get_or_init(new).as_deref()
    }

    /// The list for clients that get a lean one.
    pub(crate) fn leaner(self, rules: Option<&LeanRules>) -> Self {
        let lean = rules.and_then(|rules| self.lean(rules));
        match lean.map(|lean| Arc::clone(&lean.listed)) {
            Some(listed) => self.showing(listed),
            None => self,
        }
    }

    /// Waits until the index for searches is made.
    pub(crate) async fn make_index(&self) {
        Arc::clone(self.whole()).make_index().await;
    }

    /// Whether the index for searches is made.
    #[cfg(test)]
    pub(crate) fn has_index(&self) -> bool {
        self.whole().search.get().is_some()
    }

    /// The best `most` tools for `query`, with the reasons; for operators.
    pub fn find_tools(&self, query: &str, most: usize) -> Vec<FoundTool> {
        let (index, scope) = self.searched();
        let (found, _) = best(self.search(Some(query)), most);
        let described = found.into_iter().filter_map(|(entry, score, tool)| {
            Some(FoundTool {
                name: entry.name()?,
                server: self.backend_of(entry).to_owned(),
                score,
                why: index.explain(&scope, query, tool),
            })
        });
        described.collect()
    }

    /// The visible tools that match `query`; without one, all.
    fn search(&self, query: Option<&str>) -> Vec<Scored<'_>> {
        let found = match query {
            Some(query) => {
                let (index, scope) = self.searched();
                index.search(&scope, query)
            }
            None => self.positions().map(|tool| (tool, 0.0)).collect(),
        };
        let scored = found.into_iter().filter_map(|(tool, score)| {
            let entry = self.whole().entries.get(tool as usize)?;
            Some((entry, score, tool))
        });
        scored.collect()
    }

    fn searched(&self) -> (&SearchIndex, SearchScope) {
        let index = self.whole().search_index();
        (index, SearchScope::new(index, self.positions()))
    }
}
