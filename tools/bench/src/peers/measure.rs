//! Speed and memory of several gateways in front of the same server, in turn for each round.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::client::Client;
use super::launch::{Gateway, Server};
use super::roster::Peer;
use super::{Contest, Entrant};
use crate::era::Era;
use crate::error::{BenchError, Result, within};
use crate::fake::payload::Tool;
use crate::load::calls::{Load, Pace, count};
use crate::load::connection::Connection;
use crate::load::idle::{self, Stream};
use crate::load::request::Message;
use crate::load::session::{self, close_session};
use crate::results::Values;
use crate::scenario::{mebibytes, under_load};

const TOOL: Tool = Tool::Text(200);
/// The rest before a gateway's memory is read.
const REST: Duration = Duration::from_secs(1);
/// The time-out of opening all idle sessions, in seconds.
const PATIENCE: u64 = 40;
/// Sessions that are opened at the same time, and sessions that are open before the count begins.
const AT_ONCE: usize = 8;
const WARM: usize = 4;

/// The names of the measurements in the results, for each era.
pub(super) fn scenario(what: &str, era: Era) -> String {
    format!("{what} {}", era.as_str())
}

/// A running gateway, and its name for the called tool.
struct Running<'a> {
    peer: &'a Peer,
    gateway: Gateway,
    tool: String,
}

/// Measures all `entrants` in front of `server`.
pub(super) async fn all(contest: &mut Contest, entrants: &[&Entrant], server: &Server, era: Era) {
    let mut running = Vec::new();
    for entrant in entrants {
        let started = start(contest, entrant, server, era).await;
        running.extend(contest.value_or_note(&entrant.peer.title(), era, started));
    }
    for system in &running {
        tokio::time::sleep(REST).await;
        let idle = system
            .gateway
            .usage()
            .map(|usage| Values::from([("rss_mib", mebibytes(usage.resident))]));
        contest.add("idle", era, &system.peer.title(), 0, idle);
        let measured = sessions(system, era, contest.plan.sessions).await;
        contest.add("sessions", era, &system.peer.title(), 0, measured);
    }
    for round in 0..contest.plan.rounds {
        for system in &running {
            for (what, connections, pace) in [
                ("closed loop", contest.plan.connections, Pace::Closed),
                ("fixed rate", 4, Pace::Rate(contest.plan.rate)),
            ] {
                let measured = calls(contest, system, era, connections, pace).await;
                contest.add(what, era, &system.peer.title(), round, measured);
            }
        }
    }
    for system in running {
        let stopped = system.gateway.stop().await;
        contest.value_or_note(&system.peer.title(), era, stopped);
    }
}

async fn start<'a>(
    contest: &Contest,
    entrant: &'a Entrant,
    server: &Server,
    era: Era,
) -> Result<Running<'a>> {
    let installed = entrant.installed()?;
    let gateway = Gateway::start(&contest.bench, &entrant.peer, installed, server, era).await?;
    let mut client = Client::open(gateway.address, &gateway.access, era).await?;
    let tool = client.name_of("tools/list", "tools", &TOOL.name()).await?;
    Ok(Running {
        peer: &entrant.peer,
        gateway,
        tool,
    })
}

async fn calls(
    contest: &Contest,
    system: &Running<'_>,
    era: Era,
    connections: usize,
    pace: Pace,
) -> Result<Values> {
    let Gateway {
        address, access, ..
    } = &system.gateway;
    let message = Message::call(era, &system.tool, TOOL).leniently();
    let load = Load::at(*address, access, era, connections, vec![message]);
    under_load(|| system.gateway.usage(), &load, pace, contest.plan.window).await
}

/// The open state of an idle client that has made one call. In the legacy era it is a session, with
/// a stream if the gateway has such streams; in the modern era, a stream of `subscriptions/listen`.
struct Idle {
    session: Option<String>,
    stream: Option<Stream>,
}

/// The memory of `number` idle sessions, which end afterwards.
async fn sessions(system: &Running<'_>, era: Era, number: usize) -> Result<Values> {
    let Gateway {
        address, access, ..
    } = &system.gateway;
    let message = Message::call(era, &system.tool, TOOL)
        .with_token(access.token.as_deref())
        .leniently();
    // Needs of the first sessions, such as loaded code, do not recur for each.
    let warm = open(&system.gateway, era, &message, WARM).await?;
    let before = system.gateway.usage()?.resident;
    let idle = open(&system.gateway, era, &message, number).await?;
    tokio::time::sleep(REST).await;
    let after = system.gateway.usage()?.resident;
    let have_streams = idle.iter().all(|idle| idle.stream.is_some());
    let sessions = count(u64::try_from(idle.len()).unwrap_or(1)).max(1.0);
    for Idle { session, stream } in warm.into_iter().chain(idle) {
        drop(stream);
        if let Some(session) = session {
            let mut connection = Connection::open(*address, access.tls.as_ref()).await?;
            // A gateway need not let clients end sessions.
            let _ = within(
                "the end of a session",
                PATIENCE,
                close_session(&mut connection, &session, access),
            )
            .await;
        }
    }
    Ok(Values::from([
        ("sessions", sessions),
        (
            "kib_per_session",
            count(after.saturating_sub(before)) / 1024.0 / sessions,
        ),
        ("have_streams", f64::from(u8::from(have_streams))),
    ]))
}

async fn open(gateway: &Gateway, era: Era, message: &Message, number: usize) -> Result<Vec<Idle>> {
    let opening = stream::iter(0..number)
        .map(|_| open_one(gateway, era, message))
        .buffer_unordered(AT_ONCE);
    within("the idle sessions to open", PATIENCE, opening.try_collect()).await
}

async fn open_one(gateway: &Gateway, era: Era, message: &Message) -> Result<Idle> {
    let Gateway {
        address, access, ..
    } = gateway;
    let mut client = session::Client::open_with(*address, era, access).await?;
    client.once(message).await?;
    let session = client.session.clone();
    match idle::hold(client, access, era).await {
        Ok(stream) => Ok(Idle {
            session,
            stream: Some(stream),
        }),
        Err(BenchError::Unsupported(_)) if era == Era::Legacy => Ok(Idle {
            session,
            stream: None,
        }),
        Err(error) => Err(error),
    }
}
