//! Listens to several servers on behalf of clients.
//!
//! The gateway announces changes of lists itself. For everything else each server concerned gets
//! one subscription. Its messages go directly to the client, except that resources are renamed if
//! the client knows them by another name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::{
    Interest, Listen, Listening, ListeningGuard, PolicyAction, ServerMessage, ServerMessages,
};
use fanlight_protocol::json::Json;
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Method, Notification};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use crate::catalogue::{Change, ListWatcher};
use crate::routing::{self, Lookup, Place};
use crate::tasks::Tasks;
use crate::topology::{BackendId, Filtered, View};
use crate::uris::HandedOut;

/// The parts of the gateway that messages to a listening client concern.
pub(crate) struct Concerned {
    pub(crate) lists: Arc<ListWatcher>,
    pub(crate) handed_out: Arc<HandedOut>,
    pub(crate) tasks: Arc<Tasks>,
}

/// A client's request to listen, to be answered before `deadline`.
struct ListenRequest<'a> {
    view: &'a View,
    gateway: &'a Concerned,
    listen: &'a Listen,
    /// The servers that have the tasks in the interest, as far as Fanlight knows.
    owners: &'a HashMap<Arc<str>, BackendId>,
    deadline: Instant,
}

/// The part of a client's interest that one server has to honour.
#[derive(Default)]
struct BackendSubscription {
    interest: Interest,
    /// The client's names for the resources in `interest`.
    names: HashMap<Arc<str>, Arc<str>>,
}

/// The outcome of listening to all servers.
pub(crate) struct ListeningToAll {
    pub(crate) honoured: Interest,
    /// The servers whose messages go directly to the client.
    pub(crate) heard: HashSet<BackendId>,
    pub(crate) guards: Vec<ListeningGuard>,
    /// Whether all servers concerned have answered.
    pub(crate) is_whole: bool,
}

/// Listens to all servers for a client, waiting for each no longer than for a list. `owners` are
/// the servers that have the tasks in the interest, as far as Fanlight knows.
pub(crate) async fn to_all(
    view: &View,
    gateway: &Concerned,
    listen: &Listen,
    owners: &HashMap<Arc<str>, BackendId>,
) -> ListeningToAll {
    let deadline = Instant::now() + view.limits().timeout;
    for change in listen.interest.lists.changes() {
        let catalogues = gateway.lists.catalogues.changed_by(change);
        catalogues.for_each(|catalogue| catalogue.begin(view.topology()));
    }
    let request = ListenRequest {
        view,
        gateway,
        listen,
        owners,
        deadline,
    };
    let (lists, mut all) = tokio::join!(request.lists(), request.others());
    all.honoured.lists = lists;
    all
}

impl ListenRequest<'_> {
    /// The changes of lists that Fanlight honours: of every list that any server has. Fanlight
    /// compares merged lists itself, whatever the servers announce.
    async fn lists(&self) -> Lists {
        let view = self.view;
        let is_shown = |change: &Change| {
            !Filtered::ALL
                .into_iter()
                .any(|kind| kind.capability() == change.capability() && view.shows_none(kind))
        };
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

    /// Listens for everything except changes of lists.
    async fn others(&self) -> ListeningToAll {
        let subscriptions = self.subscriptions().await;
        let asked = subscriptions
            .into_iter()
            .map(|(backend, subscription)| self.listen_to(backend, subscription));
        let mut honoured = Interest::default();
        let (mut names, mut tasks, mut listenings) = (HashSet::new(), HashSet::new(), Vec::new());
        let (mut failed, mut heard) = (HashSet::new(), HashSet::new());
        for (backend, listened) in join_all(asked).await {
            let Some((subscription, listening)) = listened else {
                failed.insert(backend);
                continue;
            };
            let Interest {
                uris,
                tasks: owned,
                session,
                unknown,
                ..
            } = &listening.honoured;
            names.extend(
                uris.iter()
                    .filter_map(|uri| subscription.names.get(uri))
                    .cloned(),
            );
            tasks.extend(owned.iter().cloned());
            honoured.session |= *session;
            honoured.unknown = match (honoured.unknown.take(), unknown) {
                (Some(all), Some(one)) => Some(fanlight_protocol::json::union(&all, one)),
                (all, one) => all.or_else(|| one.clone()),
            };
            if !listening.honoured.is_empty() {
                listenings.push(listening.into_guard());
                heard.insert(backend);
            }
        }
        let ordered = |wanted: &[Arc<str>], some: &HashSet<Arc<str>>| -> Vec<_> {
            wanted
                .iter()
                .filter(|name| some.contains(*name))
                .cloned()
                .collect()
        };
        honoured.uris = ordered(&self.listen.interest.uris, &names);
        honoured.tasks = ordered(&self.listen.interest.tasks, &tasks);
        self.listen.context.trace.partial_failures(failed.len());
        ListeningToAll {
            honoured,
            heard,
            guards: listenings,
            is_whole: failed.is_empty(),
        }
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
        let asked = member.client.listen(Listen {
            interest: subscription.interest.clone(),
            context: Arc::clone(&self.listen.context),
            messages: self.renaming(backend, &subscription),
        });
        match timeout_at(self.deadline, asked).await {
            Ok(Ok(listening)) => return (backend, Some((subscription, listening))),
            Ok(Err(error)) => {
                debug!(backend = member.name(), %error, "a client cannot listen to this server");
            }
            Err(_) => debug!(
                backend = member.name(),
                "this server did not answer a client that listens"
            ),
        }
        (backend, None)
    }

    /// The subscriptions to make, and at which servers. A server gets several only if the client
    /// has several names for one resource.
    async fn subscriptions(&self) -> Vec<(BackendId, BackendSubscription)> {
        let Self {
            view,
            gateway,
            owners,
            deadline,
            listen: Listen {
                interest, context, ..
            },
        } = self;
        let Concerned {
            lists, handed_out, ..
        } = gateway;
        let lookup = Lookup {
            view,
            lists,
            handed_out,
            context,
        };
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
            let tasks = interest
                .tasks
                .iter()
                .filter(|id| owners.get(*id) == Some(&backend))
                .cloned()
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
                uris: Vec::new(),
            };
            let mut own = Vec::new();
            if !general.is_empty() {
                own.push(BackendSubscription {
                    interest: general,
                    names: HashMap::new(),
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
        let Concerned {
            lists,
            handed_out,
            tasks,
        } = self.gateway;
        let (handed_out, tasks) = (Arc::clone(handed_out), Arc::clone(tasks));
        let Listen {
            context, messages, ..
        } = self.listen;
        let (context, session) = (Arc::clone(context), context.session());
        lists.noting(backend, session, messages, move |lists, message| {
            let ServerMessage::Notification(notification) = message else {
                return Some(message);
            };
            // By the current rules, which may have changed since the client began to listen.
            let view = View::of(lists.topology(), &context);
            let is_about_task = matches!(
                notification.method,
                Method::TaskStatus | Method::TaskChanged
            );
            let is_permitted = view.shows(backend)
                && is_shown(&view, backend, &notification)
                && (!is_about_task
                    || tasks.permits_status(&view, &context, notification.params().as_ref()));
            // The gateway announces changes of lists itself.
            if !is_permitted || Change::of(&notification.method).is_some() {
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
        subscription.interest.uris.push(Arc::clone(&original));
        subscription.names.insert(original, Arc::clone(name));
    }
}
