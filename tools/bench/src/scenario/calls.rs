//! Calls of several sizes in a closed loop.

use super::Run;
use crate::era::Era;
use crate::error::Result;
use crate::fake::payload::Tool;
use crate::load::calls::{Load, Pace};
use crate::load::request::Message;
use crate::system::{Fakes, FanlightConfig, System};

/// A called tool, and its goals.
pub(crate) struct Payload {
    pub(crate) tool: Tool,
    pub(crate) name: &'static str,
    /// The most processor time of a call, in multiples of nginx's.
    pub(crate) most_cpu: f64,
    /// The fewest calls per processor, in multiples of nginx's.
    pub(crate) least_calls: f64,
}

pub(crate) const PAYLOADS: [Payload; 7] = [
    payload(Tool::Text(200), "200 B", 1.4, 0.8),
    payload(Tool::Text(10 << 10), "10 KiB", 1.4, 0.8),
    payload(Tool::Text(1 << 20), "1 MiB", 1.0, 1.0),
    payload(Tool::Rows(1 << 20), "1 MiB rows", 1.0, 1.0),
    payload(Tool::Structured(200), "200 B structured", 1.4, 0.8),
    payload(Tool::Structured(10 << 10), "10 KiB structured", 1.5, 0.67),
    payload(Tool::Structured(1 << 20), "1 MiB structured", 1.0, 1.0),
];

const fn payload(tool: Tool, name: &'static str, most_cpu: f64, least_calls: f64) -> Payload {
    Payload {
        tool,
        name,
        most_cpu,
        least_calls,
    }
}

/// A scenario's name in the results.
pub(crate) fn scenario(era: Era, tool: Tool) -> String {
    format!("call {} {}", era.as_str(), tool.name())
}

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 10, 50, 0).await?;
        let systems = run
            .start_systems(&run.plan.systems.clone(), &fakes, FanlightConfig::default())
            .await;
        for Payload { tool, .. } in PAYLOADS {
            for round in 0..run.plan.rounds {
                for system in &systems {
                    let load = calls_of(system, era, tool, run.plan.connections);
                    run.put_on(&scenario(era, tool), round, system, &load, Pace::Closed)
                        .await;
                }
            }
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}

/// Calls of `tool` at each server in turn.
pub(super) fn calls_of(system: &System, era: Era, tool: Tool, connections: usize) -> Load {
    let names = system.names(&tool.name());
    let messages = names
        .iter()
        .map(|name| Message::call(era, name, tool))
        .collect();
    Load::on(system, era, connections, messages)
}
