//! Three gateways at fixed addresses, which can be stopped and restarted.

use std::net::SocketAddr;

use futures_util::future::join_all;

use crate::group::{admin, members, until};
use crate::linked::{Linked, LinkedGroup};
use crate::ports;
use crate::proxy::{Network, Proxy};
use crate::valkey::Valkey;

/// The addresses of a gateway.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) clients: SocketAddr,
    pub(crate) operators: SocketAddr,
    pub(crate) replicas: SocketAddr,
}

impl Place {
    fn free() -> Self {
        Self {
            clients: ports::free(),
            operators: ports::free(),
            replicas: ports::free(),
        }
    }
}

/// Networks that can fail: from each of three gateways to Valkey, and from the other gateways to
/// each.
pub(crate) struct Networks {
    to_valkey: Vec<Proxy>,
    to_replicas: Vec<Proxy>,
}

impl Networks {
    /// The networks of gateways at these places. Valkey names the proxied addresses, so that the
    /// gateways reach each other through the proxies.
    pub(crate) async fn between(places: &[Place; 3], valkey: &Valkey) -> Self {
        let to_replicas = join_all(places.iter().map(|place| Proxy::to(place.replicas))).await;
        let told = places
            .iter()
            .zip(&to_replicas)
            .map(|(place, proxy)| (place.replicas, proxy.address));
        let to_valkey =
            join_all(told.map(|(own, told)| Proxy::telling(valkey.address, own, told))).await;
        Self {
            to_valkey,
            to_replicas,
        }
    }

    /// The URLs at which the gateways reach Valkey.
    pub(crate) fn valkeys(&self) -> [String; 3] {
        [0, 1, 2].map(|number| self.to_valkey[number].url())
    }

    /// Sets the state of one gateway's network to Valkey.
    pub(crate) fn to_valkey(&self, number: usize, network: Network) {
        self.to_valkey[number].set(network);
    }

    /// Sets the state of all networks between the gateways.
    pub(crate) fn between_replicas(&self, network: Network) {
        self.to_replicas.iter().for_each(|proxy| proxy.set(network));
    }
}

/// Three gateways and their addresses.
pub(crate) struct Fleet {
    group: LinkedGroup,
    pub(crate) places: [Place; 3],
    /// The URL of Valkey for each gateway.
    valkeys: [String; 3],
    /// The environment variables of each gateway.
    variables: [Vec<(&'static str, String)>; 3],
    replicas: Vec<Linked>,
}

impl Fleet {
    /// Starts gateways with this configuration, which know each other.
    pub(crate) async fn start(group: LinkedGroup, valkeys: [String; 3]) -> Self {
        Self::start_with(group, valkeys, <[_; 3]>::default()).await
    }

    /// [`Self::start`], each gateway with these environment variables.
    pub(crate) async fn start_with(
        group: LinkedGroup,
        valkeys: [String; 3],
        variables: [Vec<(&'static str, String)>; 3],
    ) -> Self {
        Self::start_at(Self::places(), group, valkeys, variables).await
    }

    /// Free addresses for three gateways.
    pub(crate) fn places() -> [Place; 3] {
        [(); 3].map(|()| Place::free())
    }

    /// [`Self::start_with`] at these addresses.
    pub(crate) async fn start_at(
        places: [Place; 3],
        group: LinkedGroup,
        valkeys: [String; 3],
        variables: [Vec<(&'static str, String)>; 3],
    ) -> Self {
        let mut fleet = Self {
            group,
            places,
            valkeys,
            variables,
            replicas: Vec::new(),
        };
        let started = tokio::join!(fleet.started(0), fleet.started(1), fleet.started(2));
        fleet.replicas = vec![started.0, started.1, started.2];
        fleet.is_whole().await;
        fleet
    }

    async fn started(&self, number: usize) -> Linked {
        self.group
            .start_at(
                &self.valkeys[number],
                self.places[number],
                &self.variables[number],
            )
            .await
    }

    /// One of the gateways.
    pub(crate) fn replica(&self, number: usize) -> &Linked {
        &self.replicas[number]
    }

    /// Kills one gateway, so that it can finish nothing.
    pub(crate) async fn kill(&mut self, number: usize) {
        self.replicas[number].gateway.kill().await;
    }

    /// Starts a gateway again in the place of a killed one.
    pub(crate) async fn start_again(&mut self, number: usize) {
        self.replicas[number] = self.started(number).await;
        self.is_whole().await;
    }

    /// Ends one gateway by SIGTERM, starts another in its place, and waits until it carries
    /// requests.
    pub(crate) async fn replace(&mut self, number: usize) {
        self.renew(number).await;
        self.carries_requests(number).await;
    }

    /// Ends one gateway by SIGTERM for good; the later ones move up.
    pub(crate) async fn end(&mut self, number: usize) {
        assert!(
            self.replicas
                .remove(number)
                .gateway
                .terminate()
                .await
                .success()
        );
    }

    /// Ends one gateway by SIGTERM, and starts another in its place.
    pub(crate) async fn renew(&mut self, number: usize) {
        self.end(number).await;
        let next = self.started(number).await;
        self.replicas.insert(number, next);
        self.is_whole().await;
    }

    /// Waits until the load balancer sends requests to a gateway.
    pub(crate) async fn carries_requests(&self, number: usize) {
        let gateway = &self.replicas[number].gateway;
        let carries = async || {
            admin(gateway, "GET", "/metrics")
                .await
                .1
                .contains("mcp_server_operation_duration_seconds_count{")
        };
        until("a request through the load balancer", carries).await;
    }

    async fn is_whole(&self) {
        for replica in &self.replicas {
            until("three replicas", async || {
                members(&replica.gateway).await == 3
            })
            .await;
        }
    }
}
