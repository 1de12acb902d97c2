//! SIGTERM and SIGINT: the first one drains, the second one stops at once. SIGXFSZ is ignored.

use fanlight_cli::failure::Failure;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::service_manager;

/// The tokens that SIGTERM and SIGINT cancel.
pub(super) struct Signals {
    /// Cancelled by the first signal: finish running requests, then stop.
    pub(super) shutdown: CancellationToken,
    /// Cancelled by the second signal: stop immediately.
    immediate: CancellationToken,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let cannot = |error| Failure::other(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        // When a file exceeds its size limit, the writer should get an error instead of SIGXFSZ
        // ending the process.
        let file_size = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map_err(cannot)?;
        let (shutdown, immediate) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (shutdown.clone(), immediate.clone());
        // Runs until the runtime ends.
        tokio::spawn(async move {
            let mut next =
                async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
            next().await;
            first.cancel();
            service_manager::stopping();
            info!("shutting down; a second signal stops immediately");
            next().await;
            second.cancel();
            drop(file_size);
        });
        Ok(Self {
            shutdown,
            immediate,
        })
    }

    /// Runs `work` until it ends or the second signal arrives. Dropping `work` then ends its child
    /// processes.
    pub(super) async fn run_until_second(
        &self,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        self.immediate
            .run_until_cancelled(work)
            .await
            .unwrap_or_else(|| Err(Failure::interrupted()))
    }
}
