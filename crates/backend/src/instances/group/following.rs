//! Listens at a server with several endpoints: at the primary one or the session's, and for tasks
//! at those that have them. When these change, listening begins at the new endpoint before it ends
//! at the old one. Changes that may have been missed are announced, as after the loss of a
//! connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{BackendError, Interest, Listen, Listening, Names};
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::instance::Instance;
use super::Group;

/// The interests at each endpoint, by its number.
type Plan = BTreeMap<u64, (Arc<Instance>, Interest)>;

/// The endpoints that are listened to, and the listening there.
type Listened = (Vec<u64>, Listening);

/// Begins to listen.
pub(super) async fn listen(group: &Arc<Group>, listen: Listen) -> Result<Listening, BackendError> {
    group.settle().await;
    let changes = group.changes.subscribe();
    let listened = set_up(plan(group, &listen)?, &listen).await?;
    let honoured = listened.1.honoured.clone();
    let pause = group.settings.timeouts.reconnect.longest;
    let following = follow((Arc::downgrade(group), changes), pause, listen, listened);
    Ok(Listening::new(honoured, group.server.run(following)))
}

/// Moves the listening whenever the endpoints change. After a failure it tries again, each `pause`.
async fn follow(
    (group, mut changes): (Weak<Group>, watch::Receiver<()>),
    pause: Duration,
    listen: Listen,
    mut listened: Listened,
) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = sleep(pause), if has_failed => {}
        }
        let Some(group) = group.upgrade() else { return };
        let moved = move_listening(&group, &listen, &mut listened).await;
        has_failed = moved.is_err();
        if let Err(error) = moved {
            tracing::debug!(backend = group.settings.name, %error, "not listening at another endpoint");
        }
    }
}

/// Listens at the endpoints of now, once all of them can be used.
async fn move_listening(
    group: &Group,
    listen: &Listen,
    listened: &mut Listened,
) -> Result<(), BackendError> {
    let plan = plan(group, listen)?;
    if !plan.values().all(|(member, _)| member.is_connected()) {
        return Ok(());
    }
    if plan.keys().eq(&listened.0) {
        // A request of the session may have moved it meanwhile.
        return subscribe_again(plan.values(), listen).await;
    }
    *listened = set_up(plan, listen).await?;
    // The old endpoint may have announced changes while nobody listened.
    listened.1.honoured.announce(&listen.messages);
    Ok(())
}

/// The endpoints to listen at, with the interests at each.
fn plan(group: &Group, listen: &Listen) -> Result<Plan, BackendError> {
    let main = group.home(&listen.context)?;
    let interest = Interest {
        tasks: Names::new(),
        ..listen.interest.clone()
    };
    let mut plan = Plan::from([(main.number, (Arc::clone(&main), interest))]);
    for task in &listen.interest.tasks {
        let home = group.home_of(task, &listen.context.caller);
        let member = home.unwrap_or_else(|| Arc::clone(&main));
        let part = plan.entry(member.number);
        let (_, interest) = part.or_insert_with(|| (member, Interest::default()));
        interest.tasks.insert(Arc::clone(task));
    }
    Ok(plan)
}

async fn set_up(plan: Plan, listen: &Listen) -> Result<Listened, BackendError> {
    let (mut honoured, mut guards) = (Interest::default(), Vec::new());
    for (member, interest) in plan.values() {
        let listening = member
            .tasks
            .listen(Listen {
                interest: interest.clone(),
                ..listen.clone()
            })
            .await?;
        honoured.extend(listening.honoured.clone());
        guards.push(listening.into_guard());
    }
    subscribe_again(plan.values(), listen).await?;
    let endpoints = plan.into_keys().collect();
    Ok((endpoints, Listening::new(honoured, guards)))
}

/// Repeats a session's subscriptions from another endpoint at its current one.
async fn subscribe_again(
    mut plan: impl Iterator<Item = &(Arc<Instance>, Interest)>,
    listen: &Listen,
) -> Result<(), BackendError> {
    let Some((member, _)) = plan.find(|(_, interest)| interest.session) else {
        return Ok(());
    };
    let uris = member.pool.subscribe_again(&listen.context).await?;
    // The resources may have changed without a subscription.
    let changed = Interest {
        uris,
        ..Interest::default()
    };
    changed.announce(&listen.messages);
    Ok(())
}
