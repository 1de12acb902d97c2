//! What a legacy server tells of its tasks, for listeners that know tasks by the extension.
//!
//! The extension inlines what came of a task, which the server may have to be asked for: so this is
//! no work for those who read what a server sends. One task per backend does it. Of one listener's
//! task only the newest status counts; those before it are left out where they wait.
//!
//! Must not know: who listens to what.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Json, Method};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::TaskBridge;
use crate::hub::{Hub, ListenerId, TaskStatus, with};
use fanlight_canonical::ServerMessage;

/// Statuses that are translated at the same time.
const AT_ONCE: usize = 16;
/// How long one may take. The client goes on asking, as it must be ready to.
const LONGEST: Duration = Duration::from_secs(30);

/// Of which listener, and of which task.
type Subject = (ListenerId, String);

impl TaskBridge {
    /// Translates statuses and sends them on, until there can be no more.
    pub(crate) async fn tell(self: Arc<Self>, hub: Arc<Hub>, mut statuses: mpsc::Receiver<TaskStatus>) {
        let mut running = FuturesUnordered::new();
        // What is being translated, and the newest that came meanwhile.
        let mut subjects: HashMap<Subject, Option<TaskStatus>> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                Some(subject) = running.next() => {
                    if let Entry::Occupied(mut entry) = subjects.entry(subject) {
                        match entry.get_mut().take() {
                            Some(next) => running.push(self.tell_one(&hub, entry.key().clone(), next)),
                            None => drop(entry.remove()),
                        }
                    }
                }
                status = statuses.recv(), if running.len() < AT_ONCE => {
                    let Some(status) = status else { return };
                    let Some(task) = named(&status) else { continue };
                    match subjects.entry((status.listener, task)) {
                        Entry::Occupied(mut entry) => drop(entry.insert(Some(status))),
                        Entry::Vacant(entry) => {
                            running.push(self.tell_one(&hub, entry.key().clone(), status));
                            entry.insert(None);
                        }
                    }
                }
            }
        }
    }

    async fn tell_one(self: &Arc<Self>, hub: &Hub, subject: Subject, status: TaskStatus) -> Subject {
        let TaskStatus { status, context, messages, .. } = status;
        let params = status.params().unwrap_or_else(Json::empty_object);
        let changed = timeout(LONGEST, self.changed(&params, &context)).await.ok().flatten();
        let told = changed.and_then(|params| with(&status, Method::TaskChanged, &params));
        if let Some(told) = told {
            hub.warn_of_slow(usize::from(!messages.try_send(ServerMessage::Notification(told))));
        }
        subject
    }
}

fn named(status: &TaskStatus) -> Option<String> {
    Some(status.status.params()?.get("taskId")?.as_str()?.into_owned())
}
