//! Writes the lines of a recording.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD};
use fanlight_protocol::header::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};
use fanlight_protocol::secret::is_secret;
use fanlight_protocol::sse::EventDecoder;
use fanlight_protocol::{DEFAULT_NESTING, Json, Message as Parsed, Method, Notification};

use super::mask::{Clean, MASKED, mask_message, mask_values};
use super::tap::{Batch, Captured, Item, Party};
use super::values::Values;
use super::{
    End, Ending, Framing, Head, Loss, Lost, Message, RecordedServer, Side, Text, To, line,
};

/// The recorded headers; the headers of parameters are recorded, too.
const HEADERS: &[&str] = &[
    "accept",
    "content-type",
    METHOD,
    NAME,
    PROTOCOL_VERSION,
    "user-agent",
];
/// The limit of the data of an event of a client, in bytes.
const LONGEST_EVENT: usize = 256 << 20;
/// The most sessions that open during a recording and are told from their connections.
const MOST_SESSIONS: usize = 100_000;

/// Writes the lines of one recording.
#[derive(Debug)]
pub struct Scribe {
    began: Instant,
    started: SystemTime,
    /// The limit of the text, in bytes.
    longest: u64,
    written: u64,
    messages: u64,
    /// The time of the last line, in microseconds.
    last: u64,
    is_whole: bool,
    values: Values,
    causes: Causes,
    has_endpoint: bool,
    /// The exchanges of `initialize` whose answer is still due.
    opening: HashSet<u64>,
    /// The connection numbers of sessions that were opened during the recording.
    sessions: HashMap<u64, u64>,
}

/// Why a recording has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The file has its largest size.
    Size,
    /// More secrets crossed the wire than can be searched for.
    Secrets,
}

impl Full {
    /// The reason in the last line.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Secrets => "too-many-secrets",
        }
    }
}

impl Scribe {
    /// A scribe whose microsecond 0 is now, for at most `longest` bytes.
    #[must_use]
    pub fn new(longest: u64, has_endpoint: bool) -> Self {
        Self {
            began: Instant::now(),
            started: SystemTime::now(),
            longest,
            written: 0,
            messages: 0,
            last: 0,
            is_whole: true,
            values: Values::default(),
            causes: Causes::default(),
            has_endpoint,
            opening: HashSet::new(),
            sessions: HashMap::new(),
        }
    }

    /// Makes a scribe without a limit. Microsecond 0 of its recording is at `started`; also returns
    /// that moment as an `Instant`.
    pub(crate) fn from_start(started: SystemTime) -> (Self, Instant) {
        let scribe = Self {
            started,
            ..Self::new(u64::MAX, false)
        };
        let began = scribe.began;
        (scribe, began)
    }

    /// The wall time of microsecond 0.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Masks these values from now on, besides all that it knows.
    pub fn configure(&mut self, values: Vec<String>) {
        self.values.configure(values);
    }

    /// The line of the head, masked.
    pub fn head(&mut self, mut head: Head) -> Vec<u8> {
        for server in head.servers.values_mut() {
            self.mask_server(server);
        }
        self.put(&head)
    }

    fn mask_server(&self, server: &mut RecordedServer) {
        let mut all = Vec::new();
        let mut mask = |text: &mut String, place: &str| {
            let clean = mask_message(text, &self.values);
            *text = clean.text;
            all.extend(
                clean
                    .masked
                    .iter()
                    .map(|pointer| format!("{place}{pointer}")),
            );
        };
        if let Some(opening) = &mut server.opening {
            mask(opening, "/opening");
        }
        let definitions = &mut server.definitions;
        for (kind, texts) in [
            ("tools", &mut definitions.tools),
            ("prompts", &mut definitions.prompts),
            ("resources", &mut definitions.resources),
            ("resourceTemplates", &mut definitions.resource_templates),
        ] {
            for (index, text) in texts.iter_mut().enumerate() {
                mask(text, &format!("/definitions/{kind}/{index}"));
            }
        }
        server.masked = all;
    }

    /// The lines of these messages, and the reason why no further ones can be written.
    pub fn lines(&mut self, batch: Batch) -> (Vec<u8>, Option<Full>) {
        let mut out = Vec::new();
        for (at, item) in batch.items {
            self.last = self.micros(at).max(self.last);
            let captured = match item {
                Item::Message(captured) => captured,
                Item::Secret(value) => {
                    self.learn(&value);
                    continue;
                }
            };
            let secret_headers = captured
                .headers
                .iter()
                .filter(|(name, _)| is_credential(name));
            secret_headers.for_each(|(_, value)| self.learn(value));
            if self.values.is_full() {
                self.is_whole = false;
                return (out, Some(Full::Secrets));
            }
            let connection = self.connection(&captured);
            for text in texts(&captured) {
                let message = self.message(&captured, connection, &text);
                let Some(text) = message.map(|message| line(&message)) else {
                    continue;
                };
                if self.written + text.len() as u64 > self.longest {
                    self.is_whole = false;
                    return (out, Some(Full::Size));
                }
                self.written += text.len() as u64;
                self.messages += 1;
                out.extend(text);
            }
        }
        if batch.lost != Loss::default() {
            self.is_whole = false;
            let (us, lost) = (self.last, batch.lost);
            out.extend(self.put(&Lost { us, lost }));
        }
        (out, None)
    }

    /// The last line.
    pub fn end(&mut self, reason: &str) -> Vec<u8> {
        let end = Ending {
            reason: reason.to_owned(),
            whole: self.is_whole,
            messages: self.messages,
        };
        let us = self.micros(Instant::now()).max(self.last);
        self.put(&End { us, end })
    }

    fn put(&mut self, value: &impl serde::Serialize) -> Vec<u8> {
        let text = line(value);
        self.written += text.len() as u64;
        text
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Learns the secrets in the value of a header.
    fn learn(&mut self, value: &[u8]) {
        self.values.learn(value);
        let is_border = |byte: &u8| matches!(byte, b' ' | b',' | b';' | b'"');
        for part in value.split(is_border) {
            self.values.learn(part);
            if let Some(at) = memchr::memchr(b'=', part) {
                self.values.learn(part.get(at + 1..).unwrap_or_default());
            }
            // `Basic` has a user and a password.
            let end = part.iter().rposition(|byte| *byte != b'=');
            let unpadded = part.get(..end.map_or(0, |end| end + 1));
            let decoded = BASE64_NOPAD.decode(unpadded.unwrap_or_default());
            let decoded = decoded.unwrap_or_default();
            let password = decoded.splitn(2, |byte| *byte == b':').nth(1);
            self.values.learn(password.unwrap_or_default());
        }
    }

    /// The number of the message's connection in the file. A session has the number of its
    /// `initialize` if that was recorded.
    fn connection(&mut self, captured: &Captured) -> u64 {
        let plain = captured.connection << 1;
        if captured.peer.side() == Side::Server {
            return plain;
        }
        let own = captured.exchange << 1;
        match captured.session {
            Some(session) => {
                if self.opening.remove(&captured.exchange) {
                    self.sessions.insert(session, own);
                }
                let opened = self.sessions.get(&session).copied();
                opened.unwrap_or(session << 1 | 1)
            }
            None if captured.to == To::Client => match self.opening.remove(&captured.exchange) {
                true => own,
                false => plain,
            },
            None if self.sessions.len() + self.opening.len() < MOST_SESSIONS
                && opens_session(captured) =>
            {
                self.opening.insert(captured.exchange);
                own
            }
            None => plain,
        }
    }

    /// The recorded form of a message; `None` if the selection does not keep it.
    fn message(&mut self, captured: &Captured, connection: u64, text: &Bytes) -> Option<Message> {
        let (side, endpoint, server) = match &captured.peer {
            Party::Client { endpoint } => (Side::Client, Some(endpoint.to_string()), None),
            Party::Server { name } => (Side::Server, None, Some(name.to_string())),
        };
        let cause = match side {
            Side::Client => None,
            Side::Server => self.causes.find(captured, text),
        };
        if side == Side::Server && self.has_endpoint && cause.is_none() {
            return None;
        }
        let (content, mut masked, originals) = self.content(text);
        let headers = self.headers(captured, &originals, &mut masked);
        Some(Message {
            us: self.last,
            side,
            endpoint,
            server,
            connection,
            exchange: captured.exchange,
            to: captured.to,
            kind: captured.kind,
            transport: captured.transport.to_owned(),
            revision: captured.revision.map(str::to_owned),
            method: captured.method.map(str::to_owned),
            status: captured.status,
            headers,
            content,
            masked,
            cause,
        })
    }

    fn content(&self, text: &Bytes) -> (Text, Vec<String>, Vec<String>) {
        match std::str::from_utf8(text) {
            Ok(text) => {
                let Clean {
                    text,
                    masked,
                    originals,
                } = mask_message(text, &self.values);
                (Text::Text(text), masked, originals)
            }
            // Names cannot be told from values here, so any secret hides the whole.
            Err(_)
                if self.values.are_in(text)
                    || mask_values(&String::from_utf8_lossy(text), &self.values).is_some() =>
            {
                (
                    Text::Text(MASKED.to_owned()),
                    vec![String::new()],
                    Vec::new(),
                )
            }
            Err(_) => (Text::Base64(BASE64.encode(text)), Vec::new(), Vec::new()),
        }
    }

    /// The headers on the allow-list. `originals` are the secrets in the message, which a header
    /// may repeat.
    fn headers(
        &self,
        captured: &Captured,
        originals: &[String],
        masked: &mut Vec<String>,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (name, value) in &captured.headers {
            let param = name.strip_prefix(PARAM_PREFIX);
            if param.is_none() && !HEADERS.contains(&&**name) {
                continue;
            }
            let written = String::from_utf8_lossy(value);
            let is_secret_text = |text: Cow<'_, str>| {
                originals.iter().any(|original| **original == *text)
                    || mask_values(&text, &self.values).is_some()
            };
            // A value that cannot be decoded may hide anything.
            let is_hidden = param.is_some_and(is_secret)
                || self.values.are_in(value)
                || header::decode(value).map_or(true, is_secret_text);
            let shown = match is_hidden {
                true => {
                    masked.push(format!("header:{name}"));
                    MASKED
                }
                false => &*written,
            };
            all.insert(name.to_string(), shown.to_owned());
        }
        all
    }
}

/// The messages in a captured text: the data of each event, or the text itself.
fn texts(captured: &Captured) -> Vec<Bytes> {
    if captured.kind != Framing::Event || captured.peer.side() == Side::Server {
        let whole = match &*captured.text {
            [one] => one.clone(),
            parts => parts.concat().into(),
        };
        return vec![whole];
    }
    let mut events = EventDecoder::new(LONGEST_EVENT);
    captured.text.iter().for_each(|part| events.push(part));
    let mut all = Vec::new();
    while let Ok(Some(event)) = events.next_event() {
        let is_message = event.name.is_empty() || event.name == "message";
        if is_message && !event.data.is_empty() {
            all.push(event.data);
        }
    }
    all
}

/// Whether a header has credentials, cookies or a session id.
fn is_credential(name: &str) -> bool {
    is_secret(name) && !HEADERS.contains(&name) && !name.starts_with(PARAM_PREFIX)
}

/// Whether the message is a request for a session.
fn opens_session(captured: &Captured) -> bool {
    let [text] = &*captured.text else {
        return false;
    };
    captured.transport == "http"
        && matches!(
            Parsed::parse(text.clone(), DEFAULT_NESTING),
            Ok(Parsed::Request(request)) if request.method == Method::Initialize
        )
}

/// The most requests whose causes are remembered: of one connection, and of all together.
const MOST: (usize, usize) = (10_000, 100_000);

/// The causes of requests that are not answered yet.
#[derive(Debug, Default)]
struct Causes {
    connections: HashMap<u64, Open>,
    /// The number of remembered requests.
    count: usize,
}

/// The requests of one connection to a server, by their ids.
#[derive(Debug, Default)]
struct Open {
    /// Requests to the server, oldest first.
    sent: Vec<Request>,
    /// Requests of the server.
    asked: Vec<Request>,
}

/// A request without an answer.
#[derive(Debug)]
struct Request {
    id: Json,
    progress_token: Option<Json>,
    cause: u64,
}

impl Causes {
    /// The exchange that caused a message. The edge tells the cause of requests to the server, and
    /// of their answers over HTTP. Every other message is related to a request.
    fn find(&mut self, captured: &Captured, text: &Bytes) -> Option<u64> {
        let known = Some(captured.cause).filter(|cause| *cause > 0);
        let has_room = self.count < MOST.1;
        let open = self.connections.entry(captured.connection).or_default();
        self.count -= open.len();
        let cause = match (Parsed::parse(text.clone(), DEFAULT_NESTING), captured.to) {
            (Ok(Parsed::Request(request)), To::Server) => {
                let meta = request.params.and_then(|params| params.get("_meta"));
                let token = meta.and_then(|meta| meta.get("progressToken"));
                remember(
                    &mut open.sent,
                    request.id,
                    token,
                    known.filter(|_| has_room),
                );
                known
            }
            (Ok(Parsed::Response(response)), To::Client) => {
                take(&mut open.sent, &response.id()).or(known)
            }
            (Ok(Parsed::Request(request)), To::Client) => {
                let cause = known.or_else(|| open.latest());
                remember(
                    &mut open.asked,
                    request.id,
                    None,
                    cause.filter(|_| has_room),
                );
                cause
            }
            (Ok(Parsed::Response(response)), To::Server) => {
                take(&mut open.asked, &response.id()).or(known)
            }
            (Ok(Parsed::Notification(notification)), _) => {
                known.or_else(|| open.cause_of(&notification))
            }
            (Err(_), _) => known,
        };
        self.count += open.len();
        if open.len() == 0 {
            self.connections.remove(&captured.connection);
        }
        cause
    }
}

impl Open {
    fn len(&self) -> usize {
        self.sent.len() + self.asked.len()
    }

    /// The cause of the latest request that the server has not answered.
    fn latest(&self) -> Option<u64> {
        self.sent.last().map(|request| request.cause)
    }

    /// The cause of the request that a notification is about.
    fn cause_of(&self, notification: &Notification) -> Option<u64> {
        let params = notification.text.get("params");
        let member = |name| params.as_ref().and_then(|params| params.get(name));
        let mut all = self.sent.iter().chain(&self.asked);
        let named = match notification.method {
            Method::Progress => {
                let token = member("progressToken")?;
                all.find(|request| request.progress_token.as_ref() == Some(&token))
            }
            Method::Cancelled => {
                let id = member("requestId")?;
                all.find(|request| request.id == id)
            }
            _ => return self.latest(),
        };
        named.map(|request| request.cause)
    }
}

fn remember(open: &mut Vec<Request>, id: Json, progress_token: Option<Json>, cause: Option<u64>) {
    if let Some(cause) = cause.filter(|_| open.len() < MOST.0) {
        open.push(Request {
            id,
            progress_token,
            cause,
        });
    }
}

fn take(open: &mut Vec<Request>, id: &Json) -> Option<u64> {
    let at = open.iter().position(|request| request.id == *id)?;
    Some(open.remove(at).cause)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::recording::Line;
    use crate::recording::tap::{Party, Selection, Tap};

    fn client(exchange: u64, to: To, text: &'static str) -> Captured {
        let endpoint = "/mcp".into();
        let text = Bytes::from_static(text.as_bytes());
        Captured {
            exchange,
            to,
            kind: Framing::Body,
            transport: "http",
            ..Captured::line(Party::Client { endpoint }, 5, text)
        }
    }

    fn server(to: To, text: &'static str, cause: u64) -> Captured {
        Captured {
            peer: Party::Server { name: "s".into() },
            connection: 9,
            transport: "stdio",
            kind: Framing::Line,
            cause,
            ..client(9, to, text)
        }
    }

    fn written(scribe: &mut Scribe, all: Vec<Captured>) -> Vec<Message> {
        let tap = Arc::new(Tap::default());
        let captures = tap.start(Selection::default()).unwrap();
        all.into_iter()
            .for_each(|captured| tap.capture(|| captured));
        let (text, full) = scribe.lines(captures.take());
        assert_eq!(full, None);
        let text = String::from_utf8(text).unwrap();
        let lines = text.lines().map(|line| Line::parse(line).unwrap());
        let message = |line| match line {
            Line::Message(message) => *message,
            other => panic!("{other:?}"),
        };
        lines.map(message).collect()
    }

    #[test]
    fn session_keeps_the_number_of_its_opening() {
        let mut scribe = Scribe::new(1 << 20, false);
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let all = written(
            &mut scribe,
            vec![
                client(11, To::Server, initialize),
                client(12, To::Server, initialize),
                Captured {
                    session: Some(3),
                    ..client(11, To::Client, "{}")
                },
                client(12, To::Client, "{}"),
                Captured {
                    session: Some(3),
                    ..client(13, To::Server, "{}")
                },
                Captured {
                    session: Some(4),
                    ..client(14, To::Server, "{}")
                },
                client(15, To::Server, "{}"),
            ],
        );
        let numbers: Vec<u64> = all.iter().map(|message| message.connection).collect();
        assert_eq!(numbers, [22, 24, 22, 24, 22, 9, 10]);
    }

    #[test]
    fn messages_of_a_server_have_the_cause_of_their_request() {
        let mut scribe = Scribe::new(1 << 20, true);
        let all = written(
            &mut scribe,
            vec![
                server(
                    To::Server,
                    r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1}}}"#,
                    7,
                ),
                server(To::Server, r#"{"jsonrpc":"2.0","id":2,"method":"b"}"#, 8),
                server(
                    To::Client,
                    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#,
                    0,
                ),
                server(
                    To::Client,
                    r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#,
                    0,
                ),
                server(To::Server, r#"{"jsonrpc":"2.0","id":"q","result":{}}"#, 0),
                server(To::Client, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 0),
                server(To::Client, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, 0),
                // Nothing is open any more, so this belongs to nobody.
                server(
                    To::Client,
                    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                    0,
                ),
            ],
        );
        let causes: Vec<Option<u64>> = all.iter().map(|message| message.cause).collect();
        assert_eq!(causes, [7, 8, 7, 8, 8, 7, 8].map(Some));
    }

    #[test]
    fn headers_are_an_allow_list_without_secrets() {
        let mut scribe = Scribe::new(1 << 20, false);
        let header =
            |name: &str, value: &'static str| (name.into(), Bytes::from_static(value.as_bytes()));
        let headers = vec![
            header("authorization", "Bearer s3cret-bearer"),
            header("cookie", "id=s3cret-cookie"),
            header("accept", "*/*"),
            header("x-other", "y"),
            header("mcp-name", "https://me:s3cret-url@host/"),
            header("mcp-param-token", "s3cret-param"),
            header("mcp-param-x", "=?base64?czNjcmV0LW1lbWJlcg==?="),
            // Without the padding, so it cannot be decoded.
            header("mcp-param-y", "=?base64?czNjcmV0LW1lbWJlcg?="),
        ];
        let text = r#"{"password":"s3cret-member","a":["s3cret-bearer","s3cret-cookie"]}"#;
        let all = written(
            &mut scribe,
            vec![Captured {
                headers,
                ..client(1, To::Server, text)
            }],
        );
        let [message] = &*all else { panic!("{all:?}") };
        assert_eq!(
            message.text(),
            Some(r#"{"password":"[masked]","a":["[masked]","[masked]"]}"#)
        );
        let names: Vec<&str> = message.headers.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "accept",
                "mcp-name",
                "mcp-param-token",
                "mcp-param-x",
                "mcp-param-y"
            ]
        );
        assert_eq!(
            message.masked,
            [
                "/password",
                "/a/0",
                "/a/1",
                "header:mcp-name",
                "header:mcp-param-token",
                "header:mcp-param-x",
                "header:mcp-param-y"
            ]
        );
    }

    #[test]
    fn events_are_messages_of_their_own_and_the_size_is_limited() {
        let mut scribe = Scribe::new(600, false);
        let events = ":\n\nevent: message\ndata: {\"a\":1}\n\nid: x\ndata: \n\nevent: message\ndata: {\"b\":2}\n\n";
        let all = written(
            &mut scribe,
            vec![Captured {
                kind: Framing::Event,
                ..client(1, To::Client, events)
            }],
        );
        let texts: Vec<_> = all.iter().map(|message| message.text().unwrap()).collect();
        assert_eq!(texts, [r#"{"a":1}"#, r#"{"b":2}"#]);
        let long = Box::leak("x".repeat(600).into_boxed_str());
        let items = vec![(
            Instant::now(),
            Item::Message(Box::new(client(2, To::Server, long))),
        )];
        let batch = Batch {
            items,
            ..Batch::default()
        };
        assert_eq!(scribe.lines(batch), (Vec::new(), Some(Full::Size)));
        let end = String::from_utf8(scribe.end("size")).unwrap();
        assert!(
            end.contains(r#""reason":"size","whole":false,"messages":2"#),
            "{end}"
        );
    }

    #[test]
    fn requests_of_all_connections_together_are_bounded() {
        let mut causes = Causes::default();
        let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let answer = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let captured = |connection, to| Captured {
            to,
            cause: if to == To::Server { 7 } else { 0 },
            ..Captured::line(Party::Server { name: "s".into() }, connection, text.clone())
        };
        for connection in 0..MOST.1 as u64 + 10 {
            let cause = causes.find(&captured(connection, To::Server), &text);
            assert_eq!(cause, Some(7));
        }
        assert_eq!((causes.count, causes.connections.len()), (MOST.1, MOST.1));
        let find = |causes: &mut Causes, connection| {
            causes.find(&captured(connection, To::Client), &answer)
        };
        assert_eq!(find(&mut causes, 3), Some(7));
        assert_eq!(find(&mut causes, MOST.1 as u64 + 5), None);
        assert_eq!(
            (causes.count, causes.connections.len()),
            (MOST.1 - 1, MOST.1 - 1)
        );
    }
}
