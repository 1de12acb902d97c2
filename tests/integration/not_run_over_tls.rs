//! Errors of calls that time out while a TLS connection is being made, and while they wait on one.

use std::future::pending;
use std::net::SocketAddr;

use fanlight_testkit::tls::Authority;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::faults::backend;
use crate::harness::{Gateway, TempFile};
use crate::not_run::{assert_error, call};
use crate::scripted::{Era, Fault, Reply, Transport};

/// A relay that speaks TLS for a server, until it stops making handshakes.
pub(crate) struct TlsDoor {
    pub(crate) address: SocketAddr,
    is_silent: watch::Sender<bool>,
    /// The number of accepted connections without a handshake.
    waiting: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl TlsDoor {
    /// A relay for the server at this URL of plain HTTP.
    pub(crate) async fn before(url: &str, acceptor: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = url.trim_start_matches("http://").split('/').next().unwrap();
        let inner: SocketAddr = inner.parse().unwrap();
        let (is_silent, silent) = watch::channel(false);
        let (accepted, waiting) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((outer, _)) = listener.accept().await {
                if *silent.borrow() {
                    accepted.send_modify(|count| *count += 1);
                    connections.spawn(async move {
                        let _open = outer;
                        pending::<()>().await;
                    });
                    continue;
                }
                let (acceptor, mut silent) = (acceptor.clone(), silent.clone());
                connections.spawn(async move {
                    let forwarding = async {
                        let Ok(mut outer) = acceptor.accept(outer).await else { return };
                        let mut inner = TcpStream::connect(inner).await.unwrap();
                        let _ = copy_bidirectional(&mut outer, &mut inner).await;
                    };
                    tokio::select! { () = forwarding => {} _ = silent.wait_for(|is_silent| *is_silent) => {} }
                });
            }
        });
        Self {
            address,
            is_silent,
            waiting,
            _tasks: tasks,
        }
    }

    /// Ends all connections; accepts further ones and says nothing on them.
    fn fall_silent(&self) {
        self.is_silent.send_replace(true);
    }
}

#[tokio::test]
async fn call_whose_time_ends_during_a_handshake_was_not_carried_out() {
    for protocols in [&[][..], &["h2"]] {
        let server = backend(Era::Modern, Transport::Http).await;
        let authority = Authority::new();
        let ca = TempFile::new("pem", &authority.pem());
        let door = TlsDoor::before(&server.url(), authority.server().acceptor(protocols)).await;
        let url = format!("https://{}/mcp", door.address);
        let config = json!({
            "mcpServers": { "only": { "url": url, "caFile": ca.path(), "timeout": "1s" } },
            "x-limits": "connect=60s",
        });
        let gateway = Gateway::start(&config.to_string()).await;
        let answer: Value = call(&gateway, "t", "{}").await;
        assert!(answer["result"].is_object(), "{answer}");

        // The server has read the call.
        server.on("tools/call", Reply::fault(Fault::Hang));
        let before = server.received("tools/call").len();
        assert_error(&call(&gateway, "t", "{}").await, true);
        assert_eq!(server.received("tools/call").len(), before + 1);

        door.fall_silent();
        // The first call may use a connection that has ended without the gateway's knowledge.
        call(&gateway, "t", "{}").await;
        let waiting = *door.waiting.borrow();
        let answer = call(&gateway, "t", "{}").await;
        assert_error(&answer, false);
        assert_eq!(answer["error"]["data"]["outcome"], "timeout", "{answer}");
        assert!(
            *door.waiting.borrow() > waiting,
            "{protocols:?}: it was waiting for something else"
        );
        assert_eq!(server.received("tools/call").len(), before + 1);
        assert!(gateway.terminate().await.success());
    }
}
