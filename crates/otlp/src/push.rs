//! Exports the metrics at an interval, and once more at the end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_telemetry::metrics::Metrics;
use opentelemetry_sdk::Resource;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::collector::Collector;
use crate::error::StartError;
use crate::export::Export;
use crate::metrics;
use crate::settings::OtlpTarget;

/// The exporting task, aborted on drop.
#[derive(Debug)]
pub(crate) struct Push {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Push {
    pub(crate) fn start(
        registry: Arc<Metrics>,
        resource: Resource,
        target: &OtlpTarget,
        handle: &Handle,
        every: Duration,
    ) -> Result<Self, StartError> {
        let collector = Collector::new(target, handle)?;
        let endpoint = target.shown();
        let (stop, mut stopped) = oneshot::channel();
        let task = handle.spawn(async move {
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
                let request = metrics::request(&resource, since, &registry.snapshot());
                match collector.send(&Export::Metrics(request)).await {
                    Err(failed) if !std::mem::replace(&mut failing, true) => {
                        tracing::warn!(
                            endpoint,
                            problem = failed.problem,
                            "cannot export metrics; trying again"
                        );
                    }
                    Err(_) => {}
                    Ok(_) => failing = false,
                }
                if last {
                    return;
                }
            }
        });
        Ok(Self {
            stop: Some(stop),
            task,
        })
    }

    /// Exports once more and ends, within `bound`. Returns whether this succeeded in time.
    pub(crate) async fn stop(mut self, bound: Duration) -> bool {
        if let Some(stop) = self.stop.take() {
            // The task may have ended already.
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
