//! The server of each task, kept beyond the end of the process: only its maker is given a task, and
//! the next process has to know them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_gateway::{CommonTask, CommonTaskOwners};
use fanlight_grants::{Kind, Owner, Record, Store, StoreError};
use fanlight_protocol::epoch;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::ListState;

impl ListState {
    /// The tasks of clients; `None` without `stateDir`.
    pub fn tasks(&self) -> Option<Arc<dyn CommonTaskOwners>> {
        let tasks = || Arc::new(KeptTasks(self.store.clone())) as Arc<dyn CommonTaskOwners>;
        self.is_named.then(tasks)
    }
}

struct KeptTasks(Store);

/// The record of a task. Under a policy the task is unknown to the next process, since the call
/// that made it is not kept.
#[derive(Serialize, Deserialize)]
struct KeptTask {
    server: Box<str>,
    /// The expiry, in seconds since 1970.
    until: u64,
}

impl Record for KeptTask {
    const KIND: Kind = Kind::Task;

    fn useless_after(&self) -> Option<u64> {
        Some(self.until)
    }
}

impl KeptTasks {
    async fn load(&self, task: &[u8]) -> Option<KeptTask> {
        let kept = log_failure(self.0.get::<KeptTask>(&owner(task)).await)??;
        (kept.until > epoch::seconds()).then_some(kept)
    }
}

/// The owner of a record is a client's task, of which the file shows a digest.
fn owner(task: &[u8]) -> Owner {
    Owner::new(task, "")
}

#[async_trait]
impl CommonTaskOwners for KeptTasks {
    async fn find(&self, task: Vec<u8>) -> Option<CommonTask> {
        let KeptTask { server, until } = self.load(&task).await?;
        Some(CommonTask {
            server,
            made_by: None,
            kept_for: Duration::from_secs(until.saturating_sub(epoch::seconds())),
        })
    }

    async fn learn(&self, task: Vec<u8>, learnt: CommonTask, created: bool) {
        let server = learnt.server;
        let is_others = async || {
            let kept = self.load(&task).await;
            kept.is_some_and(|kept| kept.server != server)
        };
        if !created && is_others().await {
            return;
        }
        let until = epoch::seconds().saturating_add(learnt.kept_for.as_secs());
        let kept = KeptTask { server, until };
        log_failure(self.0.put(&owner(&task), &kept).await);
    }

    async fn forget(&self, task: Vec<u8>) {
        drop(log_failure(self.0.take::<KeptTask>(&owner(&task)).await));
    }
}

fanlight_protocol::opaque!(KeptTasks);

fn log_failure<T>(answer: Result<T, StoreError>) -> Option<T> {
    answer
        .inspect_err(|error| debug!(%error, "cannot read or write the owner of a task"))
        .ok()
}

#[cfg(test)]
mod tests {
    use fanlight_grants::Folder;
    use fanlight_protocol::seal::Keys;

    use super::*;

    #[tokio::test]
    async fn next_process_knows_the_server_of_a_clients_task() {
        let path = tempfile::tempdir().unwrap();
        let open = || {
            let folder = Folder::open(&path.path().join("state")).unwrap();
            KeptTasks(Store::open_for_lists(&folder, &Keys::default()).unwrap())
        };
        let learnt = |server: &str, seconds| CommonTask {
            server: server.into(),
            made_by: None,
            kept_for: Duration::from_secs(seconds),
        };
        let of = |client: &str| client.as_bytes().to_vec();
        let tasks = open();
        tasks.learn(of("ann"), learnt("a", 600), true).await;
        tasks.learn(of("ann"), learnt("b", 600), false).await;
        tasks.learn(of("eve"), learnt("a", 0), true).await;
        drop(tasks);
        let tasks = open();
        let found = tasks.find(of("ann")).await.map(|found| found.server);
        assert_eq!(found.as_deref(), Some("a"));
        for other in ["bob", "eve"] {
            assert!(tasks.find(of(other)).await.is_none(), "{other}");
        }
        tasks.forget(of("ann")).await;
        assert!(tasks.find(of("ann")).await.is_none());
    }
}
