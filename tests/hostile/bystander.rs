//! A well-behaved client that calls during an attack.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fanlight_testkit::slicer::member;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::harness::within;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};

/// The pause between two calls, which keeps the client's own load low.
const PACE: Duration = Duration::from_millis(10);

/// The outcomes of the calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    pub(crate) slowest: Duration,
    /// The statuses and texts of wrong responses.
    pub(crate) failures: Vec<String>,
}

/// A client in its own task that calls the tool `t` on one connection until it is stopped.
pub(crate) struct Bystander {
    calls: watch::Receiver<Calls>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Bystander {
    /// Connects, with an access token if given, and waits for the first responses.
    pub(crate) async fn start(gateway: SocketAddr, token: Option<&str>) -> Self {
        let authorization = token.map(|token| format!("Bearer {token}"));
        let (recorded, calls) = watch::channel(Calls::default());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keep_calling(gateway, authorization, recorded, stopped));
        let mut bystander = Self { calls, stop, task };
        bystander.calls_on(5).await;
        bystander
    }

    /// Waits for this many more answers.
    pub(crate) async fn calls_on(&mut self, more: u64) {
        let enough = self.calls.borrow().count + more;
        // An error means that the client has failed, which `finish` reports.
        let _ = within(
            "the second client's calls",
            self.calls.wait_for(|calls| calls.count >= enough),
        )
        .await;
    }

    /// Ends the calls after the current one.
    pub(crate) async fn finish(self) -> Calls {
        self.stop.send_replace(true);
        within("the second client to finish", self.task)
            .await
            .expect("the second client lost its connection");
        self.calls.borrow().clone()
    }
}

async fn keep_calling(
    gateway: SocketAddr,
    authorization: Option<String>,
    recorded: watch::Sender<Calls>,
    stopped: watch::Receiver<bool>,
) {
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    let own_headers = modern_headers(&body);
    let own_headers = own_headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let authorization = authorization
        .as_deref()
        .map(|field| ("Authorization", field));
    let headers: Vec<(&str, &str)> = JSON_HEADERS
        .into_iter()
        .chain(own_headers)
        .chain(authorization)
        .collect();
    let mut connection = Connection::open(gateway).await;
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        pace.tick().await;
        let begun = Instant::now();
        connection
            .request("POST", "/mcp", &headers, body.as_bytes())
            .await;
        let response = connection.response().await;
        let status = response.status;
        let (text, reusable) = response.finish().await;
        connection = reusable;
        let took = begun.elapsed();
        recorded.send_modify(|calls| {
            calls.count += 1;
            calls.slowest = calls.slowest.max(took);
            if status != 200 || member(&text, "result.content").is_none() {
                calls.failures.push(format!("{status} {text}"));
            }
        });
    }
}
