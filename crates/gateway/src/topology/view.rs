//! The servers and entries that one endpoint, and one of its clients, may see. All requests of
//! clients go through a [`View`]: what it does not show does not exist for them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::rights::{ItemFilter, is_plain, matches, uri_forms};
use fanlight_canonical::{
    AmbiguousArguments, BackendError, Call, CallContext, Caller, DEFAULT_PATH, Endpoint, Pending,
    PolicyAction, PolicyItem, PolicyKind, PolicyOutcome, PolicySubject, Principal, Rights, Verdict,
};
use fanlight_protocol::{Json, Response, RpcError};
use foldhash::fast::RandomState;
use tokio::time::timeout;

use super::{BackendId, Filtered, ListLimits, Member, Topology};
use crate::fault;

/// A topology as one endpoint shows it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    topology: Arc<Topology>,
    /// The position of the endpoint's rules; `None` if it shows everything.
    rules: Option<usize>,
    /// The reader whose lists it shows; `None` for the common lists.
    reader: Option<Reader>,
    /// The client's rights under the policy; `None` without a policy, or if it permits the client
    /// everything.
    rights: Option<Arc<dyn Rights>>,
    /// The rights of a client that the policy permits everything.
    all_rights: Option<Arc<dyn Rights>>,
    /// Whether the client's list is lean where its endpoint has rules for that.
    may_be_lean: bool,
}

impl View {
    /// The view of a client. Shows nothing if the client's endpoint does not exist.
    pub(crate) fn for_client(topology: Arc<Topology>, client: &CallContext) -> Self {
        let caller = &client.caller;
        let reader = Reader::from_caller(&topology, caller);
        let rights = topology
            .policy
            .as_ref()
            .and_then(|policy| policy.rights_of(client));
        let may_do_all = |rights: &Arc<dyn Rights>| {
            let mut servers = topology.backends().iter().map(Member::name);
            servers.all(|server| rights.is_whole(server))
        };
        // A policy that permits everything changes nothing.
        let (all_rights, rights) = match rights {
            Some(rights) if may_do_all(&rights) => (Some(rights), None),
            rights => (None, rights),
        };
        Self {
            reader,
            rights,
            all_rights,
            may_be_lean: true,
            ..Self::for_endpoint(topology, caller.endpoint())
        }
        .lean_for(client)
    }

    /// The view of `endpoint` with the common lists and without a policy. Shows nothing if the
    /// endpoint does not exist.
    pub(crate) fn for_endpoint(topology: Arc<Topology>, endpoint: &Endpoint) -> Self {
        Self {
            rules: topology.endpoints.position(endpoint),
            ..Self::everything(&topology)
        }
    }

    /// The view of all servers and entries, with the common lists.
    pub(crate) fn everything(topology: &Arc<Topology>) -> Self {
        Self::everything_for(topology, None)
    }

    /// The view of all servers and entries, with the lists of a reader.
    pub(crate) fn everything_for(topology: &Arc<Topology>, reader: Option<&Reader>) -> Self {
        Self {
            topology: Arc::clone(topology),
            rules: None,
            reader: reader.cloned(),
            rights: None,
            all_rights: None,
            may_be_lean: false,
        }
    }

    /// Whether answers may depend on the client's rights.
    pub(crate) fn has_policy(&self) -> bool {
        self.topology.policy.is_some()
    }

    /// The view of all servers and entries, with the lists of the same reader.
    pub(crate) fn without_filters(&self) -> Self {
        Self::everything_for(&self.topology, self.reader())
    }

    /// The same view with the lists of another reader.
    pub(crate) fn with_reader(self, reader: Option<&Reader>) -> Self {
        Self {
            reader: reader.cloned(),
            ..self
        }
    }

    /// The reader whose lists it shows; `None` for the common lists.
    pub(crate) fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// The client's rights under the policy; `None` without a policy, or if it permits the client
    /// everything.
    pub(crate) fn rights(&self) -> Option<&Arc<dyn Rights>> {
        self.rights.as_ref()
    }

    /// The rights of a client that the policy permits everything.
    pub(crate) fn all_rights(&self) -> Option<&Arc<dyn Rights>> {
        self.all_rights.as_ref()
    }

    /// The same view without the policy.
    pub(crate) fn without_policy(&self) -> Self {
        Self {
            rights: None,
            ..self.clone()
        }
    }

    /// The policy's verdict about an action on a visible item; `None` without a policy.
    pub(crate) fn verdict(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Option<Result<Verdict, AmbiguousArguments>> {
        self.rights
            .as_ref()
            .map(|rights| rights.decide(action, item, arguments))
    }

    /// The whole topology.
    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The limits of all lists.
    pub(crate) fn limits(&self) -> &ListLimits {
        &self.topology.limits
    }

    /// The position of its rules, for caching results by them; `None` if it shows every entry.
    pub(crate) fn position(&self) -> Option<usize> {
        self.rules
            .filter(|_| self.rules().is_some_and(|rules| !rules.shows_all_entries()))
    }

    fn rules(&self) -> Option<&Rules> {
        self.topology.endpoints.rules(self.rules?)
    }

    /// The view of a client that may declare a name for which lists are not lean.
    fn lean_for(mut self, client: &CallContext) -> Self {
        if let Some(rules) = self.lean_rules().filter(|rules| !rules.except.is_empty()) {
            let info = client.client_info.as_ref();
            let name = info
                .and_then(|info| info.text_at("name"))
                .unwrap_or_default();
            self.may_be_lean = !rules.except.iter().any(|pattern| matches(pattern, &name));
        }
        self
    }

    /// The rules of the client's lean list, if it has one.
    pub(crate) fn lean_rules(&self) -> Option<&LeanRules> {
        self.rules()?
            .entry
            .lean
            .as_ref()
            .filter(|_| self.may_be_lean)
    }

    /// The bounds of large results: the endpoint's, else the server's.
    pub(crate) fn results(&self, of: Option<BackendId>) -> Option<&ResultRules> {
        let of_endpoint = self.rules().and_then(|rules| rules.entry.results.as_ref());
        of_endpoint.or_else(|| self.get(of?)?.results.as_ref())
    }

    /// Whether large results of any visible server are shortened.
    pub(crate) fn has_results(&self) -> bool {
        self.results(None).is_some()
            || (self.topology.has_results && self.backends().any(|it| it.results.is_some()))
    }

    /// The visible servers in configuration order.
    pub(crate) fn backends(&self) -> impl DoubleEndedIterator<Item = &Member> + Clone {
        let shown = |(position, backend)| self.shows_at(position, backend).then_some(backend);
        self.topology
            .backends()
            .iter()
            .enumerate()
            .filter_map(shown)
    }

    /// Whether the endpoint shows the server at a position, and the policy lets the client use
    /// anything of it.
    fn shows_at(&self, position: usize, backend: &Member) -> bool {
        self.rules()
            .is_none_or(|rules| rules.shows_backend(position))
            && self
                .rights
                .as_ref()
                .is_none_or(|rights| rights.reaches(backend.name()))
    }

    /// The visible server that an alias belongs to, and the server's own URI for the resource.
    pub(crate) fn unalias(&self, uri: &str) -> Option<(&Member, String)> {
        let owned = self.topology.unalias(uri);
        owned.filter(|(backend, _)| self.shows(backend.id))
    }

    /// The ids of the visible servers in configuration order.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = BackendId> + Clone {
        self.backends().map(|backend| backend.id)
    }

    /// A visible server.
    pub(crate) fn get(&self, backend: BackendId) -> Option<&Member> {
        let position = self.topology.position(backend)?;
        self.topology
            .backends()
            .get(position)
            .filter(|backend| self.shows_at(position, backend))
    }

    /// Whether a server is visible.
    pub(crate) fn shows(&self, backend: BackendId) -> bool {
        self.get(backend).is_some()
    }

    /// The name of a server; empty if it is not visible.
    pub(crate) fn name(&self, backend: BackendId) -> &str {
        self.get(backend).map_or("", Member::name)
    }

    /// The visible servers from the one with this name on; none if no visible server has the name.
    pub(crate) fn backends_from<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = &'a Member> + use<'a> {
        let first = self
            .backends()
            .find(|backend| backend.name() == name)
            .map(|backend| backend.id);
        let all = self
            .backends()
            .skip_while(move |backend| Some(backend.id) != first);
        all.filter(move |_| first.is_some())
    }

    /// The only server of the topology, if everything of it passes unchanged.
    pub(crate) fn transparent_server(&self) -> Option<&Member> {
        let is_whole = self.rights.is_none() && self.rules().is_none_or(Rules::shows_all_entries);
        self.topology.transparent_server().filter(|_| is_whole)
    }

    /// The only visible server, if all its entries are visible.
    pub(crate) fn only_server(&self) -> Option<&Member> {
        let mut backends = self.backends();
        let only = backends.next().filter(|_| !self.has_filters())?;
        backends.next().is_none().then_some(only)
    }

    /// Whether entries of visible servers are hidden.
    pub(crate) fn has_filters(&self) -> bool {
        self.rights.is_some() || self.has_filter_rules()
    }

    /// Whether everything of a server passes, also what Fanlight does not know: such a method or
    /// notification could name anything.
    pub(crate) fn passes_all_of(&self, backend: BackendId) -> bool {
        let is_whole = |rights: &Arc<dyn Rights>| rights.is_whole(self.topology.name(backend));
        !self.has_filter_rules() && self.rights.as_ref().is_none_or(is_whole)
    }

    /// Whether a server may get this method or notification, which Fanlight does not know. No filter
    /// or rule about arguments would hold for it.
    pub(crate) fn passes_unknown(&self, backend: &Member, method: &str) -> bool {
        let is_sent = |rights: &Arc<dyn Rights>| {
            rights.judge_sending(backend.name(), method).outcome == PolicyOutcome::Allowed
        };
        !backend.has_listed_tools_only
            && !self.has_filter_rules()
            && self.rights.as_ref().is_none_or(is_sent)
    }

    /// Whether entries of this kind are hidden.
    pub(crate) fn filters(&self, kind: Filtered) -> bool {
        self.rights.is_some() || self.filter(kind).is_some()
    }

    /// Whether the endpoint itself hides entries.
    fn has_filter_rules(&self) -> bool {
        self.rules().is_some_and(|rules| rules.has_filters)
    }

    /// The endpoint's own filter of entries of this kind.
    fn filter(&self, kind: Filtered) -> Option<&ItemFilter> {
        filter_of(&self.rules()?.entry, kind)
    }

    /// Whether no entry of this kind is visible.
    pub(crate) fn shows_none(&self, kind: Filtered) -> bool {
        self.filter(kind)
            .is_some_and(|filter| filter.permits_nothing())
    }

    /// Whether the tool or prompt that `backend` calls `original`, with this definition, is
    /// visible. If the policy depends on a tool's definition, the tool is hidden without one.
    pub(crate) fn permits_name(
        &self,
        kind: Filtered,
        backend: BackendId,
        original: &str,
        definition: Option<&Json>,
    ) -> bool {
        let filter = self.filter(kind);
        let server = self.topology.name(backend);
        let signs_in = self.rights.is_some()
            && kind == Filtered::Tools
            && self
                .get(backend)
                .is_some_and(|member| member.is_stand_in(original));
        let kind = if kind == Filtered::Tools {
            PolicyKind::Tool
        } else {
            PolicyKind::Prompt
        };
        filter.is_none_or(|filter| filter.permits(server, original))
            && self.may_use(&PolicyItem {
                kind,
                server,
                name: original.into(),
                definition,
            })
            && (!signs_in || self.permits_sign_in(backend))
    }

    /// Whether the listed resource or template with the server's URI `uri` is visible.
    pub(crate) fn permits_uri(&self, backend: BackendId, uri: &str) -> bool {
        self.is_shown_uri(backend, uri) && self.may_use(&self.resource(backend, uri))
    }

    /// Whether the skill with the server's URI `uri` is visible, apart from the check of its files.
    pub(crate) fn permits_skill(&self, backend: BackendId, uri: &str) -> bool {
        let skill = PolicyItem {
            kind: PolicyKind::Skill,
            ..self.resource(backend, uri)
        };
        self.permits_uri(backend, uri) && self.may_use(&skill)
    }

    /// The resource or template with the server's URI `uri`, as policies see it.
    pub(crate) fn resource<'a>(&'a self, backend: BackendId, uri: &'a str) -> PolicyItem<'a> {
        PolicyItem {
            kind: PolicyKind::from_uri(uri),
            server: self.topology.name(backend),
            name: uri.into(),
            definition: None,
        }
    }

    /// Whether the policy lets the client subscribe to the visible resource with the server's URI
    /// `uri`.
    pub(crate) fn permits_subscription(&self, backend: BackendId, uri: &str) -> bool {
        let verdict = self.verdict(PolicyAction::Subscribe, &self.resource(backend, uri), None);
        verdict.is_none_or(|verdict| {
            verdict.is_ok_and(|verdict| verdict.outcome == PolicyOutcome::Allowed)
        })
    }

    /// Whether the policy lets the client sign in at a server.
    pub(crate) fn permits_sign_in(&self, backend: BackendId) -> bool {
        self.may_use(&PolicyItem::from_server(self.topology.name(backend)))
    }

    /// The error for a request that a server did not answer. It asks only clients to sign in that
    /// may do so.
    pub(crate) fn no_answer(&self, backend: BackendId, error: &BackendError) -> RpcError {
        match error.sign_in() {
            Some(_) if !self.permits_sign_in(backend) => fault::no_sign_in(self.name(backend)),
            _ => fault::no_answer(self.name(backend), error),
        }
    }

    /// Whether the policy still permits an earlier action of the client; `None` if that action is
    /// unknown.
    pub(crate) fn permits_again(&self, done: Option<&PolicySubject>) -> bool {
        if self.rights.is_none() {
            return true;
        }
        let verdict = done.and_then(|done| self.verdict_again(done));
        verdict.is_some_and(|verdict| verdict.is_ok_and(|verdict| !verdict.outcome.is_denial()))
    }

    /// The policy's current verdict about an earlier action of the client; `None` without a policy.
    pub(crate) fn verdict_again(
        &self,
        done: &PolicySubject,
    ) -> Option<Result<Verdict, AmbiguousArguments>> {
        let (rights, item) = (self.rights.as_ref()?, done.item());
        let listing = rights.listing(&item);
        Some(match listing.outcome {
            PolicyOutcome::Hidden => Ok(listing),
            _ => rights.decide(done.action, &item, done.arguments.as_ref()),
        })
    }

    /// Whether the client may learn that the resource with the server's URI `uri` has changed.
    pub(crate) fn permits_update(&self, backend: BackendId, uri: &str) -> bool {
        self.permits_unlisted_uri(backend, uri) && self.permits_subscription(backend, uri)
    }

    fn may_use(&self, item: &PolicyItem<'_>) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.shows(item))
    }

    fn is_shown_uri(&self, backend: BackendId, uri: &str) -> bool {
        let Some(filter) = self.filter(Filtered::Resources) else {
            return true;
        };
        let server = self.topology.name(backend);
        if !filter.permits(server, uri) {
            return false;
        }
        uri_forms(uri)
            .iter()
            .all(|form| !filter.denies_folded(server, form))
    }

    /// Whether the unlisted resource with the server's URI `uri` is visible. With a filter, only a
    /// URI that has a single reading exists, because the server may read others in another way than
    /// the pattern.
    pub(crate) fn permits_unlisted_uri(&self, backend: BackendId, uri: &str) -> bool {
        self.passes_all_of(backend)
            || !self.filters(Filtered::Resources)
            || (is_plain(uri) && self.permits_uri(backend, uri))
    }

    /// Whether the client may do `action` with the unlisted resource with the server's URI `uri`. An
    /// endpoint with a filter on resources has none.
    pub(crate) fn permits_unlisted(
        &self,
        action: PolicyAction,
        backend: BackendId,
        uri: &str,
    ) -> bool {
        let item = PolicyItem {
            kind: match action {
                PolicyAction::GetSkill => PolicyKind::Skill,
                _ => PolicyKind::from_uri(uri),
            },
            ..self.resource(backend, uri)
        };
        let is_permitted = || {
            let verdict = self.verdict(action, &item, None);
            verdict.is_none_or(|verdict| verdict.is_ok_and(|it| !it.outcome.is_denial()))
        };
        self.filter(Filtered::Resources).is_none()
            && self.permits_unlisted_uri(backend, uri)
            && self.may_use(&item)
            && is_permitted()
    }

    /// The endpoint's own instructions, if it has any.
    pub(crate) fn instructions(&self) -> Option<Json> {
        self.rules()?
            .entry
            .instructions
            .as_deref()
            .map(Json::string)
    }

    /// Sends a request to a visible server, and waits as long as a call may take.
    pub(crate) async fn send(&self, backend: BackendId, call: Call) -> Result<Response, RpcError> {
        let answer = self.request(backend, call).await;
        answer.map_err(|error| self.no_answer(backend, &error))
    }

    /// Sends a request to a visible server; the error is the server's own.
    pub(crate) fn request(&self, backend: BackendId, call: Call) -> Pending<'_, Response> {
        match self.get(backend) {
            Some(backend) => backend.request(call),
            None => Box::pin(std::future::ready(Err(BackendError::ShuttingDown))),
        }
    }

    /// The capabilities of a server; connects first if needed.
    pub(crate) async fn capabilities(&self, backend: BackendId) -> Result<Json, BackendError> {
        let Some(backend) = self.get(backend) else {
            return Err(BackendError::ShuttingDown);
        };
        Ok(backend
            .client_for(self.reader())
            .describe(&CallContext::internal())
            .await?
            .capabilities()
            .unwrap_or_else(Json::empty_object))
    }

    /// Whether a server has `capability`. `false` if it does not answer within the time for a list.
    pub(crate) async fn has_capability(&self, backend: BackendId, capability: &str) -> bool {
        let capabilities = self.wait_briefly(self.capabilities(backend)).await;
        capabilities.is_ok_and(|all| all.get(capability).is_some())
    }

    /// Waits no longer than one server may take for a list.
    pub(crate) async fn wait_briefly<T>(
        &self,
        answer: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.limits().timeout;
        timeout(limit, answer)
            .await
            .unwrap_or(Err(BackendError::Timeout {
                after: limit,
                sent: true,
            }))
    }
}

/// Clients that see lists of their own: private lists of a principal, and lists of another version
/// of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reader {
    principal: Principal,
    /// The servers whose canary serves these clients, each with the canary's id. Readings of an
    /// earlier canary are useless.
    moved: Vec<(BackendId, BackendId)>,
}

impl Reader {
    /// The reader that a client belongs to. `None` for clients that get the common lists: those
    /// without authentication, unless a canary serves them.
    pub(crate) fn from_caller(topology: &Topology, caller: &Caller) -> Option<Self> {
        let moved = if topology.has_canaries {
            topology
                .backends()
                .iter()
                .filter_map(|backend| Some((backend.id, backend.canary_of(caller)?.id)))
                .collect()
        } else {
            Vec::new()
        };
        let principal = caller.principal();
        (principal.is_named() || !moved.is_empty()).then(|| Self {
            principal: principal.clone(),
            moved,
        })
    }

    /// The principal that lists are read for.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether the canary of this server serves this reader.
    pub(crate) fn is_moved_from(&self, backend: BackendId) -> bool {
        self.moved.iter().any(|(from, _)| *from == backend)
    }

    /// Whether the reader has its own part of this server's list; `is_private` says whether the
    /// server calls its list private.
    pub(crate) fn has_own_part(&self, backend: BackendId, is_private: bool) -> bool {
        (is_private && self.principal.is_named()) || self.is_moved_from(backend)
    }
}

#[cfg(test)]
impl From<Principal> for Reader {
    fn from(principal: Principal) -> Self {
        Self {
            principal,
            moved: Vec::new(),
        }
    }
}

/// One endpoint.
#[derive(Clone, Default)]
pub struct EndpointEntry {
    /// The path, compared exactly.
    pub path: Arc<str>,
    /// The servers that the endpoint shows, by name; `None` shows all.
    pub servers: Option<Vec<String>>,
    /// The tools that the endpoint shows, by server and original name; `None` shows all.
    pub tools: Option<ItemFilter>,
    /// The prompts that the endpoint shows, by server and original name; `None` shows all.
    pub prompts: Option<ItemFilter>,
    /// The resources, templates and skills that the endpoint shows, by server and the server's URI;
    /// `None` shows all.
    pub resources: Option<ItemFilter>,
    /// The instructions that clients get instead of the servers' instructions.
    pub instructions: Option<String>,
    /// The rules of its lean list; `None` for the full list.
    pub lean: Option<LeanRules>,
    /// The bounds of large results; `None` for the servers' own bounds.
    pub results: Option<ResultRules>,
}

/// The bounds of large results at an endpoint or of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRules {
    /// The endpoint or server, as one text. Results of one are kept in room of its own.
    pub section: Arc<str>,
    /// The longest result that passes unchanged, in bytes.
    pub inline: usize,
    /// The time for which a result is kept at most.
    pub keep_for: Duration,
    /// The bytes in memory.
    pub memory: usize,
    /// The bytes on disk.
    pub disk: usize,
}

/// When and how an endpoint's list of tools is lean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanRules {
    /// The tools that are always listed, by server and original name.
    pub always: ItemFilter,
    /// The estimated tokens of the full list up to which it is not lean.
    pub max: Option<usize>,
    /// Patterns of the names of clients that get the full list, as they declare them.
    pub except: Vec<String>,
    /// Groups of tools, by name, besides the servers.
    pub groups: Vec<(String, ItemFilter)>,
}

/// The endpoints of a topology.
pub(crate) struct Endpoints {
    /// The rules of all endpoints. The last element has no path and shows nothing.
    all: Vec<Rules>,
    by_path: HashMap<Arc<str>, usize, RandomState>,
}

/// One endpoint of a topology.
struct Rules {
    entry: EndpointEntry,
    /// Whether the endpoint shows each server of the topology; `None` shows all.
    backends: Option<Vec<bool>>,
    /// Each call asks for it.
    has_filters: bool,
}

impl Endpoints {
    pub(super) fn new(endpoints: Vec<EndpointEntry>, backends: &[Member]) -> Arc<Self> {
        let mut all: Vec<_> = endpoints
            .into_iter()
            .map(|entry| Rules::new(entry, backends))
            .collect();
        let by_path = all
            .iter()
            .enumerate()
            .map(|(position, rules)| (Arc::clone(&rules.entry.path), position))
            .collect();
        all.push(Rules::deny_all(backends.len()));
        Arc::new(Self { all, by_path })
    }

    /// The endpoint at this request path, compared exactly. Only if no endpoints are configured,
    /// slashes at the end are ignored.
    pub(crate) fn find(&self, path: &str) -> Option<Endpoint> {
        if !self.are_configured() {
            let is_default = path.trim_end_matches('/') == DEFAULT_PATH;
            return is_default.then_some(Endpoint::Default);
        }
        let (path, _) = self.by_path.get_key_value(path)?;
        Some(Endpoint::from_path(Arc::clone(path)))
    }

    /// All endpoints with their paths, in configuration order.
    pub(crate) fn list(&self) -> Vec<(String, Endpoint)> {
        if !self.are_configured() {
            return vec![(DEFAULT_PATH.to_owned(), Endpoint::Default)];
        }
        let paths = self
            .all
            .iter()
            .map(|rules| &rules.entry.path)
            .filter(|path| self.by_path.contains_key(*path));
        paths
            .filter_map(|path| Some((path.to_string(), self.find(path)?)))
            .collect()
    }

    /// The position of an endpoint's rules; `None` if it shows everything. An unknown endpoint
    /// shows nothing.
    fn position(&self, endpoint: &Endpoint) -> Option<usize> {
        let path = match endpoint {
            Endpoint::Everything => return None,
            Endpoint::Default if !self.are_configured() => return None,
            Endpoint::Default | Endpoint::At(_) => endpoint.full_path(),
        };
        let nothing = self.all.len().saturating_sub(1);
        let position = self.by_path.get(path).copied().unwrap_or(nothing);
        self.all
            .get(position)
            .is_none_or(|rules| !rules.shows_everything())
            .then_some(position)
    }

    /// The position of an endpoint's rules; `None` if it shows every entry.
    pub(crate) fn hiding_position(&self, endpoint: &Endpoint) -> Option<usize> {
        self.position(endpoint).filter(|position| {
            self.rules(*position)
                .is_some_and(|rules| !rules.shows_all_entries())
        })
    }

    fn rules(&self, position: usize) -> Option<&Rules> {
        self.all.get(position)
    }

    /// Whether any endpoint has lean lists.
    pub(crate) fn has_lean_lists(&self) -> bool {
        self.all.iter().any(|rules| rules.entry.lean.is_some())
    }

    /// The number of elements, including the one that shows nothing.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether both have the same rules.
    pub(super) fn show_the_same_as(&self, other: &Self) -> bool {
        self.all.len() == other.all.len()
            && self
                .all
                .iter()
                .zip(&other.all)
                .all(|(one, other)| one.is_same_as(other))
    }

    fn are_configured(&self) -> bool {
        !self.by_path.is_empty()
    }
}

fanlight_protocol::opaque!(Endpoints);

impl Rules {
    fn new(entry: EndpointEntry, backends: &[Member]) -> Self {
        let shown = |servers: &Vec<String>| -> Vec<bool> {
            backends
                .iter()
                .map(|backend| servers.iter().any(|name| name == backend.name()))
                .collect()
        };
        let shown = entry.servers.as_ref().map(shown);
        let has_filter = |kind| filter_of(&entry, kind).is_some();
        Self {
            backends: shown.filter(|shown| shown.contains(&false)),
            has_filters: Filtered::ALL.into_iter().any(has_filter),
            entry,
        }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        let (one, other_one) = (&self.entry, &other.entry);
        one.path == other_one.path
            && self.backends == other.backends
            && one.instructions == other_one.instructions
            && one.lean == other_one.lean
            && one.results.is_some() == other_one.results.is_some()
            && Filtered::ALL
                .into_iter()
                .all(|kind| filter_of(one, kind) == filter_of(other_one, kind))
    }

    fn deny_all(backends: usize) -> Self {
        Self {
            entry: EndpointEntry::default(),
            backends: Some(vec![false; backends.max(1)]),
            has_filters: false,
        }
    }

    fn shows_everything(&self) -> bool {
        let EndpointEntry {
            instructions,
            results,
            ..
        } = &self.entry;
        self.shows_all_entries() && instructions.is_none() && results.is_none()
    }

    /// Whether the endpoint lists all entries of all servers.
    fn shows_all_entries(&self) -> bool {
        self.backends.is_none() && !self.has_filters && self.entry.lean.is_none()
    }

    fn shows_backend(&self, position: usize) -> bool {
        self.backends
            .as_ref()
            .is_none_or(|shown| shown.get(position) == Some(&true))
    }
}

/// The endpoint's filter of entries of this kind.
fn filter_of(entry: &EndpointEntry, kind: Filtered) -> Option<&ItemFilter> {
    match kind {
        Filtered::Tools => entry.tools.as_ref(),
        Filtered::Prompts => entry.prompts.as_ref(),
        Filtered::Resources => entry.resources.as_ref(),
    }
}
