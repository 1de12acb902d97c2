//! Limits on how often clients may ask, counted by all replicas together.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use fanlight_fair::TooMany;
use fanlight_frontend::{CommonLimit, CommonLimits, NotTaken};
use fanlight_shared::Script;

use super::{Replicas, digest};

/// The tag of the keys: one server of a cluster has all, since a request takes from all of its limits or from none.
const TAG: &str = "rates";

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

impl CommonLimits for Replicas {
    fn take(&self, limits: Vec<CommonLimit>) -> Pin<Box<dyn Future<Output = Result<Duration, NotTaken>> + Send + '_>> {
        Box::pin(async move {
            let mut script = TAKE.prepare_invoke();
            for CommonLimit { key, most, per, queue } in &limits {
                script.key(self.shared.key(TAG, &digest(&[key])));
                let part = (micros(*per) / u64::try_from(*most).unwrap_or(u64::MAX).max(1)).max(1);
                script.arg(part).arg(*most).arg(micros(*queue));
            }
            match self.shared.run::<(u64, u64)>(&script).await {
                Ok((0, wait)) => Ok(Duration::from_micros(wait)),
                Ok((_, more)) => Err(NotTaken::TooMany(TooMany { retry_after: Duration::from_micros(more) })),
                Err(error) => {
                    tracing::debug!(%error, "limits were not counted together");
                    Err(NotTaken::Away)
                }
            }
        })
    }

    fn processes(&self) -> usize {
        self.membership.members().len()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
