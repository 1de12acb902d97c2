//! The cost of recording a call, in front of the same server: Fanlight without spans, without the
//! content of calls, with spans and content in the ring and an audit log, the default, without an
//! audit log, and with all spans also exported.

use super::Run;
use super::calls::calls_of;
use super::lists::stats;
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::fake::payload::Tool;
use crate::load::calls::Pace;
use crate::system::{Fakes, FanlightConfig, Kind};

pub(crate) const KINDS: [Kind; 5] = [
    Kind::FanlightNoSpans,
    Kind::FanlightNoContent,
    Kind::Fanlight,
    Kind::FanlightNoRecord,
    Kind::FanlightExporting,
];

/// A scenario's name in the results.
pub(crate) fn scenario(era: Era) -> String {
    format!("tracing {}", era.as_str())
}

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    if !run.has(Kind::Fanlight) {
        return Ok(());
    }
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 1, 50, 0).await?;
        let systems = run
            .start_systems(&KINDS, &fakes, FanlightConfig::default())
            .await;
        for round in 0..run.plan.rounds {
            for system in &systems {
                let load = calls_of(system, era, Tool::Text(200), run.plan.connections);
                run.put_on(&scenario(era), round, system, &load, Pace::Closed)
                    .await;
            }
        }
        // Spans that did not reach the collector would cost nothing.
        if stats(fakes.first()?).await?.exported == 0 {
            return Err(BenchError::Other("the collector received no spans".into()));
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}
