//! What tokens, TLS and credentials of users cost a small call: Fanlight without, with a token in each request, which it
//! remembers, and with TLS, on connections that are kept, in front of the same server; and, for a server that gets a header, where
//! that is in the configuration, and where its user has deposited it.

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

/// How many times more a call takes with a token than without: the goal.
pub(crate) const TOKEN_COST: f64 = 1.08;
/// How many times more a call takes with TLS than without: the goal.
pub(crate) const TLS_COST: f64 = 1.35;
/// How many times more a call takes with what its user has granted than with a header of the configuration: the goal.
pub(crate) const GRANT_COST: f64 = 1.05;

/// What the scenario is called in the results.
pub(crate) const SCENARIO: &str = "access modern";

/// Modern calls alone: in a session a token is checked in the same way.
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
