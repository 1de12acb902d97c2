//! An MCP server that says exactly what a test tells it to, over HTTP or stdio, in either era.
//!
//! It keeps every message as it came and answers with raw text, so that bytes can be compared in both directions.
//! A [`Gate`] holds an answer until the test opens it; a [`Fault`] breaks one. It checks nothing: what a gateway sent
//! is for the test to judge.

mod http;
mod reply;
mod stdio;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::sync::{Arc, Mutex};

use fanlight_tests::slicer;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub(crate) use self::reply::{Fault, Gate, Reply};
use crate::harness::within;

/// Which handshake the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// How the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Stdio,
}

/// A running scripted server; it ends with its owner.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    /// Its members in a configuration, raw text without braces.
    settings: String,
    task: AbortHandle,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    pub(crate) async fn start(era: Era, transport: Transport) -> Self {
        let shared = Arc::new(Shared::new(era));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (settings, task) = match transport {
            Transport::Http => (
                format!(r#""type":"http","url":"http://{address}/mcp""#),
                tokio::spawn(http::serve(listener, Arc::clone(&shared))),
            ),
            Transport::Stdio => (
                format!(r#""command":"{}","args":["{address}"]"#, env!("CARGO_BIN_EXE_scripted-stdio")),
                tokio::spawn(stdio::serve(listener, Arc::clone(&shared))),
            ),
        };
        Self { shared, settings, task: task.abort_handle() }
    }

    /// Its entry in `mcpServers`.
    pub(crate) fn entry(&self, name: &str) -> String {
        self.entry_with(name, "")
    }

    /// The same with more members, raw text.
    pub(crate) fn entry_with(&self, name: &str, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        format!(r#""{name}":{{{}{comma}{more}}}"#, self.settings)
    }

    /// The entry of a child that does not end with its input, stdio only: the gateway has to end it.
    pub(crate) fn stubborn_entry(&self, name: &str) -> String {
        let settings = self.settings.strip_suffix(']').expect("arguments at the end");
        format!(r#""{name}":{{{settings},"stubborn"]}}"#)
    }

    /// From now on, answers `method` with `reply`.
    pub(crate) fn on(&self, method: &str, reply: Reply) {
        self.add(Rule { method: method.to_owned(), target: None, once: false, reply });
    }

    /// Answers only the next `method` with `reply`.
    pub(crate) fn once(&self, method: &str, reply: Reply) {
        self.add(Rule { method: method.to_owned(), target: None, once: true, reply });
    }

    /// From now on, answers `method` for this tool or prompt name, this URI or this task with `reply`.
    pub(crate) fn on_target(&self, method: &str, target: &str, reply: Reply) {
        self.add(Rule { method: method.to_owned(), target: Some(target.to_owned()), once: false, reply });
    }

    /// Lists these tools, each with nothing but a name and a schema.
    pub(crate) fn offers_tools(&self, names: &[&str]) {
        let tools: Vec<String> =
            names.iter().map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)).collect();
        self.on("tools/list", self.list("tools", &tools.join(",")));
    }

    /// The answer to a list method in this server's era: `member` is the list's name, `entries` its raw elements.
    pub(crate) fn list(&self, member: &str, entries: &str) -> Reply {
        Reply::result(self.shared.era.cacheable(&format!(r#""{member}":[{entries}]"#)))
    }

    fn add(&self, rule: Rule) {
        // The newest rule counts; a rule for one message comes before those for all.
        self.shared.rules.lock().unwrap().push(rule);
    }

    /// Every message of `method` so far.
    pub(crate) fn received(&self, method: &str) -> Vec<Arc<Received>> {
        let all = self.shared.received.borrow();
        all.iter().filter(|message| message.method() == method).cloned().collect()
    }

    /// Waits until `count` messages of `method` have come and returns them.
    pub(crate) async fn wait_for(&self, method: &str, count: usize) -> Vec<Arc<Received>> {
        let mut all = self.shared.received.subscribe();
        let enough =
            |all: &Vec<Arc<Received>>| all.iter().filter(|message| message.method() == method).count() >= count;
        within(&format!("{count} × {method}"), all.wait_for(enough)).await.unwrap();
        self.received(method)
    }

    /// Waits until the client has gone from a request of `method` before it was answered.
    pub(crate) async fn wait_abandoned(&self, method: &str) {
        let mut abandoned = self.shared.abandoned.subscribe();
        let what = format!("the client to leave {method}");
        within(&what, abandoned.wait_for(|methods| methods.iter().any(|left| left == method))).await.unwrap();
    }

    /// Waits until `count` child processes have been started, and returns their process ids in order. stdio only.
    pub(crate) async fn children(&self, count: usize) -> Vec<u32> {
        let mut children = self.shared.children.subscribe();
        let what = format!("{count} child processes");
        within(&what, children.wait_for(|started| started.len() >= count)).await.unwrap().clone()
    }
}

/// A message as it came.
#[derive(Debug)]
pub(crate) struct Received {
    /// The body of a POST, or a line. Empty for other HTTP methods.
    pub(crate) text: String,
    /// HTTP only; names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// HTTP's method for anything but POST, else the message's.
    method: String,
}

impl Received {
    fn message(text: String, headers: Vec<(String, String)>) -> Self {
        let method = slicer::member(&text, "method").and_then(slicer::plain_string).unwrap_or_default().to_owned();
        Self { text, headers, method }
    }

    /// The method of the message, or as in `HTTP DELETE`.
    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// The raw text of a member.
    pub(crate) fn member(&self, path: &str) -> Option<&str> {
        slicer::member(&self.text, path)
    }

    /// The raw text of a member whose name has dots.
    pub(crate) fn member_at(&self, path: &[&str]) -> Option<&str> {
        slicer::member_at(&self.text, path)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn target(&self) -> Option<&str> {
        let name = self.member("params.name").or_else(|| self.member("params.uri"));
        let name = name.or_else(|| self.member("params.taskId"))?;
        slicer::plain_string(name)
    }
}

/// What the server's tasks share with the test.
struct Shared {
    era: Era,
    rules: Mutex<Vec<Rule>>,
    received: watch::Sender<Vec<Arc<Received>>>,
    /// Methods of requests whose client went before the answer.
    abandoned: watch::Sender<Vec<String>>,
    children: watch::Sender<Vec<u32>>,
}

struct Rule {
    method: String,
    target: Option<String>,
    once: bool,
    reply: Reply,
}

impl Shared {
    fn new(era: Era) -> Self {
        Self {
            era,
            rules: Mutex::default(),
            received: watch::Sender::default(),
            abandoned: watch::Sender::default(),
            children: watch::Sender::default(),
        }
    }

    fn record(&self, received: Received) -> Arc<Received> {
        let received = Arc::new(received);
        self.received.send_modify(|all| all.push(Arc::clone(&received)));
        received
    }

    /// The reply a rule has for this message, else what the era says; `None` for a notification.
    fn reply(&self, received: &Received) -> Option<Reply> {
        if let Some(reply) = self.ruled(received) {
            return Some(reply);
        }
        received.member("id")?;
        Some(self.era.reply(received.method()))
    }

    fn ruled(&self, received: &Received) -> Option<Reply> {
        let mut rules = self.rules.lock().unwrap();
        let fits = |rule: &Rule| {
            rule.method == received.method()
                && rule.target.as_deref().is_none_or(|target| received.target() == Some(target))
        };
        if let Some(first) = rules.iter().position(|rule| rule.once && fits(rule)) {
            return Some(rules.remove(first).reply);
        }
        let specific = rules.iter().rev().find(|rule| rule.target.is_some() && fits(rule));
        specific.or_else(|| rules.iter().rev().find(|rule| fits(rule))).map(|rule| rule.reply.clone())
    }
}

impl Era {
    /// What this era's server answers when the test said nothing.
    fn reply(self, method: &str) -> Reply {
        let list = match method {
            "tools/list" => "tools",
            "resources/list" => "resources",
            "resources/templates/list" => "resourceTemplates",
            "prompts/list" => "prompts",
            "initialize" if self == Self::Legacy => return Reply::result(INITIALIZE_RESULT),
            "ping" | "logging/setLevel" if self == Self::Legacy => return Reply::result("{}"),
            "server/discover" if self == Self::Modern => return Reply::result(self.cacheable(DISCOVER_MEMBERS)),
            "initialize" => {
                let error = r#"{"code":-32022,"message":"2026-07-28 only","data":{"supported":["2026-07-28"],"requested":"?"}}"#;
                return Reply::error(error);
            }
            _ => return Reply::error(r#"{"code":-32601,"message":"Method not found"}"#),
        };
        Reply::result(self.cacheable(&format!(r#""{list}":[]"#)))
    }

    /// A whole result with the members that a list or read must have in this era.
    pub(crate) fn cacheable(self, members: &str) -> String {
        match self {
            Self::Legacy => format!("{{{members}}}"),
            Self::Modern => format!(r#"{{"resultType":"complete",{members},"ttlMs":0,"cacheScope":"private"}}"#),
        }
    }

    /// A whole result with the members that any result must have in this era.
    pub(crate) fn complete(self, members: &str) -> String {
        match self {
            Self::Legacy => format!("{{{members}}}"),
            Self::Modern => format!(r#"{{"resultType":"complete",{members}}}"#),
        }
    }
}

const INITIALIZE_RESULT: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}},"serverInfo":{"name":"scripted","version":"1"}}"#;
const DISCOVER_MEMBERS: &str = r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}"#;

/// A response with the request's own id, spliced in as it came.
fn response(request: &Received, member: &str, value: &str) -> String {
    let id = request.member("id").unwrap_or("null");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

/// A result whose response is at least `size` bytes long.
fn huge_result(size: usize) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(size))
}

/// A configuration with these entries of `mcpServers`.
pub(crate) fn config<S: Borrow<str>>(entries: &[S]) -> String {
    format!(r#"{{"mcpServers":{{{}}}}}"#, entries.join(","))
}
