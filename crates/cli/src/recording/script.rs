//! The script of a recording, for mocks and replays: each recorded request with the messages that
//! followed from it, and the messages outside of requests.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use fanlight_frontend::{discover_result, initialize_result};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::header::PROTOCOL_VERSION;
use fanlight_protocol::json::{ArrayBuilder, Kind, MAX_NESTING, ObjectBuilder, rewrite_object};
use fanlight_protocol::{Era, Json, Message, Method, Request, Response, Revision, meta};
use fanlight_telemetry::recording::{self, Framing, RecordedServer, Side, To};
use fanlight_telemetry::without_trace_context;

use super::Recording;
use crate::failure::Result;
use itertools::Itertools as _;

/// The maximum number of requests that run at one moment of a recording. The oldest one counts as
/// unanswered beyond that.
const RUNNING: usize = 1000;

/// The script of one side of a recording.
#[derive(Default)]
pub(crate) struct Script {
    /// The recorded requests in order.
    pub(crate) takes: Vec<Take>,
    /// The recorded legacy connections.
    pub(crate) connections: BTreeMap<u64, Scene>,
    /// The requests of servers to legacy clients, in order.
    pub(crate) questions: Vec<RecordedQuestion>,
    /// The takes of each era and method.
    by_method: HashMap<(Era, Method), Vec<usize>>,
    /// The result of `initialize` or `server/discover` that a server gave before the recording.
    opening: Option<Json>,
    /// The definitions in lists that were read before the recording.
    lists: HashMap<Method, Vec<Json>>,
    /// The era of the server.
    era: Option<Era>,
}

/// A recorded question of a server.
pub(crate) struct RecordedQuestion {
    pub(crate) method: Method,
    pub(crate) params: Json,
    /// The client's answer, if the recording has it.
    pub(crate) answer: Option<Response>,
}

/// A recorded request.
pub(crate) struct Take {
    pub(crate) connection: u64,
    /// The number of the message in the recording.
    pub(crate) index: usize,
    /// The whole message.
    pub(crate) text: Json,
    pub(crate) request: Request,
    /// The parameters without what belongs to one hop.
    pub(crate) params: Json,
    /// The places, as JSON Pointers, at which the recording hides the value.
    pub(crate) masked: Vec<String>,
    pub(crate) steps: Vec<Step>,
    /// Whether the answer came as a stream of events.
    pub(crate) is_stream: bool,
    pub(crate) ending: TakeEnding,
}

/// The end of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeEnding {
    /// An answer.
    Answered,
    /// The client cancelled the request.
    Cancelled,
    /// The recording ended first.
    Open,
}

/// One step of a recorded request.
pub(crate) enum Step {
    /// The server sends a message.
    Send(Cue),
    /// The client answers a question.
    Await {
        /// The id of the question.
        question: Json,
        answer: Box<Response>,
        masked: Vec<String>,
        index: usize,
    },
}

/// A message of a server, and when it is sent.
#[derive(Clone)]
pub(crate) struct Cue {
    /// The time since the message before.
    pub(crate) after: Duration,
    /// The number of the message in the recording.
    pub(crate) index: usize,
    pub(crate) text: Json,
    pub(crate) masked: Vec<String>,
    pub(crate) role: Role,
}

/// The role of a message that a server sends.
#[derive(Clone)]
pub(crate) enum Role {
    /// The answer, with its HTTP status if it came over HTTP.
    Answer(Option<u16>),
    /// A request of the server, with its id.
    Question(Json),
    Notification,
}

/// A recorded legacy connection, besides its requests.
#[derive(Default)]
pub(crate) struct Scene {
    /// The time of the first message in microseconds.
    began: u64,
    /// The notifications of the client: their numbers and methods.
    pub(crate) notifications: Vec<(usize, Method)>,
    /// The messages outside of requests.
    pub(crate) outside: Vec<Outside>,
}

/// A message outside of requests.
pub(crate) struct Outside {
    /// The time since the connection began.
    pub(crate) at: Duration,
    /// The number of the message before in the same connection.
    pub(crate) previous: usize,
    /// The number of the message in the recording.
    pub(crate) index: usize,
    pub(crate) text: Json,
}

impl Script {
    /// Arranges the messages of one server, or of all clients.
    ///
    /// # Errors
    ///
    /// If no such server is recorded.
    pub(crate) fn arrange(recording: &Recording, server: Option<&str>) -> Result<Self> {
        let servers = &recording.head.servers;
        if let Some(name) = server.filter(|name| !servers.contains_key(*name)) {
            let names = servers.keys().map(String::as_str).join(", ");
            return Err(usage!("the recording has no server {name}; it has {names}"));
        }
        let side = server.map_or(Side::Client, |_| Side::Server);
        // Messages of clients name no server.
        let is_ours =
            |heard: &&recording::Message| heard.side == side && heard.server.as_deref() == server;
        let mut writer = Writer::default();
        for (index, heard) in recording.messages.iter().filter(is_ours).enumerate() {
            for text in parts(heard.text().unwrap_or_default()) {
                writer.add(index, heard, text);
            }
        }
        for (name, known) in servers {
            if server.is_none_or(|only| only == name) {
                writer.script.add_server(known);
            }
        }
        let mut script = writer.script;
        for ((_, method), takes) in &mut script.by_method {
            if matches!(method, Method::Initialize | Method::Discover)
                || ListKind::from_method(method).is_some()
            {
                // The head answers what the server has not.
                takes.retain(|take| {
                    let take = script.takes.get(*take);
                    take.is_some_and(|take| take.ending == TakeEnding::Answered)
                });
            }
        }
        Ok(script)
    }

    /// The recorded requests of this era and method, in order.
    pub(crate) fn takes_of(&self, era: Era, method: &Method) -> &[usize] {
        let key = (era, method.clone());
        self.by_method.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Adds what a server has said before the recording: its opening, and its lists.
    fn add_server(&mut self, server: &RecordedServer) {
        let opening = server
            .opening
            .as_ref()
            .and_then(|text| json(text.as_bytes()));
        self.opening = self.opening.take().or(opening);
        self.era = self.era.or(server.revision.as_deref().and_then(era_named));
        for (method, definitions) in server.definitions.lists() {
            let definitions = definitions.iter().filter_map(|text| json(text.as_bytes()));
            self.lists.entry(method).or_default().extend(definitions);
        }
    }

    /// Whether requests of this era are answered as recorded, because the recording has some. A
    /// recording without requests has the era of its server.
    pub(crate) fn plays(&self, era: Era) -> bool {
        if self.by_method.is_empty() {
            return self.era.unwrap_or(Era::Legacy) == era;
        }
        self.by_method.keys().any(|(recorded, _)| *recorded == era)
    }

    /// The result of a list that was read before the recording.
    pub(crate) fn list(&self, era: Era, method: &Method) -> Option<Json> {
        let name = ListKind::from_method(method)?.member();
        let mut list = ArrayBuilder::default();
        for definition in self.lists.get(method)? {
            list.push(definition);
        }
        let mut result = ObjectBuilder::new();
        result.member(name, &list.finish());
        Some(match era {
            Era::Legacy => result.finish(),
            Era::Modern => as_modern(&result.finish()),
        })
    }

    /// The opening result that a server gave before the recording, as the gateway translates it.
    pub(crate) fn opening(&self, era: Era) -> Option<Json> {
        let opening = self.opening.as_ref()?;
        let lacks = |member| opening.get(member).is_none();
        Some(match era {
            Era::Legacy if lacks("protocolVersion") => {
                initialize_result(opening, Revision::NEWEST_LEGACY)
            }
            Era::Modern if lacks("supportedVersions") => as_modern(&discover_result(opening)),
            _ => opening.clone(),
        })
    }
}

/// The part of `params` that is compared: without trace context, progress token and the other
/// members of `_meta` that belong to one hop.
pub(crate) fn lasting_params(params: Option<&Json>) -> Json {
    let params = params.cloned().unwrap_or_else(Json::empty_object);
    let params = without_trace_context(&params).unwrap_or(params);
    let Some(whole) = params.get("_meta").filter(Json::is_object) else {
        return params;
    };
    let lasting = whole.without_members(&meta::PER_HOP);
    if lasting.has_members() {
        params.with_member("_meta", &lasting)
    } else {
        params.without_members(&["_meta"])
    }
}

/// A result with the members that every modern one has.
fn as_modern(result: &Json) -> Json {
    let required = Revision::NEWEST_MODERN.result_members.iter();
    let required = required.map(|it| it.default).join(",");
    rewrite_object(result, |_| true, required.as_bytes())
}

fn era_named(revision: &str) -> Option<Era> {
    Some(Revision::from_name(revision)?.era)
}

/// Parses a text of the recording, which may hold anything.
pub(crate) fn json(text: &[u8]) -> Option<Json> {
    Json::parse(Bytes::copy_from_slice(text), MAX_NESTING).ok()
}

/// The messages of a text: one, or all of a batch.
fn parts(text: &str) -> Vec<Json> {
    let Some(text) = json(text.as_bytes()) else {
        return Vec::new();
    };
    if text.kind() == Kind::Array {
        text.items().collect()
    } else {
        vec![text]
    }
}

/// The era of a client's message, as the gateway decides it. `header` is the era of the revision in
/// its header.
pub(crate) fn era_of(message: &Message, header: Option<Era>) -> Era {
    let params = match message {
        Message::Request(request) => match request.method {
            Method::Initialize => return Era::Legacy,
            Method::Discover => return Era::Modern,
            _ => request.params.clone(),
        },
        Message::Notification(notification) => notification.params(),
        Message::Response(_) => None,
    };
    let names_revision = params
        .and_then(|params| params.get("_meta"))
        .is_some_and(|whole| whole.get(meta::PROTOCOL_VERSION).is_some());
    if names_revision {
        Era::Modern
    } else {
        header.unwrap_or(Era::Legacy)
    }
}

/// Arranges messages in their order.
#[derive(Default)]
struct Writer {
    script: Script,
    running: Vec<Running>,
    /// The number of the last message of each connection.
    last: HashMap<u64, usize>,
    /// Questions without an answer, by connection and id: the number of the question, and of the
    /// request that it belongs to.
    asked: HashMap<(u64, String), (usize, Option<usize>)>,
}

/// A request that runs at one moment of the recording.
struct Running {
    take: usize,
    connection: u64,
    exchange: u64,
    /// The time of its last message.
    us: u64,
}

impl Writer {
    fn add(&mut self, index: usize, heard: &recording::Message, text: Json) {
        let Ok(message) = Message::parse(text.bytes().clone(), MAX_NESTING) else {
            return;
        };
        let scenes = &mut self.script.connections;
        let scene = scenes.entry(heard.connection).or_insert_with(|| Scene {
            began: heard.us,
            ..Scene::default()
        });
        match (heard.to, message) {
            (To::Server, Message::Request(request)) => self.begin(index, heard, text, request),
            (To::Server, Message::Response(answer)) => self.add_answer(index, heard, answer),
            (To::Server, Message::Notification(notification)) => {
                let id = notification.params().and_then(|it| it.get("requestId"));
                scene
                    .notifications
                    .push((index, notification.method.clone()));
                if notification.method == Method::Cancelled {
                    let cancelled = self.find(|running, take| {
                        running.connection == heard.connection
                            && Some(&take.request.id) == id.as_ref()
                    });
                    cancelled.inspect(|at| self.end(*at, TakeEnding::Cancelled));
                }
            }
            (To::Client, message) => self.send(index, heard, text, &message),
        }
        self.last.insert(heard.connection, index);
    }

    fn begin(&mut self, index: usize, heard: &recording::Message, text: Json, request: Request) {
        let header = heard
            .headers
            .get(PROTOCOL_VERSION)
            .or(heard.revision.as_ref());
        let header = header.and_then(|revision| era_named(revision));
        let era = era_of(&Message::Request(request.clone()), header);
        if self.running.len() == RUNNING {
            self.running.remove(0);
        }
        let (take, connection) = (self.script.takes.len(), heard.connection);
        self.running.push(Running {
            take,
            connection,
            exchange: heard.exchange,
            us: heard.us,
        });
        let key = (era, request.method.clone());
        self.script.by_method.entry(key).or_default().push(take);
        self.script.takes.push(Take {
            connection,
            index,
            text,
            params: lasting_params(request.params.as_ref()),
            request,
            masked: heard.masked.clone(),
            steps: Vec::new(),
            is_stream: false,
            ending: TakeEnding::Open,
        });
    }

    fn add_answer(&mut self, index: usize, heard: &recording::Message, answer: Response) {
        let id = answer.id();
        let key = (heard.connection, id.as_text().to_owned());
        let Some((question, take)) = self.asked.remove(&key) else {
            return;
        };
        let question = self.script.questions.get_mut(question);
        if let Some(question) = question.filter(|_| heard.masked.is_empty()) {
            question.answer = Some(answer.clone());
        }
        let mut running = self.running.iter_mut();
        // Nobody waits for an answer after the end of the request.
        let Some(running) = running.find(|it| Some(it.take) == take) else {
            return;
        };
        running.us = heard.us;
        if let Some(take) = self.script.takes.get_mut(running.take) {
            take.steps.push(Step::Await {
                question: id,
                answer: Box::new(answer),
                masked: heard.masked.clone(),
                index,
            });
        }
    }

    fn send(&mut self, index: usize, heard: &recording::Message, text: Json, message: &Message) {
        let found = self.find_cause(heard, message);
        let running = found.and_then(|at| self.running.get_mut(at));
        if let Message::Request(question) = message {
            let key = (heard.connection, question.id.as_text().to_owned());
            let take = running.as_ref().map(|running| running.take);
            let questions = &mut self.script.questions;
            self.asked.insert(key, (questions.len(), take));
            questions.push(RecordedQuestion {
                method: question.method.clone(),
                params: question.params.clone().unwrap_or_else(Json::empty_object),
                answer: None,
            });
        }
        let Some((at, running)) = found.zip(running) else {
            // The request of another response was sent before the recording.
            if !matches!(message, Message::Response(_)) {
                self.add_outside(index, heard, text);
            }
            return;
        };
        let after = Duration::from_micros(heard.us.saturating_sub(running.us));
        running.us = heard.us;
        let role = match message {
            Message::Response(_) => Role::Answer(heard.status),
            Message::Request(question) => Role::Question(question.id.clone()),
            Message::Notification(_) => Role::Notification,
        };
        let is_answer = matches!(role, Role::Answer(_));
        if let Some(take) = self.script.takes.get_mut(running.take) {
            // `initialize` comes before its session, which the answer names.
            take.connection = heard.connection;
            take.is_stream |= heard.kind == Framing::Event || !is_answer;
            take.steps.push(Step::Send(Cue {
                after,
                index,
                text,
                masked: heard.masked.clone(),
                role,
            }));
        }
        if is_answer {
            self.end(at, TakeEnding::Answered);
        }
    }

    /// The latest running request for which `is_meant` holds.
    fn find(&self, is_meant: impl Fn(&Running, &Take) -> bool) -> Option<usize> {
        self.running.iter().rposition(|running| {
            let take = self.script.takes.get(running.take);
            take.is_some_and(|take| is_meant(running, take))
        })
    }

    /// The running request that a server's message belongs to.
    fn find_cause(&self, heard: &recording::Message, message: &Message) -> Option<usize> {
        let is_http = heard.transport == "http";
        let is_own = |it: &Running| it.connection == heard.connection;
        let has_exchange = |it: &Running| is_http && it.exchange == heard.exchange;
        let of_exchange = self.find(|running, _| has_exchange(running));
        let params = match message {
            Message::Response(answer) => {
                let id = answer.id();
                let exact = self.find(|it, take| has_exchange(it) && take.request.id == id);
                let own = || self.find(|it, take| is_own(it) && take.request.id == id);
                return exact.or_else(own).or(of_exchange);
            }
            _ if of_exchange.is_some() => return of_exchange,
            Message::Request(request) => request.params.clone(),
            Message::Notification(notification) => notification.params(),
        };
        let params = params.unwrap_or_else(Json::empty_object);
        if let Some(token) = params.get(meta::PROGRESS_TOKEN) {
            let has_token =
                |take: &Take| progress_token(take.request.params.as_ref()) == Some(token.clone());
            return self.find(|it, take| is_own(it) && has_token(take));
        }
        let whole = params.get("_meta");
        if let Some(id) = whole.and_then(|whole| whole.get(meta::SUBSCRIPTION_ID)) {
            return self.find(|it, take| is_own(it) && take.request.id == id);
        }
        // On one stream for everything, the latest request is the most likely cause.
        self.find(|it, take| !is_http && is_own(it) && take.request.method != Method::Listen)
    }

    fn end(&mut self, at: usize, ending: TakeEnding) {
        let running = self.running.remove(at);
        if let Some(take) = self.script.takes.get_mut(running.take) {
            take.ending = ending;
        }
    }

    fn add_outside(&mut self, index: usize, heard: &recording::Message, text: Json) {
        let previous = self
            .last
            .get(&heard.connection)
            .copied()
            .unwrap_or_default();
        if let Some(scene) = self.script.connections.get_mut(&heard.connection) {
            scene.outside.push(Outside {
                at: Duration::from_micros(heard.us.saturating_sub(scene.began)),
                previous,
                index,
                text,
            });
        }
    }
}

/// The progress token of a request.
pub(crate) fn progress_token(params: Option<&Json>) -> Option<Json> {
    params?.get("_meta")?.get(meta::PROGRESS_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_one_hop_are_left_out() {
        let hop = r#"{"name":"t","_meta":{"progressToken":1,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","io.modelcontextprotocol/clientInfo":{}}}"#;
        let lasting = |text: &str| lasting_params(json(text.as_bytes()).as_ref());
        assert_eq!(lasting(hop).as_text(), r#"{"name":"t"}"#);
        let own = r#"{"_meta":{"progressToken":1,"own":2},"name":"t"}"#;
        assert_eq!(lasting(own).as_text(), r#"{"name":"t","_meta":{"own":2}}"#);
        assert_eq!(lasting_params(None).as_text(), "{}");
        assert_eq!(lasting(r#"{"_meta":7}"#).as_text(), r#"{"_meta":7}"#);
    }
}
