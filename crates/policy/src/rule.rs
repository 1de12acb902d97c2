//! One policy as it is decided by.

use std::sync::Arc;

use cedar_policy::pst::{self, Clause, EntityOrSlot, ResourceConstraint, StaticPolicy, Template};
use cedar_policy::{ActionConstraint, Effect, Policy, PolicyId, PolicySet, Schema, ValidationMode, Validator};
use fanlight_canonical::{ApprovedBy, PolicyAction};

use crate::expression::{Reads, is_place, parts, without_arguments};
use crate::schema::schema;
use crate::source::{self, PolicyText};

/// Most policies: each takes time in decisions.
const MOST: usize = 10_000;

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct InvalidPolicy {
    /// The file, as the configuration writes it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

/// One policy as it is decided by.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Its annotation `@id`, else its file and line.
    pub(crate) id: Arc<str>,
    pub(crate) policy: Policy,
    /// What stands for it where the arguments are not known: one that reads arguments counts as met if it permits, and as
    /// not met if it forbids.
    pub(crate) listed: Option<Policy>,
    /// What stands for it where only the server is known: one that reads more of the resource counts as met if it permits,
    /// and as not met if it forbids.
    pub(crate) of_server: Option<Policy>,
    /// The only item that it is about, if there is one: its id in policies.
    item: Option<Box<str>>,
    pub(crate) reads: Reads,
    /// Who is asked before what it permits is done, and what.
    pub(crate) ask: Option<(ApprovedBy, Arc<str>)>,
}

impl Rule {
    pub(crate) fn reads_arguments(&self) -> bool {
        self.reads.arguments.is_some()
    }

    pub(crate) fn forbids(&self) -> bool {
        self.policy.effect() == Effect::Forbid
    }

    /// Whether it can be about an item of a server.
    pub(crate) fn is_about_server(&self, server: &str) -> bool {
        let of_server = |item: &str| item.strip_prefix(server).is_some_and(|rest| rest.starts_with('/'));
        self.item.as_deref().is_none_or(of_server)
    }

    /// Whether it can be about an action.
    pub(crate) fn is_about(&self, action: PolicyAction) -> bool {
        let is_it = |uid: &cedar_policy::EntityUid| uid.id().unescaped() == action.as_str();
        match self.policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => is_it(&uid),
            ActionConstraint::In(uids) => uids.iter().any(is_it),
        }
    }
}

/// The rules that texts mean.
///
/// # Errors
///
/// Everything that is wrong with any of them.
pub(crate) fn rules(texts: &[PolicyText]) -> Result<Vec<Rule>, Vec<InvalidPolicy>> {
    let (mut rules, mut wrong) = (Vec::new(), Vec::new());
    let mut checked = PolicySet::new();
    let mut lines = std::collections::HashMap::new();
    for source in texts {
        for range in source::policies(&source.text) {
            let line = source::line(&source.text, range.start);
            let invalid = |message: String| InvalidPolicy { file: Arc::clone(&source.name), line, message };
            let Some(text) = source.text.get(range) else { continue };
            let (rule, to_check) = match rule(source, line, text) {
                Ok(rule) => rule,
                Err(invalid) => {
                    wrong.push(invalid);
                    continue;
                }
            };
            if let Some((_, first)) = lines.insert(Arc::clone(&rule.id), (Arc::clone(&source.name), line)) {
                wrong.push(invalid(format!("the id {:?} is also that of the policy in line {first}", rule.id)));
                continue;
            }
            if let Err(error) = checked.add(to_check) {
                wrong.push(invalid(error.to_string()));
            }
            rules.push(rule);
        }
    }
    if rules.len() > MOST {
        let file = texts.first().map(|text| Arc::clone(&text.name)).unwrap_or_default();
        let message = format!("there are {} policies; at most {MOST} can be decided by", rules.len());
        wrong.push(InvalidPolicy { file, line: 1, message });
        return Err(wrong);
    }
    wrong.extend(objections(&checked).into_iter().map(|(id, message)| {
        let (file, line) = lines.get(id.as_str()).cloned().unwrap_or_else(|| (id.as_str().into(), 1));
        InvalidPolicy { file, line, message }
    }));
    if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
}

/// What the schema says against policies, with the id of each.
fn objections(policies: &PolicySet) -> Vec<(String, String)> {
    let schema = match Schema::from_cedarschema_str(&schema(&[])) {
        Ok((schema, _)) => schema,
        Err(error) => return vec![("schema".to_owned(), error.to_string())],
    };
    let result = Validator::new(schema).validate(policies, ValidationMode::Strict);
    let text = |error: &dyn std::fmt::Display, id: &PolicyId| {
        // It begins with the id, and the line says more.
        let text = error.to_string();
        let own = text.split_once("`, ").map_or(text.as_str(), |(_, own)| own);
        (AsRef::<str>::as_ref(id).to_owned(), own.to_owned())
    };
    let mut seen = std::collections::HashSet::new();
    // The same is often wrong for each kind of resource: one says it.
    let first = |error: &&cedar_policy::ValidationError| seen.insert(error.policy_id().clone());
    result.validation_errors().filter(first).map(|error| text(error, error.policy_id())).collect()
}

/// A rule, and what of it is checked against the schema.
fn rule(source: &PolicyText, line: usize, text: &str) -> Result<(Rule, Policy), InvalidPolicy> {
    let invalid = |line: usize, message: String| InvalidPolicy { file: Arc::clone(&source.name), line, message };
    let parsed = Policy::parse(None, text).map_err(|errors| syntax_error(source, line, text, &errors))?;
    let own = parsed.annotation("id").filter(|id| !id.is_empty());
    let id: Arc<str> = own.map_or_else(|| format!("{}:{line}", source.name).into(), Arc::from);
    let policy = parsed.new_id(PolicyId::new(&*id));
    let typed = policy.to_pst().map_err(|error| invalid(line, error.to_string()))?;
    let body = typed.body();
    let reads = Reads::of(body);
    let ask = ask(&policy).map_err(|message| invalid(line, message))?;
    let with = |resource, clauses| changed(body, resource, clauses).map_err(|error| invalid(line, error));
    let scope = || body.resource.clone();
    let listed = match (reads.arguments.is_some(), policy.effect()) {
        (false, _) => Some(policy.clone()),
        (true, Effect::Forbid) => None,
        (true, Effect::Permit) => Some(with(scope(), clauses_that(body, Reads::no_arguments))?),
    };
    let item = item(&body.resource);
    let of_server = match (item.is_none() && reads.server_alone(), policy.effect()) {
        (true, _) => Some(policy.clone()),
        (false, Effect::Forbid) => None,
        (false, Effect::Permit) => {
            let scope = if item.is_some() { ResourceConstraint::Any } else { scope() };
            Some(with(scope, clauses_that(body, Reads::server_alone))?)
        }
    };
    let clause = |clause: &Clause| match clause {
        Clause::When(expression) => Clause::When(without_arguments(expression)),
        Clause::Unless(expression) => Clause::Unless(without_arguments(expression)),
    };
    let to_check = with(scope(), body.clauses().iter().map(clause).collect())?;
    Ok((Rule { id, policy, listed, of_server, item, reads, ask }, to_check))
}

/// The item that a scope names, by its id in policies; `None` if it names a server, an endpoint or nothing.
fn item(resource: &ResourceConstraint) -> Option<Box<str>> {
    let (ResourceConstraint::Eq(named) | ResourceConstraint::In(named) | ResourceConstraint::IsIn(_, named)) = resource
    else {
        return None;
    };
    let EntityOrSlot::Entity(uid) = named else { return None };
    (!is_place(uid)).then(|| uid.eid.as_str().into())
}

/// The conditions that read nothing but what `reads` accepts.
fn clauses_that(policy: &Template, accept: fn(&Reads) -> bool) -> Vec<Clause> {
    let is_kept = |expression: &pst::Expr| accept(&Reads::of_expression(expression));
    let kept = |clause: &Clause| match clause {
        Clause::When(expression) => {
            let parts = parts(expression).into_iter().filter(|part| is_kept(part));
            parts.map(|part| Clause::When(Arc::clone(part))).collect()
        }
        Clause::Unless(expression) if is_kept(expression) => vec![clause.clone()],
        Clause::Unless(_) => Vec::new(),
    };
    policy.clauses().iter().flat_map(kept).collect()
}

/// A policy with another scope of resources and other conditions.
fn changed(policy: &Template, resource: ResourceConstraint, clauses: Vec<Clause>) -> Result<Policy, String> {
    let Template { id, effect, principal, action, annotations, .. } = policy.clone();
    let bare = Template::new(id, effect, principal, action, resource).with_annotations(annotations);
    let whole = bare.try_with_clauses(clauses).map_err(|error| error.to_string())?;
    let fixed = StaticPolicy::try_from(whole).map_err(|error| error.to_string())?;
    Policy::from_pst(fixed.into()).map_err(|error| error.to_string())
}

/// Who is to be asked before what a policy permits is done, and what.
fn ask(policy: &Policy) -> Result<Option<(ApprovedBy, Arc<str>)>, String> {
    let by = match policy.annotation("by") {
        None | Some("operator") => ApprovedBy::Approver,
        Some("other") => ApprovedBy::Other,
        Some("caller") => ApprovedBy::Caller,
        Some(by) => return Err(format!("@by({by:?}) is none of \"operator\", \"other\" and \"caller\"")),
    };
    let Some(text) = policy.annotation("ask") else {
        return match policy.annotation("by") {
            None => Ok(None),
            Some(_) => Err("@by says who is asked, and needs an @ask(\"…\") with the question".to_owned()),
        };
    };
    let is_for_calls = match policy.action_constraint() {
        ActionConstraint::Eq(uid) => uid.id().unescaped() == PolicyAction::Call.as_str(),
        ActionConstraint::Any | ActionConstraint::In(_) => false,
    };
    if policy.effect() == Effect::Forbid || !is_for_calls {
        return Err(
            "@ask belongs to a permit for `action == Action::\"call\"`: only calls can wait for somebody".to_owned()
        );
    }
    Ok(Some((by, text.into())))
}

/// What is wrong with the text of a policy, and in which line.
fn syntax_error(source: &PolicyText, line: usize, text: &str, errors: &cedar_policy::ParseErrors) -> InvalidPolicy {
    let message = match text {
        _ if text.contains("?principal") || text.contains("?resource") => {
            "this is a template, which needs links that a file cannot have: write a policy for each".to_owned()
        }
        _ => errors.to_string(),
    };
    let within = offset_of(errors).map_or(0, |at| source::line(text, at) - 1);
    InvalidPolicy { file: Arc::clone(&source.name), line: line + within, message }
}

/// Where in its text an error is.
fn offset_of(errors: &cedar_policy::ParseErrors) -> Option<usize> {
    use miette::Diagnostic as _;
    errors.labels()?.next().map(|label| label.offset())
}
