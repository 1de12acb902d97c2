//! An MCP server whose responses the test writes, over HTTP or stdio, in either era.
//!
//! It records every message unchanged and responds with raw text, so that tests can compare bytes
//! in both directions. A [`Gate`] holds a response until the test opens it; a [`Fault`] breaks one.
//! It validates nothing: the test checks the gateway's messages.

mod channel;
mod era;
mod http;
mod protection;
mod received;
mod reply;
mod shared;
mod stdio;
mod stream;
#[cfg(test)]
mod stream_tests;
mod tasks;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::task::AbortHandle;

pub use self::era::Era;
pub use self::protection::{Protection, REFUSED, Verdict};
pub use self::received::Received;
pub use self::reply::{Fault, Gate, Reply};
use self::shared::{Rule, Shared};
pub use self::stream::Stream;
pub use self::tasks::Task;
use crate::patience::within;
use crate::programs;
use crate::schema::Checks;

/// The transport of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP on loopback.
    Http,
    /// One child process per client, over its standard input and output.
    Stdio,
}

/// A child process's deviation from a well-behaved one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// It does not exit when its input ends.
    Stubborn,
    /// It does not exit on SIGTERM.
    Immune,
    /// It starts its own child, which is [`Habit::Stubborn`], has its other habits, and counts
    /// among [`Backend::children`].
    Parent,
}

impl Habit {
    fn name(self) -> &'static str {
        match self {
            Self::Stubborn => "stubborn",
            Self::Immune => "immune",
            Self::Parent => "parent",
        }
    }
}

/// A running scripted server; dropping it ends the server.
pub struct Backend {
    shared: Arc<Shared>,
    transport: Transport,
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.checks.conclude();
    }
}

impl Backend {
    /// Starts a server with the default responses of its era.
    pub async fn start(era: Era, transport: Transport) -> Self {
        let shared = Arc::new(Shared::new(era));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = match transport {
            Transport::Http => tokio::spawn(http::serve(listener, Arc::clone(&shared))),
            Transport::Stdio => tokio::spawn(stdio::serve(listener, Arc::clone(&shared))),
        };
        Self {
            shared,
            transport,
            address,
            task: task.abort_handle(),
        }
    }

    /// The URL of its endpoint (HTTP only).
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The command that starts one of its child processes, and its arguments (stdio only).
    pub fn command(&self, habits: &[Habit]) -> (&'static Path, Vec<String>) {
        let habits = habits.iter().map(|habit| habit.name().to_owned());
        (
            programs::scripted_stdio(),
            std::iter::once(self.address.to_string())
                .chain(habits)
                .collect(),
        )
    }

    /// The members of its entry in a configuration, as raw text without braces.
    fn settings(&self, habits: &[Habit]) -> String {
        match self.transport {
            Transport::Http => format!(r#""type":"http","url":"{}""#, self.url()),
            Transport::Stdio => {
                let (program, arguments) = self.command(habits);
                let arguments: Vec<String> = arguments
                    .iter()
                    .map(|argument| format!("\"{argument}\""))
                    .collect();
                format!(
                    r#""command":"{}","args":[{}]"#,
                    program.display(),
                    arguments.join(",")
                )
            }
        }
    }

    /// Its entry in `mcpServers`.
    pub fn entry(&self, name: &str) -> String {
        self.entry_with(name, "")
    }

    /// Its entry in `mcpServers` with more raw members.
    pub fn entry_with(&self, name: &str, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        format!(r#""{name}":{{{}{comma}{more}}}"#, self.settings(&[]))
    }

    /// The entry of a child that ignores the end of its input, so that the gateway has to kill it
    /// (stdio only).
    pub fn stubborn_entry(&self, name: &str) -> String {
        format!(r#""{name}":{{{}}}"#, self.settings(&[Habit::Stubborn]))
    }

    /// From now on, accepts only messages with the credentials that `protection` requires (HTTP
    /// only).
    pub fn protect(&self, protection: Protection) {
        *self.shared.protection.lock().unwrap() = Some(protection);
    }

    /// From now on, responds to `method` with `reply`.
    pub fn on(&self, method: &str, reply: Reply) {
        self.add(Rule {
            method: method.to_owned(),
            target: None,
            once: false,
            reply,
        });
    }

    /// Responds only to the next `method` with `reply`.
    pub fn once(&self, method: &str, reply: Reply) {
        self.add(Rule {
            method: method.to_owned(),
            target: None,
            once: true,
            reply,
        });
    }

    /// From now on, responds with 404 to all requests in the session of the last `method` (HTTP
    /// only).
    pub fn forget_session_of(&self, method: &str) {
        let received = self.received(method);
        let session = received
            .last()
            .and_then(|request| request.header("mcp-session-id"))
            .expect("a session");
        self.shared
            .forgotten
            .lock()
            .unwrap()
            .push(session.to_owned());
    }

    /// From now on, responds to `method` for this tool or prompt name, this URI or this task with
    /// `reply`.
    pub fn on_target(&self, method: &str, target: &str, reply: Reply) {
        self.add(Rule {
            method: method.to_owned(),
            target: Some(target.to_owned()),
            once: false,
            reply,
        });
    }

    /// The schema checks of all messages from the gateway to this server.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// Declares these raw capabilities instead of the default ones.
    pub fn declares(&self, capabilities: &str) {
        let (method, result) = self.shared.era.handshake(capabilities);
        self.on(method, Reply::result(result));
    }

    /// From now on, responds to a GET with a stream that the test writes, instead of with 405.
    pub fn serves_get(&self) {
        self.on("HTTP GET", Reply::driven());
    }

    /// Waits for the stream with this number, in the order in which clients opened them: by GET, or
    /// by a request with the reply [`Reply::driven`].
    pub async fn stream(&self, number: usize) -> Stream {
        let mut streams = self.shared.streams.subscribe();
        let what = format!("stream {number}");
        within(&what, streams.wait_for(|streams| streams.len() > number))
            .await
            .unwrap()[number]
            .clone()
    }

    /// Waits for the newest stream of this client session (HTTP only).
    pub async fn stream_of(&self, session: &str) -> Stream {
        let of_session =
            |stream: &&Stream| stream.request.header("mcp-session-id") == Some(session);
        let mut streams = self.shared.streams.subscribe();
        let found = streams.wait_for(|streams| streams.iter().any(|stream| of_session(&stream)));
        let streams = within("a stream of the session", found).await.unwrap();
        streams
            .iter()
            .rev()
            .find(of_session)
            .cloned()
            .expect("just found")
    }

    /// All streams that clients have opened so far, the newest last.
    pub fn streams(&self) -> Vec<Stream> {
        self.shared.streams.borrow().clone()
    }

    /// Lists these tools, each with only a name and a schema.
    pub fn offers_tools(&self, names: &[&str]) {
        let tools: Vec<String> = names
            .iter()
            .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
            .collect();
        self.on("tools/list", self.list("tools", &tools.join(",")));
    }

    /// The response to a list method in this server's era: `member` is the list's name, `entries`
    /// its raw elements.
    pub fn list(&self, member: &str, entries: &str) -> Reply {
        Reply::result(
            self.shared
                .era
                .cacheable(&format!(r#""{member}":[{entries}]"#)),
        )
    }

    fn add(&self, rule: Rule) {
        // The newest rule applies; a rule for one message precedes rules for all.
        self.shared.rules.lock().unwrap().push(rule);
    }

    /// Every message of `method` so far.
    pub fn received(&self, method: &str) -> Vec<Arc<Received>> {
        let all = self.shared.received.borrow();
        all.iter()
            .filter(|message| message.method() == method)
            .cloned()
            .collect()
    }

    /// Every message in this client session so far (HTTP only).
    pub fn received_in(&self, session: &str) -> Vec<Arc<Received>> {
        let all = self.shared.received.borrow();
        all.iter()
            .filter(|message| message.header("mcp-session-id") == Some(session))
            .cloned()
            .collect()
    }

    /// Waits until `count` messages of `method` have arrived and returns them.
    pub async fn wait_for(&self, method: &str, count: usize) -> Vec<Arc<Received>> {
        let mut all = self.shared.received.subscribe();
        let enough = |all: &Vec<Arc<Received>>| {
            all.iter()
                .filter(|message| message.method() == method)
                .count()
                >= count
        };
        within(&format!("{count} × {method}"), all.wait_for(enough))
            .await
            .unwrap();
        self.received(method)
    }

    /// The number of messages of `method` so far that name this tool or prompt.
    pub fn count_of_target(&self, method: &str, target: &str) -> usize {
        let name = format!("\"{target}\"");
        self.received(method)
            .iter()
            .filter(|message| message.member("params.name") == Some(name.as_str()))
            .count()
    }

    /// Waits until `count` messages of `method` have named this tool or prompt.
    pub async fn wait_for_target(&self, method: &str, target: &str, count: usize) {
        let mut all = self.shared.received.subscribe();
        while self.count_of_target(method, target) < count {
            within(&format!("{count} × {method} of {target}"), all.changed())
                .await
                .unwrap();
        }
    }

    /// Waits for the client's response to the server request of `call` with this raw id.
    pub async fn answer_to(&self, id: &str, call: &Received) -> Arc<Received> {
        within(
            &format!("the answer to {id}"),
            self.shared.answer_to(id, call),
        )
        .await
    }

    /// Waits until the client has closed a request of `method` before its response.
    pub async fn wait_abandoned(&self, method: &str) {
        let mut abandoned = self.shared.abandoned.subscribe();
        let what = format!("the client to leave {method}");
        within(
            &what,
            abandoned.wait_for(|methods| methods.iter().any(|left| left == method)),
        )
        .await
        .unwrap();
    }

    /// The process ids of all child processes so far, in order (stdio only).
    pub fn started(&self) -> Vec<u32> {
        self.shared.children.borrow().clone()
    }

    /// Waits until `count` child processes have started, and returns their process ids in order
    /// (stdio only).
    pub async fn children(&self, count: usize) -> Vec<u32> {
        let mut children = self.shared.children.subscribe();
        let what = format!("{count} child processes");
        within(&what, children.wait_for(|started| started.len() >= count))
            .await
            .unwrap()
            .clone()
    }

    /// Waits until a child process has ended, or a stubborn one's input (stdio only).
    pub async fn ended(&self, process: u32) {
        let mut ended = self.shared.ended.subscribe();
        let what = format!("the end of process {process}");
        drop(
            within(&what, ended.wait_for(|ended| ended.contains(&process)))
                .await
                .unwrap(),
        );
    }
}

/// A response with the request's own id, spliced in unchanged.
fn response(request: &Received, member: &str, value: &str) -> String {
    let id = request.member("id").unwrap_or("null");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

/// A result whose response is at least `size` bytes long.
fn huge_result(size: usize) -> String {
    format!(
        r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
        "x".repeat(size)
    )
}

/// A configuration with these entries of `mcpServers`.
pub fn config<S: Borrow<str>>(entries: &[S]) -> String {
    format!(r#"{{"mcpServers":{{{}}}}}"#, entries.join(","))
}
