//! Records of sessions in Valkey. Each is a hash with the replica that owns the session, and the
//! data that another needs to take it over.
//!
//! A record can be claimed once its owner has released it, or has lost its lease. Valkey decides
//! which claim was first.

use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::ProcessRun;
use fanlight_frontend::{Claim, Claimed, Mark, Released, SessionRecords};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::millis;
use crate::{LEASE, Membership, Shared, SharedError};

/// The limit of queued notes. There is no option, since dropped notes only let records expire.
const WAITING: usize = 4096;
/// The number of sessions released or updated at the same time.
const AT_ONCE: usize = 64;
/// How often to check whether an unresponsive replica has lost its lease.
const LOOK: Duration = Duration::from_millis(100);

script! {
    /// Writes, prolongs, removes or releases the record of a session that this replica owns. A given
    /// record is written first. Returns the previous owner: an empty text if there was no record,
    /// `released` if it had been released.
    CHANGE = r"
local owner = redis.call('HGET', KEYS[1], 'owner')
local is_own = owner == ARGV[1]
if ARGV[4] ~= '' and (is_own or not owner) then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'record', ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  is_own = true
end
if is_own and ARGV[2] == 'prolong' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif is_own and ARGV[2] == 'forget' then
  local has_moved = redis.call('HEXISTS', KEYS[1], 'claim') == 1
  redis.call('DEL', KEYS[1])
  if has_moved then
    -- An earlier owner may not know that the session has moved. Without this mark it would take the record for a lost one.
    redis.call('HSET', KEYS[1], 'owner', 'ended')
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
elseif is_own and ARGV[2] == 'release' then
  redis.call('HSET', KEYS[1], 'owner', '')
end
if owner == '' then
  return 'released'
end
return owner or ''
"
}

script! {
    /// Makes this replica the owner of a session that was released, or that belongs to the given
    /// replica, which has ended. Repeating a claim whose answer was lost succeeds again.
    CLAIM = r"
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then
  return {'nobody', ''}
end
local is_claimed = owner == ARGV[1] and redis.call('HGET', KEYS[1], 'claim') == ARGV[4]
if owner ~= '' and owner ~= ARGV[2] and not is_claimed then
  return {owner, ''}
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'claim', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'', redis.call('HGET', KEYS[1], 'record') or ''}
"
}

/// The answer of [`CLAIM`] for a session without a record.
const NO_RECORD: &str = "nobody";

script! {
    /// Releases a session that this replica owns by this claim and no later one.
    GIVE_UP = r"
local claimed = redis.call('HMGET', KEYS[1], 'owner', 'claim')
if claimed[1] == ARGV[1] and claimed[2] == ARGV[2] then
  return redis.call('HSET', KEYS[1], 'owner', '')
end
return 0
"
}

/// A change of a session's record that nobody waits for.
enum Note {
    Prolong,
    /// Removes the record. The sender reports whether this replica owned it.
    Forget(watch::Sender<Option<bool>>),
    /// Gives up the claim with this number.
    GiveUp(u64),
}

/// [`SessionRecords`] in Valkey.
pub struct SessionsInValkey {
    table: Table,
    notes: mpsc::Sender<(Note, Box<str>)>,
}

/// Access to the records.
#[derive(Clone)]
struct Table {
    shared: Shared,
    membership: Membership,
    /// The lifetime of a record.
    lifetime: Duration,
}

impl SessionsInValkey {
    /// Creates the records with this lifetime after each write. The future writes the queued notes
    /// until the records are dropped.
    pub fn new(
        shared: Shared,
        membership: Membership,
        lifetime: Duration,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (notes, noted) = mpsc::channel(WAITING);
        let table = Table {
            shared,
            membership,
            lifetime,
        };
        let records = Self {
            table: table.clone(),
            notes,
        };
        let write = move |(note, name): (Note, Box<str>)| {
            let table = table.clone();
            async move {
                match note {
                    // A forgotten session has no record to prolong.
                    Note::Prolong => drop(table.change("prolong", &name, "", Instant::now()).await),
                    Note::Forget(told) => {
                        told.send_replace(
                            table.change("forget", &name, "", Instant::now()).await.ok(),
                        );
                    }
                    Note::GiveUp(claim) => table.give_up(&name, claim).await,
                }
            }
        };
        (records, each(noted, write))
    }
}

/// Runs `work` for each sent value, for [`AT_ONCE`] of them concurrently. Many sessions end
/// together, and each waits for its result.
async fn each<T, F: Future<Output = ()>>(mut sent: mpsc::Receiver<T>, work: impl FnMut(T) -> F) {
    stream::poll_fn(move |cx| sent.poll_recv(cx))
        .for_each_concurrent(AT_ONCE, work)
        .await;
}

impl Table {
    /// Changes a record if this replica owns the session. Returns whether it does, or whether there
    /// is no record. A released session has no owner: another replica may have owned it before.
    /// Retries until `deadline`.
    async fn change(
        &self,
        operation: &str,
        name: &str,
        record: &str,
        deadline: Instant,
    ) -> Result<bool, SharedError> {
        let mut script = CHANGE.key(self.key(name));
        script
            .arg(self.membership.id())
            .arg(operation)
            .arg(millis(self.lifetime))
            .arg(record);
        let keeper: String = self.shared.run_until(deadline, &script).await?;
        Ok(keeper.is_empty() || keeper == self.membership.id())
    }

    /// Claims a session with this number, if it was released or belonged to `gone`. Returns the
    /// current owner, or an empty name and the record if the claim succeeded. If `gone` is still
    /// alive, it has to check its sessions before it continues.
    async fn try_claim(
        &self,
        name: &str,
        gone: &str,
        claim: u64,
    ) -> Result<(String, String), SharedError> {
        let mut script = CLAIM.key(self.key(name));
        script
            .arg(self.membership.id())
            .arg(gone)
            .arg(millis(self.lifetime))
            .arg(claim);
        let claimed: (String, String) = self
            .shared
            .run_until(Instant::now() + LEASE, &script)
            .await?;
        if claimed.0.is_empty() && !gone.is_empty() {
            // Never serve a session that two replicas might serve.
            self.membership.doubt(gone, Instant::now() + LEASE).await?;
        }
        Ok(claimed)
    }

    /// Releases a session that was claimed with this number, as soon as Valkey is reachable. Until
    /// then nobody serves it, although its record names this replica.
    async fn give_up(&self, name: &str, claim: u64) {
        let mut script = GIVE_UP.key(self.key(name));
        script.arg(self.membership.id()).arg(claim);
        if let Err(error) = self
            .shared
            .run_until::<i64>(Instant::now() + self.lifetime, &script)
            .await
        {
            tracing::debug!(%error, "cannot release a session after claiming it in vain");
        }
    }

    fn key(&self, name: &str) -> String {
        self.shared.key(name, "session")
    }
}

#[async_trait]
impl SessionRecords for SessionsInValkey {
    async fn write(&self, name: &str, record: &str) -> bool {
        let written = self
            .table
            .change("write", name, record, Instant::now())
            .await;
        written.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot store a session: no other replica could take it over");
            false
        })
    }

    async fn claim(&self, name: &str, run: ProcessRun, is_unreachable: bool) -> Claimed {
        let deadline = Instant::now() + LEASE + LEASE / 2;
        let mut run = run.to_string();
        let unreachable = is_unreachable.then(|| run.clone());
        loop {
            let is_gone = unreachable.as_ref() == Some(&run)
                || !self.table.membership.is_living(&run, deadline).await;
            let gone = if is_gone { run.clone() } else { String::new() };
            let (table, notes, name) = (self.table.clone(), self.notes.clone(), name.to_owned());
            // A separate task, so that it goes on if the client disconnects: after a claim the
            // previous owner must be doubted, and an unused claim given up.
            let claiming = tokio::spawn(async move {
                let number = fastrand::u64(..);
                let claimed = table.try_claim(&name, &gone, number).await;
                let give_up = move || drop(notes.try_send((Note::GiveUp(number), name.into())));
                // Without an answer, the claim may still have succeeded.
                let may_be_ours = claimed
                    .as_ref()
                    .map_or(true, |(keeper, _)| keeper.is_empty());
                let claim = may_be_ours.then(|| Claim::new(give_up));
                claimed.map(|(keeper, record)| (keeper, record, claim))
            });
            let keeper = match claiming.await {
                Ok(Ok((_, record, Some(claim)))) => return Claimed::Ours(record, claim),
                Ok(Ok((keeper, ..))) => keeper,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "cannot take over a session");
                    return Claimed::NotKnown;
                }
                // This process is ending.
                Err(_) => return Claimed::NotKnown,
            };
            if keeper == NO_RECORD && self.table.membership.may_lack_members().await {
                // The owner may be about to join and to write its record again.
                return Claimed::NotKnown;
            }
            let Some(other) = ProcessRun::parse(&keeper) else {
                return Claimed::Nobody;
            };
            if keeper == self.table.membership.id() {
                // Only the record names this replica: the session has ended or was claimed in
                // vain, and that is being written.
                if Instant::now() >= deadline {
                    return Claimed::Nobody;
                }
                sleep(LOOK).await;
                continue;
            }
            // The replica may have ended just now.
            let is_asked_about = keeper == run;
            if (!is_asked_about || Instant::now() >= deadline)
                && self.table.membership.is_living(&keeper, deadline).await
            {
                return Claimed::By(other);
            }
            if is_asked_about {
                sleep(LOOK).await;
            }
            run = keeper;
        }
    }

    async fn is_kept(&self, name: &str) -> Option<bool> {
        self.table
            .change("prolong", name, "", Instant::now())
            .await
            .ok()
    }

    async fn release(&self, sessions: Vec<Released>) {
        let deadline = Instant::now() + LEASE;
        let release = async |Released { name, record }: Released| {
            let record = record.as_deref().unwrap_or_default();
            if let Err(error) = self.table.change("release", &name, record, deadline).await {
                tracing::debug!(%error, "cannot hand over a session");
            }
        };
        stream::iter(sessions)
            .for_each_concurrent(AT_ONCE, release)
            .await;
    }

    fn prolong(&self, name: &str) {
        let _ = self.notes.try_send((Note::Prolong, name.into()));
    }

    fn forget(&self, name: &str) -> watch::Receiver<Option<bool>> {
        let (told, is_ours) = watch::channel(None);
        let _ = self.notes.try_send((Note::Forget(told), name.into()));
        is_ours
    }

    fn lifetime(&self) -> Duration {
        self.table.lifetime
    }

    fn mark(&self) -> Option<Mark> {
        self.table
            .membership
            .epoch()
            .zip(self.table.shared.connection())
    }
}

fanlight_protocol::opaque!(SessionsInValkey);

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues notes that can only finish together.
    #[tokio::test]
    async fn notes_about_several_sessions_are_written_at_the_same_time() {
        let (notes, noted) = mpsc::channel(WAITING);
        let together = tokio::sync::Barrier::new(AT_ONCE);
        for number in 0..AT_ONCE {
            notes.try_send(number).unwrap();
        }
        drop(notes);
        let meet = async || {
            together.wait().await;
        };
        each(noted, |_| meet()).await;
    }
}
