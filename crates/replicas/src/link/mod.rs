//! The connections on which a replica forwards requests to others: HTTP/2 over TLS, with replica
//! certificates on both sides. Each worker thread has its own connection to each replica it needs.
//! So a request wakes no other thread, and the workers of the other replica share the forwarded
//! requests.
//!
//! A replica that does not answer pings is given up within a second and a half, with all requests
//! that run there.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fanlight_canonical::ProcessRun;
use fanlight_frontend::forwarding::{
    ENVELOPE, Envelopes, ForwardError, ForwardedRequest, Forwarding, LARGEST_WINDOW,
    LONGEST_ENVELOPE, Opened, Refused, Replicas, TASK_ELSEWHERE,
};
use fanlight_http::client::PerWorker;
use fanlight_protocol::seal::{KeyError, Keys};
use futures_util::future::BoxFuture;
use h2::Reason;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{
    FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tower_service::Service;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// The time limit for connecting. A constant: replicas are near each other, and clients wait.
const CONNECT: Duration = Duration::from_secs(2);
/// The interval of checks on a connection with requests.
const PING: Duration = Duration::from_millis(250);
/// The time limit for the answer to a check. A constant: a session may lose two replicas in a row,
/// and the docs promise that it is served again within five seconds.
const PONG: Duration = Duration::from_millis(1000);
/// The pause before another attempt to connect to an unreachable replica. A constant, since each
/// attempt may cost a request [`CONNECT`].
const PAUSE: Duration = Duration::from_secs(5);
/// The maximum number of bytes of one answer that are in flight or wait for its client. A constant:
/// replicas are near each other, and this suffices within one network.
const ANSWER_WINDOW: u32 = 64 << 10;
/// How often a request is repeated if the other replica did not begin it, because its connection
/// ends or has enough requests.
const AGAIN: usize = 2;
/// How long an unused connection is kept; the other end keeps it longer.
const IDLE: Duration = Duration::from_secs(30);

/// The certificates of this replica and of the common authority, as PEM.
#[derive(Clone, Copy)]
pub struct LinkFiles<'a> {
    /// This replica's certificate, and intermediate ones up to the authority.
    pub certificate: &'a [u8],
    /// The certificate's key.
    pub key: &'a [u8],
    /// The authority that signed the certificates of all replicas.
    pub authority: &'a [u8],
}

/// The reason why files cannot be used for a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Certificate, key or authority cannot be read.
    #[error("the certificate, the key or the authority of replicas cannot be read: {0}")]
    Text(pem::Error),
    /// Certificate, key or authority cannot be used.
    #[error("the certificate, the key or the authority of replicas cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority has no certificate.
    #[error("the authority of replicas has no certificate in PEM form")]
    NoAuthority,
}

/// The known replicas.
///
/// A trait because its implementation depends on this crate.
pub trait Members: Send + Sync {
    /// The address of a replica's run, if it is alive.
    fn address(&self, run: ProcessRun) -> Option<SocketAddr>;

    /// Waits for the address of a run that has just joined.
    fn wait_for_address<'a>(&'a self, run: ProcessRun) -> BoxFuture<'a, ()>;

    /// The other replicas that are not ending and have an address.
    fn list(&self) -> Vec<ProcessRun>;
}

/// Forwards requests to other replicas.
pub struct Link {
    envelopes: Envelopes,
    members: Arc<dyn Members>,
    clients: Mutex<Clients>,
}

/// The clients for other replicas.
struct Clients {
    tls: Arc<LinkTls>,
    /// The replicas that got requests with the current `tls`.
    made: HashMap<ProcessRun, Arc<OtherReplica>>,
}

/// The TLS settings: the own certificate and the accepted authority.
pub struct LinkTls {
    config: ClientConfig,
    /// The name in all replicas' certificates; `None` if each has its own address there.
    name: Option<ServerName<'static>>,
}

/// The clients for one replica.
struct OtherReplica {
    tls: Arc<LinkTls>,
    address: SocketAddr,
    url: Uri,
    /// One client with one connection per worker.
    clients: ArcSwap<PerWorker<Client>>,
    /// The time when the replica was last found unreachable.
    unreachable: Mutex<Option<Instant>>,
}

impl Link {
    /// Creates a link to these replicas.
    ///
    /// # Errors
    ///
    /// If the keys cannot be used.
    pub fn new(keys: &Keys, tls: LinkTls, members: Arc<dyn Members>) -> Result<Self, KeyError> {
        let clients = Mutex::new(Clients {
            tls: Arc::new(tls),
            made: HashMap::new(),
        });
        Ok(Self {
            envelopes: Envelopes::new(keys)?,
            members,
            clients,
        })
    }

    /// Uses other files for later connections. Forwarded requests in progress continue.
    pub fn renew(&self, tls: LinkTls) {
        *self.clients.lock() = Clients {
            tls: Arc::new(tls),
            made: HashMap::new(),
        };
    }

    fn replica(&self, run: ProcessRun) -> Option<Arc<OtherReplica>> {
        let address = self.members.address(run)?;
        let mut clients = self.clients.lock();
        if let Some(known) = clients.made.get(&run) {
            return Some(Arc::clone(known));
        }
        let tls = Arc::clone(&clients.tls);
        let made = Arc::new(OtherReplica::new(tls, address)?);
        // Remove replicas that have ended.
        clients
            .made
            .retain(|run, _| self.members.address(*run).is_some());
        clients.made.insert(run, Arc::clone(&made));
        Some(made)
    }
}

impl LinkTls {
    /// Reads the settings in these files.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn new(files: LinkFiles<'_>) -> Result<Self, LinkError> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(files.authority) {
            roots.add(authority.map_err(LinkError::Text)?)?;
        }
        if roots.is_empty() {
            return Err(LinkError::NoAuthority);
        }
        let chain = CertificateDer::pem_slice_iter(files.certificate).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(files.key).map_err(LinkError::Text)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = builder.with_client_auth_cert(chain.map_err(LinkError::Text)?, key)?;
        let name = dns_name(files.certificate).and_then(|name| ServerName::try_from(name).ok());
        Ok(Self { config, name })
    }

    fn client(&self, address: SocketAddr) -> Client {
        let name = self.name.clone().unwrap_or_else(|| address.ip().into());
        client(self.config.clone(), name)
    }
}

impl Replicas for Link {
    fn forward<'a>(
        &'a self,
        run: ProcessRun,
        request: &'a ForwardedRequest,
        body: Bytes,
    ) -> Forwarding<'a> {
        Box::pin(async move {
            let envelope = self
                .envelopes
                .seal(run, request, &body)
                .ok_or(ForwardError::Unreachable)?;
            if envelope.len() > LONGEST_ENVELOPE {
                return Err(ForwardError::TooLong);
            }
            if self.members.address(run).is_none() {
                self.members.wait_for_address(run).await;
            }
            self.replica(run)
                .ok_or(ForwardError::Gone)?
                .answer(envelope, body)
                .await
        })
    }

    fn find_other(&self) -> Option<ProcessRun> {
        let mut others = self.members.list();
        let clients = self.clients.lock();
        others.retain(|run| !clients.made.get(run).is_some_and(|known| known.is_paused()));
        fastrand::choice(others)
    }

    fn open(&self, envelope: &str) -> Result<Opened, Refused> {
        self.envelopes.open(envelope)
    }
}

impl OtherReplica {
    fn new(tls: Arc<LinkTls>, address: SocketAddr) -> Option<Self> {
        let url = url(address)?;
        Some(Self {
            tls,
            address,
            url,
            clients: ArcSwap::default(),
            unreachable: Mutex::default(),
        })
    }

    async fn answer(
        &self,
        envelope: HeaderValue,
        body: Bytes,
    ) -> Result<http::Response<fanlight_frontend::forwarding::ForwardedBody>, ForwardError> {
        if self.is_paused() {
            return Err(ForwardError::Unreachable);
        }
        let clients = self.clients.load_full();
        let client = clients.get(|| self.tls.client(self.address));
        let request = || {
            let mut request = Request::new(Full::new(body.clone()));
            (*request.method_mut(), *request.uri_mut()) = (Method::POST, self.url.clone());
            request.headers_mut().insert(ENVELOPE, envelope.clone());
            request
        };
        let mut sent = 0;
        let answer = loop {
            match client.request(request()).await {
                Err(error) if sent < AGAIN && was_not_begun(&error) => sent += 1,
                answer => break answer,
            }
        };
        match answer {
            // The replica is another run by now, or did not process the request for a reason in its
            // log.
            Ok(answer) if answer.status() == StatusCode::MISDIRECTED_REQUEST => {
                Err(ForwardError::Gone)
            }
            Ok(answer) if answer.status() == TASK_ELSEWHERE => Err(ForwardError::TaskElsewhere),
            Ok(answer) => Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync())),
            Err(error) => {
                // On an existing connection, only checks have a time limit.
                let is_silent = is_timeout(&error);
                if error.is_connect() || is_silent {
                    *self.unreachable.lock() = Some(Instant::now());
                }
                if is_silent {
                    // Other workers' connections are not checked while unused, so the next request
                    // on each would be lost.
                    self.clients.store(Arc::default());
                }
                let failure = if error.is_connect() {
                    ForwardError::Unreachable
                } else {
                    ForwardError::Lost
                };
                tracing::debug!(?error, ?failure, "replica does not answer");
                Err(failure)
            }
        }
    }

    /// Whether the replica was just found unreachable.
    fn is_paused(&self) -> bool {
        self.unreachable
            .lock()
            .is_some_and(|since| since.elapsed() < PAUSE)
    }
}

fanlight_protocol::opaque!(Link, LinkTls);

/// The first DNS name in the first certificate of `pem`, which all replicas' certificates share.
/// `None` if it has none or one with a wildcard: each replica's certificate is then for its
/// address.
fn dns_name(pem: &[u8]) -> Option<String> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let name = names
        .value
        .general_names
        .iter()
        .find_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })?;
    Some(name).filter(|name| !name.contains('*'))
}

pub(crate) type Client = legacy::Client<ConnectorInTime, Full<Bytes>>;

type ConnectError = Box<dyn Error + Send + Sync>;

/// Makes connections, each within [`CONNECT`].
#[derive(Clone)]
pub(crate) struct ConnectorInTime(HttpsConnector<HttpConnector>);

/// A client that accepts certificates for `name`.
pub(crate) fn client(tls: ClientConfig, name: ServerName<'static>) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only();
    let builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_only(true)
        .http2_initial_stream_window_size(ANSWER_WINDOW)
        // As large as all answers together may be, so that a client that does not read cannot block
        // others.
        .http2_initial_connection_window_size(LARGEST_WINDOW)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        // Late parts of answers to clients that have gone are no error of the other replica.
        .http2_max_local_error_reset_streams(None)
        .build(ConnectorInTime(builder.enable_http2().wrap_connector(tcp)))
}

/// The URL of a replica.
pub(crate) fn url(address: SocketAddr) -> Option<Uri> {
    Uri::try_from(format!("https://{address}/")).ok()
}

/// Whether a connection has not answered a check.
pub(crate) fn is_timeout(error: &legacy::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_timeout)
}

/// Whether the other end reports that it has not begun the request (RFC 9113, 8.7).
fn was_not_begun(error: &legacy::Error) -> bool {
    let mut of_http2 = causes(error)
        .filter_map(|cause| cause.downcast_ref::<h2::Error>())
        .filter(|cause| cause.is_remote());
    of_http2.any(|cause| match cause.reason() {
        Some(Reason::NO_ERROR) => cause.is_go_away(),
        Some(Reason::REFUSED_STREAM) => cause.is_reset(),
        _ => false,
    })
}

fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

impl Service<Uri> for ConnectorInTime {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = self.0.call(url);
        Box::pin(async move { timeout(CONNECT, connecting).await? })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fanlight_frontend::forwarding::ForwardedClient;
    use fanlight_testkit::tls::Authority;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::TcpListener;

    use super::*;

    const RUN: ProcessRun = ProcessRun::from_bytes([1; 8]);

    /// Members with the address of [`RUN`] only.
    struct OnlyRun(Option<SocketAddr>);

    impl Members for OnlyRun {
        fn address(&self, run: ProcessRun) -> Option<SocketAddr> {
            self.0.filter(|_| run == RUN)
        }

        fn wait_for_address(&self, _: ProcessRun) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn list(&self) -> Vec<ProcessRun> {
            vec![RUN]
        }
    }

    fn tls(authority: &Authority) -> LinkTls {
        let pair = authority.server();
        let (certificate, key, authority) = (pair.pem(), pair.key(), authority.pem());
        let files = LinkFiles {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
            authority: authority.as_bytes(),
        };
        LinkTls::new(files).unwrap()
    }

    fn link(authority: &Authority, address: Option<SocketAddr>) -> Link {
        Link::new(
            &Keys::new([[1; 32]]),
            tls(authority),
            Arc::new(OnlyRun(address)),
        )
        .unwrap()
    }

    async fn forward(link: &Link, run: ProcessRun) -> Result<StatusCode, ForwardError> {
        forward_of(
            link,
            run,
            Arc::new(fanlight_canonical::identity::Identity::anonymous()),
        )
        .await
    }

    async fn forward_of(
        link: &Link,
        run: ProcessRun,
        identity: Arc<fanlight_canonical::identity::Identity>,
    ) -> Result<StatusCode, ForwardError> {
        let client = ForwardedClient {
            identity,
            address: None,
            user: None,
        };
        let (method, headers) = (Method::POST, http::HeaderMap::new());
        let request = ForwardedRequest {
            method,
            target: Uri::from_static("/mcp"),
            headers,
            client,
        };
        link.forward(run, &request, Bytes::from_static(b"{}"))
            .await
            .map(|answer| answer.status())
    }

    #[tokio::test]
    async fn replica_that_is_unknown_is_gone_and_one_that_refuses_connections_is_unreachable() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let link = link(&Authority::new(), Some(address));
        assert_eq!(
            forward(&link, ProcessRun::from_bytes([2; 8])).await,
            Err(ForwardError::Gone)
        );
        assert_eq!(link.find_other(), Some(RUN));
        assert_eq!(forward(&link, RUN).await, Err(ForwardError::Unreachable));
        assert_eq!(
            link.find_other(),
            None,
            "nothing more is to begin there for a while"
        );
    }

    #[tokio::test]
    async fn what_is_too_long_to_be_passed_on_is_not_sent() {
        let link = link(
            &Authority::new(),
            Some(SocketAddr::from(([127, 0, 0, 1], 1))),
        );
        let identity = fanlight_canonical::identity::Identity::anonymous();
        let name = "n".repeat(LONGEST_ENVELOPE).into();
        let identity = Arc::new(fanlight_canonical::identity::Identity { name, ..identity });
        assert_eq!(
            forward_of(&link, RUN, identity).await,
            Err(ForwardError::TooLong)
        );
    }

    #[tokio::test]
    async fn replica_that_accepts_connections_and_is_silent_is_unreachable_in_time_and_then_at_once()
     {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = link(&Authority::new(), Some(silent.local_addr().unwrap()));
        let began = Instant::now();
        assert_eq!(forward(&link, RUN).await, Err(ForwardError::Unreachable));
        assert!(began.elapsed() >= CONNECT);
        let again = Instant::now();
        assert_eq!(forward(&link, RUN).await, Err(ForwardError::Unreachable));
        assert!(again.elapsed() < CONNECT);
    }

    /// Requests of different workers do not wait for one connection, and several workers answer
    /// them at the other end.
    #[test]
    fn each_worker_has_a_connection_of_its_own() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
        };
        let here = runtime();
        let listener = here.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let link = link(&Authority::new(), Some(listener.local_addr().unwrap()));
        std::thread::scope(|scope| {
            for number in 0..2 {
                scope.spawn({
                    let link = &link;
                    move || {
                        fanlight_http::client::enter_worker(number, 2);
                        runtime().block_on(forward(link, RUN))
                    }
                });
            }
            // Both are held until the other has come.
            let both = [(); 2].map(|()| here.block_on(listener.accept()).unwrap());
            drop(both);
        });
    }

    /// Clients that leave before their answers arrive harm no other request on the same connection.
    #[tokio::test]
    async fn answers_that_nobody_takes_do_not_end_the_connection() {
        let (listener, authority) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            Authority::new(),
        );
        let link = link(&authority, Some(listener.local_addr().unwrap()));
        let acceptor = authority.server().acceptor(&["h2"]);
        let answer = |_| async {
            Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(
                &[b' '; 1 << 20],
            ))))
        };
        let mut server = Box::pin(async {
            let stream = acceptor
                .accept(listener.accept().await.unwrap().0)
                .await
                .unwrap();
            let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server
                .max_pending_accept_reset_streams(10_000)
                .max_concurrent_streams(10_000);
            server
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await
        });
        let clients = async {
            for _ in 0..50 {
                let all =
                    futures_util::future::join_all((0..100).map(|_| forward(&link, RUN))).await;
                assert!(
                    all.iter().all(|status| *status == Ok(StatusCode::OK)),
                    "{all:?}"
                );
            }
        };
        tokio::select! {
            served = &mut server => panic!("the connection has ended: {served:?}"),
            // Not dropped, since the library asserts that all streams have ended before.
            () = clients => std::mem::forget(server),
        }
    }

    /// A replica with another certificate gets nothing until the link has its authority.
    #[tokio::test]
    async fn replica_of_another_authority_is_unreachable_until_the_link_has_that() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (link, other) = (
            link(&Authority::new(), Some(listener.local_addr().unwrap())),
            Authority::new(),
        );
        let acceptor = other.server().acceptor(&["h2"]);
        let serve = async || {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream).await.map(drop)
        };
        let (forwarded, handshake) = tokio::join!(forward(&link, RUN), serve());
        assert_eq!(forwarded, Err(ForwardError::Unreachable));
        assert!(handshake.is_err());
        // The new files apply at once, although the replica was just unreachable.
        link.renew(tls(&other));
        let (forwarded, handshake) = tokio::join!(forward(&link, RUN), serve());
        assert_eq!(forwarded, Err(ForwardError::Lost));
        assert!(handshake.is_ok());
    }

    #[test]
    fn files_that_cannot_be_used_are_refused() {
        let (pair, other) = (Authority::new().server(), Authority::new());
        let with = |certificate: &str, key: &str, authority: &str| {
            let files = LinkFiles {
                certificate: certificate.as_bytes(),
                key: key.as_bytes(),
                authority: authority.as_bytes(),
            };
            LinkTls::new(files).is_ok()
        };
        assert!(with(&pair.pem(), &pair.key(), &other.pem()));
        assert!(!with("", &pair.key(), &other.pem()) && !with(&pair.pem(), "", &other.pem()));
        assert!(
            !with(&pair.pem(), &other.server().key(), &other.pem()),
            "the key of another certificate"
        );
        assert!(!with(&pair.pem(), &pair.key(), "") && !with(&pair.pem(), &pair.key(), "nonsense"));
    }

    #[test]
    fn name_of_all_replicas_is_the_first_one_in_the_certificate() {
        // The names in testkit's certificate: its address, and this name.
        assert_eq!(
            dns_name(Authority::new().server().pem().as_bytes()).as_deref(),
            Some("localhost")
        );
        assert_eq!(
            dns_name(
                Authority::new()
                    .client("spiffe://example/a")
                    .pem()
                    .as_bytes()
            ),
            None
        );
        assert_eq!(dns_name(b"nonsense"), None);
    }
}
