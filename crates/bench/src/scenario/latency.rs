//! How long a call takes: alone on one connection, on many at half of the rate that is possible, and on many at a rate
//! that is the same for all, since what is half of one's is little for another.

use super::calls::calls_of;
use super::{Run, under_load};
use crate::error::Result;
use crate::fake::FakeArgs;
use crate::fake::payload::Tool;
use crate::load::calls::Pace;
use crate::results::Values;
use crate::system::stalls::stalls;
use crate::system::{Fakes, FanlightConfig};

const TOOL: Tool = Tool::Text(200);

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for round in 0..run.plan.rounds {
        let stalls = stalls([run.bench.gateway, run.bench.load], run.plan.window).await?;
        let percent = 100.0 * stalls.all.as_secs_f64() / run.plan.window.as_secs_f64();
        let values = Values::from([("longest_us", stalls.longest.as_secs_f64() * 1e6), ("percent", percent)]);
        run.results.add("standing still", "machine", round, values);
    }
    for era in run.plan.eras.clone() {
        let fakes =
            Fakes::here(FakeArgs { era, servers: 10, tools: 50, delay_ms: 0, events: false, bounce_ms: 0 }).await?;
        let systems = run.start_systems(&fakes, FanlightConfig::default(), &[]).await;
        let mut peaks = Vec::new();
        for system in &systems {
            let load = calls_of(system, era, TOOL, run.plan.connections);
            let peak = under_load(system, &load, Pace::Closed, run.plan.window).await;
            let peak = run.told(system.kind.as_str(), peak).and_then(|values| values.get("calls_per_s").copied());
            peaks.push(peak.unwrap_or(1.0));
        }
        // What the slowest can do half of the time.
        let same = peaks.iter().copied().fold(f64::INFINITY, f64::min) / 2.0;
        for round in 0..run.plan.rounds {
            for (system, peak) in systems.iter().zip(&peaks) {
                let alone = calls_of(system, era, TOOL, 1);
                run.put_on(&format!("alone {}", era.as_str()), round, system, &alone, Pace::Closed).await;
                let many = calls_of(system, era, TOOL, run.plan.connections);
                for (scenario, rate) in [("half rate", peak / 2.0), ("same rate", same)] {
                    let scenario = format!("{scenario} {}", era.as_str());
                    run.put_on(&scenario, round, system, &many, Pace::Rate(rate)).await;
                }
            }
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}
