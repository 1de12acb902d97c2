//! The perfect client in front of a gateway. It accepts answers in any form, keeps them verbatim,
//! and answers questions.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use fanlight_config::Secret;
use fanlight_protocol::{Era, Json, MAX_NESTING, Revision, header};
use http::{HeaderValue, Method};
use itertools::Itertools as _;
use reqwest::{RequestBuilder, Response};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::cases::{ANSWERS, LISTEN};
use super::comparison::text_at;
use crate::judge::peer::Broken;
use crate::judge::peer::LONGEST;
use crate::judge::peer::http::{EventStream, Http, media_type, read, send};
use crate::judge::peer::stdio::Process;

/// The time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time by which a notification may follow its response on another stream.
const AFTER: Duration = Duration::from_secs(2);
/// The time for which the client listens.
const LISTENING: Duration = Duration::from_secs(3);
/// The number of messages that wait to be read.
const MESSAGES: usize = 1000;
/// The most pages of a list.
const PAGES: usize = 20;
/// The most rounds of input for one request.
const ROUNDS: usize = 3;

const CAPABILITIES: &str = r#"{"elicitation":{"form":{}},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const CLIENT: &str = r#"{"name":"witness","version":"1"}"#;

/// One request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    /// The tool or the prompt, the URI of a resource, or the id of a task.
    pub(super) name: &'a str,
    /// Further members of the parameters.
    pub(super) params: &'a str,
    /// Members of `_meta`.
    pub(super) meta: &'a str,
    /// The id; empty for the next number.
    pub(super) id: &'a str,
    /// The number of messages that belong to the answer, and may follow it on another stream.
    pub(super) expects: usize,
}

/// The messages that belong to a request.
#[derive(Clone, Debug)]
pub(super) struct Transcript {
    /// The last request.
    pub(super) sent: Json,
    pub(super) asked: Instant,
    pub(super) notifications: Vec<(Instant, Json)>,
    /// The server's questions: requests, or the members `inputRequests` of results.
    pub(super) questions: Vec<Json>,
    pub(super) answered: Instant,
    /// The last response.
    pub(super) response: Json,
}

/// A list: its first page, and the entries of all pages.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) first: Option<Json>,
    pub(super) entries: Vec<Json>,
}

/// The reason why a client cannot open a conversation.
#[derive(Debug)]
pub(super) struct Closed {
    /// Whether the gateway answered with a message.
    pub(super) is_answer: bool,
    pub(super) why: String,
}

/// A message that arrived, or the failure of a request.
struct Heard {
    at: Instant,
    message: Result<Json, String>,
}

/// A client with a session in the legacy era, and with the session's stream if there is one.
pub(super) struct PerfectClient {
    era: Era,
    link: Link,
    inbox: mpsc::Receiver<Heard>,
    reading: JoinSet<()>,
    /// The end of the conversation.
    pub(super) end: Instant,
    next: u32,
    /// The ids of requests whose answer did not arrive in time.
    late: HashSet<String>,
    /// The response to `initialize` or `server/discover`.
    pub(super) opening: Json,
    lists: HashMap<String, List>,
}

enum Link {
    Http {
        http: Box<Http>,
        session: Option<HeaderValue>,
        inbox: mpsc::Sender<Heard>,
    },
    Stdio(Process),
}

impl PerfectClient {
    /// A client of the gateway at `url`.
    pub(super) fn over_http(
        url: &str,
        token: &str,
        era: Era,
        end: Instant,
    ) -> Result<Self, Closed> {
        let revision = match era {
            Era::Legacy => Revision::NEWEST_LEGACY,
            Era::Modern => Revision::NEWEST_MODERN,
        };
        let token = Secret::new(format!("Bearer {token}"));
        let authorization = ("authorization".to_owned(), token);
        let mut http = Http::new(url, &[authorization], revision, PATIENCE).map_err(closed)?;
        http.revision = (era == Era::Modern).then(|| revision.to_string());
        let (sender, inbox) = mpsc::channel(MESSAGES);
        let link = Link::Http {
            http: Box::new(http),
            session: None,
            inbox: sender,
        };
        Ok(Self::new(era, link, inbox, end))
    }

    /// The client of a gateway that is a process.
    pub(super) fn over_stdio(mut process: Process, era: Era, end: Instant) -> Self {
        let (sender, inbox) = mpsc::channel(MESSAGES);
        let mut lines = process.take_lines();
        let mut client = Self::new(era, Link::Stdio(process), inbox, end);
        client.reading.spawn(async move {
            while let Some(line) = lines.recv().await {
                take(&sender, line.into()).await;
            }
        });
        client
    }

    fn new(era: Era, link: Link, inbox: mpsc::Receiver<Heard>, end: Instant) -> Self {
        Self {
            era,
            link,
            inbox,
            reading: JoinSet::new(),
            end,
            next: 0,
            late: HashSet::new(),
            opening: Json::null(),
            lists: HashMap::new(),
        }
    }

    /// Opens the conversation. Waits for the answer at most until the client's `end`.
    pub(super) async fn open(&mut self) -> Result<(), Closed> {
        let method = match self.era {
            Era::Legacy => "initialize",
            Era::Modern => "server/discover",
        };
        let revision = Revision::NEWEST_LEGACY;
        let params = match self.era {
            Era::Legacy => format!(
                r#""protocolVersion":"{revision}","capabilities":{CAPABILITIES},"clientInfo":{CLIENT}"#
            ),
            Era::Modern => String::new(),
        };
        let asked = Asked {
            method,
            params: &params,
            ..Asked::default()
        };
        let patience = match self.link {
            Link::Http { .. } => self.end.min(Instant::now() + PATIENCE),
            Link::Stdio(_) => self.end,
        };
        let answer = self.exchange(&asked, patience).await;
        self.opening = answer
            .map_err(|why| Closed {
                is_answer: false,
                why,
            })?
            .response;
        if self.opening.at_pointer("/result").is_none() {
            return Err(Closed {
                is_answer: true,
                why: format!("it answers {method} with {}", self.opening.as_text()),
            });
        }
        if self.era == Era::Legacy {
            self.begin_session().await.map_err(closed)?;
        }
        Ok(())
    }

    async fn begin_session(&mut self) -> Result<(), Broken> {
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        if let Link::Http { http, .. } = &mut self.link {
            http.revision = text_at(&self.opening, "/result/protocolVersion");
        }
        self.send("", initialized.to_owned(), &[]).await?;
        if let Link::Http {
            http,
            session,
            inbox,
        } = &self.link
        {
            // The session exists for the stream once the notification has arrived.
            tokio::time::sleep(AFTER / 20).await;
            let mut request = http.request_to(Method::GET, http.url().clone());
            request = request.header("accept", "text/event-stream");
            if let Some(revision) = &http.revision {
                request = request.header(header::PROTOCOL_VERSION, revision);
            }
            let request = with_session(request, session.as_ref());
            let inbox = inbox.clone();
            self.reading.spawn(async move {
                let stream = send(request).await;
                if let Ok(stream) = stream
                    && media_type(&stream) == "text/event-stream"
                {
                    // A gateway need not have it, and may end it.
                    let _ = receive(stream, &inbox).await;
                }
            });
        }
        let level = Asked {
            method: "logging/setLevel",
            params: r#""level":"debug""#,
            ..Asked::default()
        };
        // The cases show whether a gateway has logging.
        let _ = self.ask(&level).await;
        Ok(())
    }

    /// Sends a request, and waits for its answer. Answers questions meanwhile.
    pub(super) async fn ask(&mut self, asked: &Asked<'_>) -> Result<Transcript, String> {
        let patience = match asked.method {
            LISTEN => LISTENING,
            _ => PATIENCE,
        };
        let until = self.end.min(Instant::now() + patience);
        let mut transcript = self.exchange(asked, until).await?;
        for _ in 0..ROUNDS {
            let Some(retry) = retried(&transcript.response) else {
                break;
            };
            let params = [asked.params, &retry].join(",");
            let again = Asked {
                params: &params,
                ..*asked
            };
            let requests = transcript.response.at_pointer("/result/inputRequests");
            transcript.questions.extend(requests);
            let answered = self.exchange(&again, until).await?;
            (transcript.sent, transcript.response) = (answered.sent, answered.response);
        }
        let until = Instant::now() + AFTER;
        while transcript.notifications.len() + transcript.questions.len() < asked.expects
            && let Ok(Some(heard)) = timeout_at(until, self.inbox.recv()).await
        {
            let message = heard.message.ok();
            let notifications = message.filter(|it| it.get("method").is_some());
            let notifications = notifications.map(|it| (heard.at, it));
            transcript.notifications.extend(notifications);
        }
        Ok(transcript)
    }

    async fn exchange(&mut self, asked: &Asked<'_>, until: Instant) -> Result<Transcript, String> {
        self.next += 1;
        let next = self.next.to_string();
        let id = if asked.id.is_empty() { &next } else { asked.id };
        let text = self.text_of(asked, id);
        let mut headers = Vec::new();
        if self.era == Era::Modern {
            headers.push((header::METHOD, asked.method.to_owned()));
            if !asked.name.is_empty() {
                headers.push((header::NAME, header::encode(asked.name).into_owned()));
            }
            if asked.params.contains(r#""region""#) {
                headers.push(("mcp-param-region", "EU".to_owned()));
            }
        }
        let now = Instant::now();
        let mut transcript = Transcript {
            sent: parsed(&Bytes::from(text.clone())).unwrap_or_default(),
            asked: now,
            notifications: Vec::new(),
            questions: Vec::new(),
            answered: now,
            response: Json::null(),
        };
        let sent = timeout_at(until, self.send(asked.method, text, &headers)).await;
        sent.map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
        loop {
            let Ok(heard) = timeout_at(until, self.inbox.recv()).await else {
                self.late.insert(id.to_owned());
                match asked.method {
                    LISTEN => return Ok(transcript),
                    _ => return Err("no answer in time".to_owned()),
                }
            };
            let heard = heard.ok_or("it has ended")?;
            let message = heard.message?;
            match (message.get("method"), message.get("id")) {
                (Some(method), Some(question)) => {
                    self.reply(&method, &question).await;
                    transcript.questions.push(message);
                }
                (Some(_), None) => transcript.notifications.push((heard.at, message)),
                (None, Some(answered)) if self.late.contains(answered.as_text()) => {}
                (None, _) => {
                    transcript.answered = heard.at;
                    transcript.response = message;
                    return Ok(transcript);
                }
            }
        }
    }

    fn text_of(&self, asked: &Asked<'_>, id: &str) -> String {
        let key = match asked.method {
            "resources/read" => "uri",
            "tasks/get" | "tasks/result" => "taskId",
            _ => "name",
        };
        let name = match asked.name {
            "" => String::new(),
            name => format!(r#""{key}":{}"#, Json::string(name)),
        };
        let own = match self.era {
            Era::Legacy => String::new(),
            Era::Modern => format!(
                r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{CLIENT},"io.modelcontextprotocol/clientCapabilities":{CAPABILITIES}"#,
                Revision::NEWEST_MODERN
            ),
        };
        let meta = match joined(&[asked.meta, &own]) {
            none if none.is_empty() => none,
            meta => format!(r#""_meta":{{{meta}}}"#),
        };
        let params = joined(&[&name, asked.params, &meta]);
        let method = asked.method;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    }

    /// Sends a message; `method` is empty unless it is a request. The session that `initialize` opens
    /// is known when it returns.
    async fn send(
        &mut self,
        method: &str,
        text: String,
        headers: &[(&str, String)],
    ) -> Result<(), Broken> {
        let (http, session, inbox) = match &mut self.link {
            Link::Stdio(process) => return process.write_line(text).await,
            Link::Http {
                http,
                session,
                inbox,
            } => (http, session, inbox.clone()),
        };
        let mut request = with_session(http.message_to(http.url().clone(), text), session.as_ref());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if method == "initialize" {
            let response = send(request).await?;
            *session = response.headers().get(header::SESSION_ID).cloned();
            self.reading
                .spawn(async move { report(receive(response, &inbox).await, &inbox).await });
            return Ok(());
        }
        let is_request = !method.is_empty();
        self.reading.spawn(async move {
            let received = async { receive(send(request).await?, &inbox).await };
            let received = received.await;
            if is_request {
                report(received, &inbox).await;
            }
        });
        Ok(())
    }

    /// Answers a question of the server.
    async fn reply(&mut self, method: &Json, id: &Json) {
        let known = ANSWERS.iter().find(|(name, _)| method.is_str(name));
        let answer = match known {
            Some((_, result)) => format!(r#""result":{result}"#),
            None if method.is_str("ping") => r#""result":{}"#.to_owned(),
            None => r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned(),
        };
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, id.as_text());
        // Without an answer, the server's request fails, which the case shows.
        let _ = timeout(PATIENCE, self.send("", text, &[])).await;
    }

    /// Reads a list once.
    pub(super) async fn list(&mut self, method: &str, member: &str) -> Result<List, String> {
        if let Some(known) = self.lists.get(method) {
            return Ok(known.clone());
        }
        let (mut list, mut cursor) = (List::default(), String::new());
        for _ in 0..PAGES {
            let asked = Asked {
                method,
                params: &cursor,
                ..Asked::default()
            };
            let page = self.ask(&asked).await?.response;
            let entries = page.at_pointer(&format!("/result/{member}"));
            let entries = entries.ok_or_else(|| page.as_text().to_owned())?;
            list.entries.extend(entries.items());
            let next = page
                .at_pointer("/result/nextCursor")
                .filter(|it| it.as_str().is_some());
            list.first.get_or_insert(page);
            match next {
                Some(next) => cursor = format!(r#""cursor":{}"#, next.as_text()),
                None => break,
            }
        }
        self.lists.insert(method.to_owned(), list.clone());
        Ok(list)
    }

    /// Forgets a list, to read it again.
    pub(super) fn forget(&mut self, method: &str) {
        self.lists.remove(method);
    }

    /// The last output of the gateway's process; empty for a gateway over HTTP.
    pub(super) fn last_words(&self) -> Vec<String> {
        match &self.link {
            Link::Stdio(process) => process.last_words(),
            Link::Http { .. } => Vec::new(),
        }
    }
}

/// The further members of the request that a result wants to be repeated.
fn retried(response: &Json) -> Option<String> {
    let requests = response.at_pointer("/result/inputRequests")?;
    let responses = requests
        .members()
        .filter_map(|member| {
            let method = requests.slice(member.value.clone()).get("method")?;
            let (_, answer) = ANSWERS.iter().find(|(name, _)| method.is_str(name))?;
            let key = requests.slice(member.key);
            Some(format!("{}:{answer}", key.as_text()))
        })
        .collect_vec();
    let responses = format!(r#""inputResponses":{{{}}}"#, responses.join(","));
    let state = response.at_pointer("/result/requestState");
    let state = state.map(|it| format!(r#""requestState":{}"#, it.as_text()));
    Some(joined(&[&responses, &state.unwrap_or_default()]))
}

fn joined(members: &[&str]) -> String {
    let mut members = members.iter().copied().filter(|it| !it.is_empty());
    members.join(",")
}

fn closed(broken: Broken) -> Closed {
    Closed {
        is_answer: false,
        why: broken.to_string(),
    }
}

fn with_session(request: RequestBuilder, session: Option<&HeaderValue>) -> RequestBuilder {
    match session {
        Some(session) => request.header(header::SESSION_ID, session),
        None => request,
    }
}

fn parsed(text: &Bytes) -> Option<Json> {
    Json::parse(text.clone(), MAX_NESTING)
        .ok()
        .filter(Json::is_object)
}

/// Takes the message in a text; anything else is no message.
async fn take(inbox: &mpsc::Sender<Heard>, text: Bytes) -> bool {
    let Some(message) = parsed(&text).filter(|it| it.get("jsonrpc").is_some()) else {
        return false;
    };
    let at = Instant::now();
    let message = Ok(message);
    // Nobody reads the messages of a client that is gone.
    let _ = inbox.send(Heard { at, message }).await;
    true
}

async fn report(received: Result<(), Broken>, inbox: &mpsc::Sender<Heard>) {
    if let Err(error) = received {
        let (at, message) = (Instant::now(), Err(error.to_string()));
        let _ = inbox.send(Heard { at, message }).await;
    }
}

/// Reads the messages of a response.
async fn receive(response: Response, inbox: &mpsc::Sender<Heard>) -> Result<(), Broken> {
    if media_type(&response) == "text/event-stream" {
        let mut stream = EventStream::new(response, LONGEST);
        while let Some(event) = stream.next().await? {
            take(inbox, event.data).await;
        }
        return Ok(());
    }
    let status = response.status();
    let body = read(response).await?;
    if take(inbox, body.clone()).await || status.is_success() {
        return Ok(());
    }
    Err(Broken::Refused(format!(
        "status {}: {}",
        status.as_u16(),
        String::from_utf8_lossy(&body)
    )))
}
