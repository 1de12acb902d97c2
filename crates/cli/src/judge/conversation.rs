//! A conversation with a server in one era: the requests, and their answers.

use std::time::Duration;

use fanlight_config::Transport;
use fanlight_protocol::{Era, Revision, meta};
use serde_json::{Map, Value, json};

use super::observed::Mask;
use crate::judge::client::{Client, declared};
use crate::judge::lists::{declared_lists, find_list};
use crate::judge::observed::Observed;
use crate::judge::peer::{Answer, Broken, JudgedServer, METHOD_NOT_FOUND};
use crate::judge::shape::{Shape, check_shape};
use crate::judge::{EraReport, Finding, Patience, Pings, Step, Timing, Who, lists};

/// The number of small requests whose time is measured.
const PINGS: usize = 20;
/// A method that no server has.
const NO_METHOD: &str = "fanlight/no-such-method";

/// The results of a conversation.
pub(crate) struct Said {
    report: EraReport,
    observed: Observed,
    /// How long the first answer took, including the start of a process.
    pub(crate) first_answer: Option<Duration>,
    /// Whether the server cannot be started or reached at all.
    pub(crate) cannot_start: bool,
}

impl Said {
    pub(crate) fn report(self, findings: &mut Vec<Finding>) -> EraReport {
        self.observed.join(findings);
        self.report
    }
}

/// Talks to a server in this revision, or an earlier one of its era.
pub(crate) async fn hold(
    target: &Transport,
    revision: Revision,
    patience: Patience,
    mask: &Mask,
    step: &mut impl FnMut(Step),
) -> Said {
    let era = revision.era;
    step(Step::Opening(era));
    let report = EraReport {
        era: era.to_string(),
        ..EraReport::default()
    };
    let mut said = Said {
        report,
        observed: Observed::new(era, mask),
        first_answer: None,
        cannot_start: false,
    };
    let peer = match JudgedServer::open(target, revision, patience) {
        Ok(peer) => peer,
        Err(broken) => {
            said.refused(&broken, &[], mask);
            return said;
        }
    };
    let mut client = Client::new(peer, revision, patience, mask);
    let opened = match said.open(&mut client).await {
        Err(refused @ Broken::NotHere { .. }) if revision.has_sessions => {
            said.open_over_sse(&mut client, &refused).await
        }
        opened => opened,
    };
    match opened {
        Ok(()) => {
            step(Step::Reading(era));
            if let Err(broken) = said.read(&mut client).await {
                let what = "It breaks off or stops answering during requests that every server must accept.";
                said.observed.error("breaks-off", what, broken.to_string());
            }
        }
        Err(broken) => {
            // Its last output may arrive a little later than its end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            // A server that has answered has not failed.
            let is_answer = matches!(broken, Broken::Refused(_));
            let last_words = if is_answer {
                Vec::new()
            } else {
                client.peer.last_words()
            };
            said.refused(&broken, &last_words, mask);
        }
    }
    client.peer.close(&mut said.observed).await;
    said
}

impl Said {
    fn refused(&mut self, broken: &Broken, last_words: &[String], mask: &Mask) {
        let mut reason = mask.hide(&broken.to_string());
        if !last_words.is_empty() {
            let words: Vec<String> = last_words
                .iter()
                .map(|line| crate::judge::observed::shorten(&mask.hide(line)))
                .collect();
            reason = format!(
                "{reason}; the last lines of its standard error:\n{}",
                words.join("\n")
            );
        }
        self.cannot_start = matches!(broken, Broken::Unreachable(_));
        match broken {
            Broken::Unreachable(_) => {
                self.observed.error(
                    "unreachable",
                    "It cannot be started or reached.",
                    reason.as_str(),
                );
            }
            Broken::Unauthorized(_) => {
                self.observed.error(
                    "credentials",
                    "It requires credentials that it did not get.",
                    reason.as_str(),
                );
            }
            _ => {}
        }
        self.report.reason = Some(reason);
    }

    /// Negotiates a revision; an error tells why there is none.
    async fn open(&mut self, client: &mut Client<'_>) -> Result<(), Broken> {
        let revision = client.revision;
        let (method, params) = match revision.era {
            Era::Legacy => (
                "initialize",
                json!({
                    "protocolVersion": revision.name,
                    "capabilities": declared(revision),
                    "clientInfo": { "name": "fanlight check", "version": env!("CARGO_PKG_VERSION") },
                }),
            ),
            Era::Modern => {
                client.peer.agreed_on(revision.name);
                ("server/discover", json!({}))
            }
        };
        let params = params.as_object().cloned().unwrap_or_default();
        let (answer, took) = client
            .ask_within(client.patience.start, method, params, &mut self.observed)
            .await?;
        self.first_answer = Some(took);
        let description = match answer {
            Answer::Result(description) => description,
            Answer::Error { code, message } => {
                return Err(Broken::Refused(format!(
                    "it answers `{method}` with the error {code}: {message}"
                )));
            }
        };
        self.report.timings.push(Timing {
            what: format!("start and `{method}`"),
            millis: millis(took),
        });
        self.describe(client, &description)
    }

    /// Tries the deprecated HTTP+SSE transport. A server that accepts no `initialize` at its URL
    /// may use it (2025-11-25 basic/transports, Backwards Compatibility).
    async fn open_over_sse(
        &mut self,
        client: &mut Client<'_>,
        refused: &Broken,
    ) -> Result<(), Broken> {
        if !client
            .peer
            .change_to_sse(client.patience.answer, &mut self.observed)
            .await?
        {
            return Err(Broken::Refused(format!(
                "{refused} (it does not have the deprecated HTTP+SSE transport either)"
            )));
        }
        let what = "It has only the HTTP+SSE transport, deprecated since 2025-03-26: some clients and gateways cannot use it. \
                    Serve Streamable HTTP as well.";
        self.observed.warn(
            "deprecated-transport",
            what,
            "the event stream of a GET names an `endpoint`",
        );
        self.report.transport = Some("HTTP+SSE");
        self.open(client).await
    }

    fn describe(&mut self, client: &mut Client<'_>, description: &Value) -> Result<(), Broken> {
        let text = |key: &str| description[key].as_str().map(str::to_owned);
        let (shape, server) = match client.revision.era {
            Era::Legacy => {
                let revision = text("protocolVersion").unwrap_or_default();
                let known = Revision::from_name(&revision).filter(|revision| revision.has_sessions);
                if known.is_none() {
                    return Err(Broken::Refused(format!(
                        "it wants the revision {revision:?} of `initialize`, which clients do not know"
                    )));
                }
                client.peer.agreed_on(&revision);
                self.observed.may_ask = true;
                self.report.revision = Some(revision);
                (Shape::Initialize, description.get("serverInfo"))
            }
            Era::Modern => {
                let all = description["supportedVersions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                self.report.revisions = all
                    .iter()
                    .filter_map(|one| one.as_str().map(str::to_owned))
                    .collect();
                let newest = client.revision.name;
                if !self.report.revisions.iter().any(|one| one == newest) {
                    let what = "`supportedVersions` does not name the revision in which `server/discover` was answered.";
                    self.observed.error(
                        "supported-versions",
                        what,
                        format!("{newest} is not among {:?}", self.report.revisions),
                    );
                }
                self.report.revision = Some(newest.to_owned());
                let meta = description.get("_meta");
                let server = meta.and_then(|meta| meta.get(meta::SERVER_INFO));
                (Shape::Discover, server)
            }
        };
        check_shape(shape, description, &mut self.observed);
        let of = |server: &Value, key: &str| server[key].as_str().unwrap_or_default().to_owned();
        self.report.server = server.map(|server| Who {
            name: of(server, "name"),
            version: of(server, "version"),
        });
        if server.is_none() && client.revision.results_name_server {
            let what = "It does not identify itself: `_meta` of its results has no `io.modelcontextprotocol/serverInfo`.";
            self.observed.note("server-info", what, "server/discover");
        }
        let capabilities = description["capabilities"].as_object();
        self.report.capabilities = capabilities
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        self.report.instructions_bytes = text("instructions").unwrap_or_default().len();
        self.report.is_served = true;
        let declared = description.get("capabilities").cloned().unwrap_or_default();
        self.report.lists = declared_lists(&declared);
        Ok(())
    }

    /// Sends all remaining requests of the examination.
    async fn read(&mut self, client: &mut Client<'_>) -> Result<(), Broken> {
        if client.revision.has_sessions {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            client.peer.notify(&initialized, &mut self.observed).await?;
        }
        for report in &mut self.report.lists {
            let Some(list) = find_list(&report.kind) else {
                continue;
            };
            let took = lists::read(list, client, report, &mut self.observed).await?;
            self.report.timings.push(Timing {
                what: format!("`{}`", list.method().as_str()),
                millis: millis(took),
            });
        }
        if let [method, ..] = client.revision.harmless {
            self.report.pings = self.measure(client, method.as_str()).await?;
        }
        self.ask_for_nothing(client).await
    }

    async fn measure(
        &mut self,
        client: &mut Client<'_>,
        method: &str,
    ) -> Result<Option<Pings>, Broken> {
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let (answer, took) = client.ask(method, Map::new(), &mut self.observed).await?;
            if let Answer::Error { code, message } = answer {
                let what =
                    "It answers `ping` with an error: clients that check its health will end it.";
                self.observed
                    .error("ping", what, format!("{code}: {message}"));
                return Ok(None);
            }
            times.push(millis(took));
        }
        times.sort_by(f64::total_cmp);
        let at = |part: usize| {
            times
                .get((PINGS * part).div_ceil(100).saturating_sub(1))
                .copied()
                .unwrap_or_default()
        };
        Ok(Some(Pings {
            method: method.to_owned(),
            count: PINGS,
            p50: at(50),
            p95: at(95),
            max: at(100),
        }))
    }

    /// Checks that an unknown method is refused as such. Otherwise clients believe that the server
    /// has it.
    async fn ask_for_nothing(&mut self, client: &mut Client<'_>) -> Result<(), Broken> {
        let what =
            "It does not answer an unknown method with the error -32601 (`Method not found`).";
        match client.ask(NO_METHOD, Map::new(), &mut self.observed).await {
            Ok((
                Answer::Error {
                    code: METHOD_NOT_FOUND,
                    ..
                },
                _,
            )) => {}
            Ok((Answer::Error { code, .. }, _)) => {
                self.observed
                    .warn("unknown-method", what, format!("error {code}"));
            }
            Ok((Answer::Result(_), _)) => self.observed.error("unknown-method", what, "a result"),
            Err(broken) => self
                .observed
                .error("unknown-method", what, broken.to_string()),
        }
        Ok(())
    }
}

fn millis(took: Duration) -> f64 {
    // Microseconds are precise enough.
    (took.as_secs_f64() * 1e6).round() / 1e3
}
