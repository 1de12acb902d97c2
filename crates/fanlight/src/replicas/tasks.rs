//! Which server has which task, and which call has made it, as all replicas know it.
//!
//! What is known is sealed for its task and client: whoever can write in Valkey can have a task forgotten, but neither say that
//! another server has it, nor that another call has made it.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fanlight_canonical::{PolicyAction, PolicyKind, PolicySubject};
use fanlight_gateway::{CommonTask, CommonTaskOwners};
use fanlight_protocol::Json;
use fanlight_protocol::seal::{Keys, Seal};
use fanlight_shared::{Script, Shared, SharedError};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{NESTING, digest, millis};

/// What seals what is known of a task.
const PURPOSE: &[u8] = b"task in common: ";
/// The largest text that is sealed with a call, in bytes. No option: arguments are bounded before, and names are short.
const LARGEST: usize = 4 << 10;
/// The longest record that is opened.
const LONGEST: usize = 2 * LARGEST;

/// Returns what is known, and for how many milliseconds.
static FIND: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])}")
});
static FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('DEL', KEYS[1])"));

/// `ARGV`: the digest of the server, what is known, how long in milliseconds, and 1 if the server made the task. What is known
/// already stays unless another server made it.
static LEARN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local known = redis.call('GET', KEYS[1])
if not known or ARGV[4] == '1' then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
elseif string.match(known, '^%x+') == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
",
    )
});

/// The tasks that all replicas know.
pub(super) struct TasksInCommon {
    shared: Shared,
    seal: Seal,
}

/// What is known of a task, as it is sealed.
#[derive(Serialize, Deserialize)]
struct Written {
    server: Box<str>,
    call: Option<WrittenCall>,
}

/// The call that has made a task, as a policy decided about it, but for its server.
#[derive(Serialize, Deserialize)]
struct WrittenCall {
    action: String,
    kind: String,
    name: Box<str>,
    visible: Box<str>,
    arguments: Option<String>,
}

impl TasksInCommon {
    /// Sealed by these keys.
    pub(super) fn new(shared: Shared, keys: &Keys) -> Option<Self> {
        Some(Self {
            shared,
            seal: Seal::new(keys, PURPOSE).ok()?,
        })
    }

    /// Each task has a tag of its own: any server of a cluster may have it.
    fn key(&self, task: &[u8]) -> String {
        self.shared.key(&digest(&[task]), "task")
    }

    fn sealed(&self, task: &[u8], known: &CommonTask) -> Option<String> {
        let with = |call| {
            serde_json::to_vec(&Written {
                server: known.server.clone(),
                call,
            })
            .ok()
        };
        let whole = with(known.made_by.as_deref().map(WrittenCall::of))?;
        let text = if whole.len() <= LARGEST {
            whole
        } else {
            with(None)?
        };
        self.seal.seal_for(&text, task)
    }

    /// What was learnt of this task, if one of the keys has sealed it.
    fn opened(&self, task: &[u8], held: &str, left: i64) -> Option<CommonTask> {
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
    fn of(call: &PolicySubject) -> Self {
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
            action: PolicyAction::ALL
                .into_iter()
                .find(|action| action.as_str() == self.action)?,
            kind: kinds.find(|kind| kind.as_str() == self.kind)?,
            server: server.into(),
            name: self.name,
            visible: self.visible,
            definition: None,
            arguments,
        })
    }
}

impl CommonTaskOwners for TasksInCommon {
    fn find(&self, task: Vec<u8>) -> BoxFuture<'_, Option<CommonTask>> {
        Box::pin(async move {
            let (held, left): (String, i64) =
                known(self.shared.run(&FIND.key(self.key(&task))).await)?;
            self.opened(&task, &held, left)
        })
    }

    fn learn(&self, task: Vec<u8>, learnt: CommonTask, created: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(sealed) = self.sealed(&task, &learnt) else {
                return;
            };
            let mut script = LEARN.key(self.key(&task));
            script
                .arg(digest(&[learnt.server.as_bytes()]))
                .arg(sealed)
                .arg(millis(learnt.kept_for).max(1))
                .arg(u8::from(created));
            let _ = known::<u8>(self.shared.run(&script).await);
        })
    }

    fn forget(&self, task: Vec<u8>) -> BoxFuture<'_, ()> {
        Box::pin(
            async move { _ = known::<u8>(self.shared.run(&FORGET.key(self.key(&task))).await) },
        )
    }
}

impl fmt::Debug for TasksInCommon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TasksInCommon")
    }
}

/// Without it, servers are asked whose task it is.
fn known<T>(answer: Result<T, SharedError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "cannot read or write the owner of a task"))
        .ok()
}
