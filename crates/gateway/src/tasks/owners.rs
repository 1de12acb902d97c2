//! Remembers which server has each task.
//!
//! The memory is limited and shared among peers: the peer with the most entries loses some first.
//! An entry also expires some time after its task may. A forgotten owner only costs requests to the
//! servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::{Caller, HandleSeal, Holder, Peer, PolicySubject, SessionKey};
use fanlight_protocol::Json;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::topology::BackendId;

/// The most tasks whose owner is remembered.
pub(super) const OWNERS: usize = 10_000;

/// How much longer than its task an owner is remembered. A task's lifetime counts from its creation by another clock.
const GRACE: Duration = Duration::from_secs(5 * 60);

/// How long the owner of a task without an end is remembered.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// The longest time that any owner is remembered.
pub(super) const LONGEST_OWNER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest id that is remembered, in bytes. No option: real ids are far shorter, and owners of
/// longer ones are looked up.
const LONGEST_ID: usize = 1024;

/// How an owner became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The server created the task for this client. Another task of the same id is not the
    /// client's.
    Created,
    /// The server knows a task of this id. A remembered owner stays.
    Seen,
}

/// A task of one client: of a session, or of a principal at an endpoint without a session.
///
/// A task that Fanlight made for an authenticated client belongs to the principal in all its
/// sessions. Another replica that keeps the session asks about it without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TaskKey {
    holder: Holder,
    session: Option<SessionKey>,
    /// The number that the session was opened with, if another replica can continue it.
    continued_as: Option<u64>,
    task: Box<str>,
}

impl TaskKey {
    pub(super) fn new(caller: &Caller, task: &str) -> Self {
        let is_holders = HandleSeal::is_task(task) && !caller.principal().is_anonymous();
        let session = caller.session().filter(|_| !is_holders);
        let continued_as = caller
            .session_opened_as()
            .filter(|_| session.is_some() && caller.server_sessions().is_some());
        Self {
            holder: caller.holder().clone(),
            session,
            continued_as,
            task: task.into(),
        }
    }

    /// The keys of a caller's task, the most exact first. An authenticated client also has it in its
    /// other sessions, where a task of such a session itself may have the same id.
    pub(super) fn all_of(caller: &Caller, task: &str) -> impl Iterator<Item = Self> {
        let exact = Self::new(caller, task);
        let is_shared = exact.session.is_some() && !caller.principal().is_anonymous();
        let of_holder = is_shared.then(|| Self {
            session: None,
            continued_as: None,
            ..exact.clone()
        });
        std::iter::once(exact).chain(of_holder)
    }

    /// The key that all replicas use for this task; `None` if only this process knows the task.
    /// Tasks of sessions are shared only under a policy, which needs the call that created them.
    /// Without a policy, the replica that continues the session asks the servers.
    pub(super) fn in_common(&self, has_policy: bool) -> Option<Vec<u8>> {
        let is_alone = self.session.is_some() && (self.continued_as.is_none() || !has_policy);
        if is_alone || HandleSeal::is_task(&self.task) {
            return None;
        }
        // No holder has this length, so a key with a session differs from all others.
        let session = self
            .continued_as
            .map(|number| [u64::MAX, number].map(u64::to_be_bytes).concat());
        let holder = self.holder.to_bytes();
        let length = u64::try_from(holder.len())
            .unwrap_or_default()
            .to_be_bytes();
        Some(
            [
                &session.unwrap_or_default(),
                &length[..],
                &holder,
                self.task.as_bytes(),
            ]
            .concat(),
        )
    }
}

/// The remembered facts about a task.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) backend: BackendId,
    /// The call that created the task, as a policy decided about it. `None` if there was no policy,
    /// or the call is unknown.
    pub(crate) made_by: Option<Arc<PolicySubject>>,
}

/// The most bytes of arguments that are kept with a call. No option: there are many tasks, and few
/// rules read long arguments.
const KEPT_ARGUMENTS: usize = 1024;

/// Reduces a call to the form that is stored with its task or its result. Arguments that are too long are
/// replaced by a text, so that rules about arguments permit nothing.
pub(crate) fn reduce(made_by: PolicySubject) -> Arc<PolicySubject> {
    let arguments = made_by.arguments.map(|arguments| {
        if arguments.bytes().len() <= KEPT_ARGUMENTS {
            arguments.detached()
        } else {
            Json::literal(r#""not kept""#)
        }
    });
    Arc::new(PolicySubject {
        arguments,
        ..made_by
    })
}

/// New facts about a task.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    pub(super) known: Known,
    /// The peer whose share of the limit the entry uses.
    pub(super) peer: Peer,
    pub(super) kept_for: Duration,
    pub(super) evidence: Evidence,
    /// Whether the replicas now share the entry, for the same time.
    pub(super) is_told: bool,
}

/// The owners that this process remembers.
pub(super) struct MemoryOwners {
    table: Mutex<Table>,
    limit: usize,
}

#[derive(Default)]
struct Table {
    owners: fanlight_fair::Table<Peer, TaskKey, Owner>,
    /// Incremented by each use of an entry.
    uses: u64,
}

#[derive(Clone, Debug)]
struct Owner {
    known: Known,
    until: Instant,
    /// When the entry has to be shared with the replicas again.
    told_until: Instant,
    /// The number of the last use, from [`Table::uses`].
    used: u64,
}

impl MemoryOwners {
    /// Remembers the owners of at most `limit` tasks.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            table: Mutex::default(),
            limit: limit.max(1),
        }
    }

    /// The remembered facts about this task.
    pub(super) fn find(&self, task: &TaskKey) -> Option<Known> {
        let mut table = self.table.lock();
        table.uses += 1;
        let used = table.uses;
        let found = table
            .owners
            .get_mut(task)
            .filter(|owner| owner.until > Instant::now())
            .map(|owner| {
                owner.used = used;
                owner.known.clone()
            });
        if found.is_none() {
            table.owners.remove(task);
        }
        found
    }

    /// Whether the replicas share this entry and will keep it for some time.
    pub(super) fn is_told(&self, task: &TaskKey) -> bool {
        self.table
            .lock()
            .owners
            .get(task)
            .is_some_and(|owner| owner.told_until > Instant::now())
    }

    /// Remembers the task's server for `kept_for`.
    pub(super) fn learn(&self, task: TaskKey, learnt: Learnt) {
        let Learnt {
            mut known,
            peer,
            kept_for,
            evidence,
            is_told,
        } = learnt;
        let (mut table, now) = (self.table.lock(), Instant::now());
        let owner = table.owners.get(&task).filter(|owner| owner.until > now);
        if evidence == Evidence::Created
            || owner.is_none_or(|owner| owner.known.backend == known.backend)
        {
            let owner = owner.filter(|_| evidence == Evidence::Seen);
            let told_before = owner.map_or(now, |owner| owner.told_until);
            let told_until = if is_told {
                now + kept_for / 2
            } else {
                told_before
            };
            let made_by = owner.and_then(|owner| owner.known.made_by.clone());
            known.made_by = made_by.or(known.made_by);
            if table.owners.len() >= self.limit && table.owners.get(&task).is_none() {
                table.make_space(self.limit, &peer);
            }
            table.uses += 1;
            let used = table.uses;
            table.owners.insert(
                task,
                peer,
                Owner {
                    known,
                    until: now + kept_for,
                    told_until,
                    used,
                },
            );
        }
    }

    /// Forgets the server of this task.
    pub(super) fn forget(&self, task: &TaskKey) {
        self.table.lock().owners.remove(task);
    }
}

impl Table {
    /// Removes expired entries. If there are none, removes the least recently used entries of the
    /// largest peer. It removes several at once, so that a flood of new tasks does not search the
    /// whole table each time.
    fn make_space(&mut self, limit: usize, newcomer: &Peer) {
        let now = Instant::now();
        drop(self.owners.remove_if(|_, owner| owner.until <= now));
        if self.owners.len() < limit {
            return;
        }
        let lost = self
            .owners
            .newcomer(newcomer, limit)
            .find_in_largest((limit / 64).max(1), |owner| Some(owner.value.used));
        for task in lost {
            self.owners.remove(&task);
        }
    }
}

/// The id of a task and how long to remember its owner, from the task's state. `None` if the id is
/// missing or too long.
pub(super) fn id_and_time(state: &Json) -> Option<(String, Duration)> {
    let id = state
        .text_at("taskId")
        .filter(|id| id.len() <= LONGEST_ID)?;
    // `ttl` of 2025-11-25, `ttlMs` of the extension; both in milliseconds, `null` for no end.
    let ttl = state
        .get("ttlMs")
        .or_else(|| state.get("ttl"))
        .and_then(|ttl| ttl.as_i64());
    Some(match ttl.and_then(|ttl| u64::try_from(ttl).ok()) {
        Some(ttl) => (
            id,
            Duration::from_millis(ttl)
                .saturating_add(GRACE)
                .min(LONGEST_OWNER),
        ),
        None => (id, ENDLESS),
    })
}

/// The replicas' common knowledge of one task.
#[derive(Clone, Debug)]
pub struct CommonTask {
    /// The name of the server that has the task.
    pub server: Box<str>,
    /// The call that created the task, as a policy decided about it, without the tool's definition.
    /// `None` if there was no policy, or the call is unknown.
    pub made_by: Option<Arc<PolicySubject>>,
    /// How long the entry is kept.
    pub kept_for: Duration,
}

/// The task owners that replicas share, for clients without a session or with a session that any
/// replica can continue.
///
/// Each method takes a limited time; if an owner is not found, Fanlight asks the servers. An entry
/// was learnt for exactly this task, so [`find`](Self::find) ignores anything that somebody else
/// put in its place.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait CommonTaskOwners: fmt::Debug + Send + Sync {
    /// The entry of this client's task.
    async fn find(&self, task: Vec<u8>) -> Option<CommonTask>;

    /// Stores an entry. An earlier entry stays, unless this server `created` the task.
    async fn learn(&self, task: Vec<u8>, known: CommonTask, created: bool);

    /// Removes the entry of this task.
    async fn forget(&self, task: Vec<u8>);
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::Principal;

    use super::*;

    fn session() -> Caller {
        Caller::session_of(Principal::anonymous(), SessionKey(1))
    }

    fn learn(
        owners: &MemoryOwners,
        task: TaskKey,
        backend: BackendId,
        kept_for: Duration,
        evidence: Evidence,
    ) {
        owners.learn(
            task,
            Learnt {
                known: Known {
                    backend,
                    made_by: None,
                },
                peer: Peer::Local,
                kept_for,
                evidence,
                is_told: false,
            },
        );
    }

    fn key(task: &str) -> TaskKey {
        TaskKey::new(&session(), task)
    }

    fn found(owners: &MemoryOwners, task: &str) -> Option<BackendId> {
        owners.find(&key(task)).map(|known| known.backend)
    }

    #[test]
    fn owner_is_remembered_a_little_longer_than_its_task() {
        let minute = Duration::from_secs(60);
        for (id, state, kept) in [
            ("a", r#"{"taskId":"a","ttl":60000}"#, minute + GRACE),
            ("b", r#"{"taskId":"\u0062","ttlMs":60000}"#, minute + GRACE),
            ("c", r#"{"taskId":"c","ttl":null}"#, ENDLESS),
            ("d", r#"{"taskId":"d"}"#, ENDLESS),
            (
                "e",
                r#"{"taskId":"e","ttlMs":9223372036854775807}"#,
                LONGEST_OWNER,
            ),
        ] {
            assert_eq!(
                id_and_time(&Json::literal(state)),
                Some((id.to_owned(), kept))
            );
        }
        let long = format!(r#"{{"taskId":"{}"}}"#, "x".repeat(LONGEST_ID + 1));
        assert_eq!(id_and_time(&Json::parse(long.into(), 8).unwrap()), None);
        assert_eq!(id_and_time(&Json::literal("{}")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn owner_is_forgotten_after_its_time() {
        let (owners, backend) = (MemoryOwners::new(10), BackendId::generate());
        learn(&owners, key("t"), backend, GRACE, Evidence::Created);
        tokio::time::advance(GRACE - Duration::from_millis(1)).await;
        assert_eq!(found(&owners, "t"), Some(backend));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(found(&owners, "t"), None);
        assert!(owners.table.lock().owners.is_empty());
    }

    #[test]
    fn owner_that_made_the_task_replaces_one_that_was_seen() {
        let owners = MemoryOwners::new(10);
        let [one, two] = [BackendId::generate(), BackendId::generate()];
        learn(&owners, key("t"), one, ENDLESS, Evidence::Seen);
        learn(&owners, key("t"), two, ENDLESS, Evidence::Seen);
        assert_eq!(
            found(&owners, "t"),
            Some(one),
            "the first that was seen stays"
        );
        learn(&owners, key("t"), two, ENDLESS, Evidence::Created);
        learn(&owners, key("t"), one, ENDLESS, Evidence::Seen);
        assert_eq!(found(&owners, "t"), Some(two));
        owners.forget(&key("t"));
        assert_eq!(found(&owners, "t"), None);
    }

    #[test]
    fn call_that_made_a_task_stays_known_and_its_long_arguments_do_not() {
        use fanlight_canonical::{PolicyAction, PolicyKind};
        let made_by = |arguments: String| PolicySubject {
            action: PolicyAction::Call,
            kind: PolicyKind::Tool,
            server: "s".into(),
            name: "t".into(),
            visible: "t".into(),
            definition: None,
            arguments: Some(Json::parse(arguments.into(), 8).unwrap()),
        };
        let (owners, backend) = (MemoryOwners::new(10), BackendId::generate());
        let learn_with = |evidence, arguments: &str| {
            let made_by = Some(reduce(made_by(arguments.to_owned())));
            let (peer, kept_for) = (Peer::Local, ENDLESS);
            owners.learn(
                key("t"),
                Learnt {
                    known: Known { backend, made_by },
                    peer,
                    kept_for,
                    evidence,
                    is_told: false,
                },
            );
        };
        let arguments = || {
            owners
                .find(&key("t"))
                .unwrap()
                .made_by
                .unwrap()
                .arguments
                .clone()
                .unwrap()
        };
        learn_with(Evidence::Created, r#"{"a":1}"#);
        learn(&owners, key("t"), backend, ENDLESS, Evidence::Seen);
        learn_with(Evidence::Seen, r#"{"a":2}"#);
        assert_eq!(arguments().as_text(), r#"{"a":1}"#);
        learn_with(
            Evidence::Created,
            &format!(r#"{{"a":"{}"}}"#, "x".repeat(KEPT_ARGUMENTS)),
        );
        assert_eq!(arguments().as_text(), r#""not kept""#);
        learn(&owners, key("t"), backend, ENDLESS, Evidence::Created);
        assert!(
            owners.find(&key("t")).unwrap().made_by.is_none(),
            "another task of this id"
        );
        learn_with(Evidence::Seen, r#"{"a":3}"#);
        assert_eq!(
            arguments().as_text(),
            r#"{"a":3}"#,
            "what another process knows of it"
        );
    }

    #[test]
    fn owner_is_known_to_one_principal_and_session_alone() {
        let (owners, backend) = (MemoryOwners::new(10), BackendId::generate());
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::new("issuer", name));
        let in_session = |principal: &Principal, session| {
            Caller::session_of(principal.clone(), SessionKey(session))
        };
        let without = |principal: &Principal| Caller::request_of(principal.clone());
        learn(
            &owners,
            TaskKey::new(&in_session(&ann, 1), "t"),
            backend,
            ENDLESS,
            Evidence::Created,
        );
        learn(
            &owners,
            TaskKey::new(&without(&ann), "u"),
            backend,
            ENDLESS,
            Evidence::Created,
        );
        for (caller, task, known) in [
            (in_session(&ann, 1), "t", true),
            (in_session(&ann, 2), "t", false),
            (in_session(&bob, 1), "t", false),
            (without(&ann), "t", false),
            (without(&ann), "u", true),
            (without(&bob), "u", false),
            (in_session(&ann, 1), "u", false),
        ] {
            assert_eq!(
                owners.find(&TaskKey::new(&caller, task)).is_some(),
                known,
                "{task} of {caller:?}"
            );
        }
    }

    #[test]
    fn owner_of_a_task_that_fanlight_has_made_is_known_in_all_sessions_of_its_principal_alone() {
        let (owners, backend) = (MemoryOwners::new(10), BackendId::generate());
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::new("issuer", name));
        let nobody = Principal::anonymous();
        let in_session = |principal: &Principal, session| {
            Caller::session_of(principal.clone(), SessionKey(session))
        };
        let without = |principal: &Principal| Caller::request_of(principal.clone());
        for maker in [in_session(&ann, 1), in_session(&nobody, 3)] {
            let task = format!("fanlight-task-{}", maker.session().unwrap().0);
            learn(
                &owners,
                TaskKey::new(&maker, &task),
                backend,
                ENDLESS,
                Evidence::Created,
            );
        }
        for (caller, task, known) in [
            (in_session(&ann, 1), "fanlight-task-1", true),
            (in_session(&ann, 2), "fanlight-task-1", true),
            (without(&ann), "fanlight-task-1", true),
            (in_session(&bob, 1), "fanlight-task-1", false),
            (without(&bob), "fanlight-task-1", false),
            (in_session(&nobody, 1), "fanlight-task-1", false),
            (in_session(&nobody, 3), "fanlight-task-3", true),
            (in_session(&nobody, 4), "fanlight-task-3", false),
            (without(&nobody), "fanlight-task-3", false),
        ] {
            let key = TaskKey::new(&caller, task);
            assert_eq!(owners.find(&key).is_some(), known, "{task} of {caller:?}");
            assert_eq!(key.in_common(true), None, "one process keeps it");
        }
    }

    #[test]
    fn task_is_known_in_common_without_a_session_and_under_a_policy_in_one_that_others_continue() {
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::new("issuer", name));
        let continued = |holder: &Principal, key, opened_as| {
            let caller = Caller::continued_session_of(holder.clone(), SessionKey(key), opened_as);
            caller.with_server_sessions(Some(Arc::default()))
        };
        let in_common =
            |caller: &Caller, has_policy| TaskKey::new(caller, "t").in_common(has_policy);
        let without = Caller::request_of(ann.clone());
        assert!(
            in_common(&without, false).is_some_and(|key| Some(key) == in_common(&without, true))
        );
        assert_eq!(
            in_common(&Caller::session_of(ann.clone(), SessionKey(1)), true),
            None,
            "no other continues it"
        );
        assert_eq!(
            in_common(&continued(&ann, 1, 7), false),
            None,
            "its servers are asked"
        );
        let here = in_common(&continued(&ann, 1, 7), true).unwrap();
        assert_eq!(
            in_common(&continued(&ann, 2, 7), true),
            Some(here.clone()),
            "the same session at another process"
        );
        for other in [continued(&ann, 1, 8), continued(&bob, 1, 7), without] {
            assert_ne!(in_common(&other, true).unwrap(), here);
        }
    }

    #[test]
    fn unused_owners_are_forgotten_first() {
        let (owners, backend) = (MemoryOwners::new(20), BackendId::generate());
        learn(&owners, key("used"), backend, ENDLESS, Evidence::Created);
        for n in 0..100 {
            assert!(owners.find(&key("used")).is_some(), "after {n} others");
            learn(
                &owners,
                key(&n.to_string()),
                backend,
                ENDLESS,
                Evidence::Created,
            );
        }
        assert!(owners.table.lock().owners.len() <= 20);
    }

    #[test]
    fn peer_with_most_tasks_loses_first() {
        let (owners, backend) = (MemoryOwners::new(8), BackendId::generate());
        let learn = |task: &str, last: u8| {
            let peer = Peer::Address([10, 0, 0, last].into());
            let evidence = Evidence::Created;
            owners.learn(
                key(task),
                Learnt {
                    known: Known {
                        backend,
                        made_by: None,
                    },
                    peer,
                    kept_for: ENDLESS,
                    evidence,
                    is_told: false,
                },
            );
        };
        learn("quiet", 1);
        for n in 0..100 {
            learn(&n.to_string(), 2);
        }
        learn("new", 3);
        for (task, known) in [("quiet", true), ("new", true), ("99", true), ("0", false)] {
            assert_eq!(owners.find(&key(task)).is_some(), known, "{task}");
        }
        assert_eq!(owners.table.lock().owners.len(), 8);
    }
}
