//! Connections to servers whose host has silently gone.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_testkit::slicer;
use futures_util::future::join_all;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::faults::backend;
use crate::harness::{Gateway, TempFile};
use crate::raw_client::{LegacySession, NEWEST_LEGACY, legacy_request};
use crate::scripted::{Era, Gate, Reply, Transport, config};
use crate::server_faults::called;

/// The kind of connection to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Security {
    Plain,
    /// TLS with this protocol.
    Tls(&'static str),
}

/// A relay to a server whose connections can go silent.
struct Relay {
    silenced: watch::Sender<bool>,
    /// The certificate that its clients must trust, if any.
    certificate: TempFile,
    _connections: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to the server of this configuration entry; also returns the relay's entry.
    async fn to(entry: &str, security: Security) -> (Self, String) {
        let port = entry
            .split("127.0.0.1:")
            .nth(1)
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let target: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let silenced = watch::Sender::new(false);
        let silence = silenced.clone();
        let (acceptor, certificate) = match security {
            Security::Plain => (None, String::new()),
            Security::Tls(protocol) => {
                let (acceptor, certificate) = acceptor(protocol);
                (Some(acceptor), certificate)
            }
        };
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut relayed = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (silence, acceptor) = (silence.clone(), acceptor.clone());
                relayed.spawn(async move {
                    match acceptor {
                        None => relay(client, target, silence).await,
                        Some(acceptor) => {
                            relay(acceptor.accept(client).await.unwrap(), target, silence).await;
                        }
                    }
                });
            }
        });
        let mut entry = entry.replace(&port, &own.to_string());
        if security != Security::Plain {
            entry = entry.replace("http://", "https://");
        }
        (
            Self {
                silenced,
                certificate: TempFile::new("pem", &certificate),
                _connections: connections,
            },
            entry,
        )
    }

    /// Stops forwarding on the present connections without ending them.
    fn silence(&self) {
        self.silenced.send_replace(true);
    }
}

/// Relays a connection until it ends, or holds it forever once it is silenced.
async fn relay(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    target: SocketAddr,
    silence: watch::Sender<bool>,
) {
    let is_new = *silence.borrow();
    let mut server = TcpStream::connect(target).await.unwrap();
    let mut silenced = silence.subscribe();
    let is_silenced = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        silenced = silenced.wait_for(|silenced| *silenced && !is_new) => silenced.is_ok(),
    };
    if is_silenced {
        std::future::pending::<()>().await;
    }
}

/// A TLS acceptor for this protocol; also returns the certificate.
fn acceptor(protocol: &str) -> (TlsAcceptor, String) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut settings = settings
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    settings.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    (TlsAcceptor::from(Arc::new(settings)), own.cert.pem())
}

/// Several concurrent calls succeed, the connections go silent, one call times out, and the next
/// ones succeed. The calls belong to a legacy session or to a modern client.
async fn one_call_is_lost(era: Era, security: Security, in_session: bool) {
    let server = backend(era, Transport::Http).await;
    let (relay, entry) = Relay::to(&server.entry_with("only", r#""timeout":"1s""#), security).await;
    let gateway =
        Gateway::start_with_env(&config(&[entry]), "SSL_CERT_FILE", relay.certificate.path()).await;
    let session = match in_session {
        true => Some(
            LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, r#"{"elicitation":{}}"#).await,
        ),
        false => None,
    };
    let call = async |id: usize| match &session {
        None => called(&gateway, "t").await,
        Some(session) => {
            let request = legacy_request(&id.to_string(), "tools/call", r#""name":"t""#);
            session.post(&request).await.messages().await.1
        }
    };
    let gate = Gate::new();
    server.on(
        "tools/call",
        Reply::result(era.complete(r#""content":[]"#)).gated(&gate),
    );
    // Six concurrent calls open several connections on each worker thread.
    let release = async {
        gate.reached(6).await;
        gate.open();
    };
    let (results, ()) = tokio::join!(join_all((0..6).map(&call)), release);
    let is_result = |text: &String| slicer::member(text, "result").is_some();
    assert!(
        results.iter().all(is_result),
        "{era:?} {security:?}: {results:?}"
    );
    relay.silence();
    let lost = call(6).await;
    assert_eq!(
        slicer::member(&lost, "error.data.outcome"),
        Some(r#""timeout""#),
        "{era:?} {security:?}: {lost}"
    );
    for id in 7..13 {
        let next = call(id).await;
        assert!(is_result(&next), "{era:?} {security:?}: {next}");
    }
}

#[tokio::test]
async fn connections_that_went_silent_cost_one_call_together() {
    for era in [Era::Modern, Era::Legacy] {
        one_call_is_lost(era, Security::Plain, false).await;
    }
}

#[tokio::test]
async fn connections_over_tls_that_went_silent_cost_one_call_together() {
    for era in [Era::Modern, Era::Legacy] {
        for protocol in ["http/1.1", "h2"] {
            one_call_is_lost(era, Security::Tls(protocol), false).await;
        }
    }
}

#[tokio::test]
async fn session_continues_on_new_connections_after_one_lost_call() {
    for security in [
        Security::Plain,
        Security::Tls("http/1.1"),
        Security::Tls("h2"),
    ] {
        one_call_is_lost(Era::Legacy, security, true).await;
    }
}
