//! The running servers and the gateway core in front of them.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use fanlight_backend::MessageMemory;
use fanlight_canonical::{DefinitionGuard, HandleSeal, Policy};
use fanlight_cli::known_lists::KnownLists;
use fanlight_cli::list_state::ListState;
use fanlight_cli::list_state::list_limits;
use fanlight_cli::memory::budgets;
use fanlight_cli::pins::{self, Pins};
use fanlight_cli::result_files::DiskResults;
use fanlight_cli::rewriting::naming_policy;
use fanlight_cli::shown_names::NameRules;
use fanlight_cli::users::Users;
use fanlight_cli::{Failure, endpoints, policy};
use fanlight_config::Config;
use fanlight_gateway::{CacheLimits, Gateway, GatewaySettings};
use fanlight_policy::Policies;
use fanlight_protocol::implementation;
use fanlight_record::Record;
use fanlight_replicas::Replicas;
use fanlight_replicas::keys;
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::servers::{Difference, Servers};

/// The running servers and the gateway core in front of them.
pub(crate) struct Assembly {
    /// The gateway core.
    pub(crate) gateway: Arc<Gateway>,
    /// The enabled servers.
    pub(crate) servers: Servers,
    /// The users' credentials.
    users: Users,
    /// The policies that limit clients; `None` allows everything.
    policies: Option<Arc<Policies>>,
    /// The approved definitions; `None` if none are pinned.
    pub(crate) pins: Arc<ArcSwapOption<Pins>>,
    /// The audit log of definitions that differ from the approved ones.
    record: Arc<dyn Record>,
}

impl Assembly {
    /// Starts every enabled server without waiting for connections. `lists` stores the servers'
    /// lists beyond the end of the process, `users` the users' grants.
    pub(crate) fn start(
        config: &Config,
        telemetry: &Telemetry,
        shutdown: &CancellationToken,
        lists: Option<ListState>,
        users: Users,
        replicas: Option<&Replicas>,
        record: Arc<dyn Record>,
    ) -> Result<Self, Failure> {
        let handles = HandleSeal::new(&keys(config))?;
        let memory = MessageMemory::new(budgets(config).server_messages);
        let mut servers = Servers::new(telemetry, handles, memory, shutdown, lists, users.clone());
        let change = servers.prepare(config, None);
        let names = NameRules::from_config(config);
        if let Some(before) = servers.lists().and_then(ListState::names::<NameRules>) {
            before
                .changed_by(&names, &KnownLists::from_entries(&change.entries(None)))
                .log();
        }
        servers
            .lists()
            .iter()
            .for_each(|lists| lists.keep_names(&names));
        let policies = policy::load(config, None).map_err(Failure::usage)?;
        users.govern(policies.clone(), config);
        let pins = pins::load(config, None, &record).map_err(Failure::usage)?;
        let settings = GatewaySettings {
            backends: change.entries(guard(pins.as_ref()).as_ref()),
            endpoints: endpoints::settings(config),
            naming: naming_policy(config),
            policy: policies.clone().map(|policies| policies as Arc<dyn Policy>),
            lists: list_limits(config),
            cache: CacheLimits {
                bytes: budgets(config).cache,
                ..CacheLimits::default()
            },
            common_tasks: match replicas {
                Some(replicas) => Some(replicas.tasks(config)?),
                None => servers.lists().and_then(ListState::tasks),
            },
            result_files: DiskResults::open(config)?,
            keys: keys(config),
            identity: implementation(),
        };
        let gateway = Arc::new(Gateway::new(settings)?);
        if let Some(metrics) = telemetry.metrics() {
            let gateway = Arc::downgrade(&gateway);
            metrics.read_states(move || {
                let status = gateway.upgrade().map(|gateway| gateway.status());
                let all = status.into_iter().flatten();
                all.map(|(name, status)| (name, status.state.is_usable()))
                    .collect()
            });
        }
        servers.commit(change, config.timeouts.drain);
        let pins = Arc::new(ArcSwapOption::new(pins));
        Ok(Self {
            gateway,
            servers,
            users,
            policies,
            pins,
            record,
        })
    }

    /// Puts the servers and endpoints of `config` in force for new requests. The server named by
    /// `restarted` counts as changed.
    pub(crate) async fn replace(&mut self, config: &Config, restarted: Option<&str>) -> Difference {
        self.users.prepare(config).await;
        let change = self.servers.prepare(config, restarted);
        let difference = change.difference.clone();
        self.servers
            .lists()
            .iter()
            .for_each(|lists| lists.keep_names(&NameRules::from_config(config)));
        let endpoints = endpoints::settings(config);
        match policy::load(config, self.policies.as_ref()) {
            Ok(policies) => self.policies = policies,
            Err(wrong) => {
                error!("policies not replaced; the previous ones stay in force:\n{wrong}");
            }
        }
        match pins::load(config, self.pins.load().as_ref(), &self.record) {
            // Unchanged pins keep their state.
            Ok(pins) if number(pins.as_ref()) == number(self.pins.load().as_ref()) => {}
            Ok(pins) => self.pins.store(pins),
            Err(wrong) => error!("pins not replaced; the previous ones stay in force:\n{wrong}"),
        }
        self.users.govern(self.policies.clone(), config);
        let policy = self
            .policies
            .clone()
            .map(|policies| policies as Arc<dyn Policy>);
        let entries = change.entries(guard(self.pins.load().as_ref()).as_ref());
        self.gateway
            .replace(
                entries,
                &naming_policy(config),
                list_limits(config),
                endpoints,
                policy,
            )
            .await;
        self.servers.commit(change, config.timeouts.drain);
        difference
    }

    /// Stops the core's background work, then all servers concurrently.
    pub(crate) async fn stop(&self) {
        self.gateway.stop().await;
        self.servers.stop().await;
    }
}

fn guard(pins: Option<&Arc<Pins>>) -> Option<Arc<dyn DefinitionGuard>> {
    pins.map(|pins| Arc::clone(pins) as Arc<dyn DefinitionGuard>)
}

fn number(pins: Option<&Arc<Pins>>) -> Option<u64> {
    pins.map(|pins| pins.number())
}
