//! `POST /api/recording`: the messages of both sides as lines of JSON, as they cross the wire
//! (docs/recordings.md).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use fanlight_canonical::{DEFAULT_PATH, Endpoint};
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::pins::Definition;
use fanlight_protocol::Json;
use fanlight_telemetry::recording::{
    Batch, Captures, Definitions, Full, Head, RecordedServer, Scribe, Selection, VERSION,
};
use futures_util::stream::{StreamExt as _, unfold};
use http::HeaderName;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::body::read_members;
use super::stream::Watch;
use super::{Answer, traces};
use crate::{About, Admin, AdminState, Operator, Refusal, event_interval, reply};

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
        ends: Instant::now() + time,
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
    let head = head(&admin, &selection, scribe.started()).await;
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

/// The lists of definitions.
const KINDS: [ListKind; 4] = [
    ListKind::Tools,
    ListKind::Prompts,
    ListKind::Resources,
    ListKind::ResourceTemplates,
];

/// The head of a recording that started at this time, not yet masked.
pub(super) async fn head(admin: &Admin, selection: &Selection, started: SystemTime) -> Head {
    let gateway = &admin.subject.gateway;
    let mut head = Head {
        recording: VERSION,
        fanlight: admin.subject.version.to_owned(),
        started: humantime::format_rfc3339_micros(started).to_string(),
        endpoint: selection.endpoint.as_deref().map(str::to_owned),
        ..Head::default()
    };
    // Lists that nobody has read yet are read now.
    for kind in KINDS {
        gateway.current_list(kind, &Endpoint::Everything).await;
    }
    let lists = KINDS.map(|kind| gateway.own_entries(kind, true));
    for (name, status) in gateway.status() {
        if !selection.has_server(&name) {
            continue;
        }
        let opening = gateway.description_of(&name).await.flatten();
        let each = |of: fn(&Json) -> String| {
            let [tools, prompts, resources, resource_templates] = lists.each_ref().map(|list| {
                let entries = list.get(&name).into_iter().flatten();
                entries.map(|(_, entry)| of(entry)).collect()
            });
            Definitions {
                tools,
                prompts,
                resources,
                resource_templates,
            }
        };
        let server = RecordedServer {
            revision: status.revision.map(str::to_owned),
            opening: opening.map(|opening| opening.as_text().to_owned()),
            definitions: each(|entry| entry.as_text().to_owned()),
            digests: each(|entry| {
                Definition::parse(entry)
                    .map(|one| one.digest())
                    .unwrap_or_default()
            }),
            masked: Vec::new(),
        };
        head.servers.insert(name, server);
    }
    head
}

/// How long messages are collected before they are written, so that masking them wakes few threads.
const COLLECT: Duration = Duration::from_millis(20);

/// A running recording.
pub(super) struct Running {
    pub(super) captures: Captures,
    pub(super) scribe: Arc<Mutex<Scribe>>,
    /// When the recording ends.
    pub(super) ends: Instant,
    /// Why it ends, unless its size or secrets are the reason.
    pub(super) reason: &'static str,
    pub(super) has_head: bool,
    pub(super) watch: Watch,
}

impl Running {
    /// The next lines, and the recording unless these are the last ones.
    pub(super) async fn next(mut self) -> (Bytes, Option<Self>) {
        if !self.has_head {
            self.has_head = true;
            let started = self.scribe.lock().started();
            let head = head(&self.watch.admin, self.captures.selection(), started).await;
            let mut scribe = self.scribe.lock();
            scribe.configure(self.watch.admin.subject.operations.configured_values());
            let lines = scribe.head(head);
            drop(scribe);
            return (lines.into(), Some(self));
        }
        if let Some(reason) = self.wait().await {
            self.reason = reason;
            self.captures.end();
        }
        let batch = self.captures.take();
        let ended = batch.is_last.then_some(self.reason);
        let (mut lines, full) = self.lines(batch).await;
        match full.map(Full::reason).or(ended) {
            None => (lines.into(), Some(self)),
            Some(reason) => {
                lines.extend(self.scribe.lock().end(reason));
                (lines.into(), None)
            }
        }
    }

    /// Waits for messages, or for the end of the recording; returns why it ends, unless an operator
    /// has ended it.
    async fn wait(&self) -> Option<&'static str> {
        let arrived = async {
            self.captures.arrived().await;
            sleep(COLLECT).await;
        };
        let is_disallowed = async {
            while self.watch.is_in_force().await {
                sleep(event_interval()).await;
            }
        };
        tokio::select! {
            biased;
            reason = self.watch.ended() => Some(reason),
            () = is_disallowed => Some("stopped"),
            () = sleep_until(self.ends) => Some("time"),
            () = arrived => None,
        }
    }

    /// The lines of these messages. They are masked on a thread that serves no requests.
    async fn lines(&self, batch: Batch) -> (Vec<u8>, Option<Full>) {
        let (admin, scribe) = (Arc::clone(&self.watch.admin), Arc::clone(&self.scribe));
        let work = spawn_blocking(move || {
            let mut scribe = scribe.lock();
            scribe.configure(admin.subject.operations.configured_values());
            scribe.lines(batch)
        });
        // It fails only while the program ends.
        work.await.unwrap_or_default()
    }
}
