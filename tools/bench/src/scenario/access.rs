//! The cost of tokens, TLS and users' credentials for a small call, in front of the same server.
//! Fanlight runs without a token, with a token in each request, which it remembers, and with TLS,
//! on kept connections. For a server that gets a header, the header is in the configuration or
//! deposited by the user.

use super::Run;
use super::calls::calls_of;
use crate::era::Era;
use crate::error::Result;
use crate::fake::payload::Tool;
use crate::load::calls::Pace;
use crate::system::{Fakes, FanlightConfig, Kind};

pub(crate) const KINDS: [Kind; 5] = [
    Kind::Fanlight,
    Kind::FanlightTokens,
    Kind::FanlightTls,
    Kind::FanlightHeader,
    Kind::FanlightGrant,
];

/// The goal for the ratio of a call's cost with a token to its cost without.
pub(crate) const TOKEN_COST: f64 = 1.08;
/// The goal for the ratio of a call's cost with TLS to its cost without.
pub(crate) const TLS_COST: f64 = 1.35;
/// The goal for the ratio of a call's cost with its user's grant to its cost with a configured
/// header.
pub(crate) const GRANT_COST: f64 = 1.05;

/// The scenario's name in the results.
pub(crate) const SCENARIO: &str = "access modern";

/// Measures modern calls only, since sessions check tokens in the same way.
pub(super) async fn measure(run: &mut Run) -> Result<()> {
    if !run.has(Kind::Fanlight) || !run.plan.eras.contains(&Era::Modern) {
        return Ok(());
    }
    let fakes = Fakes::start(&run.bench, Era::Modern, 1, 50, 0).await?;
    let systems = run
        .start_systems(&KINDS, &fakes, FanlightConfig::default())
        .await;
    for round in 0..run.plan.rounds {
        for system in &systems {
            let load = calls_of(system, Era::Modern, Tool::Text(200), run.plan.connections);
            run.put_on(SCENARIO, round, system, &load, Pace::Closed)
                .await;
        }
    }
    run.stop_systems(systems, fakes).await;
    Ok(())
}
