//! A gateway and session records for unit tests. The gateway's server answers listening by a function
//! and counts ended sessions; the records need no store.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::identity::{Identity, Scopes};
use fanlight_canonical::{
    BackendClient, BackendError, BackendStatus, Call, CallContext, Listen, Listening, Peer,
    Pending, Principal, ProcessRun, ServerSession, ServerSessions, SessionAt, SessionKey,
};
use fanlight_gateway::Gateway;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::seal::Keys;
use fanlight_protocol::{Json, Response, Revision, RpcError};
use parking_lot::Mutex;
use tokio::sync::{RwLock, watch};

use super::archive::SessionArchive;
use super::{Session, SessionRecord};
use crate::eras::legacy::InitializeParams;
use crate::session_records::{Claimed, Mark, Released, SessionRecords};
use crate::settings::byte_budget;

#[path = "../../tests/edge/gateway.rs"]
pub(crate) mod gateway;

type Answer = dyn Fn(Listen) -> Result<Listening, RpcError> + Send + Sync;

/// A gateway in front of a server that answers `listen` by a function.
pub(crate) struct ListenCore {
    gateway: Arc<Gateway>,
    server: Arc<ListenServer>,
}

impl ListenCore {
    pub(crate) fn new(
        answer: impl Fn(Listen) -> Result<Listening, RpcError> + Send + Sync + 'static,
    ) -> Self {
        let server = Arc::new(ListenServer {
            answer: Box::new(answer),
            ended: AtomicUsize::new(0),
        });
        Self {
            gateway: gateway::gateway(Arc::clone(&server) as _, &[]),
            server,
        }
    }

    pub(crate) fn refusing() -> Self {
        Self::new(|_| Err(RpcError::new(0, "refused")))
    }

    /// A session of a client that can resume its streams.
    pub(crate) fn session(&self) -> Session {
        self.session_of(Principal::anonymous())
    }

    /// A session of an unauthenticated client at 10.0.0.`last`.
    pub(crate) fn session_from(&self, last: u8) -> Session {
        self.session_for(
            Principal::anonymous(),
            Peer::Address([10, 0, 0, last].into()),
        )
    }

    pub(crate) fn session_of(&self, principal: Principal) -> Session {
        let peer = Peer::new(&principal, None);
        self.session_for(principal, peer)
    }

    /// A session of a client with these scopes.
    pub(crate) fn session_with(&self, scopes: Scopes) -> Session {
        self.session_by(
            Identity {
                scopes,
                ..Identity::anonymous()
            },
            Peer::Local,
        )
    }

    fn session_for(&self, principal: Principal, peer: Peer) -> Session {
        self.session_by(
            Identity {
                principal,
                ..Identity::anonymous()
            },
            peer,
        )
    }

    fn session_by(&self, identity: Identity, peer: Peer) -> Session {
        let initialize = InitializeParams {
            revision: Revision::V2025_11_25,
            client_info: Some(Json::literal(r#"{"name":"c"}"#)),
            capabilities: Json::literal(r#"{"sampling":{}}"#),
        };
        let memory = byte_budget(1 << 10)
            .reserve(&peer, initialize.len())
            .unwrap();
        let record = SessionRecord {
            holder: identity.principal.clone().into(),
            identity: Arc::new(identity),
            peer,
            initialize,
        };
        Session::new(record, memory, Arc::default(), 1, &self.gateway)
    }

    /// The number of ended sessions.
    pub(crate) fn ended(&self) -> usize {
        self.server.ended.load(Ordering::Relaxed)
    }
}

impl std::ops::Deref for ListenCore {
    type Target = Arc<Gateway>;

    fn deref(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}

/// A server that answers `listen` by a function and counts ended sessions.
struct ListenServer {
    answer: Box<Answer>,
    ended: AtomicUsize,
}

impl BackendClient for ListenServer {
    fn name(&self) -> &str {
        "one"
    }

    fn describe<'a>(&'a self, _: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(ready(Ok(Json::empty_object().into())))
    }

    fn request(&self, _: Call) -> Pending<'_, Response> {
        Box::pin(ready(Ok(Response::from_result(&Json::empty_object()))))
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        let listening = (self.answer)(listen);
        let refused = |error: RpcError| BackendError::Unreachable {
            reason: error.message,
        };
        Box::pin(ready(listening.map_err(refused)))
    }

    fn end_session(&self, _: SessionKey) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn status(&self) -> BackendStatus {
        gateway::ready()
    }
}

/// Session records that count their writes and know their keeper.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) written: Mutex<usize>,
    pub(crate) is_taken: Mutex<bool>,
    pub(crate) is_away: Mutex<bool>,
    /// A writer of this lock blocks writes of records.
    pub(crate) gate: RwLock<()>,
}

#[async_trait]
impl SessionRecords for Records {
    async fn write(&self, _: &str, _: &str) -> bool {
        drop(self.gate.read().await);
        *self.written.lock() += 1;
        !*self.is_away.lock()
    }
    async fn claim(&self, _: &str, _: ProcessRun, _: bool) -> Claimed {
        Claimed::Nobody
    }
    async fn is_kept(&self, _: &str) -> Option<bool> {
        Some(!*self.is_taken.lock()).filter(|_| !*self.is_away.lock())
    }
    async fn release(&self, _: Vec<Released>) {}
    fn prolong(&self, _: &str) {}
    fn lifetime(&self) -> Duration {
        Duration::MAX
    }
    fn forget(&self, _: &str) -> watch::Receiver<Option<bool>> {
        watch::channel(Some(!*self.is_taken.lock())).1
    }
    fn mark(&self) -> Option<Mark> {
        Some((1, u64::from(*self.is_taken.lock())))
    }
}

/// An archive of these records.
pub(crate) fn archive(records: &Arc<Records>) -> Arc<SessionArchive> {
    SessionArchive::new(&Keys::new([[1; 32]]), Arc::clone(records) as _).unwrap()
}

/// A recorded session.
pub(crate) fn on_record(records: &Arc<Records>) -> Arc<Session> {
    let session = Arc::new(
        ListenCore::refusing()
            .session()
            .with_server_sessions(ServerSessions::default()),
    );
    session.put_on_record(archive(records).record("id"));
    session
}

pub(crate) fn at(session: &Session, server: &str) -> SessionAt {
    session
        .context(false)
        .caller
        .server_sessions()
        .unwrap()
        .session_at(&server.into())
}

pub(crate) fn server_session() -> ServerSession {
    ServerSession {
        id: "s".into(),
        revision: "r".into(),
        description: Json::empty_object(),
        moves: 0,
    }
}
