//! The operators' listener: liveness, readiness, metrics, a JSON API (docs/api.md), and a web page
//! that uses only that API.
//!
//! Requests of clients never wait or take a lock here. Changes by operators go through
//! [`Operations`]. The page treats everything from servers and clients as hostile text.

/// Structs that the API answers with, in `camelCase`. In tests they have schemas, which are compared
/// with openapi.json.
macro_rules! answers {
    ($(
        $(#[$attribute:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? { $($fields:tt)* }
        $(+ optional { $($(#[$doc:meta])* $member_vis:vis $member:ident: $type:ty,)* })?
    )+) => {$(
        $(#[$attribute])*
        #[derive(serde::Serialize)]
        #[cfg_attr(test, derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase")]
        $vis struct $name $(<$life>)? {
            $($fields)*
            $($(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                #[cfg_attr(test, schema(nullable = false))]
                $member_vis $member: Option<$type>,
            )*)?
        }
    )+};
}

mod access;
mod api;
mod history;
#[cfg(test)]
#[path = "../tests/openapi/mod.rs"]
mod openapi;
mod operations;
mod operator;
mod ready;
mod reply;
mod route;
mod router;
mod settings;
mod ui;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::response::IntoResponse as _;
use fanlight_credentials::{Authenticate, CommonSessions, ConnectionFacts, SignIn, SocketPeer};
use fanlight_gateway::Gateway;
use fanlight_gateway::approvals::Approvals;
use fanlight_http::{OpenedStream, SocketReceiver, accept_and_spawn, open, serve_http1};
use fanlight_protocol::seal::Keys;
use fanlight_record::{AuditEvent, AuditLog, Record};
use fanlight_telemetry::Telemetry;
use fanlight_telemetry::clients::Clients;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use access::{About, Needs, OperatorConnection, peer, require_json};
use api::call::RunningCalls;
use api::overview::Latest;
use api::sign_in::Attempts;
use api::tools::close_minutes;
use history::History;
pub use operations::{
    GrantedConnection, GrantedConnections, OperationError, Operations, RateLimit, RateUse,
    Reloaded, ReplicaView, Replicas, ReplicasView, ValkeyView,
};
use operator::{Common, Sessions, Throttle};
pub(crate) use operator::{CommonProof, Denied, Digest, Operator, Proof, Purpose, Shown};
pub use operator::{Role, SignInIssuer};
pub(crate) use reply::{Refusal, Verbatim, answer, json, millis, moment, to_json};
use router::{families, health_router, router};
pub use settings::{AdminSettings, LiveSettings};
pub(crate) use settings::{InForce, event_interval};

/// The admin listener, as handlers get it.
type AdminState = axum::extract::State<Arc<Admin>>;

/// The refusal of a request that arrives after its listener was closed.
const CLOSED: &str =
    "this listener is closed: Fanlight is ending, or its `admin.listen` has changed";

/// The time for running requests at shutdown, and for the answer to a request that exchanges the listening socket.
const DRAIN: Duration = Duration::from_secs(1);

/// The parts of the gateway that operators can inspect.
pub struct Subject {
    /// The core: servers, catalogue and calls.
    pub gateway: Arc<Gateway>,
    /// Traces and metrics.
    pub telemetry: Telemetry,
    /// The clients.
    pub clients: Arc<dyn Clients>,
    /// The configuration in force, and changes of it.
    pub operations: Arc<dyn Operations>,
    /// Identifies clients, if roles are configured.
    pub authenticate: Arc<dyn Authenticate>,
    /// Signs operators in at issuers of `auth`.
    pub sign_in: Arc<dyn SignIn>,
    /// The records of all replicas' sessions; `None` if this process is alone.
    pub sessions: Option<Arc<dyn CommonSessions>>,
    /// The keys that seal what operators' browsers keep.
    pub keys: Keys,
    /// The audit log of sign-ins, refusals and changes. A change that cannot be written to it is
    /// not made.
    pub record: Arc<dyn Record>,
    /// Counts sign-ins and refusals.
    pub audit_log: Arc<AuditLog>,
    /// The calls that wait for approval.
    pub approvals: Approvals,
    /// Users' connections to servers.
    pub connections: Arc<dyn GrantedConnections>,
    /// The other replicas; `None` if this process is alone.
    pub replicas: Option<Arc<dyn Replicas>>,
    /// The version of the program.
    pub version: &'static str,
    /// Cancelled when draining begins; from then on the process is not ready.
    pub draining: CancellationToken,
}

/// The state shared by the handlers of all routes.
struct Admin {
    subject: Arc<Subject>,
    live: LiveSettings,
    latest: Arc<Latest>,
    shutdown: CancellationToken,
    sessions: Sessions,
    common: Common,
    throttle: Throttle,
    attempts: Attempts,
    calls: RunningCalls,
    history: History,
}

impl Admin {
    fn new(
        subject: Subject,
        live: LiveSettings,
        started: SystemTime,
        shutdown: CancellationToken,
    ) -> Self {
        let subject = Arc::new(subject);
        let latest = Arc::new(Latest::new(Arc::clone(&subject), started));
        let common = Common::new(subject.sessions.clone(), &subject.keys);
        let attempts = Attempts::new(&subject.keys);
        let (sessions, throttle) = (Sessions::default(), Throttle::default());
        let (calls, history) = (RunningCalls::default(), History::default());
        Self {
            latest,
            subject,
            live,
            shutdown,
            sessions,
            common,
            throttle,
            attempts,
            calls,
            history,
        }
    }

    /// The settings in force.
    fn now(&self) -> Arc<InForce> {
        self.live.load()
    }

    /// Writes an event to the audit log, and ignores a failure.
    fn note(&self, event: &AuditEvent<'_>) {
        let _ = self.subject.record.record(event);
    }
}

/// Serves on `sockets` until `shutdown` is cancelled. Running responses then have
/// a second to end, also those on an earlier socket: one of them may answer the request
/// that exchanged it.
pub async fn serve_admin(
    sockets: SocketReceiver,
    subject: Subject,
    live: LiveSettings,
    shutdown: CancellationToken,
) {
    let admin = Arc::new(Admin::new(
        subject,
        live.clone(),
        SystemTime::now(),
        shutdown.clone(),
    ));
    if let Some(metrics) = admin.subject.telemetry.metrics() {
        let admin = Arc::downgrade(&admin);
        metrics.add(move || {
            admin
                .upgrade()
                .map(|admin| families(&admin))
                .unwrap_or_default()
        });
    }
    let all = TowerToHyperService::new(router(&admin));
    let health = TowerToHyperService::new(health_router(&admin));
    let serve = |stream, usage, is_reserve, ending: CancellationToken| {
        let service = if is_reserve {
            health.clone()
        } else {
            all.clone()
        };
        let (limits, tls) = (live.load().connection_limits(), live.tls().load());
        async move {
            // The handshake counts towards the time for the first request head.
            let opening = timeout(limits.head_timeout, open(stream, tls.as_deref()));
            let opened = match ending.run_until_cancelled(opening).await {
                Some(Ok(Ok(opened))) => opened,
                Some(Ok(Err(error))) => {
                    return tracing::debug!(%error, "TLS handshake with an operator failed");
                }
                Some(Err(_)) | None => return,
            };
            let connection = OperatorConnection(Arc::new(facts_of(&opened)));
            // After the end, the settings may be for another address and require less of a client.
            let has_ended = ending.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(connection.clone());
                let answering = (!has_ended.is_cancelled()).then(|| service.call(request));
                async move {
                    match answering {
                        Some(answering) => answering.await,
                        None => Ok(Refusal::unavailable(CLOSED).into_response()),
                    }
                }
            });
            if let Err(error) = serve_http1(opened.stream, service, limits, usage, ending).await {
                tracing::debug!(%error, "connection to the admin listener broke");
            }
        }
    };
    let drain = || DRAIN;
    let serving = accept_and_spawn(sockets, live.admissions(), drain, shutdown, serve);
    tokio::select! {
        () = serving => {}
        () = close_minutes(&admin) => {}
        () = History::follow(&admin) => {}
    }
}

fn facts_of(opened: &OpenedStream) -> ConnectionFacts {
    ConnectionFacts {
        number: 0,
        local: opened.local.map(|address| address.ip()),
        peer: opened.peer,
        socket: opened
            .socket
            .map(|(user, group)| SocketPeer { user, group }),
        certificate: opened.certificate.clone(),
        is_tls: opened.is_tls,
    }
}
