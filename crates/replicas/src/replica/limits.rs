//! Rate limits of clients, counted by all replicas together.
use std::time::Duration;

use fanlight_fair::TooMany;
use fanlight_frontend::{CommonLimit, CommonLimits, NotTaken};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::{Replicas, digest};
use crate::SharedError;

/// The tag of the keys of limits that clients share. They have to be on one server of a cluster,
/// since a request takes from all of its limits or from none. Limits that count each client
/// separately have a tag per client, and so are spread over a cluster.
const TAG: &str = "rates";
/// The number of hexadecimal digits of a client in its tag. Clients with the same digits share a
/// server, but no limit.
const CLIENT_DIGITS: usize = 16;

script! {
    /// Takes one request from each limit, or from none: the generic cell rate algorithm, as in
    /// `fanlight_fair::Rate`, with the server's clock. Returns 0 and the wait until the turn, or 1 and
    /// the time until one more request could be taken, in microseconds.
    ///
    /// `KEYS`: the limits. `ARGV`: for each limit the time that one request takes, the burst, and the
    /// longest wait for a turn.
    TAKE = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local turn, used = 0, {}
for i, key in ipairs(KEYS) do
  local part, most, queue = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local before = tonumber(redis.call('GET', key) or '0')
  if not (before and before <= now + part * most + queue) then
    -- No requests can have used this much: the clock was set back, or the server has changed. Or it is no number.
    before = now
  end
  used[i] = math.max(before, now) + part
  local wait = math.max(0, used[i] - now - part * most)
  if wait > queue then
    return {1, math.ceil(wait - queue)}
  end
  turn = math.max(turn, wait)
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', used[i]), 'PX', math.ceil((used[i] - now) / 1000))
end
return {0, math.ceil(turn)}
"
}

script! {
    /// Gives back what [`TAKE`] took. `KEYS`: the limits. `ARGV`: for each limit the time that one
    /// request takes.
    GIVE_BACK = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, key in ipairs(KEYS) do
  local used = (tonumber(redis.call('GET', key) or '0') or 0) - tonumber(ARGV[i])
  if used > now then
    redis.call('SET', key, string.format('%.0f', used), 'PX', math.ceil((used - now) / 1000))
  else
    redis.call('DEL', key)
  end
end
return 1
"
}

impl CommonLimits for Replicas {
    fn take(&self, limits: Vec<CommonLimit>) -> BoxFuture<'_, Result<Duration, NotTaken>> {
        Box::pin(async move {
            if !self.shared.is_cluster() {
                return self.take_together(&limits).await;
            }
            // The client's own limits come first: a client that has used them up takes nothing from
            // shared limits, not even for a moment.
            let (own, shared): (Vec<_>, Vec<_>) =
                limits.into_iter().partition(|limit| limit.client.is_some());
            let wait = self.take_together(&own).await?;
            let taken = Taken {
                replicas: self,
                limits: own,
            };
            let other = self.take_together(&shared).await?;
            taken.keep();
            Ok(wait.max(other))
        })
    }

    fn processes(&self) -> usize {
        self.membership.members().len()
    }
}

impl Replicas {
    /// Takes from limits on the same server.
    async fn take_together(&self, limits: &[CommonLimit]) -> Result<Duration, NotTaken> {
        if limits.is_empty() {
            return Ok(Duration::ZERO);
        }
        let mut script = TAKE.prepare_invoke();
        for limit in limits {
            script.key(self.key_of(limit));
            script
                .arg(part_of(limit))
                .arg(limit.most)
                .arg(micros(limit.queue));
        }
        match self.shared.run::<(u64, u64)>(&script).await {
            Ok((0, wait)) => Ok(Duration::from_micros(wait)),
            Ok((_, more)) => Err(NotTaken::TooMany(TooMany {
                retry_after: Duration::from_micros(more),
            })),
            Err(error) => {
                match error {
                    // Unlike an absence of Valkey, this does not end by itself.
                    SharedError::Refused(_) => {
                        tracing::warn!(%error, "limits are not counted across replicas");
                    }
                    _ => tracing::debug!(%error, "limits were not counted across replicas"),
                }
                Err(NotTaken::Away)
            }
        }
    }

    /// Returns quota to limits on the same server. If this fails, the quota stays used.
    async fn give_back(&self, limits: &[CommonLimit]) {
        let mut script = GIVE_BACK.prepare_invoke();
        for limit in limits {
            script.key(self.key_of(limit)).arg(part_of(limit));
        }
        if let Err(error) = self.shared.run::<u64>(&script).await {
            tracing::debug!(%error, "cannot return the quota of a refused request");
        }
    }

    fn key_of(&self, CommonLimit { key, client, .. }: &CommonLimit) -> String {
        let client = client.as_ref().filter(|_| self.shared.is_cluster());
        let tag = client.map(|client| {
            let mut client = digest(&[client]);
            client.truncate(CLIENT_DIGITS);
            format!("{TAG}-{client}")
        });
        self.shared
            .key(tag.as_deref().unwrap_or(TAG), &digest(&[key]))
    }
}

/// The quota that a request has taken from limits on the same server. Dropping this returns the
/// quota, unless the request has kept it.
struct Taken<'a> {
    replicas: &'a Replicas,
    limits: Vec<CommonLimit>,
}

impl Taken<'_> {
    fn keep(mut self) {
        self.limits.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.limits.is_empty() {
            return;
        }
        let (replicas, limits) = (self.replicas.clone(), std::mem::take(&mut self.limits));
        // Nobody waits for this, and it ends by itself soon.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { replicas.give_back(&limits).await });
        }
    }
}

/// The time that one request takes, in microseconds.
fn part_of(limit: &CommonLimit) -> u64 {
    (micros(limit.per) / (limit.most as u64).max(1)).max(1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
