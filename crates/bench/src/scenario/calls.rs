//! Calls of several sizes in a closed loop.

use std::sync::Arc;

use super::Run;
use crate::era::Era;
use crate::error::Result;
use crate::fake::payload::Tool;
use crate::load::calls::{Load, Pace};
use crate::load::request::Message;
use crate::system::{Fakes, FanlightConfig, System};

/// The tools that are called, and what their rows are called.
pub(crate) const SIZES: [(Tool, &str); 4] = [
    (Tool::Text(200), "200 B"),
    (Tool::Text(10 << 10), "10 KiB"),
    (Tool::Text(1 << 20), "1 MiB"),
    (Tool::Rows(1 << 20), "1 MiB structured"),
];

/// What a scenario is called in the results.
pub(crate) fn scenario(era: Era, tool: Tool) -> String {
    format!("call {} {}", era.as_str(), tool.name())
}

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 10, 50, 0).await?;
        let systems = run.start_systems(&fakes, FanlightConfig::default(), &[]).await;
        for (tool, _) in SIZES {
            for round in 0..run.plan.rounds {
                for system in &systems {
                    let load = calls_of(system, era, tool, run.plan.connections);
                    run.put_on(&scenario(era, tool), round, system, &load, Pace::Closed).await;
                }
            }
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}

/// Calls of `tool` at each backend in turn.
pub(super) fn calls_of(system: &System, era: Era, tool: Tool, connections: usize) -> Load {
    let names = system.names(&tool.name());
    let messages = names.iter().map(|name| Message::call(era, name, tool)).collect();
    Load { address: system.address, era, connections, messages: Arc::new(messages) }
}
