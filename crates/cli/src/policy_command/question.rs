//! A question to the policies: may this client do this with that item?

use std::collections::BTreeMap;
use std::sync::Arc;

use fanlight_canonical::identity::{Identity, Principal, Scopes, Source};
use fanlight_canonical::{
    CallContext, Caller, Endpoint, Holder, PolicyItem, PolicyKind, PolicyOutcome,
};
use fanlight_config::Config;
use fanlight_policy::{Explanation, Policies};
use fanlight_protocol::{Era, Json, MAX_NESTING, ObjectBuilder};

use crate::rewriting::approval;

/// A question to the policies.
#[derive(Clone, Debug, Default)]
pub(super) struct Question {
    /// The client, as issuer#subject; empty for a client without authentication.
    pub(super) principal: String,
    /// The client's groups; `None` for the groups of its key in the configuration.
    pub(super) groups: Option<Vec<String>>,
    /// The client's scopes; `None` for the scopes of its key in the configuration, else all.
    pub(super) scopes: Option<Vec<String>>,
    pub(super) claims: BTreeMap<String, Vec<String>>,
    /// The path of the endpoint; `None` for the default endpoint.
    pub(super) endpoint: Option<String>,
    pub(super) item: Option<(PolicyKind, String)>,
    /// The arguments as JSON text.
    pub(super) arguments: Option<String>,
    /// The tool's annotations as JSON text.
    pub(super) annotations: Option<String>,
    /// The tool's definition, if a gateway has supplied it.
    pub(super) definition: Option<Json>,
}

/// The answer of the policies.
#[derive(Debug)]
pub(super) struct Answer {
    /// `allow`, `ask`, `deny` or `hidden`.
    pub(super) outcome: &'static str,
    /// The policies that decided it.
    pub(super) policies: Vec<String>,
    /// The question for the approver, or the reason why the arguments cannot be judged.
    pub(super) text: Option<String>,
    /// Errors in policies, and their effect.
    pub(super) notes: Vec<String>,
}

impl Question {
    /// Asks the policies of a configuration.
    ///
    /// # Errors
    ///
    /// If the question is invalid.
    pub(super) fn ask(&self, config: &Config, policies: &Policies) -> Result<Answer, String> {
        let client = self.client(config);
        let Some((kind, name)) = &self.item else {
            return Err(
                "name the tool, prompt, resource, template, skill or server in question".to_owned(),
            );
        };
        let named = if *kind == PolicyKind::Server {
            Some((name.as_str(), name.as_str()))
        } else {
            name.split_once('/')
        };
        let Some((server, name)) = named else {
            return Err(format!(
                "{name:?} names no server: write `server/name`, with the server's own name for it"
            ));
        };
        let json = |text: &String| {
            Json::parse(text.clone().into(), MAX_NESTING)
                .map_err(|error| format!("this is not JSON: {error}: {text}"))
        };
        let arguments = self.arguments.as_ref().map(json).transpose()?;
        let mut definition = self.definition.clone();
        if let Some(annotations) = &self.annotations {
            let mut stated = ObjectBuilder::new();
            stated.member("annotations", &json(annotations)?);
            definition = Some(stated.finish());
        }
        let item = PolicyItem {
            kind: *kind,
            server,
            name: name.into(),
            definition: definition.as_ref(),
        };
        let explained = policies.explain(&client, &item, arguments.as_ref());
        let mut answer = answer(
            *kind,
            explained.ok_or("policies apply to clients, and this principal is not one")?,
        );
        let needs_approval = || {
            let of_server = config.servers.iter().find(|one| one.name == server);
            let approval = of_server.and_then(|server| approval(config, server));
            approval.is_some_and(|approval| !approval.without.permits(server, name))
        };
        if answer.outcome == "allow" && *kind == PolicyKind::Tool && needs_approval() {
            answer.outcome = "ask";
            answer.policies.push(format!("`approval` of {server}"));
        }
        Ok(answer)
    }

    fn client(&self, config: &Config) -> CallContext {
        let (issuer, subject) = self
            .principal
            .split_once('#')
            .unwrap_or(("", &self.principal));
        let source = match issuer {
            "" => Source::Anonymous,
            "key" => Source::Key,
            "certificate" => Source::Certificate,
            "proxy" => Source::Proxy,
            "socket" => Source::Socket,
            _ => Source::Token,
        };
        let principal = match source {
            Source::Anonymous => Principal::anonymous(),
            Source::Token => Principal::new(issuer, subject),
            _ => Principal::new(&format!("fanlight:{issuer}"), subject),
        };
        let keys = config
            .auth
            .methods()
            .and_then(|auth| auth.keys.as_ref())
            .filter(|_| source == Source::Key);
        let key = keys.and_then(|file| file.keys.iter().find(|key| key.name == subject));
        let groups = self
            .groups
            .clone()
            .or_else(|| key.map(|key| key.groups.clone()))
            .unwrap_or_default();
        let scopes = self
            .scopes
            .clone()
            .or_else(|| key.and_then(|key| key.scopes.clone()));
        let texts = |values: &[String]| values.iter().map(|value| value.as_str().into()).collect();
        let identity = Identity {
            principal: principal.clone(),
            name: subject.into(),
            source,
            groups: groups
                .iter()
                .map(|group| Arc::from(group.as_str()))
                .collect(),
            scopes: scopes.map_or(Scopes::All, |scopes| {
                scopes.iter().map(String::as_str).collect()
            }),
            claims: Arc::new(
                self.claims
                    .iter()
                    .map(|(name, values)| (name.as_str().into(), texts(values)))
                    .collect(),
            ),
            ..Identity::anonymous()
        };
        let path = self.endpoint.as_deref();
        let holder = Holder::new(
            principal,
            path.map_or(Endpoint::Default, Endpoint::from_path),
        );
        let caller = Caller::request_of(holder).with_identity(Arc::new(identity));
        CallContext {
            caller,
            era: Era::Modern,
            ..(*CallContext::internal()).clone()
        }
    }
}

fn answer(kind: PolicyKind, explained: Explanation) -> Answer {
    let Explanation { verdict, notes, .. } = explained;
    match verdict {
        Err(ambiguous) => Answer {
            outcome: "deny",
            policies: Vec::new(),
            text: Some(ambiguous.to_string()),
            notes,
        },
        Ok(verdict) => {
            let (outcome, text) = match &verdict.outcome {
                PolicyOutcome::Asked { text, .. } => ("ask", Some(text.to_string())),
                // A denied sign-in does not hide the server.
                PolicyOutcome::Hidden if kind != PolicyKind::Server => ("hidden", None),
                other => (other.as_str(), None),
            };
            let policies = verdict.policies.iter().map(ToString::to_string).collect();
            Answer {
                outcome,
                policies,
                text,
                notes,
            }
        }
    }
}
