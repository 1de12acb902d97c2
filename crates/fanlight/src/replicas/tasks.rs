//! Which server has which task, as all replicas know it.

use std::sync::LazyLock;
use std::time::Duration;

use fanlight_gateway::CommonTaskOwners;
use fanlight_shared::{Script, SharedError};
use futures_util::future::BoxFuture;

use super::{Replicas, digest};

static FIND: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('GET', KEYS[1])"));
static FORGET: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('DEL', KEYS[1])"));

/// `ARGV`: the server, how long in milliseconds, and 1 if it made the task. One that is known stays unless another made it.
static LEARN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local known = redis.call('GET', KEYS[1])
if not known or known == ARGV[1] or ARGV[3] == '1' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
",
    )
});

impl Replicas {
    /// Each task has a tag of its own: any server of a cluster may have it.
    fn task(&self, task: &[u8]) -> String {
        self.shared.key(&digest(&[task]), "task")
    }
}

impl CommonTaskOwners for Replicas {
    fn find(&self, task: Vec<u8>) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move { known(self.shared.run(&FIND.key(self.task(&task))).await).flatten() })
    }

    fn learn(&self, task: Vec<u8>, server: String, kept_for: Duration, created: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut script = LEARN.key(self.task(&task));
            script
                .arg(server)
                .arg(u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX).max(1))
                .arg(u8::from(created));
            let _ = known::<u8>(self.shared.run(&script).await);
        })
    }

    fn forget(&self, task: Vec<u8>) -> BoxFuture<'_, ()> {
        Box::pin(async move { _ = known::<u8>(self.shared.run(&FORGET.key(self.task(&task))).await) })
    }
}

/// Without it, servers are asked whose task it is.
fn known<T>(answer: Result<T, SharedError>) -> Option<T> {
    answer.inspect_err(|error| tracing::debug!(%error, "owners of tasks are not known together")).ok()
}
