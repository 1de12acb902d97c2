//! The side of a recording that is replayed: a server, or the gateway as its clients saw it.

use std::collections::HashSet;

use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{
    Era, INPUT_RESPONSES, InputRequired, Json, MAX_NESTING, Message, Method, Response,
};
use fanlight_telemetry::recording::RecordedServer;

use crate::failure::Result;
use crate::recording::Recording;
use crate::recording::script::{Cue, RecordedQuestion, Role, Script, Step, Take, json};

/// A recorded request and its answer.
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) params: Json,
    /// Whether a part of the request was masked.
    pub(super) is_masked: bool,
    pub(super) answer: Option<Response>,
    /// The masked places of the answer.
    pub(super) masked: Vec<String>,
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
    pub(super) questions: Vec<RecordedQuestion>,
    pub(super) has_sessions: bool,
    /// The known definitions.
    names: HashSet<(&'static str, String)>,
}

impl Recorded {
    /// The messages of the server that is named, else of the only server, else of all clients.
    /// `like` is the name of the server that is tested.
    pub(super) fn choose(
        recording: &Recording,
        from: Option<&str>,
        like: Option<&str>,
    ) -> Result<Self> {
        let servers = &recording.head.servers;
        let only = servers.keys().next().filter(|_| servers.len() == 1);
        let like = like.filter(|name| servers.contains_key(*name));
        let server = from.or(like).or(only.map(String::as_str));
        let script = Script::arrange(recording, server)?;
        let mut recorded = Self {
            server: server.map(str::to_owned),
            has_sessions: script.plays(Era::Legacy),
            questions: script.questions,
            ..Self::default()
        };
        for take in script.takes {
            recorded.take_input(&take);
            recorded.exchanges.push(Exchange::from_take(take));
        }
        match server.and_then(|name| servers.get(name)) {
            Some(server) => recorded.describe(server),
            None => recorded.describe_by_answers(),
        }
        Ok(recorded)
    }

    /// Takes what was read when the recording started.
    fn describe(&mut self, server: &RecordedServer) {
        let opening = server.opening.as_deref();
        let Some(opening) = opening.and_then(|text| json(text.as_bytes())) else {
            return;
        };
        self.opening = Some((opening, places_below(&server.masked, "/opening")));
        for (method, texts) in server.definitions.lists() {
            let Some(kind) = ListKind::from_method(&method) else {
                continue;
            };
            let entries = texts.iter().map(|text| {
                let json = json(text.as_bytes()).unwrap_or_default();
                (json.text_at(kind.key()).unwrap_or_default(), json)
            });
            self.add_list(kind, entries, &server.masked, "/definitions");
        }
    }

    /// Takes the opening and the lists from the answers that clients got.
    fn describe_by_answers(&mut self) {
        for exchange in std::mem::take(&mut self.exchanges) {
            let result = exchange.answer.as_ref().and_then(Response::result);
            match (&exchange.method, result) {
                (Method::Initialize | Method::Discover, Some(result)) => {
                    let masked = places_below(&exchange.masked, "/result");
                    self.opening.get_or_insert((result, masked));
                }
                (method, Some(result)) => {
                    if let Some(kind) = ListKind::from_method(method) {
                        let entries = kind.own_entries(&[result]).into_iter();
                        self.add_list(kind, entries, &exchange.masked, "/result");
                    }
                }
                _ => {}
            }
            self.exchanges.push(exchange);
        }
    }

    /// Adds definitions that are not known yet. Their places in `masked` begin with `place`.
    fn add_list(
        &mut self,
        kind: ListKind,
        entries: impl Iterator<Item = (String, Json)>,
        masked: &[String],
        place: &str,
    ) {
        if !self.lists.contains(&kind) {
            self.lists.push(kind);
        }
        for (at, (name, json)) in entries.enumerate() {
            if self.names.insert((kind.member(), name.clone())) {
                let masked = places_below(masked, &format!("{place}/{}/{at}", kind.member()));
                self.definitions.push(Definition {
                    kind,
                    name,
                    json,
                    masked,
                });
            }
        }
    }

    /// Takes the answers to the questions in the last result that had some.
    fn take_input(&mut self, take: &Take) {
        let given = take.request.params.as_ref();
        let answers = given.and_then(|params| params.get(INPUT_RESPONSES));
        let Some(answers) = answers.filter(|_| take.masked.is_empty()) else {
            return;
        };
        let asked = |exchange: &Exchange| InputRequired::from_response(exchange.answer.as_ref()?);
        let wanted = self.exchanges.iter().rev().find_map(asked);
        let questions = wanted.and_then(|wanted| wanted.requests().ok());
        for question in questions.unwrap_or_default() {
            let Some(key) = question.key.as_str() else {
                continue;
            };
            self.questions.push(RecordedQuestion {
                method: question.method,
                params: question.params.unwrap_or_else(Json::empty_object),
                answer: answers
                    .get(&key)
                    .map(|answer| Response::from_result(&answer)),
            });
        }
    }
}

impl Exchange {
    fn from_take(take: Take) -> Self {
        let answer = take.steps.into_iter().find_map(|step| match step {
            Step::Send(Cue {
                role: Role::Answer(_),
                text,
                masked,
                ..
            }) => Some((Message::parse(text.into_bytes(), MAX_NESTING), masked)),
            _ => None,
        });
        let (answer, masked) = match answer {
            Some((Ok(Message::Response(answer)), masked)) => (Some(answer), masked),
            _ => (None, Vec::new()),
        };
        let mut hidden = take.masked.iter();
        Self {
            method: take.request.method,
            params: take.request.params.unwrap_or_else(Json::empty_object),
            is_masked: hidden.any(|masked| masked.starts_with("/params")),
            answer,
            masked,
        }
    }
}

/// The masked places at `place` and below, from there on.
fn places_below(masked: &[String], place: &str) -> Vec<String> {
    let rest = masked
        .iter()
        .filter_map(|masked| masked.strip_prefix(place));
    rest.filter(|rest| rest.is_empty() || rest.starts_with('/'))
        .map(str::to_owned)
        .collect()
}
