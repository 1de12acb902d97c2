//! The player: finds the recorded request that a client repeats, and yields its messages.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use fanlight_canonical::comparison::{Difference, compare_exactly};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{
    ArrayBuilder, Era, Json, Method, ObjectBuilder, Request, Response, RpcError, code, meta,
};
use http::HeaderMap;

use crate::recording::script::{
    Cue, Role, Script, Step, Take, TakeEnding, lasting_params, progress_token,
};

/// The maximum number of recorded requests among which the nearest one is looked for.
const LOOKED_AT: usize = 1000;

/// Plays a script.
#[derive(Default)]
pub(super) struct Player {
    pub(super) script: Script,
    /// Whether it leaves out the recorded waits.
    pub(super) is_fast: bool,
    /// The answers of a mock without recording.
    pub(super) author: Option<Arc<dyn Author>>,
}

/// Answers requests that nobody recorded.
pub(crate) trait Author: Send + Sync {
    /// The messages that follow from a request.
    fn write(&self, era: Era, request: &Request) -> Take;

    /// Learns the header fields of a message.
    fn read_headers(&self, headers: &HeaderMap);
}

/// The part of a player's state that belongs to one client: its connection, or the process for
/// modern clients.
#[derive(Default)]
pub(super) struct Played {
    /// The takes that were played.
    used: HashSet<usize>,
    /// The recorded connection that is played.
    pub(super) connection: Option<u64>,
}

/// A request that is being answered.
pub(super) struct Play {
    player: Arc<Player>,
    era: Era,
    request: Request,
    params: Json,
    take: usize,
    /// The take that an [`Author`] wrote.
    written: Option<Take>,
    step: usize,
    /// The client's answers so far.
    answers: Vec<Response>,
}

/// The next thing that happens in a play.
pub(super) enum Next {
    /// The server sends a message.
    Send(Cue),
    /// The client answers the question with this recorded id.
    Await(Json),
    /// Nothing more happens until the client cancels the request.
    Silence,
    /// The request was answered.
    End,
}

impl Player {
    /// Whether requests of this era are answered as recorded.
    pub(super) fn plays(&self, era: Era) -> bool {
        self.author.is_some() || self.script.plays(era)
    }

    /// Begins to answer a request. A request that did not cross the wire while it was recorded is
    /// answered at once.
    pub(super) fn begin(
        self: &Arc<Self>,
        era: Era,
        request: Request,
        played: &mut Played,
    ) -> Result<Box<Play>, Box<Response>> {
        let params = lasting_params(request.params.as_ref());
        let written = self.author.as_ref();
        let mut play = Box::new(Play {
            player: Arc::clone(self),
            era,
            written: written.map(|author| author.write(era, &request)),
            request,
            params,
            take: usize::MAX,
            step: 0,
            answers: Vec::new(),
        });
        if play.written.is_some() {
            return Ok(play);
        }
        let (request, params) = (&play.request, &play.params);
        let takes = self.script.takes_of(era, &request.method);
        let found = match request.method {
            // Clients describe themselves in it, and every client is answered.
            Method::Initialize | Method::Discover => self.nearest(takes, params).map(|it| it.0),
            _ => self.find(takes, params, played),
        };
        let Some(take) = found else {
            let known = self.known_result(era, &request.method);
            return Err(Box::new(match known {
                Some(result) => Response::from_result(&result),
                None => Response::from_error(&self.not_recorded(takes, params)),
            }));
        };
        played.used.insert(take);
        if request.method == Method::Initialize {
            played.connection = self.script.takes.get(take).map(|it| it.connection);
        }
        play.take = take;
        Ok(play)
    }

    /// The take to play: the first of the equal ones that was not played yet, else the last one.
    /// Takes of the recorded connection that is played come first.
    fn find(&self, takes: &[usize], params: &Json, played: &Played) -> Option<usize> {
        let equal: Vec<usize> = self.equal(takes, params).collect();
        let is_own = |take: &usize| {
            let take = self.script.takes.get(*take);
            take.map(|it| it.connection) == played.connection
        };
        let own: Vec<usize> = equal.iter().copied().filter(is_own).collect();
        let equal = if own.is_empty() { equal } else { own };
        let unused = equal.iter().find(|take| !played.used.contains(take));
        unused.or(equal.last()).copied()
    }

    /// The takes whose parameters equal `params`.
    fn equal(&self, takes: &[usize], params: &Json) -> impl Iterator<Item = usize> {
        takes.iter().copied().filter(|take| {
            let take = self.script.takes.get(*take);
            take.is_some_and(|take| differences(take, params).is_empty())
        })
    }

    /// The take with the fewest differences.
    fn nearest(&self, takes: &[usize], params: &Json) -> Option<(usize, Vec<Difference>)> {
        let differing = takes.iter().take(LOOKED_AT).filter_map(|index| {
            let take = self.script.takes.get(*index)?;
            Some((*index, differences(take, params)))
        });
        differing.min_by_key(|(_, differences)| differences.len())
    }

    /// The result of a request that never crossed the wire while it was recorded; `None` if the
    /// recording has none.
    fn known_result(&self, era: Era, method: &Method) -> Option<Json> {
        match method {
            Method::Ping => Some(Json::empty_object()),
            Method::Initialize | Method::Discover => self.script.opening(era),
            _ if self.script.takes_of(era, method).is_empty() => self.script.list(era, method),
            _ => None,
        }
    }

    fn not_recorded(&self, takes: &[usize], params: &Json) -> RpcError {
        let Some((take, differences)) = self.nearest(takes, params) else {
            let message = "the recording has no request with this method";
            return RpcError::new(code::METHOD_NOT_FOUND, message)
                .with_data(not_recorded_data(&Json::null(), &[]));
        };
        let nearest = self.script.takes.get(take).map(|it| it.text.clone());
        let message = "the recording has no such request; `data` has the most similar one, and the differences";
        RpcError::new(code::INVALID_PARAMS, message).with_data(not_recorded_data(
            &nearest.unwrap_or_default(),
            &differences,
        ))
    }
}

fn differences(take: &Take, params: &Json) -> Vec<Difference> {
    let masked = take.masked.iter().cloned().collect();
    compare_exactly("/params", Some(&take.params), Some(params), &masked)
}

/// The `data` of an error. A value that is missing on one side has no member there.
fn not_recorded_data(nearest: &Json, differences: &[Difference]) -> Json {
    let mut differs = ArrayBuilder::default();
    for difference in differences {
        let mut one = ObjectBuilder::new();
        one.string("pointer", &difference.pointer);
        for (name, value) in [("recorded", &difference.was), ("asked", &difference.is)] {
            if let Some(value) = value {
                one.member(name, value);
            }
        }
        differs.push(&one.finish());
    }
    let mut data = ObjectBuilder::new();
    data.member("nearest", nearest)
        .member("differs", &differs.finish());
    data.finish()
}

impl Play {
    fn take(&self) -> Option<&Take> {
        self.take_at(self.take)
    }

    fn take_at(&self, take: usize) -> Option<&Take> {
        let written = self.written.as_ref();
        written.or_else(|| self.player.script.takes.get(take))
    }

    /// The client's id of the request.
    pub(super) fn id(&self) -> &Json {
        &self.request.id
    }

    /// The client's parameters of the request.
    pub(super) fn params(&self) -> Option<&Json> {
        self.request.params.as_ref()
    }

    /// The number of the recorded request.
    pub(super) fn index(&self) -> usize {
        self.take().map_or(0, |take| take.index)
    }

    /// Whether the answer is a stream over HTTP.
    pub(super) fn is_stream(&self) -> bool {
        self.take()
            .is_none_or(|take| take.is_stream || take.ending != TakeEnding::Answered)
    }

    /// The next thing that happens.
    pub(super) fn next(&mut self) -> Result<Next, RpcError> {
        loop {
            let step = self.take().and_then(|take| take.steps.get(self.step));
            let next = match step {
                None => return self.end(),
                Some(Step::Await { question, .. }) => Some(Next::Await(question.clone())),
                Some(Step::Send(cue)) => self.send(cue),
            };
            self.step += 1;
            if let Some(next) = next {
                return Ok(next);
            }
        }
    }

    fn end(&self) -> Result<Next, RpcError> {
        match self.take().map(|take| take.ending) {
            Some(TakeEnding::Answered) => Ok(Next::End),
            Some(TakeEnding::Cancelled) => Ok(Next::Silence),
            _ if self.request.method == Method::Listen => Ok(Next::Silence),
            _ => Err(RpcError::new(
                code::INTERNAL,
                "the recording ended before this request was answered",
            )),
        }
    }

    /// The message for this client: with its own id and progress token. `None` for progress that
    /// it did not ask for.
    fn send(&self, cue: &Cue) -> Option<Next> {
        const TOKEN: [&str; 2] = ["params", meta::PROGRESS_TOKEN];
        let (mut text, id) = (cue.text.clone(), self.id());
        match cue.role {
            Role::Answer(_) => text = with_value(&text, &["id"], id),
            Role::Notification if place(&text, &TOKEN).is_some() => {
                let token = progress_token(self.request.params.as_ref())?;
                text = with_value(&text, &TOKEN, &token);
            }
            _ => {}
        }
        if self.request.method == Method::Listen {
            for body in ["params", "result"] {
                text = with_value(&text, &[body, "_meta", meta::SUBSCRIPTION_ID], id);
            }
        }
        Some(Next::Send(Cue {
            text,
            ..cue.clone()
        }))
    }

    /// Takes the client's answer to the question that [`Next::Await`] named. The play goes on as
    /// recorded for this answer; returns the number of the recorded answer.
    pub(super) fn take_answer(
        &mut self,
        answer: Response,
        played: &mut Played,
    ) -> Result<usize, RpcError> {
        self.answers.push(answer);
        let takes = self.player.script.takes_of(self.era, &self.request.method);
        // The take that is played comes first; others of the same request follow.
        let others = self
            .player
            .equal(takes, &self.params)
            .filter(|it| *it != self.take);
        let found = std::iter::once(self.take)
            .chain(others)
            .find_map(|take| Some((take, self.step_after(take)?)));
        let Some((take, (step, index))) = found else {
            return Err(self.answer_not_recorded());
        };
        if take != self.take {
            played.used.remove(&self.take);
            played.used.insert(take);
        }
        (self.take, self.step) = (take, step);
        Ok(index)
    }

    /// The step that follows in this take if all answers so far are as recorded there, and the
    /// number of the last recorded answer.
    fn step_after(&self, take: usize) -> Option<(usize, usize)> {
        let take = self.take_at(take)?;
        let mut recorded = take
            .steps
            .iter()
            .enumerate()
            .filter_map(|(at, step)| match step {
                Step::Await {
                    answer,
                    masked,
                    index,
                    ..
                } => Some((at, answer, masked, index)),
                Step::Send(_) => None,
            });
        let mut found = None;
        for given in &self.answers {
            let (at, answer, masked, index) = recorded.next()?;
            // On stdio, a question that belongs to no request seems to belong to a list.
            let is_any = ListKind::from_method(&self.request.method).is_some();
            if !is_any && !answer_differences(answer, given, masked).is_empty() {
                return None;
            }
            found = Some((at + 1, *index));
        }
        found
    }

    fn answer_not_recorded(&self) -> RpcError {
        let steps = self.take().map(|take| &take.steps[..]).unwrap_or_default();
        let recorded = steps.get(..self.step).and_then(<[Step]>::last);
        let (nearest, differs) = match (recorded, self.answers.last()) {
            (Some(Step::Await { answer, masked, .. }), Some(given)) => {
                (answer.body(), answer_differences(answer, given, masked))
            }
            _ => (Json::null(), Vec::new()),
        };
        let message = "the recording has no such answer to the server's question";
        RpcError::new(code::INVALID_PARAMS, message)
            .with_data(not_recorded_data(&nearest, &differs))
    }
}

/// Compares two answers to a question, at `/result` or `/error`.
fn answer_differences(recorded: &Response, given: &Response, masked: &[String]) -> Vec<Difference> {
    let kind = |it: &Response| if it.is_error() { "/error" } else { "/result" };
    let (pointer, body) = (kind(recorded), given.body());
    let body = (kind(given) == pointer).then_some(&body);
    let masked = masked.iter().cloned().collect();
    compare_exactly(pointer, Some(&recorded.body()), body, &masked)
}

/// The text with another value at `path`, if it has one there.
pub(super) fn with_value(text: &Json, path: &[&str], value: &Json) -> Json {
    match place(text, path) {
        Some(range) => text.with(range, value),
        None => text.clone(),
    }
}

fn place(text: &Json, path: &[&str]) -> Option<Range<usize>> {
    let (name, rest) = path.split_first()?;
    let found = text.members().find(|it| it.is(text, name))?.value;
    if rest.is_empty() {
        return Some(found);
    }
    let inner = place(&text.slice(found.clone()), rest)?;
    Some(found.start + inner.start..found.start + inner.end)
}
