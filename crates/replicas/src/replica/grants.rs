//! Users' grants, registered clients and pending sign-ins in common with all replicas. All of them
//! are sealed before they get here.

use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use fanlight_grants::{CommonEntries, CommonError, Exchange, Exchanged, Kind, Stamp};
use fanlight_protocol::{epoch, sha256};
use futures_util::future::try_join_all;

use crate::{ScriptInvocation, Shared, SharedError};

/// The prefix of the keys' tags. An owner's entries and the index with that owner change together,
/// so one server of a cluster must have both. Owners are divided into parts; each part has its own
/// index, and a tag with its number.
const TAG: &str = "grants";
const PARTS: u8 = 64;
/// The limit of owners in a part, as a multiple of its share, since owners are distributed by
/// chance.
const UNEVEN: u64 = 4;
/// How long a renewed grant waits for a confirmation by a replica of Valkey.
const REPLICATED: Duration = Duration::from_millis(200);

script! {
    NOW = "return redis.call('TIME')[1]"
}
script! {
    GET = "return redis.call('HGET', KEYS[1], ARGV[1])"
}
script! {
    ALL = "return redis.call('HGETALL', KEYS[1])"
}
script! {
    OWNERS = "return redis.call('SMEMBERS', KEYS[1])"
}

script! {
    /// Replaces an entry if it has the expected value. Returns 1 if it was replaced, 0 if it has
    /// another value, and -1 if there are too many.
    ///
    /// `KEYS`: the owner's entries, the owners, the entries' expiry times. `ARGV`: first the name, the
    /// owner, the expected value and the new value. Each value follows a `+`, or is empty for none.
    /// Then the time when the entry expires, the limits of entries and of owners, and whether the
    /// oldest entry gives way at the limit.
    ///
    /// If all entries of an owner expire, their keys expire with the last one. Once there are too many
    /// owners, those without entries are removed from the index; their keys are on the same server.
    EXCHANGE = r"
local now = tonumber(redis.call('TIME')[1])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[3], name)
end
local held = redis.call('HGET', KEYS[1], ARGV[1])
if (held and '+' .. held or '') ~= ARGV[3] then return 0 end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[2]) end
  return 1
end
if not held and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then
  if ARGV[8] ~= '1' then return -1 end
  local oldest = redis.call('ZRANGE', KEYS[3], 0, 0)[1] or redis.call('HKEYS', KEYS[1])[1]
  redis.call('HDEL', KEYS[1], oldest)
  redis.call('ZREM', KEYS[3], oldest)
end
if redis.call('SADD', KEYS[2], ARGV[2]) == 1 and redis.call('SCARD', KEYS[2]) > tonumber(ARGV[7]) then
  local before = string.sub(KEYS[1], 1, -1 - #ARGV[2])
  for _, owner in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    if owner ~= ARGV[2] and redis.call('EXISTS', before .. owner) == 0 then redis.call('SREM', KEYS[2], owner) end
  end
  if redis.call('SCARD', KEYS[2]) > tonumber(ARGV[7]) then
    redis.call('SREM', KEYS[2], ARGV[2])
    return -1
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.sub(ARGV[4], 2))
if ARGV[5] ~= '' then redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1]) end
if redis.call('ZCARD', KEYS[3]) == redis.call('HLEN', KEYS[1]) then
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  redis.call('EXPIREAT', KEYS[1], last)
  redis.call('EXPIREAT', KEYS[3], last)
end
return 1
"
}

script! {
    /// Removes an owner's entries. `KEYS`: the owner's entries, the owners, the entries' expiry times.
    /// `ARGV`: owner.
    REMOVE = r"
local count = redis.call('HLEN', KEYS[1])
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('SREM', KEYS[2], ARGV[1])
return count
"
}

/// The entries in common with all replicas.
#[derive(Debug)]
pub(super) struct GrantsInCommon {
    shared: Shared,
}

impl GrantsInCommon {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    fn keys(&self, kind: Kind, owner: &str) -> [String; 3] {
        let part = part_of(owner);
        let of = |rest: &str| self.key(kind, part, &format!("{rest}:{owner}"));
        [of("of"), self.key(kind, part, "owners"), of("ends")]
    }

    fn key(&self, kind: Kind, part: u8, rest: &str) -> String {
        self.shared.key(
            &format!("{TAG}-{part}"),
            &format!("{}:{rest}", kind.as_str().replace(' ', "-")),
        )
    }

    async fn owners(&self, kind: Kind, owner: Option<&str>) -> Result<Vec<String>, CommonError> {
        if let Some(owner) = owner {
            return Ok(vec![owner.to_owned()]);
        }
        let owners = async |part| {
            self.run::<Vec<String>>(&OWNERS.key(self.key(kind, part, "owners")))
                .await
        };
        Ok(try_join_all((0..PARTS).map(owners)).await?.concat())
    }

    async fn run<T: crate::FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, CommonError> {
        self.shared
            .run(script)
            .await
            .map_err(|error: SharedError| CommonError(error.to_string()))
    }
}

/// The part that an owner belongs to.
fn part_of(owner: &str) -> u8 {
    sha256([owner])[0] % PARTS
}

/// The owner in a record's name, and the rest of the name.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

#[async_trait]
impl CommonEntries for GrantsInCommon {
    async fn now(&self, kind: Kind, name: &str) -> Result<u64, CommonError> {
        self.run(&NOW.key(&self.keys(kind, parts(name).0)[0])).await
    }

    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>, CommonError> {
        let (owner, rest) = parts(name);
        self.run(GET.key(&self.keys(kind, owner)[0]).arg(rest))
            .await
    }

    async fn list(
        &self,
        kind: Kind,
        owner: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, CommonError> {
        let mut found = Vec::new();
        for owner in self.owners(kind, owner).await? {
            let all: Vec<(String, Vec<u8>)> =
                self.run(&ALL.key(&self.keys(kind, &owner)[0])).await?;
            found.extend(
                all.into_iter()
                    .map(|(rest, bytes)| (format!("{owner}/{rest}"), bytes)),
            );
            if found.len() >= most {
                break;
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.truncate(most);
        Ok(found)
    }

    async fn exchange(
        &self,
        kind: Kind,
        name: &str,
        exchange: Exchange<'_>,
    ) -> Result<Exchanged, CommonError> {
        let (owner, rest) = parts(name);
        let or_nothing = |bytes: Option<&[u8]>| {
            bytes
                .map(|bytes| [b"+", bytes].concat())
                .unwrap_or_default()
        };
        let expires = exchange
            .expires
            .map(|expires| expires.to_string())
            .unwrap_or_default();
        let mut script = EXCHANGE.prepare_invoke();
        for key in self.keys(kind, owner) {
            script.key(key);
        }
        script
            .arg(rest)
            .arg(owner)
            .arg(or_nothing(exchange.old))
            .arg(or_nothing(exchange.new));
        script
            .arg(expires)
            .arg(kind.most_of_one())
            .arg((UNEVEN * kind.most()).div_ceil(u64::from(PARTS)));
        script.arg(u8::from(kind.gives_way()));
        let done = match self.run::<i8>(&script).await? {
            1 => Exchanged::Done,
            0 => Exchanged::Changed,
            _ => return Ok(Exchanged::Full),
        };
        // The earlier refresh token may be invalid now. If a failover loses the new one, the
        // user has to sign in again.
        if done == Exchanged::Done && kind == Kind::Grant && !exchange.is_of_lease {
            match self.shared.wait_for_replication(REPLICATED).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!("no replica of Valkey has confirmed a user's grant yet");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot tell whether a replica of Valkey has a user's grant");
                }
            }
        }
        Ok(done)
    }

    async fn remove_all(&self, kind: Kind, owner: Option<&str>) -> Result<usize, CommonError> {
        let mut count = 0;
        for owner in self.owners(kind, owner).await? {
            let mut script = REMOVE.prepare_invoke();
            for key in self.keys(kind, &owner) {
                script.key(key);
            }
            count += self.run::<usize>(script.arg(&owner)).await?;
        }
        Ok(count)
    }

    /// The current second, so that another replica's change is noticed after a second.
    fn stamp(&self) -> Stamp {
        UNIX_EPOCH.checked_add(Duration::from_secs(epoch::seconds()))
    }

    fn is_away(&self) -> bool {
        self.shared.is_away()
    }
}
