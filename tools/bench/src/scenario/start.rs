//! The time from the program's start to the first answer, with one server and with two hundred, and
//! the size of the program.

use std::time::{Duration, Instant};

use super::{Run, mebibytes};
use crate::era::Era;
use crate::error::{Doing, Result, within};
use crate::load::request::Message;
use crate::load::session::Client;
use crate::results::Values;
use crate::system::{Bench, Fakes, FanlightConfig, Kind, System};

/// Tools of each server.
const TOOLS: usize = 5;
/// Milliseconds that a slow server takes for each answer.
const SLOW: u64 = 200;

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    if !run.has(Kind::Fanlight) {
        return Ok(());
    }
    let size = std::fs::metadata(&run.bench.fanlight)
        .doing("looking at the program")?
        .len();
    run.results.add(
        "size",
        "fanlight",
        0,
        Values::from([("mib", mebibytes(size))]),
    );
    for (scenario, servers, delay_ms) in [
        ("start 1", 1, 0),
        ("start 200", 200, 0),
        ("start 1 slow", 1, SLOW),
        ("start 200 slow", 200, SLOW),
    ] {
        let fakes = Fakes::start(&run.bench, Era::Modern, servers, TOOLS, delay_ms).await?;
        for round in 0..run.plan.rounds {
            let started = until_listed(&run.bench, &fakes).await;
            run.add(scenario, "fanlight", round, started);
        }
        fakes.stop().await?;
    }
    Ok(())
}

/// Starts Fanlight in front of all servers and requests the list until it has every server's tools.
async fn until_listed(bench: &Bench, fakes: &Fakes) -> Result<Values> {
    let start = Instant::now();
    let system =
        System::start_fanlight(bench, &fakes.addresses, &FanlightConfig::default()).await?;
    let listening = start.elapsed();
    let whole = Message::list(Era::Modern, None, TOOLS * system.backends());
    let listed = async {
        let mut client = Client::open(system.address, Era::Modern).await?;
        while client.once(&whole).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            client = Client::open(system.address, Era::Modern).await?;
        }
        Ok(())
    };
    within("a list with the tools of all servers", 60, listed).await?;
    let listed = start.elapsed();
    system.stop().await?;
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Values::from([
        ("listening_ms", millis(listening)),
        ("listed_ms", millis(listed)),
    ]))
}
