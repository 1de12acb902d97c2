//! Sends the metrics to a collector every so often, and once more at the end.
//!
//! Must not know: what is counted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use opentelemetry_http::HttpClient as _;
use opentelemetry_sdk::Resource;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::{Metrics, otlp};
use crate::export::Client;
use crate::settings::OtlpTarget;

/// The task. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Push {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Push {
    pub(crate) fn start(
        metrics: Arc<Metrics>,
        resource: Resource,
        target: OtlpTarget,
        client: Client,
        every: Duration,
    ) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = client.handle().clone().spawn(async move {
            let since = SystemTime::now();
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            let mut failing = false;
            loop {
                let last = tokio::select! {
                    _ = ticks.tick() => false,
                    _ = &mut stopped => true,
                };
                let body = otlp::request(&resource, since, &metrics.snapshot());
                let result = send(&client, &target, body).await;
                match result {
                    Err(problem) if !std::mem::replace(&mut failing, true) => {
                        tracing::warn!(endpoint = %target.shown(), %problem, "cannot export metrics; trying again");
                    }
                    Err(_) => {}
                    Ok(()) => failing = false,
                }
                if last {
                    return;
                }
            }
        });
        Self { stop: Some(stop), task }
    }

    /// Sends what there is and ends, at most within `bound`.
    pub(crate) async fn stop(mut self, bound: Duration) -> bool {
        if let Some(stop) = self.stop.take() {
            // A task that has ended already needs no telling.
            let _ = stop.send(());
        }
        tokio::time::timeout(bound, &mut self.task).await.is_ok()
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(client: &Client, target: &OtlpTarget, body: Vec<u8>) -> Result<(), String> {
    let mut request = http::Request::post(target.endpoint.as_str()).header(CONTENT_TYPE, "application/x-protobuf");
    for (name, value) in &target.headers {
        request = request.header(name.as_str(), value.as_str());
    }
    let request = request.body(body.into()).map_err(|error| error.to_string())?;
    let response = client.send_bytes(request).await.map_err(|error| error.to_string())?;
    if response.status().is_success() { Ok(()) } else { Err(format!("HTTP status {}", response.status().as_u16())) }
}
