//! Scripted servers, a listener, and its client.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fanlight_admin::{
    AdminSettings, GrantedConnection, GrantedConnections, LiveSettings, OperationError, Operations,
    Reloaded, Subject, serve_admin,
};
use fanlight_canonical::identity::Identity;
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, Listen, Listening,
    Pending, SessionKey,
};
use fanlight_credentials::{Authenticate, Begun, CommonSessions, Open, SignIn, SignInError};
use fanlight_gateway::approvals::Approvals;
use fanlight_gateway::{
    BackendEntry, BackendId, ByteLimits, CacheLimits, Gateway, GatewaySettings, ListLimits,
};
use fanlight_http::SocketReceiver;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::seal::Keys;
use fanlight_protocol::{Era, Json, Message, Response};
use fanlight_record::{AuditLog, Record};
use fanlight_telemetry::clients::{Clients, ClientsView, Counts, SessionView};
use fanlight_telemetry::{Settings, Telemetry};
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(10);

/// Waits with a time limit.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("in time")
}

/// A server that answers each method from a script.
pub(crate) struct Fake {
    name: &'static str,
    script: HashMap<&'static str, &'static str>,
    down: bool,
    /// Whether [`crate::asking`] answers its calls.
    asks: bool,
}

pub(crate) fn fake(name: &'static str, script: &[(&'static str, &'static str)]) -> Fake {
    Fake {
        name,
        script: script.iter().copied().collect(),
        down: false,
        asks: false,
    }
}

pub(crate) fn down(name: &'static str) -> Fake {
    Fake {
        name,
        script: HashMap::new(),
        down: true,
        asks: false,
    }
}

/// A server whose tools need their client.
pub(crate) fn asking(name: &'static str) -> Fake {
    Fake {
        name,
        script: HashMap::new(),
        down: false,
        asks: true,
    }
}

fn unreachable() -> BackendError {
    BackendError::Unreachable {
        reason: "connection refused".into(),
    }
}

impl BackendClient for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn describe<'a>(&'a self, _: &'a CallContext) -> Pending<'a, ServerDescription> {
        let text = r#"{"capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"x"}}"#;
        Box::pin(async move {
            if self.down {
                Err(unreachable())
            } else {
                Ok(Json::literal(text).into())
            }
        })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        if self.asks && call.method == fanlight_protocol::Method::CallTool {
            return Box::pin(crate::asking::answer(call));
        }
        let body = self.script.get(call.method.as_str()).copied();
        Box::pin(async move {
            if self.down {
                return Err(unreachable());
            }
            let body = body.unwrap_or(r#""error":{"code":-32601,"message":"no"}"#);
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
            let Ok(Message::Response(response)) = Message::parse(text.into(), 64) else {
                panic!("script")
            };
            Ok(response)
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(async move { Ok(Listening::new(Default::default(), listen)) })
    }

    fn end_session(&self, _: SessionKey) {}

    fn status(&self) -> BackendStatus {
        let state = match self.down {
            true => BackendState::Down {
                error: unreachable(),
                retry_in: Duration::from_secs(5),
            },
            false => BackendState::Ready,
        };
        let (era, revision) = (Some(Era::Modern), Some("2026-07-28"));
        BackendStatus {
            attempted: true,
            state,
            era,
            revision,
            transport: "stdio",
            starting: None,
            failure: None,
        }
    }
}

struct OneSession;

impl Clients for OneSession {
    fn view(&self) -> ClientsView {
        let session = SessionView {
            digest: "0123456789abcdef".into(),
            revision: Some("2025-11-25"),
            endpoint: None,
            identity: None,
            transport: "http",
            client_info: None,
            running: 0,
            server_requests: 0,
            streams: 1,
            idle: None,
        };
        ClientsView {
            sessions: vec![session],
            suspended: Vec::new(),
            streams: 1,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions: 1,
            suspended: 0,
            streams: 1,
        }
    }

    fn end_session(&self, digest: &str) -> bool {
        digest == "abc"
    }
}

/// Records the requested operations. The only server is `a`; a second reload fails.
#[derive(Default)]
pub(crate) struct FakeOperations(Mutex<Vec<String>>);

impl FakeOperations {
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn on(&self, server: &str, what: String) -> Result<(), OperationError> {
        if server != "a" {
            return Err(OperationError::NoSuchServer);
        }
        self.0.lock().unwrap().push(what);
        Ok(())
    }
}

#[async_trait]
impl Operations for FakeOperations {
    fn config(&self) -> Json {
        Json::literal(r#"{"listen":"127.0.0.1:1"}"#)
    }

    fn endpoint(&self) -> Arc<str> {
        "http://127.0.0.1:1/mcp".into()
    }

    fn connect(&self) -> Json {
        Json::literal(r#"[{"client":"cursor"}]"#)
    }

    async fn reload(&self) -> Result<Reloaded, OperationError> {
        let mut asked = self.0.lock().unwrap();
        let is_usable = !asked.contains(&"reload".to_owned());
        asked.push("reload".to_owned());
        let report = Json::literal(r#"{"result":"as asked"}"#);
        Ok(Reloaded { is_usable, report })
    }

    async fn switch(&self, server: String, enabled: bool) -> Result<(), OperationError> {
        self.on(&server, format!("{server} {enabled}"))
    }

    async fn restart(&self, server: String) -> Result<(), OperationError> {
        self.on(&server, format!("restart {server}"))
    }
}

/// Users without grants.
struct NoConnections;

#[async_trait]
impl GrantedConnections for NoConnections {
    async fn list(&self) -> Result<Vec<GrantedConnection>, String> {
        Ok(Vec::new())
    }

    async fn end(&self, _: String) -> Result<Option<GrantedConnection>, String> {
        Ok(None)
    }
}

/// Signs nobody in.
#[derive(Debug)]
struct NoIssuers;

#[async_trait]
impl SignIn for NoIssuers {
    async fn begin(&self, _: &str, _: &str) -> Result<Begun, SignInError> {
        Err(SignInError::Refused("nobody signs in here".into()))
    }

    async fn finish(
        &self,
        _: &str,
        _: Option<&str>,
        _: &str,
    ) -> Result<(Arc<Identity>, String), SignInError> {
        Err(SignInError::Refused("nobody signs in here".into()))
    }

    async fn identify(&self, _: &str) -> Result<Arc<Identity>, SignInError> {
        Err(SignInError::Refused("nobody signs in here".into()))
    }
}

/// A listener in front of fakes.
pub(crate) struct Scene {
    pub(crate) address: SocketAddr,
    pub(crate) telemetry: Telemetry,
    pub(crate) draining: CancellationToken,
    pub(crate) operations: Arc<FakeOperations>,
    pub(crate) approvals: Approvals,
    pub(crate) live: LiveSettings,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

impl Scene {
    pub(crate) async fn start(backends: Vec<Fake>, settings: AdminSettings) -> Self {
        Self::with(backends, settings, Arc::new(Open::default())).await
    }

    /// [`Self::start`] with these methods of `auth`.
    pub(crate) async fn with(
        backends: Vec<Fake>,
        settings: AdminSettings,
        authenticate: Arc<dyn Authenticate>,
    ) -> Self {
        Self::recording(backends, settings, authenticate, None).await
    }

    /// [`Self::with`] where operators sign in at these issuers.
    pub(crate) async fn signing_in(
        backends: Vec<Fake>,
        settings: AdminSettings,
        authenticate: Arc<dyn Authenticate>,
        issuers: Arc<dyn SignIn>,
    ) -> Self {
        let people = (authenticate, issuers);
        Self::build(backends, settings, people, None, None, &Keys::default()).await
    }

    /// [`Self::signing_in`] at a replica with these common records and keys.
    pub(crate) async fn replica(
        settings: AdminSettings,
        authenticate: Arc<dyn Authenticate>,
        issuers: Arc<dyn SignIn>,
        (sessions, keys): (Arc<dyn CommonSessions>, &Keys),
    ) -> Self {
        let people = (authenticate, issuers);
        Self::build(Vec::new(), settings, people, None, Some(sessions), keys).await
    }

    /// [`Self::with`] with this record for decisions.
    pub(crate) async fn recording(
        backends: Vec<Fake>,
        settings: AdminSettings,
        authenticate: Arc<dyn Authenticate>,
        record: Option<Arc<dyn Record>>,
    ) -> Self {
        Self::build(
            backends,
            settings,
            (authenticate, Arc::new(NoIssuers)),
            record,
            None,
            &Keys::default(),
        )
        .await
    }

    async fn build(
        backends: Vec<Fake>,
        settings: AdminSettings,
        (authenticate, sign_in): (Arc<dyn Authenticate>, Arc<dyn SignIn>),
        record: Option<Arc<dyn Record>>,
        sessions: Option<Arc<dyn CommonSessions>>,
        keys: &Keys,
    ) -> Self {
        let entries = backends.into_iter().map(|fake| BackendEntry {
            guard: None,
            id: BackendId::generate(),
            client: Arc::new(fake),
            prefix: None,
            tools: None,
            approval: None,
            place: 0,
            rewriting: fanlight_gateway::Rewriting::default(),
            store: None,
            canary: None,
            mirror: None,
            results: None,
            is_hidden: false,
        });
        let gateway = Gateway::new(GatewaySettings {
            policy: None,
            endpoints: Vec::new(),
            backends: entries.collect(),
            naming: fanlight_gateway::NamingPolicy::default(),
            lists: ListLimits {
                unknown_tasks: 16,
                timeout: Duration::from_secs(5),
                pages: 5,
                entries: 100,
                page_size: 100,
                spares_streams: false,
                bytes: ByteLimits {
                    one: 1 << 20,
                    all: 4 << 20,
                },
                leaves_out_invalid: false,
                client_notifications: 4,
            },
            cache: CacheLimits {
                entries: 0,
                bytes: 0,
            },
            common_tasks: None,
            result_files: None,
            keys: Keys::default(),
            identity: Json::literal(r#"{"name":"fanlight","version":"0"}"#),
        });
        let (telemetry, _guard) = Telemetry::start(Settings::default()).unwrap();
        let (draining, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let operations = Arc::new(FakeOperations::default());
        let audit_log = Arc::new(AuditLog::default());
        let approvals = Approvals::default();
        let subject = Subject {
            gateway: Arc::new(gateway.unwrap()),
            telemetry: telemetry.clone(),
            clients: Arc::new(OneSession),
            operations: Arc::<FakeOperations>::clone(&operations),
            authenticate,
            sign_in,
            sessions,
            keys: keys.clone(),
            record: record.unwrap_or_else(|| Arc::<AuditLog>::clone(&audit_log) as _),
            audit_log,
            approvals: approvals.clone(),
            connections: Arc::new(NoConnections),
            replicas: None,
            version: "1.2.3",
            draining: draining.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let live = LiveSettings::new(AdminSettings {
            address: Some(address),
            ..settings
        });
        let served = tokio::spawn(serve_admin(
            SocketReceiver::fixed(listener),
            subject,
            live.clone(),
            shutdown.clone(),
        ));
        Self {
            address,
            telemetry,
            draining,
            operations,
            approvals,
            live,
            shutdown,
            served,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let stream = soon(TcpStream::connect(self.address)).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        Client {
            sender,
            host: self.address.to_string(),
            driver,
        }
    }

    /// Sends one request on its own connection.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.client().await.send(method, path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client().await.send(Method::GET, path, &[], "").await
    }

    /// The JSON at a path.
    pub(crate) async fn json(&self, path: &str) -> serde_json::Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        serde_json::from_str(&answer.text).unwrap()
    }

    pub(crate) async fn call(&self, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        self.client()
            .await
            .send(Method::POST, "/api/call", &headers, body)
            .await
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        soon(self.served).await.unwrap();
    }
}

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    driver: JoinHandle<()>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Client {
    /// Sends a request; a `host` among `headers` replaces the default one.
    pub(crate) async fn open(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(HOST, &self.host);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        soon(self.sender.send_request(request)).await.unwrap()
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let (head, body) = self.open(method, path, headers, body).await.into_parts();
        let text = soon(body.collect()).await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(text.to_vec()).unwrap(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
