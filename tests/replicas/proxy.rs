//! A network between a gateway and Valkey, or between two gateways. It delays bytes or drops them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::valkey::USER;

/// The behaviour of the network.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Network {
    /// Each piece takes this long in each direction.
    Takes(Duration),
    /// Nothing arrives, and neither side is told.
    Silent,
}

/// A proxy in front of `to`; dropping it ends it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    network: Arc<watch::Sender<Network>>,
    carried: Arc<Carried>,
    task: AbortHandle,
}

/// Counters of the forwarded bytes.
#[derive(Default)]
struct Carried {
    there: AtomicU64,
    back: AtomicU64,
}

impl Proxy {
    pub(crate) async fn to(to: SocketAddr) -> Self {
        Self::replacing(to, None).await
    }

    /// A proxy that replaces the address `own` by `told` in the clients' bytes; both have the same
    /// length.
    pub(crate) async fn telling(to: SocketAddr, own: SocketAddr, told: SocketAddr) -> Self {
        let texts = [own, told].map(|address| address.to_string().into_bytes());
        assert_eq!(texts[0].len(), texts[1].len());
        Self::replacing(to, Some(texts)).await
    }

    async fn replacing(to: SocketAddr, texts: Option<[Vec<u8>; 2]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let network = Arc::new(watch::Sender::new(Network::Takes(Duration::ZERO)));
        let (sender, carried) = (Arc::clone(&network), Arc::<Carried>::default());
        let counted = Arc::clone(&carried);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (one, other, texts) = (sender.subscribe(), sender.subscribe(), texts.clone());
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(to).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    // The end of one direction ends both.
                    tokio::select! {
                        () = carry(from_client, to_server, one, texts, &counted.there) => {}
                        () = carry(from_server, to_client, other, None, &counted.back) => {}
                    }
                });
            }
        });
        Self {
            address,
            network,
            carried,
            task: task.abort_handle(),
        }
    }

    /// The bytes that clients have sent, and the bytes that the server has sent.
    pub(crate) fn carried(&self) -> [u64; 2] {
        [&self.carried.there, &self.carried.back].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn url(&self) -> String {
        format!("valkey://{USER}@{}", self.address)
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

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
    texts: Option<[Vec<u8>; 2]>,
    counted: &AtomicU64,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let Ok(now) = network
            .wait_for(|network| *network != Network::Silent)
            .await
            .map(|now| *now)
        else {
            return;
        };
        if let Network::Takes(time) = now {
            // The delay is the fault itself, not a wait for something.
            sleep(time).await;
        }
        if let Some([own, told]) = &texts {
            let found = |at: &usize| buffer[*at..length].starts_with(own);
            for at in (0..length).filter(found).collect::<Vec<_>>() {
                buffer[at..at + told.len()].copy_from_slice(told);
            }
        }
        counted.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
