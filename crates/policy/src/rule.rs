//! One policy, prepared for decisions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cedar_policy::pst::{self, Clause, ResourceConstraint, StaticPolicy, Template};
use cedar_policy::{
    ActionConstraint, Effect, Policy, PolicyId, PolicySet, Schema, Template as CedarTemplate,
    ValidationMode, Validator,
};
use fanlight_canonical::{ApprovedBy, PolicyAction};

use crate::expression::{Reads, is_place, parts, without_arguments};
use crate::link::{self, Link};
use crate::typed::typed;
use crate::uris::{key, scope_entity, widened};
use crate::{InvalidPolicy, PolicyText, schema, source};

/// The most policies, because each takes time in decisions.
const MOST: usize = 10_000;

/// One policy, prepared for decisions.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The policy's annotation `@id`, or else its file and line.
    pub(crate) id: Arc<str>,
    /// The file, and the line from 1.
    pub(crate) place: (Arc<str>, usize),
    pub(crate) policy: Policy,
    /// Replaces the policy if the arguments are known: comparisons of arguments are [`typed`].
    pub(crate) whole: Policy,
    /// Replaces the policy if the arguments are unknown. A policy that reads arguments then counts
    /// as met if it permits, and as not met if it forbids.
    pub(crate) listed: Option<Policy>,
    /// Replaces the policy if only the server is known. Conditions that read more of the resource
    /// then count as met in a policy that permits, and as not met in one that forbids.
    pub(crate) of_server: Option<Policy>,
    /// Replaces the policy in the decision whether a client may do everything at a server. `None` for
    /// a policy that permits a part of a server. In a policy that forbids or asks, conditions that
    /// read more of the resource count as met.
    pub(crate) of_whole_server: Option<Policy>,
    /// The only item that the policy concerns, if there is one: its id in policies, folded if the
    /// policy forbids a URI.
    pub(crate) item: Option<Box<str>>,
    /// Whether the policy compares forms of URIs.
    pub(crate) reads_forms: bool,
    pub(crate) reads: Reads,
    /// The required approver and the question, if the policy permits only with approval.
    pub(crate) ask: Option<(ApprovedBy, Arc<str>)>,
}

impl Rule {
    pub(crate) fn reads_arguments(&self) -> bool {
        self.reads.arguments.is_some()
    }

    pub(crate) fn forbids(&self) -> bool {
        self.policy.effect() == Effect::Forbid
    }

    /// Whether the policy forbids listing an item without forbidding all other actions too.
    pub(crate) fn hides(&self) -> bool {
        self.forbids() && (self.reads.action || self.names_actions())
    }

    /// Whether the policy is for particular actions.
    pub(crate) fn names_actions(&self) -> bool {
        self.policy.action_constraint() != ActionConstraint::Any
    }

    /// Whether the policy may concern an item of a server.
    pub(crate) fn is_about_server(&self, server: &str) -> bool {
        let of_server = |item: &str| {
            item.strip_prefix(server)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.item.as_deref().is_none_or(of_server)
    }

    /// Whether the policy may concern an action.
    pub(crate) fn is_about(&self, action: PolicyAction) -> bool {
        let is_it = |uid: &cedar_policy::EntityUid| uid.id().unescaped() == action.as_str();
        match self.policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => is_it(&uid),
            ActionConstraint::In(uids) => uids.iter().any(is_it),
        }
    }
}

/// Parses the rules in `texts`.
///
/// # Errors
///
/// All faults in the texts.
pub(crate) fn rules(texts: &[PolicyText]) -> Result<Vec<Rule>, Vec<InvalidPolicy>> {
    let mut reading = Reading::default();
    let (links, policies): (Vec<_>, Vec<_>) = texts.iter().partition(|source| source.has_links());
    for source in policies {
        let mut before = (0, 0);
        for range in source::policies(&source.text) {
            let line = source::line(&source.text, range.start);
            let number = if before.0 == line { before.1 + 1 } else { 1 };
            before = (line, number);
            let place = Place {
                file: &source.name,
                line,
                number,
            };
            let Some(text) = source.text.get(range) else {
                continue;
            };
            let read = reading.read(place, text);
            reading.wrong.extend(read.err());
        }
    }
    for source in links {
        let all = link::links(source).unwrap_or_else(|wrong| {
            reading.wrong.push(wrong);
            Vec::new()
        });
        for link in all {
            let linked = reading.link(source, &link);
            reading.wrong.extend(linked.err());
        }
    }
    reading.finish(texts)
}

/// The place of a policy.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a Arc<str>,
    line: usize,
    /// The number of the policy among those that begin in this line, from 1.
    number: usize,
}

impl Place<'_> {
    fn invalid(self, message: impl ToString) -> InvalidPolicy {
        InvalidPolicy {
            file: Arc::clone(self.file),
            line: self.line,
            message: message.to_string(),
        }
    }
}

/// The state of reading all texts.
#[derive(Default)]
struct Reading {
    rules: Vec<Rule>,
    wrong: Vec<InvalidPolicy>,
    /// The policies to be checked against the schema.
    checked: PolicySet,
    /// The place of each policy and template, by its id.
    places: HashMap<Arc<str>, (Arc<str>, usize)>,
    /// The templates by id, each with a flag whether a link uses it.
    templates: BTreeMap<Arc<str>, (Arc<Template>, bool)>,
}

impl Reading {
    /// Reads a policy or a template.
    fn read(&mut self, place: Place<'_>, text: &str) -> Result<(), InvalidPolicy> {
        let has_slots = text.contains("?principal") || text.contains("?resource");
        let id = |own: Option<&str>| match own.filter(|id| !id.is_empty()) {
            Some(id) => Arc::from(id),
            None if place.number > 1 => {
                Arc::from(format!("{}:{}#{}", place.file, place.line, place.number))
            }
            None => Arc::from(format!("{}:{}", place.file, place.line)),
        };
        match Policy::parse(None, text) {
            Ok(policy) => self.add(place, id(policy.annotation("id")), &policy),
            Err(_) if has_slots => {
                let template = CedarTemplate::parse(None, text)
                    .map_err(|errors| syntax_error(place, text, &errors))?;
                let id = id(template.annotation("id"));
                self.enter(place, &id)?;
                let template = template.to_pst().map_err(|error| place.invalid(error))?;
                self.templates.insert(id, (Arc::new(template), false));
                Ok(())
            }
            Err(errors) => Err(syntax_error(place, text, &errors)),
        }
    }

    /// Adds the policy that a link makes from a template.
    fn link(&mut self, source: &PolicyText, link: &Link) -> Result<(), InvalidPolicy> {
        let place = Place {
            file: &source.name,
            line: link.line,
            number: 1,
        };
        let unknown = || {
            place.invalid(format!(
                "no file of `policy.files` has a template with the id {:?}",
                link.template
            ))
        };
        let (template, is_linked) = self
            .templates
            .get_mut(link.template.as_str())
            .ok_or_else(unknown)?;
        *is_linked = true;
        let linked = pst::LinkedPolicy::new(
            Arc::clone(template),
            link.values.clone(),
            pst::PolicyID(link.id.as_str().into()),
        );
        let fixed = linked
            .map_err(|error| place.invalid(error))?
            .into_static_policy();
        let policy = Policy::from_pst(fixed.map_err(|error| place.invalid(error))?.into());
        self.add(
            place,
            link.id.as_str().into(),
            &policy.map_err(|error| place.invalid(error))?,
        )
    }

    fn add(
        &mut self,
        place: Place<'_>,
        id: Arc<str>,
        policy: &Policy,
    ) -> Result<(), InvalidPolicy> {
        let (rule, to_check) =
            rule(place, Arc::clone(&id), policy).map_err(|message| place.invalid(message))?;
        self.enter(place, &id)?;
        self.rules.push(rule);
        self.checked
            .add(to_check)
            .map_err(|error| place.invalid(error))
    }

    /// Registers an id, which must be unique.
    fn enter(&mut self, place: Place<'_>, id: &Arc<str>) -> Result<(), InvalidPolicy> {
        match self
            .places
            .insert(Arc::clone(id), (Arc::clone(place.file), place.line))
        {
            None => Ok(()),
            Some((_, first)) => Err(place.invalid(format!(
                "the id {id:?} is also that of the policy in line {first}"
            ))),
        }
    }

    fn finish(mut self, texts: &[PolicyText]) -> Result<Vec<Rule>, Vec<InvalidPolicy>> {
        let invalid = |id: &str, message: String| {
            let (file, line) = self
                .places
                .get(id)
                .cloned()
                .unwrap_or_else(|| (id.into(), 1));
            InvalidPolicy {
                file,
                line,
                message,
            }
        };
        if self.rules.len() > MOST {
            let file = texts
                .first()
                .map(|text| Arc::clone(&text.name))
                .unwrap_or_default();
            let message = format!(
                "there are {} policies; at most {MOST} can be decided by",
                self.rules.len()
            );
            self.wrong.push(InvalidPolicy {
                file,
                line: 1,
                message,
            });
            return Err(self.wrong);
        }
        // An unused template forbids nothing, which is surely not intended.
        let unused = self.templates.iter().filter(|(_, (_, is_linked))| !is_linked).map(|(id, _)| {
            let message =
                "this is a template that no link uses: link it in a file of `policy.files` that ends with .json";
            invalid(id, message.to_owned())
        });
        let objections = objections(&self.checked)
            .into_iter()
            .map(|(id, message)| invalid(&id, message));
        let wrong: Vec<_> = unused.chain(objections).collect();
        self.wrong.extend(wrong);
        if self.wrong.is_empty() {
            Ok(self.rules)
        } else {
            Err(self.wrong)
        }
    }
}

/// The schema validator's objections to policies, each with the policy's id.
fn objections(policies: &PolicySet) -> Vec<(String, String)> {
    let schema = match Schema::from_cedarschema_str(&schema(&[])) {
        Ok((schema, _)) => schema,
        Err(error) => return vec![("schema".to_owned(), error.to_string())],
    };
    let result = Validator::new(schema).validate(policies, ValidationMode::Strict);
    let text = |error: &dyn std::fmt::Display, id: &PolicyId| {
        // The text begins with the id, but the line number is more useful.
        let text = error.to_string();
        let own = text.split_once("`, ").map_or(text.as_str(), |(_, own)| own);
        (AsRef::<str>::as_ref(id).to_owned(), own.to_owned())
    };
    let mut seen = std::collections::HashSet::new();
    // The same fault often appears for each kind of resource. One report is enough.
    let first = |error: &&cedar_policy::ValidationError| seen.insert(error.policy_id().clone());
    result
        .validation_errors()
        .filter(first)
        .map(|error| text(error, error.policy_id()))
        .collect()
}

/// A rule, and the policy to be checked against the schema.
fn rule(place: Place<'_>, id: Arc<str>, policy: &Policy) -> Result<(Rule, Policy), String> {
    let policy = policy.new_id(PolicyId::new(&*id));
    let tree = policy.to_pst().map_err(|error| error.to_string())?;
    let body = tree.body();
    let reads = Reads::collect(body);
    let ask = ask(&policy)?;
    let item = item(body);
    let to_check = with_clauses(body, |expression| Ok(without_arguments(expression)))?;
    let widened = widened(body);
    let reads_forms = widened.is_some();
    let wide = widened
        .map(|(resource, clauses)| changed(body, resource, clauses))
        .transpose()?;
    let body = wide.as_ref().unwrap_or(body);
    let decided = match &wide {
        Some(wide) => fixed(wide.clone())?,
        None => policy.clone(),
    };
    let stand_in =
        |is_whole: bool, resource, accept: fn(&Reads) -> bool| match (is_whole, policy.effect()) {
            (true, _) => Ok(Some(decided.clone())),
            (false, Effect::Forbid) => Ok(None),
            (false, Effect::Permit) => changed(body, resource, clauses_that(body, accept))
                .and_then(fixed)
                .map(Some),
        };
    let listed = stand_in(
        reads.no_arguments(),
        body.resource.clone(),
        Reads::no_arguments,
    )?;
    let resource = match item {
        None => body.resource.clone(),
        Some(_) => ResourceConstraint::Any,
    };
    let permits_all = item.is_none() && reads.server_alone();
    let of_server = stand_in(permits_all, resource.clone(), Reads::server_alone)?;
    let of_whole_server = if policy.effect() == Effect::Forbid || ask.is_some() {
        let clauses = clauses_that(body, Reads::server_alone);
        Some(fixed(changed(body, resource, clauses)?)?)
    } else {
        permits_all.then(|| policy.clone())
    };
    let whole = if reads.no_arguments() {
        decided.clone()
    } else {
        with_clauses(body, typed)?
    };
    Ok((
        Rule {
            id,
            place: (Arc::clone(place.file), place.line),
            policy,
            whole,
            listed,
            of_server,
            of_whole_server,
            item,
            reads_forms,
            reads,
            ask,
        },
        to_check,
    ))
}

/// The id of the item that a scope names, folded if the policy forbids a URI; `None` if it names a
/// server, an endpoint or nothing.
fn item(policy: &Template) -> Option<Box<str>> {
    let uid = scope_entity(&policy.resource).filter(|uid| !is_place(uid))?;
    Some(match policy.effect {
        pst::Effect::Forbid => key(uid),
        pst::Effect::Permit => uid.eid.as_str().into(),
    })
}

/// The conditions whose reads `accept` permits.
fn clauses_that(policy: &Template, accept: fn(&Reads) -> bool) -> Vec<Clause> {
    let is_kept = |expression: &pst::Expr| accept(&Reads::from_expression(expression));
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

/// A copy of a policy with another scope of resources and other conditions.
fn changed(
    policy: &Template,
    resource: ResourceConstraint,
    clauses: Vec<Clause>,
) -> Result<Template, String> {
    let Template {
        id,
        effect,
        principal,
        action,
        annotations,
        ..
    } = policy.clone();
    let bare = Template::new(id, effect, principal, action, resource).with_annotations(annotations);
    bare.try_with_clauses(clauses)
        .map_err(|error| error.to_string())
}

/// The policy with other expressions in its clauses.
fn with_clauses(
    policy: &Template,
    change: impl Fn(&Arc<pst::Expr>) -> Result<Arc<pst::Expr>, String>,
) -> Result<Policy, String> {
    let clause = |clause: &Clause| {
        Ok(match clause {
            Clause::When(expression) => Clause::When(change(expression)?),
            Clause::Unless(expression) => Clause::Unless(change(expression)?),
        })
    };
    let clauses = policy.clauses().iter().map(clause);
    let clauses = clauses.collect::<Result<_, String>>()?;
    changed(policy, policy.resource.clone(), clauses).and_then(fixed)
}

/// The policy of a template without slots.
fn fixed(template: Template) -> Result<Policy, String> {
    let fixed = StaticPolicy::try_from(template).map_err(|error| error.to_string())?;
    Policy::from_pst(fixed.into()).map_err(|error| error.to_string())
}

/// The required approver and the question, if a policy permits only with approval.
fn ask(policy: &Policy) -> Result<Option<(ApprovedBy, Arc<str>)>, String> {
    let by = match policy.annotation("by") {
        None | Some("operator") => ApprovedBy::Approver,
        Some("other") => ApprovedBy::Other,
        Some("caller") => ApprovedBy::Caller,
        Some(by) => {
            return Err(format!(
                "@by({by:?}) is none of \"operator\", \"other\" and \"caller\""
            ));
        }
    };
    let Some(text) = policy.annotation("ask") else {
        return match policy.annotation("by") {
            None => Ok(None),
            Some(_) => {
                Err("@by says who is asked, and needs an @ask(\"…\") with the question".to_owned())
            }
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

/// The syntax error in the text of a policy, with its line.
fn syntax_error(place: Place<'_>, text: &str, errors: &cedar_policy::ParseErrors) -> InvalidPolicy {
    let within = offset_of(errors).map_or(0, |at| source::line(text, at) - 1);
    Place {
        line: place.line + within,
        ..place
    }
    .invalid(errors)
}

/// The offset of an error in the policy's text.
fn offset_of(errors: &cedar_policy::ParseErrors) -> Option<usize> {
    use miette::Diagnostic as _;
    errors.labels()?.next().map(|label| label.offset())
}
