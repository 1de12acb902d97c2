//! The list of live processes in Valkey. Each process has a place in it with a lease that it
//! renews. A process that does not renew is gone, for all others and for itself.
//!
//! A process has an *epoch*: a number from Valkey when it joins, larger than all before. A process
//! that did not renew its lease in time is gone for others, and gets another epoch. Others may
//! meanwhile own what it had under the old one. The same happens if another process takes something
//! over from it, though it stays in the list.
//!
//! While Valkey itself is unavailable, no lease ends. The server's clock decides about leases. A
//! process measures its own lease from before its request, so it never believes in its lease longer
//! than others do.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::{Script, ScriptInvocation};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::{Shared, SharedError};

/// How long a process counts as alive after a renewal. A constant: within three seconds, others
/// must know that it is gone.
pub const LEASE: Duration = Duration::from_secs(2);
const RENEWAL: Duration = Duration::from_millis(500);
/// The interval between checks whether this process knows one that has just joined.
const LOOK: Duration = Duration::from_millis(100);
/// The tag of the keys.
const TAG: &str = "members";

/// The beginning of scripts: `now` by Valkey's clock, and `number`, a number of the list. It is 0 if
/// the list lacks it, or has a value there that no script can have written.
const NUMBERS: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function number(name)
  local value = tonumber(redis.call('HGET', KEYS[2], name) or '0')
  return value and value >= 0 and value < 2^53 and value or 0
end
";

script! {
    /// Renews the lease of a process, and removes processes whose lease has ended. Returns the epoch,
    /// the version of the list, and the changes since the known version: `some` with the changed
    /// processes (without a text if gone), or `all` with all processes.
    ///
    /// `KEYS`: leases by end, processes by id, the version of each process's last change. `ARGV`: id,
    /// epoch or 0, the process as JSON, the lease in milliseconds, the known version.
    RENEW = NUMBERS, r"
local changed = {}
local latest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
-- Where nobody has renewed a lease, it was Valkey that was away, and not they: each has another one.
local was_away = latest[2] and tonumber(latest[2]) < now
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now))) do
  if was_away then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4]), id)
  else
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
    table.insert(changed, id)
  end
end
-- No lease lasts longer, unless the clock was set back, or is another server's.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + ARGV[4]), '+inf')) do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4]), id)
end
local epoch, last = tonumber(ARGV[2]), number('#epoch')
local held = redis.call('HGET', KEYS[2], ARGV[1])
local is_held = held and tonumber(string.match(held, '^%d+')) == epoch
-- An epoch that is larger than all that are known was given before Valkey has lost its data: it is still the process's own.
if not is_held and epoch <= last then
  epoch = math.max(last + 1, now)
end
local member = string.format('%.0f ', epoch) .. ARGV[3]
if held ~= member then
  redis.call('HSET', KEYS[2], ARGV[1], member, '#epoch', string.format('%.0f', math.max(last, epoch)))
  table.insert(changed, ARGV[1])
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4]), ARGV[1])
local version = string.format('%.0f', number('#version'))
if #changed > 0 then
  -- Never one that there was before Valkey has lost its data.
  version = string.format('%.0f', math.max(version + 1, now))
  -- Changes are known after this version.
  if number('#since') == 0 then redis.call('HSET', KEYS[2], '#since', version) end
  redis.call('HSET', KEYS[2], '#version', version)
  for _, id in ipairs(changed) do
    redis.call('ZADD', KEYS[3], version, id)
  end
  local more = redis.call('ZCARD', KEYS[3]) - 2 * redis.call('ZCARD', KEYS[1]) - 1000
  if more > 0 then
    -- Of processes that are gone, most likely.
    redis.call('HSET', KEYS[2], '#since', redis.call('ZRANGE', KEYS[3], more, more, 'WITHSCORES')[2])
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, more)
  end
end
local answer = {string.format('%.0f', epoch), version}
if version ~= ARGV[5] then
  local known, since = tonumber(ARGV[5]), number('#since')
  local ids
  -- A version that is larger than all was given before a failover has lost it.
  if known and since > 0 and known >= since and known <= tonumber(version) then
    table.insert(answer, 'some')
    ids = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[5], '+inf')
  else
    table.insert(answer, 'all')
    ids = redis.call('ZRANGE', KEYS[1], 0, -1)
  end
  for _, id in ipairs(ids) do
    table.insert(answer, id)
    table.insert(answer, redis.call('HGET', KEYS[2], id) or '')
  end
end
return answer
"
}

script! {
    /// Ends the lease of a process.
    LEAVE = NUMBERS, r"
if redis.call('HDEL', KEYS[2], ARGV[1]) == 1 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  -- As a renewal does.
  local version = string.format('%.0f', math.max(number('#version') + 1, now))
  redis.call('HSET', KEYS[2], '#version', version)
  redis.call('ZADD', KEYS[3], version, ARGV[1])
end
return 1
"
}

script! {
    /// Gives a process's lease an epoch that the process does not know, so that it takes another one
    /// with its next renewal.
    DOUBT = NUMBERS, r"
local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then
  local epoch = string.format('%.0f', math.max(number('#epoch') + 1, now))
  redis.call('HSET', KEYS[2], ARGV[1], epoch .. (string.match(held, ' .*') or ''), '#epoch', epoch)
end
return 1
"
}

script! {
    /// Whether the list has a process.
    IS_LISTED = "return redis.call('HEXISTS', KEYS[2], ARGV[1])"
}

script! {
    /// Whether the list began less than a lease ago, so that live processes may not have joined yet.
    IS_NEW = NUMBERS, r"
local since = number('#since')
return (since == 0 or now < since + ARGV[1]) and 1 or 0
"
}

/// A process in the list. It writes its own data in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The unique id, which also differs from earlier processes at the same place.
    #[serde(skip)]
    pub id: String,
    /// The epoch of its lease.
    #[serde(skip)]
    pub epoch: u64,
    /// The name for people, which is the host's.
    pub name: String,
    /// The address for other replicas.
    pub address: Option<SocketAddr>,
    /// The version of its program.
    pub version: String,
    /// The start by its own clock, in seconds since 1970.
    pub since: u64,
    /// Set while it is ending and finishes its running work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ending: bool,
}

/// The list of processes, from the view of this one.
#[derive(Clone)]
pub struct Membership(Arc<Inner>);

struct Inner {
    shared: Shared,
    id: String,
    /// This process's data while it serves, and when it is ending.
    written: [String; 2],
    members: ArcSwap<Vec<Member>>,
    lease: Mutex<Option<Lease>>,
    /// Notified of each renewal.
    renewed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    epoch: u64,
    until: Instant,
}

impl Membership {
    /// The membership of this process, which joins when [`Self::keep`] runs.
    pub fn new(shared: Shared, mut me: Member) -> Self {
        let written = [false, true].map(|is_ending| {
            me.is_ending = is_ending;
            // Its members are texts and numbers, whose serialisation cannot fail.
            serde_json::to_string(&me).unwrap_or_default()
        });
        let (members, lease, renewed) = (ArcSwap::default(), Mutex::default(), Notify::new());
        Self(Arc::new(Inner {
            shared,
            id: me.id,
            written,
            members,
            lease,
            renewed,
        }))
    }

    /// Joins, renews the lease until `end`, and then leaves. `ending` announces the end to the
    /// others.
    pub async fn keep(self, ending: CancellationToken, end: CancellationToken) {
        end.run_until_cancelled(async {
            let (mut version, mut changes) = (String::new(), self.0.shared.changes());
            let mut connection = None;
            loop {
                let present = self.0.shared.connection();
                if std::mem::replace(&mut connection, present) != present {
                    // Valkey may have lost data, so request the whole list.
                    version.clear();
                }
                let is_ending = ending.is_cancelled();
                let renewed = self.renew(is_ending, &mut version).await;
                match renewed {
                    Ok(()) => tokio::select! {
                        () = sleep(RENEWAL.mul_f64(0.8 + 0.4 * fastrand::f64())) => {}
                        () = ending.cancelled(), if !is_ending => {}
                    },
                    // Retry as soon as Valkey is available again.
                    Err(error) => {
                        tracing::debug!(%error, "the lease of this replica was not renewed");
                        let _ = timeout(RENEWAL, changes.changed()).await;
                    }
                }
            }
        })
        .await;
        self.leave().await;
    }

    /// Waits until this process has joined the others.
    pub async fn joined(&self) {
        loop {
            let renewed = self.0.renewed.notified();
            if self.epoch().is_some() {
                return;
            }
            renewed.await;
        }
    }

    /// The unique id of this process.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The epoch of this process; `None` without a lease, so that others may consider it gone.
    pub fn epoch(&self) -> Option<u64> {
        self.0
            .lease
            .lock()
            .filter(|lease| Instant::now() < lease.until)
            .map(|lease| lease.epoch)
    }

    /// The live processes, this one included, as last known.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.0.members.load_full()
    }

    /// The live process with this id.
    pub fn find(&self, id: &str) -> Option<Member> {
        self.0
            .members
            .load()
            .iter()
            .find(|member| member.id == id)
            .cloned()
    }

    /// Whether a process is alive, as far as known. Waits for the address of a process that has
    /// just joined.
    pub async fn is_living(&self, id: &str, deadline: Instant) -> bool {
        while self.find(id).is_none() {
            match self.is_listed(id).await {
                Ok(true) if Instant::now() < deadline => sleep(LOOK).await,
                listed => return listed.unwrap_or(true),
            }
        }
        true
    }

    /// Whether the list has the process with this id now, even if it has just joined.
    ///
    /// # Errors
    ///
    /// If Valkey has not answered in time.
    async fn is_listed(&self, id: &str) -> Result<bool, SharedError> {
        let mut script = self.script(&IS_LISTED);
        script.arg(id);
        self.0.shared.run(&script).await
    }

    /// Whether Valkey may have lost its data so recently that live processes are not listed again.
    pub async fn may_lack_members(&self) -> bool {
        let mut script = self.script(&IS_NEW);
        script.arg(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX));
        self.0.shared.run(&script).await.unwrap_or(true)
    }

    async fn renew(&self, is_ending: bool, version: &mut String) -> Result<(), SharedError> {
        let Inner {
            shared,
            id,
            written,
            ..
        } = &*self.0;
        let asked = Instant::now();
        let earlier = self.0.lease.lock().map_or(0, |lease| lease.epoch);
        let mut script = self.script(&RENEW);
        script
            .arg(id)
            .arg(earlier)
            .arg(&written[usize::from(is_ending)]);
        script
            .arg(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX))
            .arg(&*version);
        let mut answer = shared.run::<Vec<String>>(&script).await?.into_iter();
        let (epoch, known) = (answer.next(), answer.next());
        let Some(epoch) = epoch.and_then(|epoch| epoch.parse().ok()) else {
            return Err(SharedError::Refused(
                "the answer to a renewal has no epoch".to_owned(),
            ));
        };
        let known = known.unwrap_or_default();
        if known != *version {
            let earlier = self.0.members.load();
            let earlier = if answer.next().as_deref() == Some("some") {
                &earlier[..]
            } else {
                &[]
            };
            self.0.members.store(Arc::new(members(earlier, answer)));
            *version = known;
        }
        match earlier {
            0 => info!(replica = %id, epoch, "joined the other replicas"),
            _ if earlier != epoch => {
                warn!(replica = %id, epoch, "this replica was away for too long, or others could not reach it; it has rejoined them");
            }
            _ => {}
        }
        *self.0.lease.lock() = Some(Lease {
            epoch,
            until: asked + LEASE,
        });
        self.0.renewed.notify_waiters();
        Ok(())
    }

    /// Makes another live process take a new epoch, because this process took something over from
    /// it.
    ///
    /// # Errors
    ///
    /// If Valkey has not confirmed this before the deadline.
    pub async fn doubt(&self, id: &str, deadline: Instant) -> Result<(), SharedError> {
        let mut script = self.script(&DOUBT);
        script.arg(id);
        self.0
            .shared
            .run_until::<i64>(deadline, &script)
            .await
            .map(drop)
    }

    async fn leave(&self) {
        if self.0.lease.lock().take().is_none() {
            return;
        }
        let mut script = self.script(&LEAVE);
        script.arg(&self.0.id);
        if let Err(error) = self
            .0
            .shared
            .run_until::<i64>(Instant::now() + LEASE, &script)
            .await
        {
            tracing::debug!(%error, "the lease of this replica was not ended; it ends by itself");
        }
    }

    fn script<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        ["leases", "members", "changes"].iter().for_each(|rest| {
            invocation.key(self.0.shared.key(TAG, rest));
        });
        invocation
    }
}

/// Applies changes, a list of ids and texts, to the `earlier` processes. A process that is gone has
/// no text. One whose later version writes another format is left out.
fn members(earlier: &[Member], changes: impl Iterator<Item = String>) -> Vec<Member> {
    let texts: Vec<String> = changes.collect();
    let pairs = texts.as_chunks::<2>().0;
    let changed: HashSet<&str> = pairs.iter().map(|[id, _]| id.as_str()).collect();
    let others = earlier
        .iter()
        .filter(|member| !changed.contains(member.id.as_str()))
        .cloned();
    let mut members: Vec<_> = others
        .chain(pairs.iter().filter_map(|[id, text]| member(id, text)))
        .collect();
    members.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    members
}

fn member(id: &str, text: &str) -> Option<Member> {
    let (epoch, written) = text.split_once(' ')?;
    Some(Member {
        id: id.to_owned(),
        epoch: epoch.parse().ok()?,
        ..serde_json::from_str(written).ok()?
    })
}

fanlight_protocol::opaque!(Membership);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_sorted_by_name() {
        let text = |epoch, name| {
            format!(
                r#"{epoch} {{"name":"{name}","address":"10.0.0.1:8443","version":"1","since":60}}"#
            )
        };
        let texts = ["x", &text(7, "b"), "y", &text(8, "a"), "z", "9 {}"].map(str::to_owned);
        let all = members(&[], texts.into_iter());
        let shown = |members: &[Member]| -> Vec<_> {
            members
                .iter()
                .map(|one| (one.id.clone(), one.epoch, one.name.clone()))
                .collect()
        };
        let is = |id: &str, epoch, name: &str| (id.to_owned(), epoch, name.to_owned());
        assert_eq!(shown(&all), [is("y", 8, "a"), is("x", 7, "b")]);
        assert_eq!(all[0].address, "10.0.0.1:8443".parse().ok());
        // One is gone, one has rejoined, and one is new.
        let changes = ["y", "", "x", &text(9, "b"), "w", &text(10, "c")].map(str::to_owned);
        assert_eq!(
            shown(&members(&all, changes.into_iter())),
            [is("x", 9, "b"), is("w", 10, "c")]
        );
        assert_eq!(shown(&members(&all, std::iter::empty())), shown(&all));
    }
}
