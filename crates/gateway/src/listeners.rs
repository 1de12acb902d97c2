//! The clients that listen, and how their listening survives a change of the topology.
//!
//! After a replacement each listener is set up with the new servers before its old subscriptions
//! end.

use std::sync::Arc;

use fanlight_canonical::{Backoff, Interest, Listen, Listening, RetryDelays};
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Method, RpcError};
use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;
use tracing::debug;

use crate::catalogue::Listener;
use crate::listening::{self, Concerned};
use crate::tasks::Tasks;
use crate::topology::{Topology, View};

/// How many listeners are set up again at the same time. No option: the limit spares servers, and
/// other listeners wait.
const AT_ONCE: usize = 64;

/// Sets up the listeners that the announcer of lists keeps.
pub(crate) struct Listeners {
    gateway: Concerned,
}

impl Listeners {
    pub(crate) fn new(gateway: Concerned) -> Arc<Self> {
        Arc::new(Self { gateway })
    }

    /// Listens as `view` permits until the result is dropped, even if the topology changes
    /// meanwhile.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        listen: Listen,
        view: &View,
    ) -> Result<Listening, RpcError> {
        let registration = self.gateway.lists.announcer.register(listen);
        let (honoured, _) = self.set_up(&registration.listener, view).await?;
        // A replacement in the meantime did not see this listener.
        let current = self.gateway.lists.topology();
        if current.number() != view.topology().number() {
            let (again, listener) = (Arc::clone(self), Arc::clone(&registration.listener));
            self.gateway.lists.spawn(async move {
                let waiting = again.set_up_again(vec![listener], &current).await;
                again.retry(waiting, current).await;
            });
        }
        Ok(Listening::new(honoured, registration))
    }

    /// Sets up all listeners with the servers of `topology`, which is now the current one, then
    /// runs `then`. A listener whose server cannot be reached is retried later.
    pub(crate) async fn replaced(
        self: Arc<Self>,
        topology: Arc<Topology>,
        then: impl Future<Output = ()>,
    ) {
        let all = self.gateway.lists.announcer.set_up();
        let waiting = self.set_up_again(all, &topology).await;
        then.await;
        self.retry(waiting, topology).await;
    }

    /// Sets up listeners with the servers of `topology`. Returns those that failed or are
    /// incomplete.
    async fn set_up_again(
        &self,
        listeners: Vec<Arc<Listener>>,
        topology: &Arc<Topology>,
    ) -> Vec<Arc<Listener>> {
        let set_up = stream::iter(listeners).map(|listener| async move {
            if !listener.is_open() || self.gateway.lists.topology().number() != topology.number() {
                return None;
            }
            let view = View::of(Arc::clone(topology), &listener.listen.context);
            match self.set_up(&listener, &view).await {
                Ok((_, is_whole)) => (!is_whole).then_some(listener),
                Err(RpcError { message, .. }) => {
                    debug!(
                        error = message,
                        "listening of a client interrupted by a change of the servers"
                    );
                    Some(listener)
                }
            }
        });
        set_up
            .buffer_unordered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    /// Retries to set up the `waiting` listeners for as long as `topology` is the current one.
    async fn retry(&self, mut waiting: Vec<Arc<Listener>>, topology: Arc<Topology>) {
        let mut backoff = Backoff::new(RetryDelays::LISTEN);
        let number = topology.number();
        // Holding the topology would keep its servers alive.
        drop(topology);
        while !waiting.is_empty() {
            sleep(backoff.next_delay()).await;
            let topology = self.gateway.lists.topology();
            if topology.number() != number {
                return;
            }
            waiting = self.set_up_again(waiting, &topology).await;
        }
    }

    /// Listens to the servers that `view` shows. Returns the honoured interest, and whether all
    /// servers concerned have answered.
    async fn set_up(&self, listener: &Listener, view: &View) -> Result<(Interest, bool), RpcError> {
        let Concerned { lists, tasks, .. } = &self.gateway;
        let listen = &listener.listen;
        // Under any policy, updates are decided on one by one, since it may change.
        let only = view.transparent().filter(|_| view.all_rights().is_none());
        // Before a server is asked, so that no change is missed meanwhile. Announcements of the
        // only server pass unchanged.
        listener.hear(|hearing| {
            hearing.reader = view.reader().cloned();
            hearing.announced = match only {
                Some(_) => Lists::default(),
                None => listen.interest.lists,
            };
            hearing.heard.take_if(|_| only.is_some());
        });
        let (listening, is_whole) = match only {
            Some(only) => {
                let mut listen = listen.clone();
                if Tasks::guard(&listen.context, &Method::Listen, only) {
                    listen = tasks.of_client(view, listen).await;
                }
                // Kept results of resources that have changed are dropped.
                listen.messages =
                    lists.noting(only.id, None, &listen.messages, |_, message| Some(message));
                let listening = only.client.listen(listen).await;
                let refused = |error| view.no_answer(only.id, &error);
                (listening.map_err(refused)?, true)
            }
            None => {
                lists.begin();
                let owners = tasks
                    .owners_of(view, &listen.context, &listen.interest.tasks)
                    .await;
                let all = listening::to_all(view, &self.gateway, listen, &owners).await;
                listener.hear(|hearing| {
                    hearing.announced = all.honoured.lists;
                    hearing.heard = Some(all.heard);
                });
                let guards = all.guards.into_boxed_slice();
                (Listening::new(all.honoured, guards), all.is_whole)
            }
        };
        let honoured = listening.honoured.clone();
        listener.install(view.topology().number(), listening);
        Ok((honoured, is_whole))
    }
}
