//! The clients that listen. After a replacement of the topology each is set up with the new servers
//! before its old subscriptions end.
//!
//! The gateway announces changes of lists itself. For everything else each server concerned gets
//! one subscription. Its messages go directly to the client, except that resources are renamed if
//! the client knows them by another name.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;

use fanlight_canonical::{
    Backoff, Interest, Listen, Listening, Names, PolicyAction, RetryDelays, ServerMessage,
    ServerMessages,
};
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::uri::kept_result;
use fanlight_protocol::{Json, Method, Notification, RpcError};
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use crate::catalogue::{Change, Listener};
use crate::routing::{self, Directory, Place};
use crate::tasks::{self, Tasks};
use crate::topology::{BackendId, Filtered, Topology, View};

/// How many listeners are set up again at the same time. No option: the limit spares servers, and
/// other listeners wait.
const AT_ONCE: usize = 64;

impl Directory {
    /// Listens as `view` permits until the result is dropped, even if the topology changes
    /// meanwhile.
    pub(crate) async fn listen(&self, listen: Listen, view: &View) -> Result<Listening, RpcError> {
        let registration = self.lists.announcer.register(listen);
        let (honoured, _) = self.set_up(&registration.listener, view).await?;
        // A replacement in the meantime did not see this listener.
        let current = self.lists.topology();
        if current.number != view.topology().number {
            let only = vec![Arc::clone(&registration.listener)];
            self.lists
                .spawn(self.clone().set_up_again(only, current, ready(())));
        }
        Ok(Listening::new(honoured, registration))
    }

    /// Sets up listeners with the servers of `topology`, which is now the current one, then runs
    /// `then`. Retries listeners that fail or are incomplete while it is the current one.
    pub(crate) async fn set_up_again(
        self,
        mut listeners: Vec<Arc<Listener>>,
        topology: Arc<Topology>,
        then: impl Future<Output = ()>,
    ) {
        let (mut backoff, number) = (Backoff::new(RetryDelays::LISTEN), topology.number);
        listeners = self.incomplete(listeners, topology).await;
        then.await;
        while !listeners.is_empty() {
            sleep(backoff.next_delay()).await;
            let topology = self.lists.topology();
            if topology.number != number {
                return;
            }
            listeners = self.incomplete(listeners, topology).await;
        }
    }

    /// Sets up listeners with the servers of `topology`. Returns those that failed or are
    /// incomplete.
    async fn incomplete(
        &self,
        listeners: Vec<Arc<Listener>>,
        topology: Arc<Topology>,
    ) -> Vec<Arc<Listener>> {
        let topology = &topology;
        let set_up = stream::iter(listeners).map(|listener| async move {
            if !listener.is_open() || self.lists.topology().number != topology.number {
                return None;
            }
            let view = View::for_client(Arc::clone(topology), &listener.listen.context);
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
            .filter_map(ready)
            .collect()
            .await
    }

    /// Listens to the servers that `view` shows. Returns the honoured interest, and whether all
    /// servers concerned have answered.
    async fn set_up(&self, listener: &Listener, view: &View) -> Result<(Interest, bool), RpcError> {
        let Self { lists, tasks, .. } = self;
        let mut listen = listener.listen.clone();
        if view.has_results() {
            // Kept results never change, and no server knows them.
            let uris = &mut listen.interest.uris;
            uris.retain(|uri| kept_result(uri).is_none());
        }
        // Under any policy, updates are decided on one by one, since it may change.
        let only = view
            .transparent_server()
            .filter(|_| view.all_rights().is_none());
        // Before a server is asked, so that no change is missed meanwhile. Announcements of the
        // only server pass unchanged.
        let announced = match only {
            Some(_) => Lists::default(),
            None => listen.interest.lists,
        };
        listener.hear(view.reader(), announced);
        let (listening, is_whole) = match only {
            Some(only) => {
                if Tasks::guard(&listen.context, &Method::Listen, only) {
                    listen = tasks.keep_own_tasks(view, listen).await;
                }
                // Kept results of resources that have changed are dropped.
                listen.messages =
                    lists.observe_messages(only.id, None, &listen.messages, |_, message| {
                        Some(message)
                    });
                let client = only.serving(&listen.context.caller);
                let listening = client.listen(listen).await;
                let refused = |error| view.no_answer(only.id, &error);
                (listening.map_err(refused)?, true)
            }
            None => {
                lists.begin();
                let owners = tasks
                    .owners_of(view, &listen.context, &listen.interest.tasks)
                    .await;
                for change in listen.interest.lists.changes() {
                    let catalogues = lists.catalogues.changed_by(change);
                    catalogues.for_each(|catalogue| catalogue.begin(view.topology()));
                }
                let request = ListenRequest {
                    view,
                    directory: self,
                    listen: &listen,
                    owners,
                    deadline: Instant::now() + view.limits().timeout,
                };
                let (announced, (mut listening, is_whole)) =
                    tokio::join!(request.lists(), request.listen_to_others());
                listening.honoured.lists = announced;
                listener.hear(view.reader(), announced);
                (listening, is_whole)
            }
        };
        let honoured = listening.honoured.clone();
        listener.install(view.topology().number, listening);
        Ok((honoured, is_whole))
    }
}

/// A client's request to listen, to be answered before `deadline`.
struct ListenRequest<'a> {
    view: &'a View,
    directory: &'a Directory,
    listen: &'a Listen,
    /// The servers that have the tasks in the interest, as far as Fanlight knows.
    owners: HashMap<Arc<str>, BackendId>,
    deadline: Instant,
}

/// The part of a client's interest that one server has to honour.
#[derive(Default)]
struct BackendSubscription {
    interest: Interest,
    /// The client's names for the resources in `interest`, and for tasks with an alias.
    names: HashMap<Arc<str>, Arc<str>>,
}

impl ListenRequest<'_> {
    /// The changes of lists that Fanlight honours: of every list that any server has. Fanlight
    /// compares merged lists itself, whatever the servers announce.
    async fn lists(&self) -> Lists {
        let view = self.view;
        let is_shown = |change: &Change| !view.shows_none(*change);
        let wanted = self.listen.interest.lists.changes().filter(is_shown);
        let found = join_all(wanted.map(|change| async move {
            let asked = view
                .ids()
                .map(|backend| view.has_capability(backend, change.capability()));
            let any = asked
                .collect::<FuturesUnordered<_>>()
                .any(|has| async move { has });
            timeout_at(self.deadline, any)
                .await
                .is_ok_and(|any| any)
                .then_some(change)
        }))
        .await;
        found.into_iter().flatten().collect()
    }

    /// Listens for everything except changes of lists, waiting for each server no longer than for a
    /// list. Also returns whether all servers concerned have answered.
    async fn listen_to_others(&self) -> (Listening, bool) {
        let subscriptions = self.subscriptions().await;
        let asked = subscriptions
            .into_iter()
            .map(|(backend, subscription)| self.listen_to(backend, subscription));
        let (mut honoured, mut listenings) = (Interest::default(), Vec::new());
        let mut failed = HashSet::new();
        for (backend, listened) in join_all(asked).await {
            let Some((subscription, mut listening)) = listened else {
                failed.insert(backend);
                continue;
            };
            if !listening.honoured.is_empty() {
                let mut part = std::mem::take(&mut listening.honoured);
                let named = |own: &Arc<str>| subscription.names.get(own).cloned();
                part.uris = part.uris.iter().filter_map(named).collect();
                let tasks = part.tasks.iter();
                part.tasks = tasks
                    .map(|id| named(id).unwrap_or_else(|| Arc::clone(id)))
                    .collect();
                honoured.extend(part);
                listenings.push(listening.into_guard());
            }
        }
        self.listen.context.trace.partial_failures(failed.len());
        let listening = Listening::new(honoured, listenings.into_boxed_slice());
        (listening, failed.is_empty())
    }

    /// Listens to one server; `None` if that fails.
    async fn listen_to(
        &self,
        backend: BackendId,
        subscription: BackendSubscription,
    ) -> (BackendId, Option<(BackendSubscription, Listening)>) {
        let Some(member) = self.view.get(backend) else {
            return (backend, None);
        };
        let context = Arc::clone(&self.listen.context);
        let asked = member.serving(&context.caller).listen(Listen {
            interest: subscription.interest.clone(),
            context: Arc::clone(&context),
            messages: self.renaming(backend, &subscription),
        });
        let listening = match timeout_at(self.deadline, asked).await {
            Ok(Ok(listening)) => Some((subscription, listening)),
            failed => {
                let error = failed.ok().and_then(Result::err);
                debug!(
                    backend = member.name(),
                    ?error,
                    "a client cannot listen to this server"
                );
                None
            }
        };
        (backend, listening)
    }

    /// The subscriptions to make, and at which servers. A server gets several only if the client
    /// has several names for one resource.
    async fn subscriptions(&self) -> Vec<(BackendId, BackendSubscription)> {
        let Self {
            view,
            directory,
            owners,
            deadline,
            listen: Listen {
                interest, context, ..
            },
        } = self;
        let lookup = directory.lookup(view, context);
        let readers = join_all(view.ids().map(async |backend| {
            let is_reader = !interest.uris.is_empty()
                && view.has_capability(backend, "resources").await
                && lookup.may_have_unlisted(backend).await;
            is_reader.then_some(backend)
        }));
        let places = join_all(interest.uris.iter().map(|uri| lookup.locate(uri)));
        // Slow lists leave half of the time for the subscriptions themselves.
        let patience = deadline.saturating_duration_since(Instant::now()) / 2;
        let (readers, places) = tokio::join!(timeout(patience, readers), timeout(patience, places));
        let is_reader = |backend| {
            readers
                .as_ref()
                .map_or(true, |readers| readers.contains(&Some(backend)))
        };

        let mut all = Vec::new();
        for backend in view.ids() {
            let mut names = HashMap::new();
            let tasks = interest
                .tasks
                .iter()
                .filter(|id| owners.get(*id) == Some(&backend))
                .map(|id| match view.unalias(id) {
                    Some((_, own)) => {
                        let own: Arc<str> = own.into();
                        names.insert(Arc::clone(&own), Arc::clone(id));
                        own
                    }
                    None => Arc::clone(id),
                })
                .collect();
            // A change announced to one client's session concerns the merged list too.
            let session = interest.session;
            let general = Interest {
                lists: if session {
                    Lists::ALL
                } else {
                    Lists::default()
                },
                tasks,
                session,
                unknown: interest
                    .unknown
                    .clone()
                    .filter(|_| view.passes_all_of(backend)),
                uris: Names::new(),
            };
            let mut own = Vec::new();
            if !general.is_empty() {
                own.push(BackendSubscription {
                    interest: general,
                    names,
                });
            }
            for (index, uri) in interest.uris.iter().enumerate() {
                match places.as_ref().ok().and_then(|places| places.get(index)) {
                    Some(Place::At(at, original))
                        if *at == backend && !view.permits_subscription(backend, original) => {}
                    Some(Place::At(at, original)) if *at == backend => {
                        add(&mut own, original.as_str().into(), uri);
                    }
                    // Nothing is known about a hidden resource without the lists.
                    None if view.filters(Filtered::Resources) => {}
                    Some(Place::Unlisted) | None
                        if is_reader(backend)
                            && view.permits_unlisted(PolicyAction::Subscribe, backend, uri) =>
                    {
                        add(&mut own, Arc::clone(uri), uri);
                    }
                    _ => {}
                }
            }
            all.extend(own.into_iter().map(|subscription| (backend, subscription)));
        }
        all
    }

    /// The client's channel, which renames resources to the client's names.
    fn renaming(&self, backend: BackendId, subscription: &BackendSubscription) -> ServerMessages {
        // Most listeners name nothing, and each has one of these channels per server.
        let names = (!subscription.names.is_empty()).then(|| Box::new(subscription.names.clone()));
        let is_session = subscription.interest.session;
        let Directory {
            lists,
            handed_out,
            tasks,
        } = self.directory;
        let (handed_out, tasks) = (Arc::clone(handed_out), Arc::clone(tasks));
        let Listen {
            context, messages, ..
        } = self.listen;
        let (context, session) = (Arc::clone(context), context.session());
        lists.observe_messages(backend, session, messages, move |lists, message| {
            // By the current rules, which may have changed since the client began to listen.
            let view = View::for_client(lists.topology(), &context);
            let renamed = |params| tasks.for_client(&view, &context, backend, params);
            let notification = match tasks::with_params(message, renamed) {
                ServerMessage::Notification(notification) => notification,
                other => return Some(other),
            };
            let is_about_task = matches!(
                notification.method,
                Method::TaskStatus | Method::TaskChanged
            );
            let is_permitted = view.shows(backend)
                && is_shown(&view, backend, &notification)
                && (!is_about_task
                    || tasks.permits_status(&view, &context, notification.params().as_ref()));
            // The gateway announces changes of lists itself.
            if !is_permitted || Change::from_method(&notification.method).is_some() {
                return None;
            }
            let Some(uri) = notification.updated_uri() else {
                return Some(ServerMessage::Notification(notification));
            };
            let alias_in_use = || {
                let owner = |uri: &str| handed_out.owner(&context.caller, uri);
                is_session
                    .then(|| routing::alias_in_use(backend, &uri, &context, lists, owner))
                    .flatten()
            };
            let own = names
                .iter()
                .flat_map(|names| names.iter())
                .filter(|(original, _)| uri.starts_with(&***original));
            let name = match own.max_by_key(|(original, _)| original.len()) {
                Some((original, name)) if original == name => None,
                // The changed resource may be a part of the one subscribed to. An alias ends as its
                // original does.
                Some((original, name)) => Some(format!(
                    "{name}{}",
                    uri.get(original.len()..).unwrap_or_default()
                )),
                None => alias_in_use(),
            };
            Some(ServerMessage::Notification(match name {
                Some(name) => notification.with_param("uri", &Json::string(&name)),
                None => notification,
            }))
        })
    }
}

/// Whether an endpoint shows the subject of a notification.
fn is_shown(view: &View, backend: BackendId, notification: &Notification) -> bool {
    match &notification.method {
        Method::Other(method) => view.passes_all_of(backend) || **method == *ELICITATION_COMPLETE,
        Method::ResourceUpdated if view.filters(Filtered::Resources) => notification
            .updated_uri()
            .is_some_and(|uri| view.permits_update(backend, &uri)),
        _ => true,
    }
}

/// Adds a resource to the first subscription that does not have it under another name.
fn add(subscriptions: &mut Vec<BackendSubscription>, original: Arc<str>, name: &Arc<str>) {
    let is_free = |subscription: &BackendSubscription| !subscription.names.contains_key(&original);
    let free = subscriptions
        .iter()
        .position(is_free)
        .unwrap_or(subscriptions.len());
    if free == subscriptions.len() {
        subscriptions.push(BackendSubscription::default());
    }
    if let Some(subscription) = subscriptions.get_mut(free) {
        subscription.interest.uris.insert(Arc::clone(&original));
        subscription.names.insert(original, Arc::clone(name));
    }
}
