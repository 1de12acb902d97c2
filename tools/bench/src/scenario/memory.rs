//! Memory over time: after a burst of large results, and while sessions are opened and closed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::calls::calls_of;
use super::{Run, mebibytes};
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result, join_all};
use crate::fake::payload::Tool;
use crate::load::calls::{Pace, count};
use crate::load::request::Message;
use crate::load::session::{Client, close_session};
use crate::results::Values;
use crate::system::{Fakes, FanlightConfig, Kind, System};

const CONNECTIONS: usize = 64;
/// Calls per connection. Together they make a gibibyte of results of a mebibyte each.
const EACH: u64 = 16;

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for kind in run.plan.systems.clone() {
        if kind == Kind::Direct {
            continue;
        }
        let burst = burst(run, kind).await;
        run.add("burst of 1 GiB", kind.as_str(), 0, burst);
        if matches!(kind, Kind::Fanlight | Kind::Fanlight10) && !run.plan.churn.is_zero() {
            let churn = churn(run, kind).await;
            run.add("churn", kind.as_str(), 0, churn);
        }
    }
    Ok(())
}

async fn burst(run: &Run, kind: Kind) -> Result<Values> {
    let fakes = Fakes::start(&run.bench, Era::Modern, 10, 50, 0).await?;
    let system = System::start(
        &run.bench,
        kind,
        &fakes.addresses,
        &FanlightConfig::default(),
    )
    .await?;
    let small = calls_of(&system, Era::Modern, Tool::Text(200), CONNECTIONS);
    small
        .open()
        .await?
        .run(Pace::Count(100), Duration::ZERO)
        .await?;
    let before = system.usage()?.resident;
    let large = calls_of(&system, Era::Modern, Tool::Text(1 << 20), CONNECTIONS);
    let mut ready = large.open().await?;
    ready
        .run(Pace::Count(EACH), Duration::from_secs(60))
        .await?;
    let at_end = system.usage()?.resident;
    drop(ready);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let later = system.usage()?.resident;
    system.stop().await?;
    fakes.stop().await?;
    Ok(Values::from([
        ("before_mib", mebibytes(before)),
        ("at_end_mib", mebibytes(at_end)),
        ("after_5_s_mib", mebibytes(later)),
    ]))
}

/// Opens sessions, uses them once and ends them, on their own connections, with servers that
/// restart.
async fn churn(run: &Run, kind: Kind) -> Result<Values> {
    let fakes = Fakes::bouncing(&run.bench, Era::Legacy).await?;
    let system = System::start(
        &run.bench,
        kind,
        &fakes.addresses,
        &FanlightConfig::default(),
    )
    .await?;
    let time = run.plan.churn;
    let names = system.names(&Tool::Text(200).name());
    let (mut served, mut refused, mut resident) = (0, 0, [0.0; 3]);
    for third in &mut resident {
        let counts = come_and_go(system.address, &names, time / 3).await?;
        (served, refused) = (served + counts.0, refused + counts.1);
        *third = mebibytes(system.usage()?.resident);
    }
    system.stop().await?;
    fakes.stop().await?;
    let [first, second, last] = resident;
    Ok(Values::from([
        ("sessions", count(served)),
        ("refused", count(refused)),
        ("first_third_mib", first),
        ("second_third_mib", second),
        ("last_third_mib", last),
    ]))
}

/// The number of sessions that were served, and of those that were refused while their server was
/// away.
async fn come_and_go(address: SocketAddr, names: &[String], time: Duration) -> Result<(u64, u64)> {
    let end = Instant::now() + time;
    let mut clients = JoinSet::new();
    for name in names.iter().cycle().take(16) {
        let message = Message::call(Era::Legacy, name, Tool::Text(200));
        clients.spawn(async move {
            let (mut served, mut refused) = (0, 0);
            while Instant::now() < end {
                match session(address, &message).await {
                    Ok(()) => served += 1,
                    Err(BenchError::Refused(_)) => refused += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok((served, refused))
        });
    }
    let counts = join_all("sessions to end", time.as_secs() + 60, clients).await?;
    Ok(counts
        .into_iter()
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)))
}

async fn session(address: SocketAddr, message: &Message) -> Result<()> {
    let mut client = Client::open(address, Era::Legacy).await?;
    let called = client.once(message).await;
    let session = client.session.take().unwrap_or_default();
    close_session(&mut client.connection, &session, &Access::default()).await?;
    called.map(drop)
}
