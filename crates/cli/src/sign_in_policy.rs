//! The policies about signing in, for the pages where users do.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use fanlight_canonical::identity::Identity;
use fanlight_canonical::{
    CallContext, Caller, DEFAULT_PATH, Endpoint, Holder, Policy as _, PolicyAction, PolicyItem,
    PolicyOutcome,
};
use fanlight_config::Config;
use fanlight_grants::SignInRules;
use fanlight_policy::Policies;
use fanlight_protocol::Era;

/// Decides who may sign in to which server.
#[derive(Debug, Default)]
pub(crate) struct PolicyOfSigningIn(ArcSwapOption<InForce>);

#[derive(Debug)]
struct InForce {
    policies: Arc<Policies>,
    /// The endpoints, by their paths.
    endpoints: Vec<(String, Endpoint)>,
}

impl PolicyOfSigningIn {
    /// Puts policies in force; without any, everybody may sign in everywhere.
    pub(crate) fn set(&self, policies: Option<Arc<Policies>>, config: &Config) {
        let default = (DEFAULT_PATH.to_owned(), Endpoint::Default);
        let others = config
            .endpoints
            .iter()
            .filter(|(path, _)| path != DEFAULT_PATH);
        let endpoints = others
            .map(|(path, _)| (path.clone(), Endpoint::from_path(path.as_str())))
            .chain([default])
            .collect();
        self.0.store(policies.map(|policies| {
            Arc::new(InForce {
                policies,
                endpoints,
            })
        }));
    }
}

impl SignInRules for PolicyOfSigningIn {
    fn number(&self) -> u64 {
        self.0
            .load()
            .as_ref()
            .map_or(0, |now| now.policies.number())
    }

    /// A grant applies at all endpoints, so signing in is permitted if it is at any endpoint that
    /// the user may use.
    fn permits(&self, identity: &Arc<Identity>, address: Option<IpAddr>, server: &str) -> bool {
        let now = self.0.load();
        let Some(InForce {
            policies,
            endpoints,
        }) = now.as_deref()
        else {
            return true;
        };
        let usable = endpoints.iter().filter(|(path, _)| identity.may_use(path));
        let mut clients = usable.map(|(_, endpoint)| {
            let holder = Holder::new(identity.principal.clone(), endpoint.clone());
            let caller = Caller::request_of(holder).with_identity(Arc::clone(identity));
            CallContext {
                caller,
                address,
                era: Era::Modern,
                ..(*CallContext::internal()).clone()
            }
        });
        clients.any(|client| {
            let rights = policies.rights_of(&client);
            let item = PolicyItem::of_server(server);
            let verdict =
                rights.and_then(|rights| rights.decide(PolicyAction::SignIn, &item, None).ok());
            verdict.is_some_and(|verdict| verdict.outcome == PolicyOutcome::Allowed)
        })
    }
}
