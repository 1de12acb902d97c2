//! A network between a gateway and Valkey: it delays what is sent, or carries nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How it treats what passes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Network {
    /// Each piece takes so long, each way.
    Takes(Duration),
    /// Nothing arrives, and nobody is told.
    Silent,
}

/// A proxy in front of `to`; dropping it ends it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    network: Arc<watch::Sender<Network>>,
    task: AbortHandle,
}

impl Proxy {
    pub(crate) async fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let network = Arc::new(watch::Sender::new(Network::Takes(Duration::ZERO)));
        let sender = Arc::clone(&network);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (one, other) = (sender.subscribe(), sender.subscribe());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(to).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    // Either way ends both.
                    tokio::select! {
                        () = carry(from_client, to_server, one) => {}
                        () = carry(from_server, to_client, other) => {}
                    }
                });
            }
        });
        Self { address, network, task: task.abort_handle() }
    }

    pub(crate) fn url(&self) -> String {
        format!("valkey://{}", self.address)
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut network: watch::Receiver<Network>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let Ok(now) = network.wait_for(|network| *network != Network::Silent).await.map(|now| *now) else { return };
        if let Network::Takes(time) = now {
            // The fault itself, and not a wait for something.
            sleep(time).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
