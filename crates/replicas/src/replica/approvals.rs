//! Approvals in common: requested at one replica, answered at any, and used up by one call at any.
//!
//! Valkey can read only what is needed to find a question. The approvers' view and their answers
//! are sealed, so that write access to Valkey is not enough to approve a call.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use fanlight_canonical::identity::Principal;
use fanlight_gateway::approvals::{
    ApprovalLimits, Approver, ApproverRule, CallToApprove, CommonAnswer, CommonApprovals,
    CommonAsked, NotAsked, NotDecided, OpenQuestion, Question, Status,
};
use fanlight_protocol::seal::Seal;
use fanlight_protocol::{Json, epoch};
use serde::{Deserialize, Serialize};

use super::{CLOCKS, NESTING, digest, millis};
use crate::{Script, Shared, SharedError};

const TAG: &str = "approvals";
/// How long a call counts as waiting after it has checked for its answer.
const WAITS: Duration = Duration::from_secs(2);
/// How many questions Valkey returns at once, since each may be long.
const SHOWN_AT_ONCE: usize = 16;
/// The name of the table of approved calls between two of their rounds.
const ROUNDS: &str = "rounds";
/// The word in the seal of a call whose approval continues with the next round; no approver's
/// answer.
const CONTINUED: &str = "continued";
/// The purpose of the seal on questions.
const PURPOSE: &[u8] = b"approval in common: ";

/// The beginning of all scripts. `one` returns the entry of an id, `all` all entries. Both remove
/// entries that have expired or are malformed. `KEYS`: entries by id, the approvers' view of them by
/// id.
const ENTRIES: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function keep(id, entry)
  redis.call('HSET', KEYS[1], id, cjson.encode(entry))
end
local function remove(id)
  redis.call('HDEL', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
local function waits(entry)
  return entry.waiter ~= nil and type(entry.waits) == 'number' and entry.waits > now
end
local function current(id, text)
  local is_json, entry = pcall(cjson.decode, text)
  local is_entry = is_json and type(entry) == 'table' and type(entry.expires) == 'number'
  if is_entry and entry.expires > now then return entry end
  remove(id)
  return nil
end
local function one(id)
  local text = redis.call('HGET', KEYS[1], id)
  return text and current(id, text)
end
local function all()
  local entries, held = {}, redis.call('HGETALL', KEYS[1])
  for i = 1, #held, 2 do entries[held[i]] = current(held[i], held[i + 1]) end
  return entries
end
";

script! {
    /// Requests an approval. `ARGV`: the call, its principal, a new id, the waiter, the approvers'
    /// view, the limits of all calls and of one principal, and in milliseconds the lifetimes of the
    /// question and of the waiting state.
    ASK = ENTRIES, r"
local entries, count, own, decided, own_decided, again = all(), 0, 0, 0, 0, nil
local oldest, own_oldest
local function older(id, than)
  return than == nil or entries[id].expires < entries[than].expires
end
for id, entry in pairs(entries) do
  local is_own = entry.owner == ARGV[2]
  if entry.status == 'open' then
    count = count + 1
    if is_own then own = own + 1 end
  else
    decided = decided + 1
    if older(id, oldest) then oldest = id end
    if is_own then
      own_decided = own_decided + 1
      if older(id, own_oldest) then own_oldest = id end
    end
  end
  if entry.call == ARGV[1] and not waits(entry) then
    if entry.status == 'approved' then
      remove(id)
      return {'approved', id, entry.by}
    end
    again = id
  end
end
if again then
  local entry = entries[again]
  if entry.status == 'refused' then return {'refused', again, '0'} end
  entry.waiter, entry.waits = ARGV[4], now + ARGV[9]
  keep(again, entry)
  return {'waiting', again, string.format('%.0f', entry.expires - now)}
end
if count >= tonumber(ARGV[6]) or own >= tonumber(ARGV[7]) or entries[ARGV[3]] then return {'many', '', '0'} end
-- What is decided takes nobody's place: the oldest leaves, a principal's own first.
if own_decided >= tonumber(ARGV[7]) then
  remove(own_oldest)
elseif decided > 0 and count + decided >= tonumber(ARGV[6]) then
  remove(oldest)
end
keep(ARGV[3], {call = ARGV[1], owner = ARGV[2], status = 'open', expires = now + ARGV[8], waiter = ARGV[4], waits = now + ARGV[9]})
redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
-- A question lasts at most until its answer, and then as long again.
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[8])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[8])
return {'waiting', ARGV[3], ARGV[8]}
"
}

script! {
    /// Checks for an answer. `ARGV`: id, waiter, how long it counts as waiting.
    LOOK = ENTRIES, r"
local entry = one(ARGV[1])
if not entry or entry.waiter ~= ARGV[2] then return {'over', ''} end
if entry.status == 'approved' then
  remove(ARGV[1])
elseif entry.status == 'open' then
  entry.waits = now + ARGV[3]
  keep(ARGV[1], entry)
end
return {entry.status, entry.by or ''}
"
}

script! {
    /// Stops waiting. `ARGV`: id, waiter.
    GIVE_UP = ENTRIES, r"
local entry = one(ARGV[1])
if entry and entry.waiter == ARGV[2] then
  entry.waiter = nil
  keep(ARGV[1], entry)
end
return 'done'
"
}

script! {
    /// Stores an answer. `ARGV`: id, the expected call, the answer, the sealed approver, the lifetime
    /// of the answer.
    DECIDE = ENTRIES, r"
local entry = one(ARGV[1])
if not entry or entry.call ~= ARGV[2] then return {'unknown', ''} end
if entry.status ~= 'open' then return {entry.status, entry.by} end
entry.status, entry.by, entry.expires = ARGV[3], ARGV[4], now + ARGV[5]
keep(ARGV[1], entry)
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[5])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[5])
return {'done', ''}
"
}

script! {
    /// The ids of all entries.
    IDS = "return redis.call('HKEYS', KEYS[1])"
}

script! {
    /// Reads questions. `ARGV`: ids. Returns for each existing one: id, approvers' view, status,
    /// approver, milliseconds left, whether it waits.
    SHOW = ENTRIES, r"
local shown = {}
for _, id in ipairs(ARGV) do
  local entry = one(id)
  if entry then
    local text = redis.call('HGET', KEYS[2], id) or ''
    local left = string.format('%.0f', entry.expires - now)
    for _, part in ipairs({id, text, entry.status, entry.by or '', left, waits(entry) and '1' or '0'}) do
      table.insert(shown, part)
    end
  end
end
return shown
"
}

script! {
    /// Stores an approved call between two of its rounds, invisible to approvers. `ARGV`: the call, its
    /// principal, a new id, the server's state, the sealed approval, the limits of all calls and of one
    /// principal, the lifetime in milliseconds.
    CONTINUES = ENTRIES, r"
local entries, count, own = all(), 0, 0
for _, entry in pairs(entries) do
  count = count + 1
  if entry.owner == ARGV[2] then own = own + 1 end
end
if count >= tonumber(ARGV[6]) or own >= tonumber(ARGV[7]) or entries[ARGV[3]] then return 'many' end
keep(ARGV[3], {call = ARGV[1], owner = ARGV[2], state = ARGV[4], by = ARGV[5], expires = now + ARGV[8]})
redis.call('PEXPIRE', KEYS[1], ARGV[8])
return 'done'
"
}

script! {
    /// Uses up the approval of such a call. `ARGV`: the call, the state. Returns the sealed approval,
    /// or nothing.
    IS_CONTINUED = ENTRIES, r"
for id, entry in pairs(all()) do
  if entry.call == ARGV[1] and entry.state == ARGV[2] then
    remove(id)
    return entry.by
  end
end
return ''
"
}

/// The approvals in common with other replicas.
#[derive(Clone)]
pub(super) struct ApprovalsInCommon {
    shared: Shared,
    seal: Arc<Seal>,
}

/// The approvers' view of a call.
#[derive(Serialize, Deserialize)]
struct Written {
    principal: Vec<u8>,
    endpoint: String,
    server: String,
    tool: String,
    arguments: Option<String>,
    own: Option<String>,
    more: Option<String>,
    rules: u64,
    text: String,
    client: String,
    by_another: bool,
    asked: u64,
}

impl ApprovalsInCommon {
    /// Creates the approvals, sealed with these keys.
    pub(super) fn new(shared: Shared, keys: &fanlight_protocol::seal::Keys) -> Option<Self> {
        Some(Self {
            shared,
            seal: Arc::new(Seal::new(keys, PURPOSE).ok()?),
        })
    }

    async fn run<T: crate::FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[&str],
    ) -> Result<T, SharedError> {
        self.run_on("entries", script, arguments).await
    }

    /// Runs a script on the table of this name.
    async fn run_on<T: crate::FromRedisValue>(
        &self,
        entries: &str,
        script: &Script,
        arguments: &[&str],
    ) -> Result<T, SharedError> {
        let mut invocation = script.key(self.shared.key(TAG, entries));
        invocation.key(self.shared.key(TAG, "shown"));
        for argument in arguments {
            invocation.arg(*argument);
        }
        self.shared.run(&invocation).await
    }

    fn seal_call(
        &self,
        call: &CallToApprove,
        question: &Question,
        call_digest: &str,
    ) -> Option<String> {
        let written = Written {
            principal: call.principal.to_bytes(),
            endpoint: call.endpoint.to_string(),
            server: call.server.to_string(),
            tool: call.tool.to_string(),
            arguments: call
                .arguments
                .as_ref()
                .map(|arguments| arguments.as_text().to_owned()),
            own: call
                .own
                .as_ref()
                .map(|arguments| arguments.as_text().to_owned()),
            more: call.more.as_ref().map(|more| more.as_text().to_owned()),
            rules: call.rules,
            text: question.text.to_string(),
            client: question.client.to_string(),
            by_another: question.approver == ApproverRule::Other,
            asked: epoch::seconds(),
        };
        self.seal
            .seal_for(&serde_json::to_vec(&written).ok()?, call_digest.as_bytes())
    }

    /// The questions in an answer of [`SHOW`] that one of the keys decrypts.
    async fn show(&self, ids: &[&str]) -> Result<Vec<OpenQuestion>, NotDecided> {
        let parts: Vec<String> = self.run(&SHOW, ids).await.map_err(|_| NotDecided::Away)?;
        Ok(parts
            .as_chunks::<6>()
            .0
            .iter()
            .filter_map(|parts| self.question(parts))
            .collect())
    }

    fn question(&self, [id, shown, status, by, left, waits]: &[String; 6]) -> Option<OpenQuestion> {
        // The seal is bound to the call's digest, which precedes it in clear.
        let (call_digest, sealed) = shown.split_once(' ')?;
        let written: Written =
            serde_json::from_slice(&self.seal.open_for(sealed, call_digest.as_bytes())?).ok()?;
        let parsed = |text: Option<String>| {
            text.map(|text| Json::parse(text.into(), NESTING))
                .transpose()
                .ok()
        };
        let call = CallToApprove {
            principal: Principal::from_bytes(&written.principal)?,
            endpoint: written.endpoint.into(),
            server: written.server.into(),
            tool: written.tool.into(),
            arguments: parsed(written.arguments)?,
            own: parsed(written.own)?,
            more: parsed(written.more)?,
            rules: written.rules,
        };
        let approver = if written.by_another {
            ApproverRule::Other
        } else {
            ApproverRule::Any
        };
        Some(OpenQuestion {
            id: id.clone(),
            call,
            question: Question {
                text: written.text.into(),
                client: written.client.into(),
                approver,
            },
            asked: UNIX_EPOCH.checked_add(Duration::from_secs(written.asked))?,
            left: Duration::from_millis(left.parse().ok()?),
            status: match status.as_str() {
                "open" => Status::Open,
                word => self.read_answer(id, call_digest, word, by)?,
            },
            is_waiting: waits == "1",
        })
    }

    /// Seals an answer to a question, or the state of a call. It is bound to its id, call and word,
    /// and includes when it expires.
    fn statement(
        &self,
        id: &str,
        call_digest: &str,
        word: &str,
        name: &str,
        lifetime: Duration,
    ) -> Option<String> {
        let text = format!(
            "{} {name}",
            epoch::seconds().saturating_add(lifetime.as_secs())
        );
        self.seal.seal_for(
            text.as_bytes(),
            format!("{id} {call_digest} {word}").as_bytes(),
        )
    }

    /// The text of a [`statement`](Self::statement), if a replica has sealed it and it has not
    /// expired. The expiry prevents somebody from putting an old one back.
    fn open_statement(
        &self,
        id: &str,
        call_digest: &str,
        word: &str,
        sealed: &str,
    ) -> Option<String> {
        let text = self
            .seal
            .open_for(sealed, format!("{id} {call_digest} {word}").as_bytes())?;
        let (expires, name) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
        (expires
            .parse::<u64>()
            .ok()?
            .saturating_add(CLOCKS.as_secs())
            >= epoch::seconds())
        .then(|| name.to_owned())
    }

    /// The approver's answer, if its seal is genuine.
    fn read_answer(&self, id: &str, call_digest: &str, word: &str, by: &str) -> Option<Status> {
        let name = self.open_statement(id, call_digest, word, by)?.into();
        match word {
            "approved" => Some(Status::Approved(name)),
            "refused" => Some(Status::Refused(name)),
            _ => None,
        }
    }
}

#[async_trait]
impl CommonApprovals for ApprovalsInCommon {
    async fn ask(
        &self,
        call: CallToApprove,
        question: Question,
        waiter: String,
        limits: ApprovalLimits,
    ) -> Result<CommonAsked, NotAsked> {
        let (call_digest, owner) = (digest_of(&call), digest(&[&call.principal.to_bytes()]));
        let sealed = self
            .seal_call(&call, &question, &call_digest)
            .ok_or(NotAsked::Away)?;
        let (id, shown) = (
            format!("{:08x}", fastrand::u32(..)),
            format!("{call_digest} {sealed}"),
        );
        let (calls, of_one) = (limits.calls.to_string(), limits.calls_of_one.to_string());
        let (lifetime, waits) = (
            millis(limits.lifetime).to_string(),
            millis(WAITS).to_string(),
        );
        let arguments = [
            &call_digest,
            &owner,
            &id,
            &waiter,
            &shown,
            &calls,
            &of_one,
            &lifetime,
            &waits,
        ];
        let asked: Result<(String, String, String), _> =
            self.run(&ASK, &arguments.map(String::as_str)).await;
        let (outcome, id, left) = asked.map_err(|error| {
            tracing::warn!(%error, "cannot request an approval for a call");
            NotAsked::Away
        })?;
        match (outcome.as_str(), left.parse()) {
            // The approval is used up, whether or not it was genuine.
            ("approved", _) => match self.read_answer(&id, &call_digest, "approved", &left) {
                Some(_) => Ok(CommonAsked::Approved { id }),
                None => Err(NotAsked::Away),
            },
            ("waiting", Ok(left)) => Ok(CommonAsked::Waiting {
                id,
                left: Duration::from_millis(left),
            }),
            ("refused", _) => Err(NotAsked::Refused { id }),
            _ => Err(NotAsked::TooMany),
        }
    }

    async fn look(&self, call: &CallToApprove, id: &str, waiter: &str) -> CommonAnswer {
        let looked = self
            .run::<(String, String)>(&LOOK, &[id, waiter, &millis(WAITS).to_string()])
            .await;
        let Ok((word, by)) = looked else {
            return CommonAnswer::Nothing;
        };
        if word == "open" {
            return CommonAnswer::Nothing;
        }
        match self.read_answer(id, &digest_of(call), &word, &by) {
            Some(Status::Approved(_)) => CommonAnswer::Approved,
            Some(_) => CommonAnswer::Refused,
            None => CommonAnswer::Over,
        }
    }

    fn give_up(&self, id: &str, waiter: &str) {
        let (common, id, waiter) = (self.clone(), id.to_owned(), waiter.to_owned());
        // This ends by itself soon. Should it fail, the call stops counting as waiting after a
        // while.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime
                .spawn(async move { drop(common.run::<String>(&GIVE_UP, &[&id, &waiter]).await) });
        }
    }

    async fn continues(
        &self,
        id: &str,
        call: &CallToApprove,
        state: &Json,
        limits: ApprovalLimits,
    ) {
        let (call_digest, owner) = (digest_of(call), digest(&[&call.principal.to_bytes()]));
        let (state, new) = (
            digest_of_state(state),
            format!("{:016x}", fastrand::u64(..)),
        );
        let Some(sealed) = self.statement(&state, &call_digest, CONTINUED, id, limits.lifetime)
        else {
            return;
        };
        let (calls, of_one) = (limits.calls.to_string(), limits.calls_of_one.to_string());
        let arguments = [
            &call_digest,
            &owner,
            &new,
            &state,
            &sealed,
            &calls,
            &of_one,
            &millis(limits.lifetime).to_string(),
        ];
        let kept = self
            .run_on::<String>(ROUNDS, &CONTINUES, &arguments.map(String::as_str))
            .await;
        if let Err(error) = kept {
            tracing::warn!(%error, "cannot store an approval: the call's next round needs another one");
        }
    }

    async fn is_continued(
        &self,
        call: &CallToApprove,
        state: &Json,
    ) -> Result<Option<String>, NotAsked> {
        let (call_digest, state) = (digest_of(call), digest_of_state(state));
        let sealed: String = self
            .run_on(ROUNDS, &IS_CONTINUED, &[&call_digest, &state])
            .await
            .map_err(|_| NotAsked::Away)?;
        Ok(self.open_statement(&state, &call_digest, CONTINUED, &sealed))
    }

    async fn decide(
        &self,
        id: &str,
        approver: &Approver,
        is_approved: bool,
        limits: ApprovalLimits,
    ) -> Result<OpenQuestion, NotDecided> {
        let question = self.show(&[id]).await?.pop().ok_or(NotDecided::Unknown)?;
        question.check(approver, is_approved)?;
        let word = if is_approved { "approved" } else { "refused" };
        let call_digest = digest_of(&question.call);
        let statement = self.statement(id, &call_digest, word, &approver.name, limits.lifetime);
        let statement = statement.ok_or(NotDecided::Away)?;
        let arguments = [
            id,
            &call_digest,
            word,
            &statement,
            &millis(limits.lifetime).to_string(),
        ];
        let (outcome, by) = self
            .run::<(String, String)>(&DECIDE, &arguments)
            .await
            .map_err(|_| NotDecided::Away)?;
        let name = Arc::clone(&approver.name);
        match outcome.as_str() {
            "done" => Ok(OpenQuestion {
                status: if is_approved {
                    Status::Approved(name)
                } else {
                    Status::Refused(name)
                },
                left: limits.lifetime,
                ..question
            }),
            word => Err(match self.read_answer(id, &call_digest, word, &by) {
                Some(Status::Approved(by) | Status::Refused(by)) => NotDecided::Decided(by),
                _ => NotDecided::Unknown,
            }),
        }
    }

    async fn list(&self) -> Result<Vec<OpenQuestion>, NotDecided> {
        let ids: Vec<String> = self.run(&IDS, &[]).await.map_err(|_| NotDecided::Away)?;
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let mut all = Vec::new();
        for some in ids.chunks(SHOWN_AT_ONCE) {
            all.extend(self.show(some).await?);
        }
        all.sort_by_key(|question| question.asked);
        Ok(all)
    }
}

/// The digest of a call: equal only for calls that share an approval.
fn digest_of(call: &CallToApprove) -> String {
    let text = |json: &Option<Json>| {
        json.as_ref()
            .map(|json| [b"+", json.as_text().as_bytes()].concat())
            .unwrap_or_default()
    };
    digest(&[
        &call.principal.to_bytes(),
        call.endpoint.as_bytes(),
        call.server.as_bytes(),
        call.tool.as_bytes(),
        &text(&call.arguments),
        &text(&call.own),
        &text(&call.more),
        &call.rules.to_be_bytes(),
    ])
}

/// The digest of a state: equal only for the same state.
fn digest_of_state(state: &Json) -> String {
    match state.as_str() {
        Some(text) => digest(&[b"text", text.as_bytes()]),
        None => digest(&[b"value", state.as_text().as_bytes()]),
    }
}

fanlight_protocol::opaque!(ApprovalsInCommon);

#[cfg(test)]
mod tests {
    use crate::{Certificates, Settings};
    use fanlight_config::settings::ValkeyUrl;
    use fanlight_protocol::seal::Keys;

    use super::*;

    #[tokio::test]
    async fn statement_that_is_put_back_after_it_has_expired_says_nothing() {
        let settings = Settings {
            url: ValkeyUrl::parse("valkey://127.0.0.1").unwrap(),
            group: "fanlight".to_owned(),
        };
        let shared = Shared::new(settings, Certificates::default()).unwrap();
        let common = ApprovalsInCommon::new(shared, &Keys::new([[1; 32]])).unwrap();
        let is_said = |sealed: &str| {
            common
                .read_answer("id", "call", "approved", sealed)
                .is_some()
        };
        let sealed = |text: &str| {
            common
                .seal
                .seal_for(text.as_bytes(), b"id call approved")
                .unwrap()
        };
        assert!(is_said(
            &common
                .statement("id", "call", "approved", "ann", Duration::ZERO)
                .unwrap()
        ));
        // The clock of another replica may be a little behind.
        assert!(is_said(&sealed(&format!(
            "{} ann",
            epoch::seconds() - CLOCKS.as_secs() / 2
        ))));
        assert!(!is_said(&sealed(&format!(
            "{} ann",
            epoch::seconds() - 2 * CLOCKS.as_secs()
        ))));
        assert!(!is_said(&sealed("ann")), "without a time");
    }
}
