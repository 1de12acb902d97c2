//! The server of each task and the call that created it, in common with all replicas.
//!
//! Each record is sealed for its task and client. Write access to Valkey is enough to make a task
//! forgotten, but not to change its server or its call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::{PolicyKind, PolicySubject};
use fanlight_gateway::{CommonTask, CommonTaskOwners};
use fanlight_protocol::Json;
use fanlight_protocol::seal::{Keys, Seal};
use serde::{Deserialize, Serialize};

use super::{NESTING, digest, millis};
use crate::{Shared, SharedError};

/// The purpose of the seal on records.
const PURPOSE: &[u8] = b"task in common: ";
/// The size limit of a text that is sealed with a call, in bytes. There is no option: arguments
/// were checked before, and names are short.
const LARGEST: usize = 4 << 10;
/// The size limit of a record.
const LONGEST: usize = 2 * LARGEST;

script! {
    /// Returns the record of a task and its remaining lifetime in milliseconds.
    FIND = "return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])}"
}
script! {
    FORGET = "return redis.call('DEL', KEYS[1])"
}

script! {
    /// Stores a record. `ARGV`: the digest of the server, the record, its lifetime in milliseconds, and
    /// 1 if the server created the task. An existing record stays, unless another server created the
    /// task.
    LEARN = r"
local known = redis.call('GET', KEYS[1])
if not known or ARGV[4] == '1' then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
elseif string.match(known, '^%x+') == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
"
}

/// The tasks in common with all replicas.
pub(super) struct TasksInCommon {
    shared: Shared,
    seal: Seal,
}

/// The record of a task before it is sealed.
#[derive(Serialize, Deserialize)]
struct Written {
    server: Box<str>,
    call: Option<WrittenCall>,
}

/// The call that created a task, as policies judged it, without its server.
#[derive(Serialize, Deserialize)]
struct WrittenCall {
    action: String,
    kind: String,
    name: Box<str>,
    visible: Box<str>,
    arguments: Option<String>,
}

impl TasksInCommon {
    /// Creates the tasks, sealed with these keys.
    pub(super) fn new(shared: Shared, keys: &Keys) -> Option<Self> {
        Some(Self {
            shared,
            seal: Seal::new(keys, PURPOSE).ok()?,
        })
    }

    /// The key of a task. Each has its own tag, so any server of a cluster may have it.
    fn key(&self, task: &[u8]) -> String {
        self.shared.key(&digest(&[task]), "task")
    }

    fn seal_task(&self, task: &[u8], known: &CommonTask) -> Option<String> {
        let with = |call| {
            serde_json::to_vec(&Written {
                server: known.server.clone(),
                call,
            })
            .ok()
        };
        let whole = with(known.made_by.as_deref().map(WrittenCall::from_subject))?;
        let text = if whole.len() <= LARGEST {
            whole
        } else {
            with(None)?
        };
        self.seal.seal_for(&text, task)
    }

    /// The record of this task, if it was sealed with one of the keys.
    fn open_record(&self, task: &[u8], held: &str, left: i64) -> Option<CommonTask> {
        let (_, sealed) = held.split_once(' ').filter(|_| held.len() <= LONGEST)?;
        let Written { server, call } =
            serde_json::from_slice(&self.seal.open_for(sealed, task)?).ok()?;
        let made_by = call.and_then(|call| call.read(&server)).map(Arc::new);
        Some(CommonTask {
            server,
            made_by,
            kept_for: Duration::from_millis(u64::try_from(left).ok()?),
        })
    }
}

impl WrittenCall {
    fn from_subject(call: &PolicySubject) -> Self {
        Self {
            action: call.action.as_str().to_owned(),
            kind: call.kind.as_str().to_owned(),
            name: call.name.clone(),
            visible: call.visible.clone(),
            arguments: call
                .arguments
                .as_ref()
                .map(|arguments| arguments.as_text().to_owned()),
        }
    }

    fn read(self, server: &str) -> Option<PolicySubject> {
        let mut kinds = PolicyKind::OF_SERVERS.into_iter();
        let arguments = self
            .arguments
            .map(|text| Json::parse(text.into(), NESTING))
            .transpose()
            .ok()?;
        Some(PolicySubject {
            action: self.action.parse().ok()?,
            kind: kinds.find(|kind| kind.as_str() == self.kind)?,
            server: server.into(),
            name: self.name,
            visible: self.visible,
            definition: None,
            arguments,
        })
    }
}

#[async_trait]
impl CommonTaskOwners for TasksInCommon {
    async fn find(&self, task: Vec<u8>) -> Option<CommonTask> {
        let (held, left): (String, i64) =
            log_failure(self.shared.run(&FIND.key(self.key(&task))).await)?;
        self.open_record(&task, &held, left)
    }

    async fn learn(&self, task: Vec<u8>, learnt: CommonTask, created: bool) {
        let Some(sealed) = self.seal_task(&task, &learnt) else {
            return;
        };
        let mut script = LEARN.key(self.key(&task));
        script
            .arg(digest(&[learnt.server.as_bytes()]))
            .arg(sealed)
            .arg(millis(learnt.kept_for).max(1))
            .arg(u8::from(created));
        let _ = log_failure::<u8>(self.shared.run(&script).await);
    }

    async fn forget(&self, task: Vec<u8>) {
        _ = log_failure::<u8>(self.shared.run(&FORGET.key(self.key(&task))).await);
    }
}

fanlight_protocol::opaque!(TasksInCommon);

/// If Valkey cannot be read, Fanlight asks the servers who owns a task.
fn log_failure<T>(answer: Result<T, SharedError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "cannot read or write the owner of a task"))
        .ok()
}
