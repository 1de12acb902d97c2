//! Idle streams: the memory of each, and whether it still delivers notifications.

use std::time::Duration;

use super::Run;
use super::lists::request;
use crate::era::Era;
use crate::error::Result;
use crate::load::calls::count;
use crate::load::idle;
use crate::results::Values;
use crate::system::{Fakes, FanlightConfig, Kind, System};

/// The idle time before memory is read, and the time-out for a notification to all streams.
const REST: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        for kind in run.plan.systems.clone() {
            if kind == Kind::Direct {
                continue;
            }
            let measured = hold(run, era, kind).await;
            run.add(
                &format!("idle {}", era.as_str()),
                kind.as_str(),
                0,
                measured,
            );
        }
    }
    Ok(())
}

/// One system at a time, so that none affects the next.
async fn hold(run: &Run, era: Era, kind: Kind) -> Result<Values> {
    let streams = run.plan.streams;
    let fakes = Fakes::start(&run.bench, era, 10, 5, 0).await?;
    let config = FanlightConfig {
        clients: Some(streams + 1000),
    };
    let system = System::start(&run.bench, kind, &fakes.addresses, &config).await?;
    let held = hold_on(&system, era, streams, &fakes).await;
    system.stop().await?;
    fakes.stop().await?;
    held
}

async fn hold_on(system: &System, era: Era, streams: usize, fakes: &Fakes) -> Result<Values> {
    let warm = idle::open(system.address, &system.access, era, 16).await?;
    tokio::time::sleep(REST / 4).await;
    let before = system.usage()?.resident;
    let opened = idle::open(system.address, &system.access, era, streams).await?;
    tokio::time::sleep(REST).await;
    let after = system.usage()?.resident;
    let streams = count(u64::try_from(opened.len()).unwrap_or(1)).max(1.0);
    let server = fakes.first()?;
    let emitted = async {
        // Waits until all streams are being read.
        tokio::time::sleep(REST / 4).await;
        request(server, "POST", "/emit").await
    };
    let ((notified, opened), emitted) = tokio::join!(idle::notified(opened, PATIENCE), emitted);
    emitted?;
    let after_event = system.usage()?.resident;
    drop((opened, warm));
    Ok(Values::from([
        ("streams", streams),
        (
            "kib_per_stream",
            count(after.saturating_sub(before)) / 1024.0 / streams,
        ),
        (
            "kib_per_stream_after_event",
            count(after_event.saturating_sub(before)) / 1024.0 / streams,
        ),
        (
            "notified_percent",
            count(u64::try_from(notified).unwrap_or(0)) * 100.0 / streams,
        ),
    ]))
}
