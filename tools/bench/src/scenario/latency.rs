//! The latency of a call: alone on one connection, and on many at half of the highest rate.

use super::calls::calls_of;
use super::{Run, under_load};
use crate::error::Result;
use crate::fake::FakeArgs;
use crate::fake::payload::Tool;
use crate::load::calls::Pace;
use crate::system::{Fakes, FanlightConfig};

const TOOL: Tool = Tool::Text(200);

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        let fakes = Fakes::here(FakeArgs::plain(era, 10)).await?;
        let systems = run
            .start_systems(&run.plan.systems.clone(), &fakes, FanlightConfig::default())
            .await;
        let mut half_rates = Vec::new();
        for system in &systems {
            let load = calls_of(system, era, TOOL, run.plan.connections);
            let peak = under_load(|| system.usage(), &load, Pace::Closed, run.plan.window).await;
            let peak = run
                .value_or_failure(system.kind.as_str(), peak)
                .and_then(|values| values.get("calls_per_s").copied());
            half_rates.push(peak.unwrap_or(1.0) / 2.0);
        }
        for round in 0..run.plan.rounds {
            for (system, half_rate) in systems.iter().zip(&half_rates) {
                for (scenario, connections, pace) in [
                    ("alone", 1, Pace::Closed),
                    ("half rate", run.plan.connections, Pace::Rate(*half_rate)),
                ] {
                    let load = calls_of(system, era, TOOL, connections);
                    run.put_on(
                        &format!("{scenario} {}", era.as_str()),
                        round,
                        system,
                        &load,
                        pace,
                    )
                    .await;
                }
            }
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}
