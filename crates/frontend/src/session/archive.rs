//! Session records. With them, another replica can take over a session whose replica has ended.
//!
//! A record is sealed for the session's holder. It contains no credentials of the client or for
//! servers: a take-over happens for a request, with the identity that this request proves. Requests
//! that ran at the ended replica are not recorded.

use std::sync::Arc;

use fanlight_canonical::{Holder, ProcessRun, ServerSession};
use fanlight_protocol::json::{MAX_NESTING, Member, ObjectBuilder};
use fanlight_protocol::seal::{KeyError, Keys, Seal};
use fanlight_protocol::{Json, LogLevel, Revision, sha256_hex};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::Session;
use crate::eras::legacy::InitializeParams;
use crate::session_records::{Claim, Claimed, Mark, SessionRecords};

/// The purpose of the seal. A new format gets another purpose, which invalidates old records.
const PURPOSE: &[u8] = b"session record 1";

/// A session without its client's identity.
#[derive(Clone, Debug)]
pub(crate) struct ArchivedSession {
    pub(crate) initialize: InitializeParams,
    /// The session's number when it was opened; `None` in a record of an earlier version.
    pub(crate) opened_as: Option<u64>,
    pub(crate) log_level: Option<LogLevel>,
    /// The resources that the client subscribed to.
    pub(crate) subscriptions: Vec<String>,
    /// The sessions that servers keep for it, by place.
    pub(crate) server_sessions: Vec<(Box<str>, ServerSession)>,
}

/// Reads and writes session records.
pub(crate) struct SessionArchive {
    pub(crate) records: Arc<dyn SessionRecords>,
    seal: Seal,
}

/// A session's record in the store.
pub(crate) struct OnRecord {
    archive: Arc<SessionArchive>,
    name: Box<str>,
    /// The last mark at which this run certainly kept the session and its record was written;
    /// `None` if that is in doubt.
    pub(crate) mark: Option<Mark>,
    /// The change counter of the server sessions at this run's last write; `None` if it has not
    /// written.
    pub(crate) changes: Option<u64>,
    /// The time of creation or of the last extension.
    since: Instant,
    writes: Arc<RecordWrites>,
}

/// Coordinates the writes of a session's record.
#[derive(Debug)]
pub(super) struct RecordWrites {
    /// The turn to write: one write runs at a time.
    turn: Semaphore,
    writes: Mutex<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    /// The number of requested writes.
    asked: u64,
    /// The number of requests that the finished writes cover. `is_written` has the result of the
    /// last one.
    done: u64,
    is_written: bool,
}

/// The session's keeper after an attempted take-over.
pub(crate) enum TakenOver {
    Session(Box<ArchivedSession>, OnRecord, Claim),
    By(ProcessRun),
    Nobody,
    /// The store is unavailable.
    NotKnown,
}

impl SessionArchive {
    pub(crate) fn new(
        keys: &Keys,
        records: Arc<dyn SessionRecords>,
    ) -> Result<Arc<Self>, KeyError> {
        Ok(Arc::new(Self {
            records,
            seal: Seal::new(keys, PURPOSE)?,
        }))
    }

    /// The record of the session with this id.
    pub(crate) fn record(self: &Arc<Self>, id: &str) -> OnRecord {
        OnRecord {
            archive: Arc::clone(self),
            name: name_of(id),
            mark: self.records.mark(),
            changes: None,
            since: Instant::now(),
            writes: Arc::new(RecordWrites {
                turn: Semaphore::new(1),
                writes: Mutex::default(),
            }),
        }
    }

    /// Takes over the session of `holder` with this id from `run`.
    pub(crate) async fn take_over(
        self: &Arc<Self>,
        id: &str,
        holder: &Holder,
        run: ProcessRun,
        is_unreachable: bool,
    ) -> TakenOver {
        let mut on_record = self.record(id);
        match self
            .records
            .claim(&on_record.name, run, is_unreachable)
            .await
        {
            Claimed::Ours(record, claim) => match self.read(&record, &on_record.name, holder) {
                Some(session) => {
                    // The other replica's record is current except for its server sessions.
                    on_record.changes = session.server_sessions.is_empty().then_some(0);
                    TakenOver::Session(Box::new(session), on_record, claim)
                }
                None => TakenOver::Nobody,
            },
            Claimed::By(run) => TakenOver::By(run),
            Claimed::Nobody => TakenOver::Nobody,
            Claimed::NotKnown => TakenOver::NotKnown,
        }
    }

    fn sealed(&self, session: &ArchivedSession, name: &str, holder: &Holder) -> Option<String> {
        let InitializeParams {
            revision,
            client_info,
            capabilities,
        } = &session.initialize;
        let mut object = ObjectBuilder::new();
        object
            .string("revision", revision.name)
            .member("capabilities", capabilities);
        let number = session.opened_as.map(|number| number.to_string());
        let subscriptions = session.subscriptions.iter().map(|uri| &**uri);
        object
            .optional("clientInfo", client_info.as_ref())
            .optional_string("openedAs", number.as_deref())
            .optional_string("logLevel", session.log_level.map(LogLevel::as_str))
            .member("subscriptions", &Json::strings(subscriptions));
        let mut servers = ObjectBuilder::new();
        for (
            place,
            ServerSession {
                id,
                revision,
                description,
                moves,
            },
        ) in &session.server_sessions
        {
            let server = ObjectBuilder::new()
                .string("id", id)
                .string("revision", revision)
                .member("description", description)
                .integer("moves", i64::from(*moves))
                .finish();
            servers.member(place, &server);
        }
        object.member("serverSessions", &servers.finish());
        self.seal
            .seal_for(object.finish().bytes(), &owner(name, holder))
    }

    fn read(&self, record: &str, name: &str, holder: &Holder) -> Option<ArchivedSession> {
        let plain = self.seal.open_for(record, &owner(name, holder))?;
        let object = Json::parse(plain.into(), MAX_NESTING).ok()?;
        let subscriptions = object.get("subscriptions")?;
        let uris = subscriptions
            .elements()
            .map(|uri| subscriptions.slice(uri).to_str());
        Some(ArchivedSession {
            initialize: InitializeParams {
                revision: Revision::from_name(&object.get("revision")?.as_str()?)?,
                client_info: object.get("clientInfo").map(|info| info.detached()),
                capabilities: object.get("capabilities")?.detached(),
            },
            opened_as: object
                .get("openedAs")
                .and_then(|number| number.as_str()?.parse().ok()),
            log_level: object
                .get("logLevel")
                .and_then(|level| LogLevel::from_name(&level.as_str()?)),
            subscriptions: uris.collect::<Option<_>>()?,
            server_sessions: object
                .get("serverSessions")
                .map(|servers| server_sessions(&servers))
                .unwrap_or_default(),
        })
    }
}

impl OnRecord {
    /// The record's name, which does not reveal the session id.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The text of a session's record, with the archive and name to write it to.
    pub(crate) fn session_record(
        &self,
        session: &Session,
    ) -> Option<(Arc<SessionArchive>, Box<str>, String)> {
        let record = self
            .archive
            .sealed(&session.archived(), &self.name, session.holder())?;
        Some((Arc::clone(&self.archive), self.name.clone(), record))
    }

    /// The coordination of writes.
    pub(super) fn writes(&self) -> Arc<RecordWrites> {
        Arc::clone(&self.writes)
    }

    /// The archive and name to ask the store with, if the session is in doubt: other replicas may
    /// have taken it over, or the record may be missing.
    pub(crate) fn doubtful_record(&self) -> Option<(Arc<SessionArchive>, Box<str>, Option<Mark>)> {
        let mark = self.archive.records.mark();
        (mark.is_none() || mark != self.mark)
            .then(|| (Arc::clone(&self.archive), self.name.clone(), mark))
    }

    /// Extends the record's lifetime in good time.
    pub(crate) fn prolong(&mut self) {
        if self.since.elapsed() >= self.archive.records.lifetime() / 4 {
            self.since = Instant::now();
            self.archive.records.prolong(&self.name);
        }
    }

    /// Whether the server sessions have changed since the last write; `changes` is their change
    /// counter.
    pub(crate) fn is_outdated(&self, changes: u64) -> bool {
        self.changes != Some(changes)
    }

    /// Whether this run has written the record.
    pub(crate) fn was_written(&self) -> bool {
        self.changes.is_some()
    }

    /// The archive and name to ask the store with.
    pub(crate) fn record_key(&self) -> (Arc<SessionArchive>, Box<str>) {
        (Arc::clone(&self.archive), self.name.clone())
    }

    /// Removes the record after the session's end; the result tells whether this run kept the
    /// session until then.
    pub(crate) fn forget(self) -> watch::Receiver<Option<bool>> {
        self.archive.records.forget(&self.name)
    }
}

impl RecordWrites {
    /// Requests a write of the session's current state, and waits until this one or another has
    /// covered the request. Returns whether that succeeded. If this is dropped, the next one that
    /// waits writes.
    pub(crate) async fn write(&self, write: impl Future<Output = bool>) -> bool {
        let number = {
            let mut writes = self.writes.lock();
            writes.asked += 1;
            writes.asked
        };
        // It is never closed.
        let Ok(_turn) = self.turn.acquire().await else {
            return false;
        };
        let asked = {
            let writes = self.writes.lock();
            if writes.done >= number {
                return writes.is_written;
            }
            writes.asked
        };
        let is_written = write.await;
        let mut writes = self.writes.lock();
        (writes.done, writes.is_written) = (asked, is_written);
        is_written
    }
}

fn server_sessions(servers: &Json) -> Vec<(Box<str>, ServerSession)> {
    let session = |member: Member| {
        let server = servers.slice(member.value.clone());
        let (id, revision) = (
            server.get("id")?.as_str()?.into(),
            server.get("revision")?.as_str()?.into(),
        );
        let (description, moves) = (
            server.get("description")?.detached(),
            server.get("moves")?.as_text().parse().ok()?,
        );
        Some((
            member.name(servers)?.into(),
            ServerSession {
                id,
                revision,
                description,
                moves,
            },
        ))
    };
    servers.members().filter_map(session).collect()
}

/// The store's name for the session with this id.
fn name_of(id: &str) -> Box<str> {
    sha256_hex(id).into()
}

fn owner(name: &str, holder: &Holder) -> Vec<u8> {
    [name.as_bytes(), &holder.to_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use std::time::Duration;

    use fanlight_canonical::Principal;

    use super::*;
    use crate::session_records::Released;

    #[derive(Debug)]
    struct NoRecords;

    #[async_trait]
    impl SessionRecords for NoRecords {
        async fn write(&self, _: &str, _: &str) -> bool {
            false
        }
        async fn claim(&self, _: &str, _: ProcessRun, _: bool) -> Claimed {
            Claimed::Nobody
        }
        async fn is_kept(&self, _: &str) -> Option<bool> {
            None
        }
        async fn release(&self, _: Vec<Released>) {}
        fn prolong(&self, _: &str) {}
        fn lifetime(&self) -> Duration {
            Duration::ZERO
        }
        fn forget(&self, _: &str) -> watch::Receiver<Option<bool>> {
            watch::channel(None).1
        }
        fn mark(&self) -> Option<Mark> {
            None
        }
    }

    #[test]
    fn record_is_read_for_its_holder_and_session_alone() {
        let archive = SessionArchive::new(&Keys::new([[1; 32]]), Arc::new(NoRecords)).unwrap();
        let server = ServerSession {
            id: "at-a-server".into(),
            revision: "2025-06-18".into(),
            description: Json::literal(r#"{"capabilities":{"tools":{}}}"#),
            moves: 7,
        };
        let session = ArchivedSession {
            initialize: InitializeParams {
                revision: Revision::V2025_06_18,
                client_info: Some(Json::literal(r#"{"name":"c"}"#)),
                capabilities: Json::literal(r#"{"roots":{}}"#),
            },
            opened_as: Some(u64::MAX),
            log_level: Some(LogLevel::Error),
            subscriptions: vec!["a:1".to_owned(), "a:\"2\"".to_owned()],
            server_sessions: vec![("a\n0".into(), server)],
        };
        let (ann, bob) = (
            Holder::from(Principal::new("i", "ann")),
            Holder::from(Principal::new("i", "bob")),
        );
        let record = archive.sealed(&session, "name", &ann).unwrap();
        assert!(!record.contains("roots") && !record.contains("at-a-server"));
        let read = archive.read(&record, "name", &ann).unwrap();
        assert_eq!(format!("{read:?}"), format!("{session:?}"));
        let (place, server) = &read.server_sessions[0];
        let ServerSession {
            id,
            revision,
            moves,
            ..
        } = server;
        assert_eq!(
            (&**place, &**id, &**revision, *moves),
            ("a\n0", "at-a-server", "2025-06-18", 7)
        );
        assert_eq!(
            server.description.as_text(),
            r#"{"capabilities":{"tools":{}}}"#
        );
        assert!(
            archive.read(&record, "name", &bob).is_none()
                && archive.read(&record, "another", &ann).is_none()
        );
    }

    #[test]
    fn name_of_a_session_does_not_reveal_its_id() {
        assert_eq!(name_of("id").len(), 64);
        assert!(name_of("id") != name_of("ie") && !name_of("id").contains("id"));
    }
}
