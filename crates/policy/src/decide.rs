//! The decisions: selects the rules that may concern a client, and evaluates them for an item.
//!
//! A decision that does not depend on arguments is remembered for all clients that the policies
//! treat alike. An error in a forbidding policy counts as met; an error in a permitting policy
//! counts as not met.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Entities, Entity, EntityUid,
    EvaluationError, Policy as CedarPolicy, PolicyId, PolicySet, PrincipalConstraint, Request,
    RestrictedExpression,
};
use fanlight_canonical::{
    AmbiguousArguments, CallContext, Policy, PolicyAction, PolicyItem, PolicyKind, PolicyOutcome,
    Rights, Verdict,
};
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use foldhash::fast::RandomState;
use quick_cache::Equivalent;
use quick_cache::sync::Cache;

use crate::arguments::{LookedAt, ReadArguments};
use crate::attributes::{Differences, SeenClient, uid};
use crate::expression::{ARGUMENTS, Arguments, Reads};
use crate::rule::{Rule, rules};
use crate::shorthand::Allowance;
use crate::source::{InvalidPolicy, PolicyText};
use crate::typed::TYPES;

/// The most clients whose rights are kept. Clients that the policies treat alike count as one.
const CLIENTS: usize = 1_024;
/// The most decisions that are remembered: for 64 clients with 1,000 items each. One takes about
/// 250 bytes.
const DECISIONS: usize = 65_536;
/// The longest name for which decisions are remembered, in bytes.
const LONGEST: usize = 256;

/// The settings from which policies are made.
#[derive(Clone, Debug, Default)]
pub struct PolicySettings {
    /// The files with policies.
    pub texts: Vec<PolicyText>,
    /// The `allow` entries of the configuration.
    pub allowances: Vec<Allowance>,
    /// Whether an action is permitted if no policy concerns it.
    pub permits_by_default: bool,
    /// The path of the default endpoint.
    pub default_path: String,
    /// The configured servers.
    pub servers: Vec<ServerFacts>,
}

impl PolicySettings {
    /// The [number](Policy::number) of the policies with these settings.
    #[must_use]
    pub fn number(&self) -> u64 {
        foldhash::quality::FixedState::default().hash_one(format!("{self:?}"))
    }
}

/// A configured server, as far as policies depend on it.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The server's name.
    pub name: String,
    /// The server's tags.
    pub tags: Vec<String>,
}

/// The policies in force.
#[derive(Debug)]
pub struct Policies {
    shared: Arc<Shared>,
    clients: Cache<String, Arc<ClientRights>>,
}

/// The data that all clients' rights share.
#[derive(Debug)]
struct Shared {
    /// Computed from the settings alone, so equal policies have equal numbers in every process.
    number: u64,
    rules: Vec<Rule>,
    by_id: HashMap<PolicyId, usize, RandomState>,
    differences: Differences,
    default_path: String,
    tags: HashMap<String, Vec<String>, RandomState>,
    authorizer: Authorizer,
    /// The decisions that do not depend on arguments.
    decided: Cache<DecisionKey, Verdict>,
}

impl Policies {
    /// Creates the policies from `settings`.
    ///
    /// # Errors
    ///
    /// All faults in them.
    pub fn new(settings: PolicySettings) -> Result<Self, Vec<InvalidPolicy>> {
        let number = settings.number();
        let PolicySettings {
            mut texts,
            allowances,
            permits_by_default,
            default_path,
            servers,
        } = settings;
        texts.extend(allowances.iter().map(Allowance::text));
        if permits_by_default {
            let text = "@id(\"default\")\npermit(principal, action, resource);".to_owned();
            texts.push(PolicyText {
                name: "policy.default".into(),
                text,
            });
        }
        let rules = rules(&texts)?;
        let by_id = rules
            .iter()
            .enumerate()
            .map(|(at, rule)| (rule.policy.id().clone(), at))
            .collect();
        let differences = Differences::of(&rules);
        let tags = servers
            .into_iter()
            .map(|ServerFacts { name, tags }| (name, tags))
            .collect();
        let (authorizer, decided) = (Authorizer::new(), Cache::new(DECISIONS));
        let shared = Shared {
            number,
            rules,
            by_id,
            differences,
            default_path,
            tags,
            authorizer,
            decided,
        };
        Ok(Self {
            shared: Arc::new(shared),
            clients: Cache::new(CLIENTS),
        })
    }

    /// The policies in the language Cedar, including those made from `allow`.
    pub fn written(&self) -> impl Iterator<Item = (&str, String)> {
        self.shared
            .rules
            .iter()
            .map(|rule| (&*rule.id, rule.policy.to_string()))
    }

    fn rights(&self, client: &CallContext) -> Option<Arc<ClientRights>> {
        let identity = client.caller.identity()?;
        let endpoint = client
            .caller
            .endpoint()
            .path()
            .map_or(self.shared.default_path.as_str(), |path| path);
        let key = self.shared.differences.key(client, identity, endpoint);
        if let Some(kept) = self.clients.get(&key) {
            return Some(kept);
        }
        let Some(seen) = self.shared.differences.seen(client, identity) else {
            return Some(Arc::new(ClientRights::none(&self.shared)));
        };
        let rights = Arc::new(ClientRights::new(&self.shared, seen, endpoint));
        self.clients.insert(key, Arc::clone(&rights));
        Some(rights)
    }

    /// Explains whether an item exists for a client, and whether the client may use it.
    #[must_use]
    pub fn explain(
        &self,
        client: &CallContext,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Option<Explanation> {
        let rights = self.rights(client)?;
        let (listed, mut notes) = rights.listed(item);
        let action = item.kind.use_action();
        let verdict = match listed.outcome {
            PolicyOutcome::Hidden => Ok(listed.clone()),
            _ => rights
                .decided(action, item, arguments)
                .map(|(verdict, more)| {
                    notes.extend(more);
                    verdict
                }),
        };
        Some(Explanation {
            is_listed: listed.outcome != PolicyOutcome::Hidden,
            verdict,
            notes,
        })
    }
}

/// The explanation whether an item exists for a client, and whether the client may use it.
#[derive(Debug)]
pub struct Explanation {
    /// Whether the item is in the client's lists.
    pub is_listed: bool,
    /// The verdict about using the item.
    pub verdict: Result<Verdict, AmbiguousArguments>,
    /// Errors in policies, and their consequences.
    pub notes: Vec<String>,
}

impl Policy for Policies {
    fn number(&self) -> u64 {
        self.shared.number
    }

    fn rights_of(&self, client: &CallContext) -> Option<Arc<dyn Rights>> {
        Some(self.rights(client)? as Arc<dyn Rights>)
    }
}

/// The rights of all clients that the policies treat alike.
#[derive(Debug)]
struct ClientRights {
    number: u64,
    shared: Arc<Shared>,
    /// `None` for a client without any rights.
    client: Option<SeenClient>,
    endpoint: Option<Entity>,
    /// The rules, by action.
    actions: [OnceLock<ActionRules>; PolicyAction::ALL.len()],
    /// Whether the client might use anything of a server, by server name.
    reached: Mutex<HashMap<Box<str>, bool, RandomState>>,
}

/// The rules that may concern an action of a client.
#[derive(Debug)]
struct ActionRules {
    /// The rules for unknown arguments.
    without_arguments: ByItem,
    /// The rules for known arguments, if any rule reads arguments.
    whole: Option<(ByItem, LookedAt)>,
    /// Whether any rule [hides](Rule::hides) something.
    hides: bool,
}

/// Policies by item. Most policies that name an item concern another one, and need not be
/// evaluated.
#[derive(Debug, Default)]
struct ByItem {
    /// The policies that name no item.
    others: PolicySet,
    /// The other policies, by the item that they name.
    named: HashMap<Box<str>, Vec<CedarPolicy>, RandomState>,
}

impl ByItem {
    fn of<'a>(policies: impl Iterator<Item = (&'a Rule, CedarPolicy)>) -> Self {
        let mut named: HashMap<_, Vec<_>, _> = HashMap::default();
        let mut others = Vec::new();
        for (rule, policy) in policies {
            match &rule.item {
                Some(item) => named.entry(item.clone()).or_default().push(policy),
                None => others.push(policy),
            }
        }
        // Without any policy nothing is permitted.
        PolicySet::from_policies(others)
            .map(|others| Self { others, named })
            .unwrap_or_default()
    }

    /// The policies that may concern an item.
    fn about(&self, item: &PolicyItem<'_>) -> Cow<'_, PolicySet> {
        if self.named.is_empty() {
            return Cow::Borrowed(&self.others);
        }
        let Some(named) = self.named.get(&*id(item)) else {
            return Cow::Borrowed(&self.others);
        };
        let mut all = self.others.clone();
        let are_added = named.iter().all(|policy| all.add(policy.clone()).is_ok());
        Cow::Owned(if are_added { all } else { PolicySet::default() })
    }
}

/// The id of an item in policies.
fn id(item: &PolicyItem<'_>) -> String {
    format!("{}/{}", item.server, item.name)
}

/// The key of a remembered decision. Keys are looked up with borrowed names, and stored with owned
/// names.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DecisionKey<Name = Box<str>> {
    /// The [number](Rights::number) of the client's rights.
    rights: u64,
    action: PolicyAction,
    kind: PolicyKind,
    server: Name,
    name: Name,
    hints: Hints,
}

impl Equivalent<DecisionKey> for DecisionKey<&str> {
    fn equivalent(&self, kept: &DecisionKey) -> bool {
        let DecisionKey {
            rights,
            action,
            kind,
            server,
            name,
            hints,
        } = kept;
        *self
            == DecisionKey {
                rights: *rights,
                action: *action,
                kind: *kind,
                server,
                name,
                hints: *hints,
            }
    }
}

/// The hints that a server gives about a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Hints([Option<bool>; 4]);

impl Hints {
    const NAMES: [&str; 4] = [
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ];

    fn of(item: &PolicyItem<'_>) -> Self {
        let definition = item.definition.filter(|_| item.kind == PolicyKind::Tool);
        let Some(annotations) = definition.and_then(|definition| definition.get("annotations"))
        else {
            return Self::default();
        };
        let hint = |name| {
            annotations
                .peek(name)
                .filter(|hint| hint.kind() == Kind::Bool)
        };
        Self(Self::NAMES.map(|name| hint(name).map(|hint| hint.is_true())))
    }
}

/// The result of evaluating a set of rules.
struct Said {
    decision: Decision,
    /// The rules that decided, in configuration order.
    policies: Vec<usize>,
    notes: Vec<String>,
}

impl ClientRights {
    fn new(shared: &Arc<Shared>, client: SeenClient, endpoint: &str) -> Self {
        let path = RestrictedExpression::new_string(endpoint.to_owned());
        let endpoint = uid("Endpoint", endpoint).and_then(|uid| {
            Entity::new(
                uid,
                [("path".to_owned(), path)].into(),
                std::collections::HashSet::new(),
            )
            .ok()
        });
        Self {
            client: Some(client),
            endpoint,
            ..Self::none(shared)
        }
    }

    /// The rights of a client that may do nothing.
    fn none(shared: &Arc<Shared>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(shared),
            client: None,
            endpoint: None,
            actions: Default::default(),
            reached: Mutex::default(),
        }
    }

    fn rules(&self, action: PolicyAction) -> &ActionRules {
        let at = PolicyAction::ALL
            .iter()
            .position(|one| *one == action)
            .unwrap_or_default();
        static NOTHING: OnceLock<ActionRules> = OnceLock::new();
        let kept = self.actions.get(at).unwrap_or(&NOTHING);
        kept.get_or_init(|| self.rules_about(action))
    }

    /// The rules that may concern an action of the client.
    fn about(&self, action: PolicyAction) -> impl Iterator<Item = &Rule> {
        let client = self.client.as_ref();
        let is_about_client =
            move |rule: &&Rule| client.is_some_and(|client| may_be_about(rule, client));
        self.shared
            .rules
            .iter()
            .filter(move |rule| rule.is_about(action))
            .filter(is_about_client)
    }

    fn rules_about(&self, action: PolicyAction) -> ActionRules {
        let takes_arguments = matches!(action, PolicyAction::Call | PolicyAction::Get);
        let about: Vec<_> = self.about(action).collect();
        // Rules about arguments do not matter for actions without arguments.
        let listed = about
            .iter()
            .filter(|rule| takes_arguments || !rule.reads_arguments());
        let listed = listed.filter_map(|rule| Some((*rule, rule.listed.clone()?)));
        let mut reads = Reads::default();
        about
            .iter()
            .filter(|rule| rule.reads_arguments())
            .for_each(|rule| reads.and(&rule.reads));
        let whole = (takes_arguments && reads.arguments.is_some()).then(|| {
            let all = about.iter().map(|rule| (*rule, rule.whole.clone()));
            (ByItem::of(all), LookedAt::of(&reads))
        });
        ActionRules {
            without_arguments: ByItem::of(listed),
            whole,
            hides: about.iter().any(|rule| rule.hides()),
        }
    }

    /// Whether the client is shown an item, and which rules decide that.
    fn listed(&self, item: &PolicyItem<'_>) -> (Verdict, Vec<String>) {
        let rules = |action| self.rules(action).without_arguments.about(item);
        self.shown(item, self.rules(PolicyAction::List).hides, rules)
    }

    /// Whether the client is shown an item by the policies that `rules` has for an action, and
    /// which of them decide. `hides` tells whether any rule about lists [hides](Rule::hides)
    /// something.
    fn shown<'a>(
        &self,
        item: &PolicyItem<'_>,
        hides: bool,
        rules: impl Fn(PolicyAction) -> Cow<'a, PolicySet>,
    ) -> (Verdict, Vec<String>) {
        let action = item.kind.use_action();
        let used = self.say(action, item, &rules(action), None);
        // A server is in no list.
        if used.decision == Decision::Allow && hides && item.kind != PolicyKind::Server {
            let said = self.say(PolicyAction::List, item, &rules(PolicyAction::List), None);
            // No policy need permit listing: a client that may use an item is shown it.
            if said.decision == Decision::Deny && !said.policies.is_empty() {
                return (self.verdict(&said, PolicyOutcome::Hidden), said.notes);
            }
        }
        (self.verdict(&used, PolicyOutcome::Hidden), used.notes)
    }

    /// Whether the client might use an item of a server, judged by the policies about the server
    /// alone.
    fn may_reach(&self, server: &str) -> bool {
        let rules = |action| {
            let about = self
                .about(action)
                .filter(|rule| rule.is_about_server(server));
            Cow::Owned(
                PolicySet::from_policies(about.filter_map(|rule| rule.of_server.clone()))
                    .unwrap_or_default(),
            )
        };
        PolicyKind::OF_SERVERS.into_iter().any(|kind| {
            let any = PolicyItem {
                kind,
                server,
                name: "".into(),
                definition: None,
            };
            self.shown(&any, true, rules).0.outcome != PolicyOutcome::Hidden
        })
    }

    /// The verdict about an action with an item that the client is shown.
    fn decided(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Result<(Verdict, Vec<String>), AmbiguousArguments> {
        let rules = self.rules(action);
        let Some((whole, looked_at)) = &rules.whole else {
            let said = self.say(action, item, &rules.without_arguments.about(item), None);
            return Ok((self.verdict(&said, PolicyOutcome::Hidden), said.notes));
        };
        let call = CallArguments {
            read: looked_at.read(arguments)?,
            sent: arguments,
        };
        let said = self.say(action, item, &whole.about(item), Some(call));
        Ok((self.verdict(&said, PolicyOutcome::Denied), said.notes))
    }

    fn verdict(&self, said: &Said, denied: PolicyOutcome) -> Verdict {
        let rules = || {
            said.policies
                .iter()
                .filter_map(|at| self.shared.rules.get(*at))
        };
        // The strictest rule counts; of equally strict ones, the first.
        let asked = rules()
            .rev()
            .filter_map(|rule| rule.ask.clone())
            .max_by_key(|(by, _)| *by);
        let outcome = match (said.decision, asked) {
            (Decision::Deny, _) => denied,
            (Decision::Allow, None) => PolicyOutcome::Allowed,
            (Decision::Allow, Some((by, text))) => PolicyOutcome::Asked {
                by,
                text,
                number: self.shared.number,
            },
        };
        Verdict {
            outcome,
            policies: rules().map(|rule| Arc::clone(&rule.id)).collect(),
        }
    }

    /// Evaluates `policies` for an action with an item.
    fn say(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        policies: &PolicySet,
        arguments: Option<CallArguments<'_>>,
    ) -> Said {
        let denied = |notes| Said {
            decision: Decision::Deny,
            policies: Vec::new(),
            notes,
        };
        let record = arguments.as_ref().map(|arguments| arguments.read.clone());
        let Some((request, entities)) = self.request(action, item, record) else {
            return denied(Vec::new());
        };
        let response = self
            .shared
            .authorizer
            .is_authorized(&request, policies, &entities);
        let mut notes = Vec::new();
        let mut failed = Vec::new();
        for AuthorizationError::PolicyEvaluationError(error) in response.diagnostics().errors() {
            let Some(at) = self.shared.by_id.get(error.policy_id()) else {
                return denied(notes);
            };
            let Some(rule) = self.shared.rules.get(*at) else {
                return denied(notes);
            };
            let is_met = rule.forbids()
                && !arguments
                    .as_ref()
                    .is_some_and(|arguments| arguments.are_others(error.inner(), rule, item));
            let taken = match (rule.forbids(), is_met) {
                (true, true) => "it counts as met",
                (true, false) => "the tool has no such argument, so it does not count as met",
                (false, _) => "it does not count as met",
            };
            notes.push(format!("{}: {}; {taken}", rule.id, error.inner()));
            if is_met {
                failed.push(*at);
            }
        }
        let reasons = response
            .diagnostics()
            .reason()
            .filter_map(|id| self.shared.by_id.get(id).copied());
        let (decision, mut policies) = match (response.decision(), failed.is_empty()) {
            (decision, true) => (decision, reasons.collect()),
            (Decision::Deny, false) => (Decision::Deny, reasons.chain(failed).collect()),
            (Decision::Allow, false) => (Decision::Deny, failed),
        };
        // The authorizer returns them unordered.
        policies.sort_unstable();
        Said {
            decision,
            policies,
            notes,
        }
    }

    fn request(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<ReadArguments>,
    ) -> Option<(Request, Entities)> {
        let client = self.client.as_ref()?;
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let endpoint = self.endpoint.clone()?;
        let tags = self
            .shared
            .tags
            .get(item.server)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let tags = RestrictedExpression::new_set(tags.iter().map(|tag| text(tag)));
        let server_uid = uid("Server", item.server)?;
        let of_server = [
            ("name", text(item.server)),
            ("server", text(item.server)),
            ("tags", tags.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let server = Entity::new(
            server_uid.clone(),
            of_server.into(),
            [endpoint.uid()].into(),
        )
        .ok()?;
        if item.kind == PolicyKind::Server {
            let entities =
                Entities::from_entities([client.entity.clone(), endpoint, server], None).ok()?;
            return Self::request_about(action, client, server_uid, arguments)
                .map(|request| (request, entities));
        }
        let item_uid = uid(item.kind.as_str(), &id(item))?;
        let mut of_item: HashMap<_, _> = [
            ("name", text(&item.name)),
            ("server", text(item.server)),
            ("tags", tags),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (name, hint) in Hints::NAMES.into_iter().zip(Hints::of(item).0) {
            of_item
                .extend(hint.map(|hint| (name.to_owned(), RestrictedExpression::new_bool(hint))));
        }
        let resource = Entity::new(item_uid.clone(), of_item, [server_uid].into()).ok()?;
        let entities =
            Entities::from_entities([client.entity.clone(), endpoint, server, resource], None)
                .ok()?;
        Self::request_about(action, client, item_uid, arguments).map(|request| (request, entities))
    }

    fn request_about(
        action: PolicyAction,
        client: &SeenClient,
        resource: EntityUid,
        arguments: Option<ReadArguments>,
    ) -> Option<Request> {
        let mut context = client.context.clone();
        if matches!(action, PolicyAction::Call | PolicyAction::Get) {
            let none = || RestrictedExpression::new_record([]).ok();
            let (values, types) = match arguments {
                Some(ReadArguments { values, types }) => (values, Some(types)),
                None => (none()?, None),
            };
            context.push((ARGUMENTS.to_owned(), values));
            context.extend(types.map(|types| (TYPES.to_owned(), types)));
        }
        let context = Context::from_pairs(context).ok()?;
        let action = uid("Action", action.as_str())?;
        Request::new(client.user.clone(), action, resource, context, None).ok()
    }

    /// Whether policies read the tool's hints and the hints are unknown.
    fn is_unknown(&self, item: &PolicyItem<'_>) -> bool {
        item.kind == PolicyKind::Tool
            && item.definition.is_none()
            && self.shared.differences.reads_hints()
    }

    /// Returns a remembered decision, or makes it now.
    fn remembered(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        decide: impl FnOnce() -> Verdict,
    ) -> Verdict {
        if item.name.len() > LONGEST {
            return decide();
        }
        let hints = if self.shared.differences.reads_hints() {
            Hints::of(item)
        } else {
            Hints::default()
        };
        let (rights, kind, server, name) = (self.number, item.kind, item.server, &*item.name);
        let asked = DecisionKey {
            rights,
            action,
            kind,
            server,
            name,
            hints,
        };
        if let Some(verdict) = self.shared.decided.get(&asked) {
            return verdict;
        }
        let verdict = decide();
        let key = DecisionKey {
            rights,
            action,
            kind,
            server: server.into(),
            name: name.into(),
            hints,
        };
        self.shared.decided.insert(key, verdict.clone());
        verdict
    }
}

/// The arguments of one call.
struct CallArguments<'a> {
    read: ReadArguments,
    sent: Option<&'a Json>,
}

impl CallArguments<'_> {
    /// Whether a rule failed because it reads an argument that the tool does not have. Such a rule
    /// concerns other tools.
    fn are_others(&self, error: &EvaluationError, rule: &Rule, item: &PolicyItem<'_>) -> bool {
        let EvaluationError::RecordAttrDoesNotExist(_) = error else {
            return false;
        };
        let Some(Arguments::Named(names)) = &rule.reads.arguments else {
            return false;
        };
        let schema = item
            .definition
            .and_then(|definition| definition.get("inputSchema"));
        let properties = schema.and_then(|schema| schema.get("properties"));
        let Some(properties) = properties else {
            return false;
        };
        let is_sent = |name: &str| self.sent.is_some_and(|sent| sent.peek(name).is_some());
        let mut missing = names.iter().filter(|name| !is_sent(name)).peekable();
        missing.peek().is_some() && missing.all(|name| properties.peek(name).is_none())
    }
}

/// Whether a client may be in the scope of a rule.
fn may_be_about(rule: &Rule, client: &SeenClient) -> bool {
    let is_in = |uid: &EntityUid| *uid == client.user || client.groups.contains(uid);
    match rule.policy.principal_constraint() {
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) => true,
        PrincipalConstraint::Eq(uid) => uid == client.user,
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => is_in(&uid),
    }
}

impl Rights for ClientRights {
    fn number(&self) -> u64 {
        self.number
    }

    fn listing(&self, item: &PolicyItem<'_>) -> Verdict {
        if self.is_unknown(item) {
            return Verdict::of_nothing(PolicyOutcome::Hidden);
        }
        self.remembered(PolicyAction::List, item, || self.listed(item).0)
    }

    fn reaches(&self, server: &str) -> bool {
        // Nothing that can panic runs under this lock.
        let reached = || self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = reached().get(server) {
            return *known;
        }
        let reaches = self.may_reach(server);
        reached().insert(server.into(), reaches);
        reaches
    }

    fn decide(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Result<Verdict, AmbiguousArguments> {
        if self.is_unknown(item) {
            return Ok(Verdict::of_nothing(PolicyOutcome::Hidden));
        }
        if self.rules(action).whole.is_some() {
            return self
                .decided(action, item, arguments)
                .map(|(verdict, _)| verdict);
        }
        let decide = || {
            let said = self.say(
                action,
                item,
                &self.rules(action).without_arguments.about(item),
                None,
            );
            self.verdict(&said, PolicyOutcome::Hidden)
        };
        Ok(self.remembered(action, item, decide))
    }
}
