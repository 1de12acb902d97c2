//! The topology: the servers with their names, filters and limits, as one immutable value.
//!
//! [`CurrentTopology`] holds the newest one. A request takes it once, at its beginning, and uses it
//! to its end. State that outlives a request belongs to a [`BackendId`], never to a server's
//! position.

mod naming;
mod rewriting;
mod view;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fanlight_canonical::rights::ItemFilter;
use fanlight_canonical::{
    ApprovalRule, BackendClient, BackendTraits, Call, Caller, CanaryRule, DefinitionGuard,
    LIST_BYTES, LIST_ENTRIES, LIST_PAGES, LIST_SETTLE, Pending, Policy, PolicyKind,
};
use fanlight_fair::limit;
use fanlight_protocol::json::Unreadable;
use fanlight_protocol::{Json, Response};
use foldhash::fast::RandomState;
use tokio::sync::Notify;

use crate::{ListKind, ListStore, Mirror};
use naming::has_alias_form;

/// The kinds of entries that endpoints filter: those whose lists announce changes.
pub(crate) use fanlight_protocol::subscription::Change as Filtered;
pub use naming::{NamedServer, Naming, NamingPolicy, namings};
pub(crate) use rewriting::{Argument, ToolRewriting, ToolRewritings};
pub use rewriting::{ArgumentRule, DefinitionMember, Rewriting};
pub use view::{EndpointEntry, LeanRules, ResultRules};
pub(crate) use view::{Endpoints, Reader, View};

/// Identifies a server while this process runs. A server that a changed configuration keeps has the
/// same id before and after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(u64);

impl BackendId {
    /// An id that no other server of this process has.
    pub fn generate() -> Self {
        Self(next_number())
    }
}

/// The servers, their names, filters and limits, and the endpoints.
pub(crate) struct Topology {
    /// The number of the topology; a later one has a greater number.
    pub(crate) number: u64,
    /// The servers in configuration order, which decides merging.
    backends: Vec<Member>,
    /// The index of each server in `backends`.
    positions: HashMap<BackendId, usize, RandomState>,
    /// Other versions of servers, which clients cannot use by name.
    hidden: Vec<Arc<dyn BackendClient>>,
    /// Whether calls of any tool need approval.
    pub(crate) has_approvals: bool,
    has_canaries: bool,
    /// Whether large results of any server are shortened, whatever the endpoint.
    has_results: bool,
    pub(crate) limits: ListLimits,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

/// One server of a topology.
pub(crate) struct Member {
    entry: BackendEntry,
    pub(crate) naming: Naming,
    pub(crate) rewritings: ToolRewritings,
    /// Whether everything of the server passes unchanged: nothing is renamed, rewritten, hidden or
    /// kept.
    is_transparent: bool,
    pub(crate) has_listed_tools_only: bool,
    pub(crate) traits: BackendTraits,
}

impl Deref for Member {
    type Target = BackendEntry;

    fn deref(&self) -> &BackendEntry {
        &self.entry
    }
}

impl Topology {
    pub(crate) fn new(
        entries: Vec<BackendEntry>,
        policy: &NamingPolicy,
        limits: ListLimits,
        endpoints: Vec<EndpointEntry>,
        rights: Option<Arc<dyn Policy>>,
    ) -> Self {
        let (hidden, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.is_hidden);
        let hidden = hidden.into_iter().map(|entry| entry.client).collect();
        let named: Vec<_> = entries
            .iter()
            .map(|entry| (entry.client.name(), entry.prefix.as_deref()))
            .collect();
        let namings = naming::running_namings(&named, policy);
        let members = entries.into_iter().zip(namings);
        let backends: Vec<_> = members
            .map(|(entry, naming)| Member::new(entry, naming))
            .collect();
        let has_approvals = backends.iter().any(Member::has_approvals);
        let has_canaries = backends.iter().any(|backend| backend.canary.is_some());
        let has_results = backends.iter().any(|backend| backend.results.is_some());
        let positions = backends
            .iter()
            .enumerate()
            .map(|(position, backend)| (backend.id, position))
            .collect();
        let endpoints = Endpoints::new(endpoints, &backends);
        Self {
            number: next_number(),
            backends,
            positions,
            hidden,
            has_approvals,
            has_canaries,
            has_results,
            limits,
            endpoints,
            policy: rights,
        }
    }

    /// The topology that replaces `earlier`. It has the same number if clients see no difference,
    /// so that lists, cursors and listeners stay valid.
    pub(crate) fn replace(
        earlier: &Self,
        entries: Vec<BackendEntry>,
        policy: &NamingPolicy,
        limits: ListLimits,
        endpoints: Vec<EndpointEntry>,
        rights: Option<Arc<dyn Policy>>,
    ) -> Arc<Self> {
        let mut new = Self::new(entries, policy, limits, endpoints, rights);
        let is_same = |(one, other): (&Member, &Member)| one.is_seen_as(other);
        if new.backends.len() == earlier.backends.len()
            && new.backends.iter().zip(&earlier.backends).all(is_same)
            && new.endpoints.show_the_same_as(&earlier.endpoints)
            && new.has_canaries_of(earlier)
            && new.has_policy_of(earlier)
        {
            new.number = earlier.number;
        }
        Arc::new(new)
    }

    /// Whether both have the same policy.
    pub(crate) fn has_policy_of(&self, other: &Self) -> bool {
        let number = |topology: &Self| topology.policy.as_ref().map(|policy| policy.number());
        number(self) == number(other)
    }

    /// Whether the same canaries serve the same clients in both.
    pub(crate) fn has_canaries_of(&self, other: &Self) -> bool {
        fn canary(topology: &Topology, backend: BackendId) -> Option<&Canary> {
            topology.get(backend)?.canary.as_ref()
        }
        self.ids()
            .all(|backend| canary(self, backend) == canary(other, backend))
    }

    /// The servers in configuration order.
    pub(crate) fn backends(&self) -> &[Member] {
        &self.backends
    }

    /// The clients of all servers, followed by the clients of their other versions.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<dyn BackendClient>> {
        self.backends
            .iter()
            .map(|backend| &backend.client)
            .chain(&self.hidden)
    }

    /// The ids of the servers in configuration order.
    pub(crate) fn ids(
        &self,
    ) -> impl DoubleEndedIterator<Item = BackendId> + ExactSizeIterator + Clone + '_ {
        self.backends.iter().map(|backend| backend.id)
    }

    pub(crate) fn get(&self, backend: BackendId) -> Option<&Member> {
        self.backends.get(self.position(backend)?)
    }

    /// The position of a server in configuration order.
    fn position(&self, backend: BackendId) -> Option<usize> {
        self.positions.get(&backend).copied()
    }

    /// The name of a server; empty if it is not in this topology.
    pub(crate) fn name(&self, backend: BackendId) -> &str {
        self.get(backend).map_or("", Member::name)
    }

    /// The server that an alias belongs to, and the server's own URI for the resource.
    pub(crate) fn unalias(&self, uri: &str) -> Option<(&Member, String)> {
        if !has_alias_form(uri) {
            return None;
        }
        self.backends
            .iter()
            .find_map(|backend| Some((backend, backend.naming.unalias(uri)?)))
    }

    /// The error if an entry's JSON is ambiguous and a policy, an approval rule or an override
    /// depends on it; the entry must then be left out. `name` is the server's own name, if the
    /// entry has one.
    pub(crate) fn unreadable_reason(
        &self,
        member: &Member,
        kind: ListKind,
        name: Option<&str>,
        definition: &Json,
    ) -> Option<Unreadable> {
        let is_rewritten = || {
            kind == ListKind::Tools
                && name.is_some_and(|name| member.rewritings.find(name).is_some())
        };
        let is_read = self.policy.is_some() || member.has_approvals() || is_rewritten();
        is_read.then(|| definition.read_strictly().err()).flatten()
    }

    /// Whether definitions that strict clients reject are left out.
    pub(crate) fn leaves_out_invalid(&self) -> bool {
        self.limits.leaves_out_invalid && self.backends.len() > 1
    }

    /// The only server, if nothing is renamed, rewritten or hidden. Then everything passes
    /// unchanged, including cursors and unknown methods.
    pub(crate) fn transparent_server(&self) -> Option<&Member> {
        match self.backends.as_slice() {
            [only] if only.is_transparent => Some(only),
            _ => None,
        }
    }
}

impl Member {
    fn new(entry: BackendEntry, naming: Naming) -> Self {
        let naming = naming.with_renames(&entry.rewriting.renames);
        let rewritings = ToolRewritings::new(&entry.rewriting);
        let guard = entry.guard.as_ref();
        let is_guarded = guard.is_some_and(|guard| guard.can_withhold());
        let has_rules = entry.tools.is_some() || entry.approval.is_some() || is_guarded;
        // A guard sees only lists that are made here.
        let is_unchanged =
            !has_rules && guard.is_none() && naming.is_identity() && rewritings.is_empty();
        // Lists that are served while the server rests have to be kept here. Lists for principals
        // that have not signed in are made here.
        let mut traits = entry.client.traits();
        if let Some(canary) = &entry.canary {
            let others = canary.client.traits();
            traits.knows_principals |= others.knows_principals;
            traits.stand_in = traits.stand_in.or(others.stand_in);
        }
        Self {
            is_transparent: is_unchanged && !traits.may_rest && !traits.knows_principals,
            has_listed_tools_only: has_rules
                || naming.renames_any()
                || rewritings.guard_arguments(),
            entry,
            naming,
            rewritings,
            traits,
        }
    }

    /// Whether clients see the same server under the same names as in `other`.
    fn is_seen_as(&self, other: &Self) -> bool {
        let has_same_names = self.naming == other.naming && self.rewritings == other.rewritings;
        let guard = |member: &Self| member.guard.as_ref().map(|guard| guard.number());
        self.id == other.id
            && has_same_names
            && self.tools == other.tools
            && self.results.is_some() == other.results.is_some()
            && guard(self) == guard(other)
    }

    /// The server's name in the configuration.
    pub(crate) fn name(&self) -> &str {
        self.client.name()
    }

    /// The canary that serves this caller instead.
    pub(crate) fn canary_of(&self, caller: &Caller) -> Option<&Canary> {
        let canary = self.canary.as_ref();
        canary.filter(|canary| canary.rule.takes(caller))
    }

    /// The version of the server that serves this caller.
    pub(crate) fn serving(&self, caller: &Caller) -> &Arc<dyn BackendClient> {
        let canary = self.canary_of(caller);
        canary.map_or(&self.client, |canary| &canary.client)
    }

    /// The version of the server whose lists `reader` sees. It has to be given, because a reading
    /// of lists belongs to no session by which the version could be chosen.
    pub(crate) fn client_for(&self, reader: Option<&Reader>) -> &Arc<dyn BackendClient> {
        match (&self.canary, reader) {
            (Some(canary), Some(reader)) if reader.is_moved_from(self.id) => &canary.client,
            _ => &self.client,
        }
    }

    /// Sends a request to the version of the server that serves its caller. The mirror gets copies
    /// only of requests that the server itself answers.
    pub(crate) fn request(&self, call: Call) -> Pending<'_, Response> {
        match (self.canary_of(&call.context.caller), &self.mirror) {
            (Some(canary), _) => canary.client.request(call),
            (None, Some(mirror)) => mirror.request(call),
            (None, None) => self.client.request(call),
        }
    }

    /// Whether calls of any of its tools need approval.
    pub(crate) fn has_approvals(&self) -> bool {
        self.approval.is_some()
    }

    /// The approval rule for calls of one of its tools, by original name. For an unlisted tool, the
    /// rule for all.
    pub(crate) fn approval(&self, tool: Option<&str>) -> Option<ApprovalRule> {
        let ApprovalSettings { without, rule } = self.approval.as_ref()?;
        let is_free = tool.is_some_and(|tool| without.permits(self.name(), tool));
        (!is_free).then_some(*rule)
    }

    /// Whether clients must not reach the tool or prompt `original` by this name, or only after a
    /// check of the arguments.
    pub(crate) fn withholds(&self, original: &str) -> bool {
        self.naming.bare_name(original) != original
            || self
                .rewritings
                .find(original)
                .is_some_and(|tool| tool.guards_arguments())
    }

    /// Whether this is the server's stand-in tool, and no rule withholds it.
    pub(crate) fn is_stand_in(&self, original: &str) -> bool {
        !self.can_withhold()
            && self.traits.stand_in == Some(original)
            && self.permits_tool(original)
            && !self.withholds(original)
    }

    /// Whether clients may only ask for listed prompts.
    pub(crate) fn has_listed_prompts_only(&self) -> bool {
        self.naming.renames_any() || self.can_withhold()
    }

    /// Whether definitions of the server can be withheld from clients.
    pub(crate) fn can_withhold(&self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.can_withhold())
    }

    /// Whether clients may see a definition as the server gives it.
    pub(crate) fn admits(&self, kind: PolicyKind, name: &str, definition: &Json) -> bool {
        self.guard
            .as_ref()
            .is_none_or(|guard| guard.admits(kind, self.name(), name, definition))
    }

    /// Whether clients may see the server's instructions.
    pub(crate) fn admits_instructions(&self, instructions: &Json) -> bool {
        self.guard
            .as_ref()
            .is_none_or(|guard| guard.admits_instructions(self.name(), instructions))
    }

    /// Whether the tool that the server calls `original` exists for clients.
    pub(crate) fn permits_tool(&self, original: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.permits(self.name(), original))
    }
}

fanlight_protocol::opaque!(Topology);

/// The topology for new requests.
pub(crate) struct CurrentTopology {
    value: ArcSwap<Topology>,
    /// Notified of each replacement, for the one task that listens to servers.
    pub(crate) replaced: Notify,
}

impl CurrentTopology {
    pub(crate) fn new(topology: Arc<Topology>) -> Arc<Self> {
        Arc::new(Self {
            value: ArcSwap::new(topology),
            replaced: Notify::new(),
        })
    }

    pub(crate) fn load(&self) -> Arc<Topology> {
        self.value.load_full()
    }

    /// Replaces the topology for new requests. Running requests keep theirs.
    pub(crate) fn replace(&self, topology: Arc<Topology>) {
        self.value.store(topology);
        self.replaced.notify_one();
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One server, its name to clients and its filter.
#[derive(Clone)]
pub struct BackendEntry {
    /// Identifies the server. A changed configuration that keeps the server must keep the id.
    pub id: BackendId,
    /// Sends requests to the server.
    pub client: Arc<dyn BackendClient>,
    /// The prefix of its tools' and prompts' names. `None` means the default: no prefix with one
    /// server, and `<name>__` with several.
    pub prefix: Option<String>,
    /// The tools that exist for clients; `None` for all.
    pub tools: Option<ItemFilter>,
    /// The changes of its tools and prompts.
    pub rewriting: Rewriting,
    /// The calls that need approval.
    pub approval: Option<ApprovalSettings>,
    /// A number for the way in which the server is reached, which approvals are bound to.
    pub place: u64,
    /// The check of the server's definitions; `None` permits all.
    pub guard: Option<Arc<dyn DefinitionGuard>>,
    /// Keeps its lists beyond the end of the process.
    pub store: Option<Arc<dyn ListStore>>,
    /// The version that serves some of its clients.
    pub canary: Option<Canary>,
    /// The version that gets copies of its requests.
    pub mirror: Option<Arc<Mirror>>,
    /// The bounds of its large results; `None` if they pass unchanged.
    pub results: Option<ResultRules>,
    /// Set for another version of a server, which operators see and clients cannot use by name.
    pub is_hidden: bool,
}

/// A version of a server that serves some of its clients. It is a server of its own, under the name
/// that clients know: rights, limits, pins and the audit log use this name. Fanlight itself uses
/// both versions, to listen to them and to read their lists.
///
/// If it is down, calls of its clients fail. A call that may have run must not be sent to another
/// server, and lists of one version do not fit calls of the other. The configuration can take the
/// share back, and so can an operator who switches the canary off.
///
/// The modules `balance`, `load` and `steer` of `tower` choose among equal services, by load or by
/// the request. They are not used: here a client stays at its version with its sessions, tasks,
/// subscriptions and lists.
#[derive(Clone)]
pub struct Canary {
    /// Identifies the canary, like the id of a [`BackendEntry`].
    pub id: BackendId,
    /// Sends requests to the canary.
    pub client: Arc<dyn BackendClient>,
    /// Selects the clients that the canary serves.
    pub rule: Arc<CanaryRule>,
}

/// Canaries are equal if they are the same server for the same clients.
impl PartialEq for Canary {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.rule == other.rule
    }
}

/// The calls of a server's tools that need approval.
#[derive(Clone, Debug)]
pub struct ApprovalSettings {
    /// Permits the tools that need no approval.
    pub without: ItemFilter,
    /// The rule for all other tools.
    pub rule: ApprovalRule,
}

/// Limits on the bytes of lists.
#[derive(Clone, Copy, Debug)]
pub struct ByteLimits {
    /// The most bytes of one list of one server.
    pub one: usize,
    /// The most bytes of all lists of all servers together.
    pub all: usize,
}

/// Limits for reading the lists of servers, and for decisions based on lists.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    /// How long one server may take for one list, all pages together.
    pub timeout: Duration,
    /// The most pages that are read from one server.
    pub pages: usize,
    /// The most entries that are read from one server.
    pub entries: usize,
    /// The number of entries on a page for clients.
    pub page_size: usize,
    /// How many tasks of unknown owners one request may make Fanlight look up at the servers.
    pub unknown_tasks: usize,
    /// Whether Fanlight listens to a server only while a client listens, or while a list of that
    /// server has no lifetime. Set with replicas.
    pub spares_streams: bool,
    /// The most bytes that lists may have.
    pub bytes: ByteLimits,
    /// Whether lists of several servers leave out definitions for which strict clients reject the
    /// whole list.
    pub leaves_out_invalid: bool,
    /// How many unknown notifications from clients are being forwarded at the same time.
    pub client_notifications: usize,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self {
            timeout: limit("list", Duration::from_secs(10)),
            pages: limit("listPages", LIST_PAGES),
            entries: limit("listEntries", LIST_ENTRIES),
            page_size: limit("pageSize", 1000),
            unknown_tasks: 16,
            spares_streams: false,
            bytes: ByteLimits {
                one: limit("listBytes", LIST_BYTES),
                all: 256 << 20,
            },
            leaves_out_invalid: true,
            client_notifications: 64,
        }
    }
}

/// How long changes of one kind are collected, so that a burst is read and announced once.
pub(crate) fn settle_time() -> Duration {
    limit("listSettle", LIST_SETTLE)
}
