//! Servers that restart in turn: their connections break, their port is closed for a while, and
//! their sessions are lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::{bind, http};
use crate::error::{Doing, Result};

/// The time for which the port is closed.
const DOWN: Duration = Duration::from_millis(300);

/// Serves until the future is dropped. One of `count` servers restarts after each period of
/// `every`, in the order of their numbers. None restarts if `every` is zero.
pub(super) async fn serve(
    mut listener: TcpListener,
    (number, count): (u32, u32),
    every: Duration,
    shared: Arc<http::Shared>,
) -> Result<()> {
    let address: SocketAddr = listener.local_addr().doing("a listener's address")?;
    let mut up = every * (number + 1);
    let mut life = 0;
    loop {
        let serving = http::accept(listener, life, Arc::clone(&shared));
        if every.is_zero() {
            return serving.await;
        }
        if let Ok(ended) = timeout(up, serving).await {
            return ended;
        }
        sleep(DOWN).await;
        listener = bind(address)?;
        life += 1;
        up = (every * count).saturating_sub(DOWN);
    }
}
