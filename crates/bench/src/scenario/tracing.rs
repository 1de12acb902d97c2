//! What recording spans costs a call: three times the same Fanlight in front of the same servers, with no spans, with
//! spans in the ring as by default, and with all of them exported as well, to a collector that is one of those servers.

use std::net::SocketAddr;

use serde::Deserialize;

use super::calls::calls_of;
use super::lists::request;
use super::{Run, under_load};
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::fake::payload::Tool;
use crate::load::calls::{Pace, count};
use crate::system::{Fakes, FanlightConfig, Kind, System};

const TOOL: Tool = Tool::Text(200);

/// Where spans go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracing {
    /// None are recorded.
    Off,
    /// To the ring, as by default.
    Ring,
    /// To the ring, and in batches to a collector.
    Exported,
}

impl Tracing {
    pub(crate) const ALL: [Self; 3] = [Self::Off, Self::Ring, Self::Exported];

    /// What it is called in the results.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "no spans",
            Self::Ring => "ring",
            Self::Exported => "exported",
        }
    }

    fn config(self, collector: SocketAddr) -> FanlightConfig {
        FanlightConfig {
            traces: (self == Self::Off).then_some(0),
            collector: (self == Self::Exported).then_some(collector),
            ..FanlightConfig::default()
        }
    }
}

/// What a scenario is called in the results.
pub(crate) fn scenario(era: Era) -> String {
    format!("tracing {}", era.as_str())
}

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    if !run.has(Kind::Fanlight) {
        return Ok(());
    }
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 1, 50, 0).await?;
        let collector = fakes.first()?;
        let mut systems = Vec::new();
        for tracing in Tracing::ALL {
            let config = tracing.config(collector);
            let started = System::start_fanlight(&run.bench, &fakes.addresses, &config).await;
            systems.extend(run.told(tracing.as_str(), started).map(|system| (tracing, system)));
        }
        for round in 0..run.plan.rounds {
            for (tracing, system) in &systems {
                one(run, era, round, *tracing, system, collector).await?;
            }
        }
        let systems = systems.into_iter().map(|(_, system)| system).collect();
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}

async fn one(
    run: &mut Run,
    era: Era,
    round: usize,
    tracing: Tracing,
    system: &System,
    collector: SocketAddr,
) -> Result<()> {
    let load = calls_of(system, era, TOOL, run.plan.connections);
    let before = exported(collector).await?;
    let measured = under_load(system, &load, Pace::Closed, run.plan.window).await;
    let sent = exported(collector).await?.saturating_sub(before);
    let name = format!("{}, {}", scenario(era), tracing.as_str());
    let Some(mut values) = run.told(&name, measured) else { return Ok(()) };
    if tracing == Tracing::Exported {
        if sent == 0 {
            // What the collector never got would cost nothing.
            run.results.failures.push(format!("{name}: no spans came to the collector"));
        }
        // Also those of the moment before; fewer than there were is what had to be dropped.
        values.insert("exported_kib", count(sent) / 1024.0);
    }
    run.results.add(&scenario(era), tracing.as_str(), round, values);
    Ok(())
}

#[derive(Deserialize)]
struct Stats {
    exported: u64,
}

/// How many bytes of traces a fake server got.
pub(crate) async fn exported(server: SocketAddr) -> Result<u64> {
    let answer = request(server, "GET", "/stats").await?;
    let stats = serde_json::from_slice::<Stats>(&answer);
    stats.map(|stats| stats.exported).map_err(|error| BenchError::Other(format!("the fake server's /stats: {error}")))
}
