//! The decisions: selects the rules that may concern a client, and evaluates them for an item.
//!
//! The memory of decisions is limited in bytes: clients, sets of rules for all clients that the same
//! rules may concern, and the decisions. A rule that reads what a client chooses for each request is
//! decided each time, apart from the others. An error in a forbidding policy counts as met; an error
//! in a permitting policy counts as not met.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Effect, Entities, Entity, EntityUid,
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
use itertools::Itertools as _;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::arguments::{LookedAt, ReadArguments};
use crate::attributes::{Differences, SeenClient, SeenContext, reads_requests, text, uid};
use crate::expression::{ARGUMENTS, Arguments, Reads};
use crate::rule::{Rule, rules};
use crate::typed::TYPES;
use crate::uris::forms;
use crate::{Allowance, InvalidPolicy, PolicyText};

/// The default size of the memory for decisions.
const MEMORY: usize = 32 << 20;
/// The estimated bytes of one rule in a set, with its copies for each action.
const RULE: usize = 4 << 10;
/// The estimated bytes of a client or a decision beside its texts.
const ENTRY: usize = 2 << 10;
const DECISION: usize = 256;
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
    /// The configured servers.
    pub servers: Vec<ServerFacts>,
}

impl PolicySettings {
    /// The [number](Policy::number) of the policies with these settings.
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
    clients: Cache<String, Arc<ClientRights>, Weights>,
}

/// The estimated bytes of remembered values.
#[derive(Clone, Debug)]
struct Weights;

impl Weighter<String, Arc<ClientRights>> for Weights {
    fn weight(&self, key: &String, rights: &Arc<ClientRights>) -> u64 {
        // The key has the texts that policies read, and the client has them again.
        let rules = rights.known.rules.len() * size_of::<u32>();
        weight(ENTRY + 3 * key.len() + rules)
    }
}

impl Weighter<Arc<[u32]>, Arc<RuleSets>> for Weights {
    fn weight(&self, rules: &Arc<[u32]>, _: &Arc<RuleSets>) -> u64 {
        weight(ENTRY + rules.len() * RULE)
    }
}

impl Weighter<DecisionKey, Said> for Weights {
    fn weight(&self, key: &DecisionKey, decided: &Said) -> u64 {
        let policies = decided.policies.len() * size_of::<usize>();
        let notes: usize = decided
            .notes
            .iter()
            .map(|note| ENTRY / 16 + note.len())
            .sum();
        weight(DECISION + key.server.len() + key.name.len() + policies + notes)
    }
}

fn weight(bytes: usize) -> u64 {
    bytes as u64
}

/// The data that all clients' rights share.
#[derive(Debug)]
struct Shared {
    /// Computed from the settings alone, so equal policies have equal numbers in every process.
    number: u64,
    rules: Vec<Rule>,
    by_id: HashMap<PolicyId, usize, RandomState>,
    differences: Differences,
    tags: HashMap<String, Vec<String>, RandomState>,
    /// Whether any rule compares forms of URIs.
    reads_forms: bool,
    authorizer: Authorizer,
    /// The sets of rules, by the rules that may concern a client.
    sets: Cache<Arc<[u32]>, Arc<RuleSets>, Weights>,
    /// The decisions that depend on neither arguments nor requests.
    decided: Cache<DecisionKey, Said, Weights>,
}

impl Shared {
    /// The rules at these positions, by action.
    fn sets(&self, rules: &Arc<[u32]>) -> Arc<RuleSets> {
        if let Some(kept) = self.sets.get(rules) {
            return kept;
        }
        let sets = Arc::new(RuleSets::default());
        self.sets.insert(Arc::clone(rules), Arc::clone(&sets));
        sets
    }

    /// The rules among these that concern an action.
    fn filter_action(&self, rules: &[u32], action: PolicyAction) -> impl Iterator<Item = &Rule> {
        rules
            .iter()
            .filter_map(|at| self.rules.get(usize::try_from(*at).ok()?))
            .filter(move |rule| rule.is_about(action))
    }
}

impl Policies {
    /// Creates the policies from `settings`.
    ///
    /// # Errors
    ///
    /// All faults in them.
    pub fn new(settings: PolicySettings) -> Result<Self, Vec<InvalidPolicy>> {
        Self::with_memory(settings, MEMORY)
    }

    /// Creates the policies from `settings`, which remember at most about so many bytes.
    ///
    /// # Errors
    ///
    /// All faults in them.
    pub fn with_memory(
        settings: PolicySettings,
        memory: usize,
    ) -> Result<Self, Vec<InvalidPolicy>> {
        let number = settings.number();
        let PolicySettings {
            mut texts,
            allowances,
            permits_by_default,
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
        let differences = Differences::find(&rules);
        let tags = servers
            .into_iter()
            .map(|ServerFacts { name, tags }| (name, tags))
            .collect();
        let (authorizer, part) = (Authorizer::new(), memory / 4);
        let cache = |entry: usize| (part / entry, weight(part));
        let (clients, decided) = (cache(2 * ENTRY), cache(DECISION));
        // At least two sets of all rules, which each take long to make.
        let sets = (2 * part).max(2 * (ENTRY + rules.len() * RULE));
        let shared = Shared {
            number,
            reads_forms: rules.iter().any(|rule| rule.reads_forms),
            rules,
            by_id,
            differences,
            tags,
            authorizer,
            sets: Cache::with_weighter(8, weight(sets), Weights),
            decided: Cache::with_weighter(decided.0, decided.1, Weights),
        };
        Ok(Self {
            shared: Arc::new(shared),
            clients: Cache::with_weighter(clients.0, clients.1, Weights),
        })
    }

    /// The rules in the language Cedar, including those made from `allow`.
    pub fn written_rules(&self) -> impl Iterator<Item = WrittenRule<'_>> {
        self.shared.rules.iter().map(|rule| WrittenRule {
            file: &rule.place.0,
            line: rule.place.1,
            id: &rule.id,
            text: rule.policy.to_string(),
        })
    }

    /// The numbers of remembered clients and sets of rules.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> (usize, usize) {
        (self.clients.len(), self.shared.sets.len())
    }

    fn rights(&self, client: &CallContext) -> Option<Arc<ClientRights>> {
        let identity = client.caller.identity()?;
        let endpoint = client.caller.endpoint().full_path();
        let differences = &self.shared.differences;
        // A client may hide its address by headers that contradict the headers of a proxy.
        let is_hidden = client.address.is_some_and(|it| it.is_unspecified());
        if is_hidden && differences.reads("address") {
            return Some(Arc::new(ClientRights {
                known: Arc::default(),
                shared: Arc::clone(&self.shared),
                context: Vec::new(),
            }));
        }
        let key = differences.key(client, identity, endpoint);
        if let Some(kept) = self.clients.get(&key) {
            return Some(if differences.reads_requests() {
                Arc::new(ClientRights {
                    known: Arc::clone(&kept.known),
                    shared: Arc::clone(&kept.shared),
                    context: differences.context(client),
                })
            } else {
                kept
            });
        }
        let known = Arc::new(match differences.seen(identity) {
            Some(seen) => KnownClient::new(&self.shared, seen, endpoint),
            None => KnownClient::default(),
        });
        let rights = Arc::new(ClientRights {
            known,
            shared: Arc::clone(&self.shared),
            context: differences.context(client),
        });
        self.clients.insert(key, Arc::clone(&rights));
        Some(rights)
    }

    /// Explains whether an item exists for a client, and whether the client may use it.
    pub fn explain(
        &self,
        client: &CallContext,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Option<Explanation> {
        let rights = self.rights(client)?;
        let (listed, mut notes) = rights.judge_listing(item);
        let action = item.kind.use_action();
        let verdict = match listed.outcome {
            PolicyOutcome::Hidden => Ok(listed),
            _ => rights
                .judge_action(action, item, arguments)
                .map(|(verdict, more)| {
                    notes.extend(more);
                    verdict
                }),
        };
        Some(Explanation { verdict, notes })
    }
}

/// A rule in the language Cedar.
#[derive(Debug)]
pub struct WrittenRule<'a> {
    /// The file with the policy, or the option that it is made from.
    pub file: &'a str,
    /// The line in the file, from 1.
    pub line: usize,
    /// The rule's id.
    pub id: &'a str,
    /// The text.
    pub text: String,
}

/// The explanation whether an item exists for a client, and whether the client may use it.
#[derive(Debug)]
pub struct Explanation {
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

/// The rights of all clients that the policies treat alike, in a request.
#[derive(Debug)]
struct ClientRights {
    known: Arc<KnownClient>,
    shared: Arc<Shared>,
    context: SeenContext,
}

/// All clients that the policies treat alike.
#[derive(Debug)]
struct KnownClient {
    number: u64,
    /// `None` for a client without any rights.
    client: Option<SeenClient>,
    endpoint: Option<Entity>,
    /// The positions of the rules that may concern the client.
    rules: Arc<[u32]>,
    /// How much of each server the client may use, by server name.
    reached: Mutex<HashMap<Box<str>, Reach, RandomState>>,
}

/// How much of a server a client may use.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Whether the client might use anything.
    any: bool,
    /// Whether the client may use everything.
    all: bool,
}

/// Rules by action, each made when it is first needed.
#[derive(Debug, Default)]
struct RuleSets([OnceLock<ActionRules>; PolicyAction::ALL.len()]);

impl RuleSets {
    fn action_rules(
        &self,
        action: PolicyAction,
        new: impl FnOnce() -> ActionRules,
    ) -> &ActionRules {
        let at = PolicyAction::ALL
            .iter()
            .position(|one| *one == action)
            .unwrap_or_default();
        static NOTHING: OnceLock<ActionRules> = OnceLock::new();
        self.0.get(at).unwrap_or(&NOTHING).get_or_init(new)
    }
}

/// The rules that may concern an action of a client.
#[derive(Debug)]
struct ActionRules {
    /// The rules for unknown arguments, without those in `of_request`.
    without_arguments: ByItem,
    /// The rules for unknown arguments that treat requests of one client differently, if any.
    of_request: Option<ByItem>,
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
    fn group<'a>(policies: impl Iterator<Item = (&'a Rule, CedarPolicy)>) -> Self {
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
    fn policies(&self, item: &PolicyItem<'_>) -> Cow<'_, PolicySet> {
        if self.named.is_empty() {
            return Cow::Borrowed(&self.others);
        }
        // Policies that forbid a URI are found by its forms.
        let mut keys = vec![id(item)];
        for (_, form) in forms(item).filter(|(_, form)| !form.is_empty()) {
            let key = format!("{}/{form}", item.server);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let named = keys
            .iter()
            .filter_map(|key| self.named.get(key.as_str()))
            .flatten()
            .collect_vec();
        if named.is_empty() {
            return Cow::Borrowed(&self.others);
        }
        let mut all = self.others.clone();
        let are_added = named
            .iter()
            .all(|policy| all.add(CedarPolicy::clone(policy)).is_ok());
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

    fn read(item: &PolicyItem<'_>) -> Self {
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
#[derive(Clone, Debug)]
struct Said {
    decision: Decision,
    /// The rules that decided, in configuration order.
    policies: Vec<usize>,
    notes: Vec<String>,
}

impl Said {
    /// The result for both sets of rules together: what either forbids is forbidden.
    fn and(mut self, other: Self) -> Self {
        let forbids = |said: &Self| said.decision == Decision::Deny && !said.policies.is_empty();
        match (forbids(&self), forbids(&other)) {
            (true, false) => {}
            (false, true) => (self.decision, self.policies) = (other.decision, other.policies),
            _ => {
                if other.decision == Decision::Allow {
                    self.decision = Decision::Allow;
                }
                self.policies.extend(other.policies);
                self.policies.sort_unstable();
            }
        }
        self.notes.extend(other.notes);
        self
    }
}

impl Default for KnownClient {
    /// A client that may do nothing.
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            client: None,
            endpoint: None,
            rules: Arc::default(),
            reached: Mutex::default(),
        }
    }
}

impl KnownClient {
    fn new(shared: &Shared, client: SeenClient, endpoint: &str) -> Self {
        let path = text(endpoint);
        let endpoint = uid("Endpoint", endpoint).and_then(|uid| {
            Entity::new(
                uid,
                [("path".to_owned(), path)].into(),
                std::collections::HashSet::new(),
            )
            .ok()
        });
        let rules = (0..).zip(&shared.rules);
        let rules = rules.filter(|(_, rule)| may_be_about(rule, &client));
        Self {
            rules: rules.map(|(at, _)| at).collect(),
            client: Some(client),
            endpoint,
            ..Self::default()
        }
    }
}

impl ClientRights {
    /// The sets of rules for the client.
    fn sets(&self) -> Arc<RuleSets> {
        self.shared.sets(&self.known.rules)
    }

    fn rules<'a>(&self, sets: &'a RuleSets, action: PolicyAction) -> &'a ActionRules {
        sets.action_rules(action, || self.rules_about(action))
    }

    /// The rules that may concern an action of the client.
    fn relevant_rules(&self, action: PolicyAction) -> impl Iterator<Item = &Rule> {
        self.shared.filter_action(&self.known.rules, action)
    }

    fn rules_about(&self, action: PolicyAction) -> ActionRules {
        let takes_arguments = matches!(action, PolicyAction::Call | PolicyAction::Get);
        let about = self.relevant_rules(action).collect_vec();
        // Rules about arguments do not matter for actions without arguments.
        let listed = about
            .iter()
            .filter(|rule| takes_arguments || !rule.reads_arguments());
        let listed = listed.filter_map(|rule| Some((*rule, rule.listed.clone()?)));
        let (of_request, listed): (Vec<_>, Vec<_>) =
            listed.partition(|(rule, _)| reads_requests(&rule.reads));
        let mut reads = Reads::default();
        about
            .iter()
            .filter(|rule| rule.reads_arguments())
            .for_each(|rule| reads.and(&rule.reads));
        let whole = (takes_arguments && reads.arguments.is_some()).then(|| {
            let all = about.iter().map(|rule| (*rule, rule.whole.clone()));
            (ByItem::group(all), LookedAt::from_reads(&reads))
        });
        ActionRules {
            without_arguments: ByItem::group(listed.into_iter()),
            of_request: (!of_request.is_empty()).then(|| ByItem::group(of_request.into_iter())),
            whole,
            hides: about.iter().any(|rule| rule.hides()),
        }
    }

    /// Whether the client is shown an item, and which rules decide that.
    fn judge_listing(&self, item: &PolicyItem<'_>) -> (Verdict, Vec<String>) {
        let sets = self.sets();
        let hides = self.rules(&sets, PolicyAction::List).hides;
        self.judge_visibility(item, hides, |action| {
            self.say_without_arguments(self.rules(&sets, action), action, item)
        })
    }

    /// Whether the policies of an action show the client an item, and which of them decide. `hides` tells whether any rule about lists [hides](Rule::hides) something.
    fn judge_visibility(
        &self,
        item: &PolicyItem<'_>,
        hides: bool,
        say: impl Fn(PolicyAction) -> Said,
    ) -> (Verdict, Vec<String>) {
        let used = say(item.kind.use_action());
        // A server is in no list.
        if used.decision == Decision::Allow && hides && item.kind != PolicyKind::Server {
            let said = say(PolicyAction::List);
            // No policy need permit listing: a client that may use an item is shown it.
            if said.decision == Decision::Deny && !said.policies.is_empty() {
                return (self.verdict(&said, PolicyOutcome::Hidden), said.notes);
            }
        }
        (self.verdict(&used, PolicyOutcome::Hidden), used.notes)
    }

    /// Evaluates the rules without regard to arguments. The decision of rules that treat all
    /// requests alike is remembered.
    fn say_without_arguments(
        &self,
        rules: &ActionRules,
        action: PolicyAction,
        item: &PolicyItem<'_>,
    ) -> Said {
        let said = self.recall_or_decide(action, item, || {
            self.say(action, item, &rules.without_arguments.policies(item), None)
        });
        match &rules.of_request {
            Some(of_request) => said.and(self.say(action, item, &of_request.policies(item), None)),
            None => said,
        }
    }

    /// Whether the client might use an item of a server, judged by the policies about the server
    /// alone.
    fn may_reach(&self, server: &str) -> bool {
        let rules = |action| {
            let about = self
                .relevant_rules(action)
                .filter(|rule| rule.is_about_server(server));
            PolicySet::from_policies(about.filter_map(|rule| rule.of_server.clone()))
                .unwrap_or_default()
        };
        PolicyKind::OF_SERVERS.into_iter().any(|kind| {
            let any = PolicyItem {
                kind,
                server,
                name: "".into(),
                definition: None,
            };
            let say = |action| self.say(action, &any, &rules(action), None);
            self.judge_visibility(&any, true, say).0.outcome != PolicyOutcome::Hidden
        })
    }

    /// Whether the client may do everything at a server. A policy that treats some of its items
    /// differently counts as not met if it permits, and as met if it forbids.
    fn may_do_all(&self, server: &str) -> bool {
        let may = |action: PolicyAction, kind| {
            let about = self
                .relevant_rules(action)
                .filter(|rule| rule.is_about_server(server));
            let whole = about
                .filter_map(|rule| rule.of_whole_server.clone())
                .collect_vec();
            // No policy need permit listing.
            let needs_permit = action != PolicyAction::List;
            if needs_permit && whole.iter().all(|policy| policy.effect() == Effect::Forbid) {
                return false;
            }
            let Ok(whole) = PolicySet::from_policies(whole) else {
                return false;
            };
            let any = PolicyItem {
                kind,
                server,
                name: "".into(),
                definition: None,
            };
            let said = self.say(action, &any, &whole, None);
            let mut deciding = said
                .policies
                .iter()
                .filter_map(|at| self.shared.rules.get(*at));
            // A call with `@ask` waits even if another policy permits it.
            !deciding.any(|rule| rule.ask.is_some())
                && (said.decision == Decision::Allow || (!needs_permit && said.policies.is_empty()))
        };
        PolicyAction::ALL
            .into_iter()
            .all(|action| kinds(action).iter().all(|kind| may(action, *kind)))
    }

    /// How much of a server the client may use, if its rights are lasting.
    fn reach(&self, server: &str) -> Reach {
        if let Some(known) = self.known.reached.lock().get(server) {
            return *known;
        }
        let reach = Reach {
            any: self.may_reach(server),
            all: self.may_do_all(server),
        };
        self.known.reached.lock().insert(server.into(), reach);
        reach
    }

    /// The verdict about an action with an item that the client is shown.
    fn judge_action(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Result<(Verdict, Vec<String>), AmbiguousArguments> {
        let sets = self.sets();
        let rules = self.rules(&sets, action);
        let Some((whole, looked_at)) = &rules.whole else {
            let said = self.say_without_arguments(rules, action, item);
            return Ok((self.verdict(&said, PolicyOutcome::Hidden), said.notes));
        };
        let call = CallArguments {
            read: looked_at.read(arguments)?,
            sent: arguments,
        };
        let said = self.say(action, item, &whole.policies(item), Some(call));
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
        let client = self.known.client.as_ref()?;
        let endpoint = self.known.endpoint.clone()?;
        let tags = self
            .shared
            .tags
            .get(item.server)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let tags = RestrictedExpression::new_set(tags.iter().map(|tag| text(tag)));
        let server_uid = uid("Server", item.server)?;
        let owned = |(name, value): (&str, RestrictedExpression)| (name.to_owned(), value);
        let forms = || {
            let forms = self.shared.reads_forms.then(|| forms(item));
            let forms = forms.into_iter().flatten();
            forms.map(|(name, form)| owned((name, text(&form))))
        };
        let attributes = |name: &str| {
            let all = [
                ("name", text(name)),
                ("server", text(item.server)),
                ("tags", tags.clone()),
            ];
            all.map(owned).into_iter().chain(forms())
        };
        let places = [endpoint.uid()].into();
        let server = Entity::new(
            server_uid.clone(),
            attributes(item.server).collect(),
            places,
        );
        let mut entities = vec![client.entity.clone(), endpoint, server.ok()?];
        let mut resource = server_uid.clone();
        if item.kind != PolicyKind::Server {
            resource = uid(item.kind.as_str(), &id(item))?;
            let mut of_item: HashMap<_, _> = attributes(&item.name).collect();
            for (name, hint) in Hints::NAMES.into_iter().zip(Hints::read(item).0) {
                let hint = hint.map(RestrictedExpression::new_bool);
                of_item.extend(hint.map(|hint| (name.to_owned(), hint)));
            }
            entities.push(Entity::new(resource.clone(), of_item, [server_uid].into()).ok()?);
        }
        let entities = Entities::from_entities(entities, None).ok()?;
        let request = self.request_about(action, client, resource, arguments)?;
        Some((request, entities))
    }

    fn request_about(
        &self,
        action: PolicyAction,
        client: &SeenClient,
        resource: EntityUid,
        arguments: Option<ReadArguments>,
    ) -> Option<Request> {
        let mut context = self.context.clone();
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
    fn recall_or_decide(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        decide: impl FnOnce() -> Said,
    ) -> Said {
        if item.name.len() > LONGEST {
            return decide();
        }
        let hints = if self.shared.differences.reads_hints() {
            Hints::read(item)
        } else {
            Hints::default()
        };
        let (rights, kind, server, name) = (self.known.number, item.kind, item.server, &*item.name);
        let asked = DecisionKey {
            rights,
            action,
            kind,
            server,
            name,
            hints,
        };
        if let Some(said) = self.shared.decided.get(&asked) {
            return said;
        }
        let said = decide();
        let key = DecisionKey {
            rights,
            action,
            kind,
            server: server.into(),
            name: name.into(),
            hints,
        };
        self.shared.decided.insert(key, said.clone());
        said
    }
}

/// The kinds of items that an action is about.
fn kinds(action: PolicyAction) -> &'static [PolicyKind] {
    match action {
        PolicyAction::Call => &[PolicyKind::Tool],
        PolicyAction::Get => &[PolicyKind::Prompt],
        PolicyAction::Read => &[PolicyKind::Resource, PolicyKind::Template],
        PolicyAction::GetSkill => &[PolicyKind::Skill],
        PolicyAction::Complete => &[
            PolicyKind::Prompt,
            PolicyKind::Resource,
            PolicyKind::Template,
        ],
        PolicyAction::Subscribe => &[PolicyKind::Resource],
        PolicyAction::SignIn => &[PolicyKind::Server],
        PolicyAction::Send => &[PolicyKind::Method],
        PolicyAction::List => &PolicyKind::OF_SERVERS,
    }
}

/// The arguments of one call.
struct CallArguments<'a> {
    read: ReadArguments,
    sent: Option<&'a Json>,
}

impl CallArguments<'_> {
    /// Whether a rule failed because it reads an argument that the tool does not have. Such a rule
    /// is meant for other tools.
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
        self.known.number
    }

    fn is_lasting(&self) -> bool {
        !self.shared.differences.reads_requests()
    }

    fn listing(&self, item: &PolicyItem<'_>) -> Verdict {
        if self.is_unknown(item) {
            return Verdict::without_policy(PolicyOutcome::Hidden);
        }
        self.judge_listing(item).0
    }

    fn reaches(&self, server: &str) -> bool {
        if self.is_lasting() {
            self.reach(server).any
        } else {
            self.may_reach(server)
        }
    }

    fn is_whole(&self, server: &str) -> bool {
        self.is_lasting() && self.reach(server).all
    }

    fn judge_sending(&self, server: &str, method: &str) -> Verdict {
        let (action, kind) = (PolicyAction::Send, PolicyKind::Method);
        let item = PolicyItem {
            kind,
            server,
            name: method.into(),
            definition: None,
        };
        let (sets, is_whole) = (self.sets(), self.is_whole(server));
        let said = self.say_without_arguments(self.rules(&sets, action), action, &item);
        let mut deciding = said
            .policies
            .iter()
            .filter_map(|at| self.shared.rules.get(*at));
        let is_meant = is_whole || deciding.any(|rule| rule.names_actions());
        if is_meant {
            self.verdict(&said, PolicyOutcome::Hidden)
        } else {
            Verdict::without_policy(PolicyOutcome::Hidden)
        }
    }

    fn decide(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Result<Verdict, AmbiguousArguments> {
        if self.is_unknown(item) {
            return Ok(Verdict::without_policy(PolicyOutcome::Hidden));
        }
        self.judge_action(action, item, arguments)
            .map(|(verdict, _)| verdict)
    }
}
