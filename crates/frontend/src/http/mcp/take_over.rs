//! Takes over sessions whose replica has ended.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Keeper, ProcessRun};
use fanlight_gateway::Operation;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Endpoint;
use crate::gates;
use crate::ingress::Origin;
use crate::session::archive::{ArchivedSession, OnRecord, TakenOver};
use crate::streams::{ActiveSession, SessionStreams};

/// How long the first request of a taken-over session waits for the session's servers and
/// subscriptions. A constant: slower subscriptions are restored while requests are answered.
const RESTORING: Duration = Duration::from_secs(5);

/// The interval between checks for sessions that other replicas may have taken over. A constant:
/// this run gives such sessions up within a second.
const LOOK: Duration = Duration::from_millis(250);

/// The maximum number of concurrent checks.
const AT_ONCE: usize = 64;

/// Tracks where the sessions of ended replicas have gone.
pub(super) struct TakeOvers {
    /// Take-overs in progress, each for one request. Other requests wait for their outcome.
    running: Mutex<Running>,
    /// The last known keeper of sessions whose id names an ended run. Spares a look into the store.
    moved: Cache<Box<str>, ProcessRun>,
}

/// The session's keeper cannot be determined: the store is unavailable.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotKnown;

/// The outcome of a take-over; `None` while it is unknown.
type Outcome = Option<Result<Keeper, NotKnown>>;

/// The outcomes of running take-overs, by session id.
type Running = HashMap<Box<str>, watch::Receiver<Outcome>>;

/// A take-over in progress, for one request.
struct TakingOver<'a> {
    all: &'a TakeOvers,
    id: &'a str,
    outcome: watch::Sender<Outcome>,
}

impl TakeOvers {
    /// Remembers the keepers of this many sessions.
    pub(super) fn new(sessions: usize) -> Self {
        Self {
            running: Mutex::default(),
            moved: Cache::new(sessions),
        }
    }

    /// The last known keeper of a session that `keeper` has kept.
    pub(super) fn latest_keeper(&self, id: &str, keeper: Keeper) -> Keeper {
        match keeper {
            Keeper::Another(_) => self.moved.get(id).map_or(keeper, Keeper::Another),
            Keeper::ThisRun | Keeper::Nobody => keeper,
        }
    }

    fn found(&self, id: &str, keeper: Keeper) {
        match keeper {
            Keeper::Another(run) => self.moved.insert(id.into(), run),
            Keeper::ThisRun | Keeper::Nobody => drop(self.moved.remove(id)),
        }
    }

    /// Begins a take-over. If one is running, returns its outcome to wait for.
    fn begin<'a>(&'a self, id: &'a str) -> Result<TakingOver<'a>, watch::Receiver<Outcome>> {
        let mut all = self.running.lock();
        if let Some(running) = all.get(id) {
            return Err(running.clone());
        }
        let (outcome, waiting) = watch::channel(None);
        all.insert(id.into(), waiting);
        Ok(TakingOver {
            all: self,
            id,
            outcome,
        })
    }

    /// Waits until no take-over of the session is running.
    pub(super) async fn settled(&self, id: &str) {
        let running = self.running.lock().get(id).cloned();
        if let Some(running) = running {
            let _ = outcome_of(running).await;
        }
    }
}

/// Waits for the outcome; `None` if the request behind the take-over ended first.
async fn outcome_of(mut running: watch::Receiver<Outcome>) -> Outcome {
    running
        .wait_for(Option::is_some)
        .await
        .map_or(None, |outcome| *outcome)
}

impl Drop for TakingOver<'_> {
    fn drop(&mut self) {
        self.all.running.lock().remove(self.id);
    }
}

impl Endpoint {
    /// Takes over a session from `run`, which has ended or is unreachable; returns the session's
    /// keeper afterwards.
    pub(super) async fn take_over(
        &self,
        id: &str,
        origin: &Origin<'_>,
        run: ProcessRun,
        is_unreachable: bool,
    ) -> Result<Keeper, NotKnown> {
        let Some(archive) = &self.archive else {
            return Ok(Keeper::Nobody);
        };
        let turn = loop {
            match self.take_overs.begin(id) {
                Ok(turn) => break turn,
                Err(running) => {
                    if let Some(outcome) = outcome_of(running).await {
                        return outcome;
                    }
                }
            }
        };
        // An earlier take-over, whose request has ended, may have succeeded.
        if self.sessions.enter(id, &origin.holder).is_ok() {
            return Ok(Keeper::ThisRun);
        }
        let keeper = match archive
            .take_over(id, &origin.holder, run, is_unreachable)
            .await
        {
            TakenOver::Session(archived, on_record, claim) => {
                match self.continue_session(id, origin, *archived, on_record) {
                    Some(session) => {
                        claim.keep();
                        tracing::info!(%run, is_unreachable, "session taken over from a replica that has ended or cannot be reached");
                        // A task, so that it goes on if the client disconnects.
                        let restoring = tokio::spawn(self.restore(session, origin));
                        if timeout(RESTORING, restoring).await.is_err() {
                            tracing::warn!(
                                "some subscriptions of a session that was taken over are not restored yet"
                            );
                        }
                        Keeper::ThisRun
                    }
                    None => Keeper::Nobody,
                }
            }
            TakenOver::By(run) => Keeper::Another(run),
            TakenOver::Nobody => Keeper::Nobody,
            TakenOver::NotKnown => {
                turn.outcome.send_replace(Some(Err(NotKnown)));
                return Err(NotKnown);
            }
        };
        self.take_overs.found(id, keeper);
        turn.outcome.send_replace(Some(Ok(keeper)));
        Ok(keeper)
    }

    fn continue_session(
        &self,
        id: &str,
        origin: &Origin<'_>,
        archived: ArchivedSession,
        on_record: OnRecord,
    ) -> Option<ActiveSession> {
        // The endpoint may meanwhile have a server whose sessions cannot move because it is a
        // process.
        if !self
            .ingress
            .core
            .sessions_may_move(origin.holder.endpoint())
        {
            return None;
        }
        let session = self
            .ingress
            .continued_session(origin, archived, on_record)
            .ok()?;
        self.sessions
            .keep(id.into(), session)
            .inspect_err(|error| tracing::warn!(%error, "session not taken over"))
            .ok()
    }

    /// Restores a session's subscriptions and continues its sessions at servers.
    fn restore(
        &self,
        session: ActiveSession,
        origin: &Origin<'_>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (core, policy) = (Arc::clone(&self.ingress.core), Arc::clone(&self.policy));
        let context = Arc::new(self.ingress.context_again(&session, origin));
        let (settings, caller) = (Arc::clone(&self.ingress.settings), context.caller.clone());
        // As far as the client still may subscribe.
        let is_permitted =
            move |operation: &Operation| gates::decide_for(&settings, &caller, operation).is_ok();
        let subscribing = core.subscribe_again(Some(Arc::clone(&context)), is_permitted);
        async move {
            if session.session.is_at_servers() {
                // This precedes any message in the servers' sessions.
                session.session.write_record().await;
            }
            // Servers continue the sessions that another replica opened at them.
            core.continue_session(&context);
            if !session.session.subscriptions().is_empty() {
                let _ = session.listen_in_background(&policy);
                subscribing.await;
            }
        }
    }

    /// Whether this run still keeps the session. If not, ends it here.
    pub(super) async fn still_keeps(&self, id: &str, session: &Arc<SessionStreams>) -> bool {
        let is_kept = session.session.is_kept().await;
        if !is_kept {
            tracing::warn!(
                "session ended here: another replica has taken it over while this one was away"
            );
            self.sessions.lose(id, session);
        }
        is_kept
    }

    /// Gives up sessions that other replicas took over while this process was disconnected; never
    /// returns. Most are found with their next request. Sessions that get messages from servers
    /// cannot wait for that.
    pub(in crate::http) async fn give_up_what_is_lost(&self) -> Infallible {
        let Some(archive) = &self.archive else {
            return pending().await;
        };
        let (mut ticks, mut asked) = (interval(LOOK), archive.records.mark());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mark = archive.records.mark();
            if mark.is_none() || mark == asked {
                continue;
            }
            let doubtful = stream::iter(self.sessions.doubtful_at_servers());
            let ask = async |(id, session): (Box<str>, Arc<SessionStreams>)| {
                // Otherwise the store is unavailable again, and its answer means nothing.
                if archive.records.mark() == mark {
                    self.still_keeps(&id, &session).await;
                }
            };
            doubtful.for_each_concurrent(AT_ONCE, ask).await;
            // The next round asks about sessions without an answer again.
            if self.sessions.doubtful_at_servers().is_empty() {
                asked = mark;
            }
        }
    }

    /// Ends all sessions. Other replicas can take over those with a record.
    pub(in crate::http) async fn end_sessions(&self) {
        let released = self.sessions.leave_records();
        // End them before another replica opens streams of the same server sessions.
        self.sessions.end_all();
        if let Some(archive) = self.archive.as_ref().filter(|_| !released.is_empty()) {
            tracing::info!(
                sessions = released.len(),
                "sessions handed over to other replicas"
            );
            archive.records.release(released).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::ServerSessions;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::LiveLimits;
    use crate::session::testing::{ListenCore, Records, at, server_session};
    use crate::settings::FrontendSettings;

    #[tokio::test(start_paused = true)]
    async fn session_that_may_be_lost_is_asked_about_until_the_store_answers() {
        let (core, records) = (ListenCore::refusing(), Arc::new(Records::default()));
        let session_records = Some(Arc::clone(&records) as _);
        let settings = Arc::new(FrontendSettings {
            session_records,
            ..FrontendSettings::default()
        });
        let (limits, token) = (LiveLimits::new(&settings), CancellationToken::new);
        let endpoint =
            Endpoint::new(Arc::clone(&core), &settings, limits, token(), token()).unwrap();
        let session = SessionStreams::new(
            core.session()
                .with_server_sessions(ServerSessions::default()),
            &settings,
        );
        session
            .session
            .put_on_record(endpoint.archive.as_ref().unwrap().record("id"));
        at(&session.session, "server")
            .record_opened(server_session())
            .await;
        drop(endpoint.sessions.keep("id".into(), session).unwrap());
        let story = async {
            // The store's mark changes, but it does not answer.
            (*records.is_taken.lock(), *records.is_away.lock()) = (true, true);
            sleep(4 * LOOK).await;
            assert_eq!(endpoint.sessions.counts().0, 1);
            *records.is_away.lock() = false;
            sleep(4 * LOOK).await;
            assert_eq!(endpoint.sessions.counts().0, 0);
        };
        tokio::select! {
            biased;
            never = endpoint.give_up_what_is_lost() => match never {},
            () = story => {}
        }
    }
}
