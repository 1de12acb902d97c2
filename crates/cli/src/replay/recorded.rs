//! The side of a recording that is replayed: a server, or the gateway as its clients saw it.

use std::collections::HashMap;

use bytes::Bytes;
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::json::MAX_NESTING;
use fanlight_protocol::{Json, Message, Method, Response, Revision};
use fanlight_telemetry::recording::{Message as Line, RecordedServer, Side, To};

use crate::failure::Failure;
use crate::recording::Recording;

/// A recorded request and its answer.
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) params: Json,
    /// Whether a part of the request was masked.
    pub(super) is_masked: bool,
    pub(super) answer: Option<Response>,
    /// The masked places of the answer.
    pub(super) masked: Vec<String>,
    number: u64,
}

/// A recorded question of a server, and its client's answer.
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) params: Json,
    pub(super) answer: Option<Json>,
}

/// A recorded definition, and its masked places.
pub(super) struct Definition {
    pub(super) kind: ListKind,
    pub(super) name: String,
    pub(super) json: Json,
    pub(super) masked: Vec<String>,
}

/// Everything about the replayed side.
#[derive(Default)]
pub(super) struct Recorded {
    /// The server's name; `None` for the side of clients.
    pub(super) server: Option<String>,
    pub(super) opening: Option<(Json, Vec<String>)>,
    pub(super) definitions: Vec<Definition>,
    /// The lists that are known.
    pub(super) lists: Vec<ListKind>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) questions: Vec<Question>,
    pub(super) has_sessions: bool,
    /// Requests waiting for their answers, by connection and id.
    open: HashMap<(u64, String), Vec<usize>>,
    /// Questions waiting for their answers, by connection and id.
    asked: HashMap<(u64, String), usize>,
}

impl Recorded {
    /// The messages of the server that is named, else of the only server, else of all clients.
    /// `like` is the name of the server that is tested.
    pub(super) fn choose(
        recording: &Recording,
        from: Option<&str>,
        like: Option<&str>,
    ) -> Result<Self, Failure> {
        let servers = &recording.head.servers;
        let only = servers.keys().next().filter(|_| servers.len() == 1);
        let like = like.filter(|name| servers.contains_key(*name));
        let server = from.or(like).or(only.map(String::as_str));
        let mut recorded = Self {
            server: server.map(str::to_owned),
            ..Self::default()
        };
        if let Some(name) = server {
            let known = servers.keys().map(String::as_str).collect::<Vec<_>>();
            let known = known.join(", ");
            let unknown = || {
                Failure::usage(format!(
                    "no server {name:?} is recorded; there are: {known}"
                ))
            };
            recorded.describe(servers.get(name).ok_or_else(unknown)?);
        }
        let side = if server.is_some() {
            Side::Server
        } else {
            Side::Client
        };
        // Messages of clients name no server.
        let is_ours = |line: &&Line| line.side == side && line.server.as_deref() == server;
        for line in recording.messages.iter().filter(is_ours) {
            recorded.read(line);
            let revision = line.revision.as_deref().and_then(Revision::from_name);
            recorded.has_sessions |= revision.is_some_and(|revision| revision.has_sessions);
        }
        if server.is_none() {
            recorded.describe_by_answers();
        }
        Ok(recorded)
    }

    /// Takes what was read when the recording started.
    fn describe(&mut self, server: &RecordedServer) {
        let opening = server.opening.as_deref().and_then(parsed);
        self.opening = opening.map(|opening| (opening, below(&server.masked, "/opening")));
        if self.opening.is_none() {
            return;
        }
        for (method, texts) in server.definitions.lists() {
            let Some(kind) = ListKind::of(&method) else {
                continue;
            };
            self.lists.push(kind);
            for (at, json) in texts.iter().enumerate() {
                let json = parsed(json).unwrap_or_else(Json::null);
                let name = json.get(kind.key());
                let name = name.and_then(|name| Some(name.as_str()?.into_owned()));
                let place = format!("/definitions/{}/{at}", kind.member());
                let masked = below(&server.masked, &place);
                let name = name.unwrap_or_default();
                self.definitions.push(Definition {
                    kind,
                    name,
                    json,
                    masked,
                });
            }
        }
    }

    /// Takes the opening and the lists from the answers that clients got.
    fn describe_by_answers(&mut self) {
        for exchange in &self.exchanges {
            let Some(result) = exchange.answer.as_ref().and_then(Response::result) else {
                continue;
            };
            if matches!(exchange.method, Method::Initialize | Method::Discover) {
                let masked = below(&exchange.masked, "/result");
                self.opening.get_or_insert((result, masked));
                continue;
            }
            let Some(kind) = ListKind::of(&exchange.method) else {
                continue;
            };
            if !self.lists.contains(&kind) {
                self.lists.push(kind);
            }
            for (at, (name, json)) in kind.own_entries(&[result]).into_iter().enumerate() {
                let is_it = |known: &Definition| known.kind == kind && known.name == name;
                if !self.definitions.iter().any(is_it) {
                    let place = format!("/result/{}/{at}", kind.member());
                    let masked = below(&exchange.masked, &place);
                    self.definitions.push(Definition {
                        kind,
                        name,
                        json,
                        masked,
                    });
                }
            }
        }
    }

    /// Takes one message.
    fn read(&mut self, line: &Line) {
        let text = line
            .text()
            .map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let Some(Ok(message)) = text.map(|text| Message::parse(text, MAX_NESTING)) else {
            return;
        };
        let key = |id: &Json| (line.connection, id.as_text().to_owned());
        let params = |params: Option<Json>| params.unwrap_or_else(Json::empty_object);
        match (message, line.to) {
            (Message::Request(request), To::Server) => {
                let given = request.params.as_ref().filter(|_| line.masked.is_empty());
                self.take_input(given.and_then(|params| params.get("inputResponses")));
                let open = self.open.entry(key(&request.id)).or_default();
                open.push(self.exchanges.len());
                self.exchanges.push(Exchange {
                    method: request.method,
                    params: params(request.params),
                    is_masked: line
                        .masked
                        .iter()
                        .any(|masked| masked.starts_with("/params")),
                    answer: None,
                    masked: Vec::new(),
                    number: line.exchange,
                });
            }
            (Message::Response(response), To::Client) => {
                let open = self.open.entry(key(&response.id())).or_default();
                let exchanges = &mut self.exchanges;
                let is_ours = |at: &usize| {
                    exchanges
                        .get(*at)
                        .is_some_and(|it| it.number == line.exchange)
                };
                let place = open.iter().position(is_ours).or(open.len().checked_sub(1));
                if let Some(exchange) = place.and_then(|at| exchanges.get_mut(open.remove(at))) {
                    exchange.answer = Some(response);
                    exchange.masked.clone_from(&line.masked);
                }
            }
            (Message::Request(request), To::Client) => {
                self.asked.insert(key(&request.id), self.questions.len());
                let (method, params) = (request.method, params(request.params));
                self.questions.push(Question {
                    method,
                    params,
                    answer: None,
                });
            }
            (Message::Response(response), To::Server) if line.masked.is_empty() => {
                let question = self.asked.remove(&key(&response.id()));
                if let Some(question) = question.and_then(|at| self.questions.get_mut(at)) {
                    question.answer = response.result();
                }
            }
            _ => {}
        }
    }

    /// Takes the answers to the questions in the last result that had some.
    fn take_input(&mut self, answers: Option<Json>) {
        let asked = |exchange: &Exchange| exchange.answer.as_ref()?.result()?.get("inputRequests");
        let Some(answers) = answers else {
            return;
        };
        let questions = self.exchanges.iter().rev().find_map(asked);
        for member in answers.members() {
            let question = member.name(&answers).zip(questions.as_ref());
            let question = question.and_then(|(name, questions)| questions.get(&name));
            let method = question
                .as_ref()
                .and_then(|question| question.get("method"));
            let method = method.and_then(|method| Some(Method::from_name(&method.as_str()?)));
            let params = question.and_then(|question| question.get("params"));
            let params = params.unwrap_or_else(Json::empty_object);
            let answer = Some(answers.slice(member.value));
            self.questions.extend(method.map(|method| Question {
                method,
                params,
                answer,
            }));
        }
    }
}

/// The masked places at `place` and below, from there on.
fn below(masked: &[String], place: &str) -> Vec<String> {
    let rest = masked
        .iter()
        .filter_map(|masked| masked.strip_prefix(place));
    rest.filter(|rest| rest.is_empty() || rest.starts_with('/'))
        .map(str::to_owned)
        .collect()
}

fn parsed(text: &str) -> Option<Json> {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), MAX_NESTING).ok()
}
