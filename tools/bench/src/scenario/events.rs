//! Progress notifications: without pauses, which shows the cost of each, and a few at a time, which
//! shows the latency of each.

use super::Run;
use crate::era::Era;
use crate::error::Result;
use crate::load::calls::count;
use crate::load::events::Progress;
use crate::results::Values;
use crate::system::{Fakes, FanlightConfig, System};

/// Streams at the same time.
const STREAMS: usize = 16;

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 10, 50, 0).await?;
        let systems = run
            .start_systems(&run.plan.systems.clone(), &fakes, FanlightConfig::default())
            .await;
        let millis = u32::try_from(run.plan.window.as_millis()).unwrap_or(1000);
        // Each stream has an event every five milliseconds, or up to ten thousand per second.
        for (name, events, every_ms) in [
            ("events paced", millis / 5, 5),
            ("events flood", millis * 2, 0),
        ] {
            for round in 0..run.plan.rounds {
                for system in &systems {
                    let measured = follow(system, era, events.max(10), every_ms).await;
                    let scenario = format!("{name} {}", era.as_str());
                    run.add(&scenario, system.kind.as_str(), round, measured);
                }
            }
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}

async fn follow(system: &System, era: Era, events: u32, every_ms: u64) -> Result<Values> {
    let tool = system
        .names("progress")
        .into_iter()
        .next()
        .unwrap_or_default();
    let progress = Progress {
        address: system.address,
        era,
        tool,
        streams: STREAMS,
        events,
        every_ms,
    };
    // The work of a first call is not measured.
    Progress {
        streams: 1,
        events: 1,
        ..progress.clone()
    }
    .run()
    .await?;
    let before = system.usage()?;
    let arrived = progress.run().await?;
    let cpu = (system.usage()?.cpu - before.cpu).as_secs_f64();
    Ok(Values::from([
        (
            "cpu_us_per_event",
            cpu * 1e6 / count(arrived.latencies.count()).max(1.0),
        ),
        ("events_per_s", arrived.per_second()),
        ("p50_us", arrived.latencies.percentile(50.0)),
        ("p99_us", arrived.latencies.percentile(99.0)),
        ("max_us", arrived.latencies.max()),
    ]))
}
