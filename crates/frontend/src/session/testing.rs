//! A core and session records for unit tests. The core answers listening by a function and counts
//! ended sessions; the records need no store.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fanlight_canonical::identity::{Identity, Scopes};
use fanlight_canonical::{
    CallContext, Core, Decidable, Detail, Endpoint, Interest, Listen, Listening, Peer, Principal,
    ProcessRun, ResolvedOperation, ServerMessages, ServerSession, ServerSessions, SessionAt,
    SessionKey, Unresolved,
};
use fanlight_protocol::seal::Keys;
use fanlight_protocol::{Json, Method, Notification, Response, Revision, RpcError, input};
use tokio::sync::{RwLock, watch};

use super::archive::SessionArchive;
use super::{Session, SessionRecord, lock};
use crate::eras::legacy::InitializeParams;
use crate::memory::ByteBudget;
use crate::session_records::{Claimed, Mark, Recorded, Released, SessionRecords};
use crate::testing::{TestListen, TestNotice};

type Answer = dyn Fn(Listen) -> Result<Listening, RpcError> + Send + Sync;

pub(crate) struct ListenCore {
    answer: Box<Answer>,
    ended: AtomicUsize,
}

impl ListenCore {
    /// A core that answers `listen` by `answer`.
    pub(crate) fn new(
        answer: impl Fn(Listen) -> Result<Listening, RpcError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            answer: Box::new(answer),
            ended: AtomicUsize::new(0),
        })
    }

    pub(crate) fn refusing() -> Arc<Self> {
        Self::new(|_| Err(RpcError::new(0, "refused")))
    }

    /// A session of a client that can resume its streams.
    pub(crate) fn session(self: &Arc<Self>) -> Session {
        self.session_of(Principal::anonymous())
    }

    /// A session of an unauthenticated client at 10.0.0.`last`.
    pub(crate) fn session_from(self: &Arc<Self>, last: u8) -> Session {
        self.session_for(
            Principal::anonymous(),
            Peer::Address([10, 0, 0, last].into()),
        )
    }

    pub(crate) fn session_of(self: &Arc<Self>, principal: Principal) -> Session {
        let peer = Peer::of(&principal, None);
        self.session_for(principal, peer)
    }

    /// A session of a client with these scopes.
    pub(crate) fn session_with(self: &Arc<Self>, scopes: Scopes) -> Session {
        self.session_by(
            Identity {
                scopes,
                ..Identity::anonymous()
            },
            Peer::Local,
        )
    }

    fn session_for(self: &Arc<Self>, principal: Principal, peer: Peer) -> Session {
        self.session_by(
            Identity {
                principal,
                ..Identity::anonymous()
            },
            peer,
        )
    }

    fn session_by(self: &Arc<Self>, identity: Identity, peer: Peer) -> Session {
        let initialize = InitializeParams {
            revision: Revision::V2025_11_25,
            client_info: Some(Json::literal(r#"{"name":"c"}"#)),
            capabilities: Json::literal(r#"{"sampling":{}}"#),
        };
        let memory = ByteBudget::new(1 << 10)
            .reserve(&peer, initialize.len())
            .unwrap();
        let record = SessionRecord {
            holder: identity.principal.clone().into(),
            identity: Arc::new(identity),
            peer,
            initialize,
        };
        Session::new(record, memory, Arc::default(), 1, self)
    }

    /// The number of ended sessions.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

/// A request that the test core resolves to itself.
#[derive(Debug)]
pub(crate) struct TestOperation(pub(crate) Unresolved);

impl Decidable for TestOperation {
    fn method(&self) -> &Method {
        &self.0.method
    }
}

impl ResolvedOperation for TestOperation {
    fn context(&self) -> &Arc<CallContext> {
        &self.0.context
    }

    fn params(&self) -> Option<&Json> {
        self.0.params.as_ref()
    }

    fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>) {
        self.0.params = Some(input::next_params(self.0.params.as_ref(), answers, state));
    }
}

impl Core for ListenCore {
    type Resolved = TestOperation;
    type ResolvedListen = TestListen;
    type ResolvedNotice = TestNotice;

    async fn resolve(&self, request: Unresolved, _: Detail) -> TestOperation {
        TestOperation(request)
    }

    async fn run(&self, _: &mut TestOperation, _: ServerMessages) -> Response {
        Response::from_result(&Json::empty_object())
    }

    fn may_go_on(&self, _: &fanlight_canonical::Decided, _: &CallContext) -> Result<(), RpcError> {
        Ok(())
    }

    fn endpoint(&self, _: &str) -> Option<Endpoint> {
        None
    }

    fn resolve_listen(&self, interest: Interest, context: Arc<CallContext>) -> TestListen {
        TestListen(interest, context)
    }

    async fn listen(
        &self,
        operation: TestListen,
        messages: ServerMessages,
    ) -> Result<Listening, RpcError> {
        let TestListen(interest, context) = operation;
        (self.answer)(Listen {
            interest,
            context,
            messages,
        })
    }

    fn resolve_notice(&self, notification: Notification, _: Arc<CallContext>) -> TestNotice {
        TestNotice(notification)
    }

    fn notify(&self, notice: TestNotice) {
        drop(notice);
    }

    fn end_session(&self, _: SessionKey) {
        self.ended.fetch_add(1, Ordering::Relaxed);
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

impl SessionRecords for Records {
    fn write<'a>(&'a self, _: &'a str, _: &'a str) -> Recorded<'a, bool> {
        Box::pin(async move {
            drop(self.gate.read().await);
            *lock(&self.written) += 1;
            !*lock(&self.is_away)
        })
    }
    fn claim<'a>(&'a self, _: &'a str, _: ProcessRun, _: bool) -> Recorded<'a, Claimed> {
        Box::pin(ready(Claimed::Nobody))
    }
    fn is_kept<'a>(&'a self, _: &'a str) -> Recorded<'a, Option<bool>> {
        Box::pin(ready(
            Some(!*lock(&self.is_taken)).filter(|_| !*lock(&self.is_away)),
        ))
    }
    fn release(&self, _: Vec<Released>) -> Recorded<'_, ()> {
        Box::pin(ready(()))
    }
    fn prolong(&self, _: &str) {}
    fn lifetime(&self) -> Duration {
        Duration::MAX
    }
    fn forget(&self, _: &str) -> watch::Receiver<Option<bool>> {
        watch::channel(Some(!*lock(&self.is_taken))).1
    }
    fn mark(&self) -> Option<Mark> {
        Some((1, u64::from(*lock(&self.is_taken))))
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
            .keeping(ServerSessions::default()),
    );
    session.put_on_record(archive(records).of("id"));
    session
}

pub(crate) fn at(session: &Session, server: &str) -> SessionAt {
    session
        .context(false)
        .caller
        .server_sessions()
        .unwrap()
        .at(&server.into())
}

pub(crate) fn server_session() -> ServerSession {
    ServerSession {
        id: "s".into(),
        revision: "r".into(),
        description: Json::empty_object(),
        moves: 0,
    }
}
