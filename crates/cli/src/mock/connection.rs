//! One client of a mock: runs its requests, passes its answers on, and sends it the messages outside
//! of requests at their time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use fanlight_frontend::message_fault;
use fanlight_protocol::line::Line;
use fanlight_protocol::message::Sender;
use fanlight_protocol::{
    DEFAULT_NESTING, Era, InputRequired, Json, MAX_NESTING, Message, MessageError, Method,
    MissingCapability, Notification, Request, Response, Revision, RpcError, code, meta,
    missing_capability_error,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::player::{Next, Play, Played, Player, with_value};
use crate::recording::script::{Role, Scene, era_of, json};

/// The maximum number of requests that one client may run at a time.
const RUNNING: usize = 1000;

/// A message to the client.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) text: Bytes,
    /// The HTTP status of an answer; `None` for 200.
    pub(super) status: Option<u16>,
}

/// A client: a legacy connection, or all modern clients of the process.
pub(super) struct MockedClient {
    player: Arc<Player>,
    pub(super) era: Era,
    state: Mutex<State>,
    /// The place in the recording that the client has reached.
    place: watch::Sender<Place>,
    /// The next message outside of requests; held by the stream that sends them.
    pub(super) outside: Arc<tokio::sync::Mutex<usize>>,
}

#[derive(Default)]
struct State {
    played: Played,
    /// The capabilities that a legacy client has declared.
    capabilities: Option<Json>,
    /// Running requests by their id.
    running: HashMap<String, CancellationToken>,
    /// The server's questions without an answer, by their id.
    questions: HashMap<String, oneshot::Sender<Response>>,
    /// The ids of the questions so far.
    asked: HashSet<String>,
    /// The number of questions that got an id of their own, since theirs was in use.
    renamed: u64,
}

/// A place in the recording, and when the client began.
#[derive(Clone, Copy, Default)]
struct Place {
    began: Option<Instant>,
    /// The number of the latest message of the recording that was played.
    index: usize,
}

/// The reaction to a client's request.
pub(super) enum Answering {
    /// Messages as recorded.
    Play(Box<Play>),
    /// An answer at once.
    AtOnce(Outgoing),
}

impl Answering {
    /// Whether the answer is a stream over HTTP.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Play(play) if play.is_stream())
    }
}

impl MockedClient {
    pub(super) fn new(player: Arc<Player>, era: Era) -> Arc<Self> {
        Arc::new(Self {
            player,
            era,
            state: Mutex::default(),
            place: watch::Sender::default(),
            outside: Arc::default(),
        })
    }

    /// Takes what a client has sent; returns the reaction to a request, or to a text that is no
    /// message.
    pub(super) fn receive(&self, received: Result<Message, Malformed>) -> Option<Answering> {
        match received {
            Ok(Message::Request(request)) => return Some(self.begin(request)),
            Ok(Message::Response(answer)) => {
                let question = self.state.lock().questions.remove(answer.id().as_text());
                // Nobody waits for a late answer.
                question.map(|question| question.send(answer));
            }
            Ok(Message::Notification(notification)) => self.take_notification(&notification),
            Err(malformed) => {
                let mut refusal = self.refusal(&malformed.0, &malformed.1);
                refusal.status = Some(400);
                return Some(Answering::AtOnce(refusal));
            }
        }
        None
    }

    fn begin(&self, request: Request) -> Answering {
        let id = request.id.clone();
        let message = Message::Request(request.clone());
        if era_of(&message, Some(self.era)) != self.era {
            return Answering::AtOnce(self.refusal(&id, &not_served(self.era)));
        }
        let mut state = self.state.lock();
        if state.running.len() >= RUNNING {
            let message = format!("more than {RUNNING} requests are running");
            return Answering::AtOnce(self.refusal(&id, &RpcError::new(code::INTERNAL, message)));
        }
        if request.method == Method::Initialize {
            let params = request.params.as_ref();
            state.capabilities = params.and_then(|params| params.get("capabilities"));
        }
        let begun = self.player.begin(self.era, request, &mut state.played);
        if begun.is_ok() {
            let running = CancellationToken::new();
            state.running.insert(id.as_text().to_owned(), running);
        }
        drop(state);
        match begun {
            Ok(play) => {
                self.reach(play.index());
                Answering::Play(play)
            }
            Err(response) => {
                self.reach(0);
                Answering::AtOnce(self.outgoing(&id, &response))
            }
        }
    }

    /// An answer of the mock itself.
    fn outgoing(&self, id: &Json, response: &Response) -> Outgoing {
        let revision = match self.era {
            Era::Legacy => Revision::NEWEST_LEGACY,
            Era::Modern => Revision::NEWEST_MODERN,
        };
        Outgoing {
            text: response.to_message(id, Bytes::new()).into_bytes(),
            status: Some(revision.status(response.error_code())),
        }
    }

    /// An error of the mock itself.
    fn refusal(&self, id: &Json, error: &RpcError) -> Outgoing {
        self.outgoing(id, &Response::from_error(error))
    }

    /// Sends the messages of an answer until the client cancels the request, or nobody reads them.
    pub(super) async fn answer(&self, answering: Answering, out: mpsc::Sender<Outgoing>) {
        let mut play = match answering {
            Answering::Play(play) => play,
            // If nobody reads it, the client is gone.
            Answering::AtOnce(message) => return drop(out.send(message).await),
        };
        let id = play.id().clone();
        let ending = RunningRequest {
            connection: self,
            id: id.as_text().to_owned(),
        };
        let running = self.state.lock().running.get(&ending.id).cloned();
        let running = running.unwrap_or_default();
        tokio::select! {
            () = running.cancelled() => {}
            () = out.closed() => {}
            played = self.send_all(&mut play, &out) => {
                if let Err(error) = played {
                    drop(out.send(self.refusal(&id, &error)).await);
                }
            }
        }
    }

    async fn send_all(
        &self,
        play: &mut Play,
        out: &mpsc::Sender<Outgoing>,
    ) -> Result<(), RpcError> {
        let mut questions = Vec::new();
        loop {
            match play.next()? {
                Next::Send(cue) => {
                    if !self.player.is_fast {
                        sleep(cue.after).await;
                    }
                    if let Some(missing) = self.undeclared(play.params(), &cue.text) {
                        let error = missing_capability_error(&[missing], &[]);
                        return Err(error.unwrap_or_else(|| missing.to_error()));
                    }
                    let (text, status) = match cue.role {
                        Role::Question(id) => (self.ask(&cue.text, id, &mut questions), None),
                        Role::Answer(status) => (cue.text, status),
                        Role::Notification => (cue.text, None),
                    };
                    let text = text.into_bytes();
                    if out.send(Outgoing { text, status }).await.is_err() {
                        return Ok(());
                    }
                    self.reach(cue.index);
                }
                Next::Await(id) => {
                    let asked = questions.iter().position(|it: &Question| it.recorded == id);
                    let asked = asked.unwrap_or(0);
                    if asked < questions.len()
                        && let Ok(answer) = questions.remove(asked).answer.await
                    {
                        let index = play.take_answer(answer, &mut self.state.lock().played)?;
                        self.reach(index);
                    }
                }
                Next::Silence => std::future::pending().await,
                Next::End => return Ok(()),
            }
        }
    }

    /// The first capability that the questions in a message need and the client has not declared.
    /// `params` are its request's parameters.
    fn undeclared(&self, params: Option<&Json>, text: &Json) -> Option<MissingCapability> {
        let capabilities = match self.era {
            Era::Legacy => self.state.lock().capabilities.clone(),
            Era::Modern => params.and_then(|it| it.get("_meta")?.get(meta::CLIENT_CAPABILITIES)),
        };
        let capabilities = capabilities.unwrap_or_default();
        let missing = |method: &Method, params: Option<&Json>| {
            MissingCapability::for_server_request(&capabilities, method, params)
        };
        match Message::parse(text.bytes().clone(), MAX_NESTING) {
            Ok(Message::Request(asked)) => missing(&asked.method, asked.params.as_ref()),
            Ok(Message::Response(answer)) => {
                let asked = InputRequired::from_response(&answer)?.requests().ok()?;
                let mut asked = asked.iter();
                asked.find_map(|one| missing(&one.method, one.params.as_ref()))
            }
            _ => None,
        }
    }

    /// Registers a question, and gives it another id if its own is in use.
    fn ask(&self, text: &Json, id: Json, questions: &mut Vec<Question>) -> Json {
        let mut state = self.state.lock();
        let (sent, text) = if state.asked.insert(id.as_text().to_owned()) {
            (id.clone(), text.clone())
        } else {
            state.renamed += 1;
            let own = Json::string(&format!("mock-{}", state.renamed));
            let text = with_value(text, &["id"], &own);
            (own, text)
        };
        let (sender, answer) = oneshot::channel();
        state.questions.insert(sent.as_text().to_owned(), sender);
        questions.push(Question {
            recorded: id,
            answer,
        });
        text
    }

    fn take_notification(&self, notification: &Notification) {
        let mut state = self.state.lock();
        let params = notification.params();
        let id = params.and_then(|params| params.get("requestId"));
        if let (Method::Cancelled, Some(id)) = (&notification.method, id) {
            let running = state.running.remove(id.as_text());
            running.inspect(CancellationToken::cancel);
        }
        let index = self.place.borrow().index;
        let next = self.scene(&state.played).and_then(|scene| {
            let mut recorded = scene.notifications.iter();
            recorded.find(|(at, method)| *at > index && *method == notification.method)
        });
        drop(state);
        next.inspect(|(index, _)| self.reach(*index));
    }

    /// Notes that the client has come to this message of the recording.
    fn reach(&self, index: usize) {
        self.place.send_modify(|place| {
            place.began.get_or_insert_with(Instant::now);
            place.index = place.index.max(index);
        });
    }

    /// The recorded connection that is played; without an `initialize` in the recording, the first
    /// one with messages outside of requests.
    fn scene(&self, played: &Played) -> Option<&Scene> {
        let connections = &self.player.script.connections;
        match played.connection {
            Some(connection) => connections.get(&connection),
            None => connections.values().find(|it| !it.outside.is_empty()),
        }
    }

    /// Sends the messages outside of requests, from the `next` one on: at their time, or with
    /// `--fast` once the client has come to the message before.
    pub(super) async fn send_outside(&self, next: &mut usize, out: &mpsc::Sender<Outgoing>) {
        let mut place = self.place.subscribe();
        let begun = place.wait_for(|place| place.began.is_some()).await;
        let Some(began) = begun.ok().and_then(|place| place.began) else {
            return;
        };
        loop {
            let scene = self.scene(&self.state.lock().played);
            let Some(outside) = scene.and_then(|it| it.outside.get(*next)) else {
                return;
            };
            if self.player.is_fast {
                let _ = place
                    .wait_for(|place| place.index >= outside.previous)
                    .await;
            } else {
                sleep_until(began + outside.at).await;
            }
            let text = outside.text.bytes().clone();
            let message = Outgoing { text, status: None };
            let is_undeclared = self.undeclared(None, &outside.text).is_some();
            if !is_undeclared && out.send(message).await.is_err() {
                return;
            }
            *next += 1;
            self.reach(outside.index);
        }
    }
}

/// Forgets a running request once it is dropped.
struct RunningRequest<'a> {
    connection: &'a MockedClient,
    id: String,
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.connection.state.lock();
        state.running.remove(&self.id);
        state.questions.retain(|_, answer| !answer.is_closed());
    }
}

/// The error for a request of the era that the mock, or this connection of it, does not serve.
/// `served` is the other one.
fn not_served(served: Era) -> RpcError {
    let message = format!("only {served} clients are served here");
    match served {
        // A modern client then tries `initialize`.
        Era::Legacy => RpcError::new(code::METHOD_NOT_FOUND, message),
        Era::Modern => {
            let supported = format!(r#"{{"supported":["{}"]}}"#, Revision::NEWEST_MODERN);
            let data = json(supported.as_bytes()).unwrap_or_default();
            RpcError::new(code::UNSUPPORTED_PROTOCOL_VERSION, message).with_data(data)
        }
    }
}

/// A question of the server that was sent.
struct Question {
    /// The id in the recording.
    recorded: Json,
    answer: oneshot::Receiver<Response>,
}

/// The maximum size of a message of a client, in bytes.
pub(super) const MESSAGE: usize = 64 << 20;

/// The maximum number of messages in a batch.
const BATCH: usize = 100;

/// The error for a text that is no message, and the id of its request.
pub(super) type Malformed = Box<(Json, RpcError)>;

/// The messages of a text: one, or all of a batch.
pub(super) fn messages(text: Bytes) -> Vec<Result<Message, Malformed>> {
    match Message::parse_from_client(text, DEFAULT_NESTING) {
        Err(MessageError::Batch(batch)) => {
            match Message::parse_batch(batch, DEFAULT_NESTING, BATCH, Sender::Client) {
                Ok(all) => all.into_iter().map(checked).collect(),
                Err(error) => vec![invalid(error.to_string())],
            }
        }
        one => vec![checked(one)],
    }
}

/// The messages of a line.
pub(super) fn messages_of_line(line: Line) -> Vec<Result<Message, Malformed>> {
    match line {
        Line::Whole(text) => messages(text),
        Line::TooLong { .. } => vec![invalid(format!("more than {MESSAGE} bytes"))],
    }
}

fn invalid(message: String) -> Result<Message, Malformed> {
    let error = RpcError::new(code::INVALID_REQUEST, message);
    Err(Box::new((Json::null(), error)))
}

fn checked(message: Result<Message, MessageError>) -> Result<Message, Malformed> {
    message.map_err(|error| {
        let (error, id) = message_fault(error);
        Box::new((id.unwrap_or_default(), error))
    })
}
