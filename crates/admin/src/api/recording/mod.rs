//! `POST /api/recording`: the messages of both sides as lines of JSON, as they cross the wire
//! (docs/recordings.md).

mod head;
mod running;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::IntoResponse as _;
use fanlight_canonical::DEFAULT_PATH;
use fanlight_telemetry::recording::{Scribe, Selection};
use futures_util::stream::{StreamExt as _, unfold};
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::body::read_members;
use super::stream::Watch;
use super::{Answer, traces};
use crate::access::About;
use crate::operator::Operator;
use crate::reply::{self, Refusal};
use crate::{Admin, AdminState};
use running::Running;

/// The size of a recording if the request names none, and the largest one, in bytes.
const SIZES: (u64, u64) = (64 << 20, 1 << 30);
/// The type of a recording.
const LINES: &str = "application/x-ndjson";
/// The longest recording.
const LONGEST: Duration = Duration::from_secs(86_400);

answers! {
    /// No recording goes on.
    pub(crate) struct RecordingEnded {
        /// `end`.
        done: &'static str,
    }
}

/// The body of a request for a recording.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Asked {
    servers: Vec<String>,
    endpoint: Option<String>,
    /// A duration such as `10m`.
    r#for: Option<String>,
    max_bytes: Option<u64>,
}

/// Records until the client disconnects, or a limit is reached.
pub(crate) async fn answer(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    headers: http::HeaderMap,
    body: Body,
) -> Answer {
    let now = admin.now();
    let asked: Asked = read_members(&admin, &headers, body).await?;
    let time = asked.time()?;
    let about = asked.subject();
    let largest = asked.max_bytes.unwrap_or(SIZES.0).min(SIZES.1);
    let selection = asked.selection(&admin)?;
    let tap = admin.subject.telemetry.tap().cloned();
    let tap =
        tap.ok_or_else(|| Refusal::unavailable("this gateway has no telemetry to record with"))?;
    let watch = Watch::follower(&admin, &now, operator)?;
    let has_endpoint = selection.endpoint.is_some();
    let captures = tap.start(selection).ok_or_else(|| {
        let message = "a recording is running already; there can be one at a time";
        Refusal::new(http::StatusCode::CONFLICT, message)
    })?;
    let running = Running {
        ends: tokio::time::Instant::now() + time,
        scribe: Arc::new(Mutex::new(Scribe::new(largest, has_endpoint))),
        captures,
        reason: "interrupted",
        has_head: false,
        watch,
    };
    let lines = unfold(Some(running), |running| async {
        let (lines, running) = running?.next().await;
        Some((Ok::<_, Infallible>(lines), running))
    });
    let headers = [
        (CONTENT_TYPE, LINES),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let answer = (headers, Body::from_stream(lines.boxed())).into_response();
    Ok(About(about).attach_to(answer))
}

/// Ends the running recording, whose reader gets the rest and the last line.
pub(crate) async fn end(State(admin): AdminState) -> Answer {
    if let Some(tap) = admin.subject.telemetry.tap() {
        tap.end();
    }
    Ok(reply::answer(&RecordingEnded { done: "end" }))
}

/// One trace as a recording.
pub(crate) async fn export_trace(State(admin): AdminState, Path(id): Path<String>) -> Answer {
    let trace = traces::find(&admin, &id)?;
    let (mut scribe, batch) = trace.to_recording(DEFAULT_PATH).ok_or_else(|| {
        Refusal::new(
            http::StatusCode::CONFLICT,
            "the content of this trace was not kept",
        )
    })?;
    let servers = trace.summary().map(|summary| summary.backends);
    let selection = Selection {
        servers: servers.into_iter().flatten().map(Into::into).collect(),
        ..Selection::default()
    };
    let head = head::head(&admin, &selection, scribe.started()).await;
    let lines = spawn_blocking(move || {
        scribe.configure(admin.subject.operations.configured_values());
        let mut lines = scribe.head(head);
        lines.extend(scribe.lines(batch).0);
        lines.extend(scribe.end("trace"));
        lines
    });
    let lines = lines.await.unwrap_or_default();
    Ok(([(CONTENT_TYPE, LINES)], lines).into_response())
}

impl Asked {
    fn time(&self) -> Result<Duration, Refusal> {
        let Some(text) = &self.r#for else {
            return Ok(LONGEST);
        };
        let time = fanlight_config::parse_duration(text).filter(|time| *time <= LONGEST);
        time.ok_or_else(|| Refusal::bad_request("`for` is a duration up to a day, such as 10m"))
    }

    /// The subject of the recording, for the audit log.
    fn subject(&self) -> String {
        let servers = match &*self.servers {
            [] => "all servers".to_owned(),
            names => names.join(", "),
        };
        let endpoint = self.endpoint.as_deref().unwrap_or("all endpoints");
        format!("{servers} at {endpoint}")
    }

    fn selection(self, admin: &Admin) -> Result<Selection, Refusal> {
        let gateway = &admin.subject.gateway;
        let known = gateway.status();
        let unknown = |name: &&String| !known.iter().any(|(server, _)| server == *name);
        if let Some(name) = self.servers.iter().find(unknown) {
            let message = format!("no server is called {name:?}; /api/backends lists them");
            return Err(Refusal::not_found(message));
        }
        if let Some(path) = &self.endpoint
            && gateway.endpoint(path).is_none()
        {
            let message = "no endpoint has the path in `endpoint`; /api/endpoints lists them";
            return Err(Refusal::not_found(message));
        }
        if self.endpoint.is_some() && admin.subject.telemetry.ring().is_none() {
            let message = "one endpoint cannot be recorded without traces: only they tell which messages of servers belong to it";
            return Err(Refusal::unavailable(message));
        }
        Ok(Selection {
            endpoint: self.endpoint.map(Into::into),
            servers: self.servers.into_iter().map(Into::into).collect(),
        })
    }
}
