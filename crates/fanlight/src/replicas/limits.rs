//! Limits on how often clients may ask, counted by all replicas together.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use fanlight_fair::{LogLimit, TooMany};
use fanlight_frontend::{CommonLimit, CommonLimits, NotTaken};
use fanlight_shared::{Script, SharedError};
use tokio::runtime::Handle;

use super::{Replicas, digest};

/// The tag of the keys of limits that clients have in common: one server of a cluster has all of them, since a request takes from
/// all of its limits or from none. In a cluster, those that count each client apart have a tag for each client, and so are spread.
const TAG: &str = "rates";
/// Hexadecimal digits of a client in the tag. Clients with the same ones share a server, and no limit.
const CLIENT_DIGITS: usize = 16;

/// Warnings that Valkey has refused.
static REFUSALS: LogLimit = LogLimit::new(1);

/// Takes one from each limit, or from none: the generic cell rate algorithm, as in `fanlight_fair::Rate`, by the clock of the
/// server. Returns 0 and how long it is until the turn, or 1 and how long until one more could be taken, in microseconds.
///
/// `KEYS`: a limit each. `ARGV`: of each the time that one takes, how many at once, and how long a turn may be waited for.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local turn, used = 0, {}
for i, key in ipairs(KEYS) do
  local part, most, queue = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local before = tonumber(redis.call('GET', key) or '0')
  if before > now + part * most + queue then
    -- More than can be taken: the clock was set back, or is another server's.
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
",
    )
});

/// Gives back what [`TAKE`] has taken. `KEYS`: a limit each. `ARGV`: of each the time that one takes.
static GIVE_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, key in ipairs(KEYS) do
  local used = tonumber(redis.call('GET', key) or '0') - tonumber(ARGV[i])
  if used > now then
    redis.call('SET', key, string.format('%.0f', used), 'PX', math.ceil((used - now) / 1000))
  else
    redis.call('DEL', key)
  end
end
return 1
",
    )
});

impl CommonLimits for Replicas {
    fn take(
        &self,
        limits: Vec<CommonLimit>,
    ) -> Pin<Box<dyn Future<Output = Result<Duration, NotTaken>> + Send + '_>> {
        Box::pin(async move {
            if !self.shared.is_cluster() {
                return self.take_together(&limits).await;
            }
            // The client's own first: one that has none left takes nothing from others, not even for a moment.
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
    /// Takes from limits that one server has.
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
                    // This does not pass by itself, as it does when Valkey is away.
                    SharedError::Refused(_) if REFUSALS.is_due() => {
                        tracing::warn!(%error, "limits are not counted across replicas");
                    }
                    _ => tracing::debug!(%error, "limits were not counted across replicas"),
                }
                Err(NotTaken::Away)
            }
        }
    }

    /// Gives back what was taken from limits that one server has. What cannot be given back stays used.
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

/// What a request has taken from limits that one server has. It is given back unless it is kept, also when the request is dropped.
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
        // Nobody waits for it. It ends by itself, soon.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { replicas.give_back(&limits).await });
        }
    }
}

/// The time that one takes, in microseconds.
fn part_of(limit: &CommonLimit) -> u64 {
    (micros(limit.per) / u64::try_from(limit.most).unwrap_or(u64::MAX).max(1)).max(1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
