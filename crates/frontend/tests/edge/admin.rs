//! The listener for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_frontend::{FrontendSettings, Health, serve_admin};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, soon};

#[derive(Default)]
struct Switch(AtomicBool);

impl Health for Switch {
    fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> String {
        "fanlight_up 1\n".into()
    }

    fn report(&self) -> String {
        format!(r#"{{"ready":{}}}"#, self.is_ready())
    }
}

#[tokio::test]
async fn life_and_readiness() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (health, shutdown) = (Arc::new(Switch::default()), CancellationToken::new());
    let settings = Arc::new(FrontendSettings::default());
    let served = tokio::spawn(serve_admin(listener, Arc::clone(&health) as _, settings, shutdown.clone()));
    let mut client = Client::connect(address).await;

    let alive = client.call("GET", "/healthz", &[]).await;
    assert_eq!((alive.status, alive.body.as_str()), (200, "ok"));
    let unready = client.call("GET", "/readyz", &[]).await;
    assert_eq!((unready.status, unready.body.as_str()), (503, r#"{"ready":false}"#));
    health.0.store(true, Ordering::Relaxed);
    let ready = client.call("GET", "/readyz", &[]).await;
    assert_eq!((ready.status, ready.header("content-type")), (200, Some("application/json")));
    assert_eq!(client.call("GET", "/mcp", &[]).await.status, 404);
    assert_eq!(client.call("POST", "/healthz", &[]).await.status, 405);
    assert_eq!(client.call("GET", "/healthz", &[("Host", "evil.example.com")]).await.status, 403);

    shutdown.cancel();
    assert!(client.is_closed().await);
    soon(served).await.unwrap().unwrap();
}
