//! Listening on behalf of clients, with several backends.
//!
//! Changes of lists are the gateway's own to announce. For everything else each backend concerned
//! gets one listening, whose messages go straight to the client, through a renaming where there is
//! something to rename.
//!
//! Must not know: how a client hears it, or how a backend is listened to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::{Interest, Listen, Listening, ListeningGuard, ServerMessage, ServerMessages};
use fanlight_protocol::json::Json;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use crate::catalogue::Change;
use crate::route::{self, Place};
use crate::watch::{Watch, updated_uri};

/// Somebody who wants to listen, until `deadline`.
struct Wish<'a> {
    watch: &'a Arc<Watch>,
    listen: &'a Listen,
    /// The backends that have the tasks in the interest, where that is known.
    owners: &'a HashMap<Arc<str>, usize>,
    deadline: Instant,
}

/// What one backend is to be listened to for.
#[derive(Default)]
struct Share {
    interest: Interest,
    /// What the client calls the resources in `interest`.
    names: HashMap<Arc<str>, Arc<str>>,
}

/// Listens to all backends for a client. None of them is waited for longer than for a list.
/// `owners` are the backends that have the tasks in the interest, where that is known.
pub(crate) async fn to_all(watch: &Arc<Watch>, listen: Listen, owners: &HashMap<Arc<str>, usize>) -> Listening {
    let deadline = Instant::now() + watch.sources.limits.timeout;
    // Before anyone is asked, so that nothing is missed meanwhile.
    let registered = watch.announcer.register(&listen.interest, listen.messages.clone());
    for change in Change::ALL.into_iter().filter(|change| change.is_in(&listen.interest)) {
        watch.catalogues.changed_by(change).for_each(|catalogue| catalogue.begin());
    }
    let wish = Wish { watch, listen: &listen, owners, deadline };
    let (lists, (mut honoured, guards)) = tokio::join!(wish.lists(), wish.others());
    Change::ALL.into_iter().filter(|change| change.is_in(&lists)).for_each(|change| change.set(&mut honoured));
    registered.narrow(&honoured);
    let registered = Change::ALL.into_iter().any(|change| change.is_in(&honoured)).then_some(registered);
    Listening::new(honoured, (registered, guards.into_boxed_slice()))
}

/// With one backend everything passes as it is, but what is kept of a resource that has changed is
/// let go.
pub(crate) fn evicting(listen: Listen, watch: &Arc<Watch>) -> Listen {
    let watch = Arc::downgrade(watch);
    let messages = listen.messages.mapped(move |message| {
        if let (ServerMessage::Notification(notification), Some(watch)) = (&message, watch.upgrade()) {
            watch.heard(0, notification);
        }
        Some(message)
    });
    Listen { messages, ..listen }
}

impl Wish<'_> {
    /// Which changes of lists are honoured: those of lists that any backend has, since merged lists
    /// are compared whatever their servers announce.
    async fn lists(&self) -> Interest {
        let sources = &self.watch.sources;
        let wanted = Change::ALL.into_iter().filter(|change| change.is_in(&self.listen.interest));
        let found = join_all(wanted.map(|change| async move {
            let backends = 0..sources.backends.len();
            let asked = backends.map(|backend| sources.have_capability(backend, change.capability()));
            let any = asked.collect::<FuturesUnordered<_>>().any(|has| async move { has });
            timeout_at(self.deadline, any).await.is_ok_and(|any| any).then_some(change)
        }))
        .await;
        let mut honoured = Interest::default();
        found.into_iter().flatten().for_each(|change| change.set(&mut honoured));
        honoured
    }

    /// Listens for everything that is not about lists.
    async fn others(&self) -> (Interest, Vec<ListeningGuard>) {
        let shares = self.shares().await;
        let asked = (0..)
            .zip(shares)
            .flat_map(|(backend, shares)| shares.into_iter().map(move |share| self.listen_to(backend, share)));
        let mut honoured = Interest::default();
        let (mut names, mut tasks, mut listenings) = (HashSet::new(), HashSet::new(), Vec::new());
        let mut failed = HashSet::new();
        for (backend, listened) in join_all(asked).await {
            let Some((share, listening)) = listened else {
                failed.insert(backend);
                continue;
            };
            let Interest { uris, tasks: owned, session, unknown, .. } = &listening.honoured;
            names.extend(uris.iter().filter_map(|uri| share.names.get(uri)).cloned());
            tasks.extend(owned.iter().cloned());
            honoured.session |= *session;
            honoured.unknown = match (honoured.unknown.take(), unknown) {
                (Some(all), Some(one)) => Some(fanlight_protocol::json::union(&all, one)),
                (all, one) => all.or_else(|| one.clone()),
            };
            if !listening.honoured.is_empty() {
                listenings.push(listening.into_guard());
            }
        }
        let ordered = |wanted: &[Arc<str>], some: &HashSet<Arc<str>>| -> Vec<_> {
            wanted.iter().filter(|name| some.contains(*name)).cloned().collect()
        };
        honoured.uris = ordered(&self.listen.interest.uris, &names);
        honoured.tasks = ordered(&self.listen.interest.tasks, &tasks);
        self.listen.context.trace.partial_failures(failed.len());
        (honoured, listenings)
    }

    /// Listens to one backend, and says to which; nothing is listened to if that fails.
    async fn listen_to(&self, backend: usize, share: Share) -> (usize, Option<(Share, Listening)>) {
        let Some(entry) = self.watch.sources.backends.get(backend) else { return (backend, None) };
        // What tells of tasks alone has nothing in it to be kept back or renamed.
        let interest = share.interest.clone();
        let messages = match interest.session || interest.unknown.is_some() || !share.names.is_empty() {
            true => renaming(self.watch, backend, &share, &self.listen.messages),
            false => self.listen.messages.clone(),
        };
        let context = Arc::clone(&self.listen.context);
        let asked = entry.client.listen(Listen { interest, context, messages });
        match timeout_at(self.deadline, asked).await {
            Ok(Ok(listening)) => return (backend, Some((share, listening))),
            Ok(Err(error)) => debug!(backend = entry.client.name(), %error, "a client cannot listen to this backend"),
            Err(_) => debug!(backend = entry.client.name(), "this backend did not answer a client that listens"),
        }
        (backend, None)
    }

    /// What each backend is to be listened to for. Several shares for one backend only if a client
    /// has several names for one resource.
    async fn shares(&self) -> Vec<Vec<Share>> {
        let Self { watch, owners, deadline, listen: Listen { interest, context, .. } } = self;
        let mut all: Vec<Vec<Share>> = Vec::new();
        for backend in 0..watch.sources.backends.len() {
            let tasks = interest.tasks.iter().filter(|id| owners.get(*id) == Some(&backend)).cloned().collect();
            // What a server announces to the client's session alone says something of the merged list too.
            let (session, unknown) = (interest.session, interest.unknown.clone());
            let lists = Interest { tools: session, prompts: session, resources: session, ..Interest::default() };
            let general = Interest { tasks, session, unknown, ..lists };
            let shares =
                if general.is_empty() { Vec::new() } else { vec![Share { interest: general, names: HashMap::new() }] };
            all.push(shares);
        }
        if interest.uris.is_empty() {
            return all;
        }
        let readers = join_all((0..all.len()).map(|backend| watch.sources.have_capability(backend, "resources")));
        let places = join_all(interest.uris.iter().map(|uri| route::locate(uri, watch, &context.trace)));
        // Lists that take long leave half of the time for the listening itself.
        let patience = deadline.saturating_duration_since(Instant::now()) / 2;
        let (readers, places) = tokio::join!(timeout(patience, readers), timeout(patience, places));
        let is_reader = |backend: usize| readers.as_ref().map_or(true, |all| all.get(backend) == Some(&true));
        for (index, uri) in interest.uris.iter().enumerate() {
            let place = places.as_ref().ok().and_then(|places| places.get(index));
            for (backend, shares) in all.iter_mut().enumerate() {
                match place {
                    Some(Place::At(at, original)) if *at == backend => add(shares, original.as_str().into(), uri),
                    Some(Place::Unlisted) | None if is_reader(backend) => add(shares, Arc::clone(uri), uri),
                    _ => {}
                }
            }
        }
        all
    }
}

fn add(shares: &mut Vec<Share>, original: Arc<str>, name: &Arc<str>) {
    let free = shares.iter().position(|share| !share.names.contains_key(&original)).unwrap_or(shares.len());
    if free == shares.len() {
        shares.push(Share::default());
    }
    if let Some(share) = shares.get_mut(free) {
        share.interest.uris.push(Arc::clone(&original));
        share.names.insert(original, Arc::clone(name));
    }
}

/// The client's way, with resources called what the client calls them.
fn renaming(watch: &Arc<Watch>, backend: usize, share: &Share, messages: &ServerMessages) -> ServerMessages {
    // Most listeners name nothing, and there is one of these for each of them at each backend.
    let names = (!share.names.is_empty()).then(|| Box::new(share.names.clone()));
    let (watch, hears_all) = (Arc::downgrade(watch), share.interest.session);
    let backend = u32::try_from(backend).unwrap_or(u32::MAX);
    messages.mapped(move |message| {
        let ServerMessage::Notification(notification) = message else { return Some(message) };
        let backend = usize::try_from(backend).unwrap_or(usize::MAX);
        watch.upgrade().iter().for_each(|watch| watch.heard(backend, &notification));
        // The gateway announces changes of lists itself.
        if Change::of(&notification.method).is_some() {
            return None;
        }
        let Some(uri) = updated_uri(&notification) else {
            return Some(ServerMessage::Notification(notification));
        };
        let listed = || {
            let watch = watch.upgrade().filter(|_| hears_all)?;
            route::visible_uri(backend, &uri, &watch)
        };
        let own = names.iter().flat_map(|names| names.iter()).filter(|(original, _)| uri.starts_with(&***original));
        let name = match own.max_by_key(|(original, _)| original.len()) {
            Some((original, name)) if original == name => None,
            // What is told may be a part of what was asked for, and an alias has the original at
            // its end.
            Some((original, name)) => Some(format!("{name}{}", uri.get(original.len()..).unwrap_or_default())),
            None => listed(),
        };
        Some(ServerMessage::Notification(match name {
            Some(name) => notification.with_param("uri", &Json::string(&name)),
            None => notification,
        }))
    })
}
