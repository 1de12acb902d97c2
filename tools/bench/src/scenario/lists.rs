//! Lists of tools: one server's own list, and the merged list of ten.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use crate::era::Era;
use crate::error::{BenchError, Result, join_all};
use crate::fake::Stats;
use crate::load::calls::{Load, Pace, count};
use crate::load::connection::Connection;
use crate::load::head::bare;
use crate::load::request::{Message, count_tools, excerpt};
use crate::load::session::Client;
use crate::results::Values;
use crate::system::{Fakes, FanlightConfig, Kind, System};

/// Tools of each server.
const TOOLS: usize = 50;
/// Clients that request a list at the same time.
const AT_ONCE: usize = 64;

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        let fakes = Fakes::start(&run.bench, era, 10, TOOLS, 0).await?;
        let systems = run
            .start_systems(&run.plan.systems.clone(), &fakes, FanlightConfig::default())
            .await;
        let scenario = format!("list {}", era.as_str());
        for round in 0..run.plan.rounds {
            for system in &systems {
                let message = Message::list(era, None, TOOLS * system.backends());
                let load = lists(system, era, vec![message], run.plan.connections);
                run.put_on(&scenario, round, system, &load, Pace::Closed)
                    .await;
            }
        }
        if run.has(Kind::Fanlight10) {
            let fanned = fan_outs(run, era, &fakes).await;
            run.value_or_failure("lists at the same time", fanned);
        }
        run.stop_systems(systems, fakes).await;
    }
    Ok(())
}

fn lists(system: &System, era: Era, messages: Vec<Message>, connections: usize) -> Load {
    Load::on(system, era, connections, messages)
}

/// The number of list requests to each server when many clients request the merged list at once:
/// right after the start, and right after the servers have announced changed lists.
async fn fan_outs(run: &mut Run, era: Era, fakes: &Fakes) -> Result<()> {
    let config = FanlightConfig::default();
    let system = System::start(&run.bench, Kind::Fanlight10, &fakes.addresses, &config).await?;
    let server = fakes.first()?;
    let first = asked_by(&system, era, server).await?;
    request(server, "POST", "/emit").await?;
    // Waits until the gateway has handled the change.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let changed = asked_by(&system, era, server).await?;
    let values = Values::from([
        ("fan_outs_at_start", first),
        ("fan_outs_after_change", changed),
    ]);
    run.results.add(
        &format!("list at once {}", era.as_str()),
        system.kind.as_str(),
        0,
        values,
    );
    system.stop().await
}

/// The number of list requests to each server while many clients request the merged list.
async fn asked_by(system: &System, era: Era, server: SocketAddr) -> Result<f64> {
    let mut clients = Vec::new();
    for _ in 0..AT_ONCE {
        clients.push(Client::open(system.address, era).await?);
    }
    let before = stats(server).await?.lists;
    let mut asking = tokio::task::JoinSet::new();
    let message = Arc::new(Message::list(era, None, TOOLS * system.backends()));
    for mut client in clients {
        let message = Arc::clone(&message);
        asking.spawn(async move {
            client
                .once(&message)
                .await
                .map(|answer| count_tools(&answer))
        });
    }
    join_all("the lists", 60, asking).await?;
    let asked = stats(server).await?.lists - before;
    Ok(count(asked) / count(u64::try_from(system.backends()).unwrap_or(1)))
}

/// The counters of a fake server.
pub(crate) async fn stats(server: SocketAddr) -> Result<Stats> {
    let answer = request(server, "GET", "/stats").await?;
    serde_json::from_slice(&answer).map_err(|_| BenchError::Wrong(excerpt(&answer)))
}

/// Sends a request of the benchmark's own to the fake server.
pub(super) async fn request(server: SocketAddr, method: &str, path: &str) -> Result<bytes::Bytes> {
    let mut connection = Connection::open(server, None).await?;
    let head = connection.send(&bare(method, path, None, None)).await?;
    connection.body(&head).await
}
