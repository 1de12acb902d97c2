//! One line of the record.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};

/// Most bytes of a text in a line.
const LONGEST: usize = 1024;

/// What happened, as one line says it. What is empty or unknown is left out of the line.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// What it is about: `request`, `approval`, `authentication`, `operator`, `connection`, `start`, `stop`, `lost`.
    pub event: &'static str,
    /// When it happened; `None` for now.
    pub time: Option<SystemTime>,
    /// Who: the issuer, `#`, and the subject.
    pub principal: Option<Box<str>>,
    /// The name for people. Not unique.
    pub who: Option<Box<str>>,
    /// How that was shown: `token`, `key`, `certificate`, `proxy`, `socket`, `none`.
    pub authentication: Option<&'static str>,
    /// Those who act for the principal, the present one first (RFC 8693, 4.1).
    pub act: Vec<Box<str>>,
    /// What the client calls itself.
    pub client: Option<Box<str>>,
    /// `legacy` or `modern`.
    pub era: Option<&'static str>,
    /// The path of the endpoint.
    pub endpoint: Option<Box<str>>,
    /// The server, by its name in the configuration.
    pub server: Option<Box<str>>,
    /// The server that it went to in place of that one, whose canary it is.
    pub canary: Option<Box<str>>,
    /// The method, or what an operator did.
    pub action: Option<Box<str>>,
    /// The server's own name or URI of what it is about.
    pub item: Option<Box<str>>,
    /// The name by which the client asked for it, if that differs.
    pub shown: Option<Box<str>>,
    /// `allow`, `ask` or `deny`.
    pub decision: Option<&'static str>,
    /// The policies that decided.
    pub policies: Arc<[Arc<str>]>,
    /// `ok`, `tool_error`, `error`, `refused`, `cancelled`, `not_run`, `decided`, `asked`, `approved`, …
    pub outcome: &'static str,
    /// Why, where it was refused.
    pub reason: Option<Box<str>>,
    /// The JSON-RPC code of an error, or the HTTP status of an operator's request.
    pub code: Option<i64>,
    /// How long it took.
    pub duration: Option<Duration>,
    /// Bytes of the parameters.
    pub request_bytes: Option<usize>,
    /// Bytes of the result.
    pub response_bytes: Option<usize>,
    /// The task that it has begun, or is about.
    pub task: Option<Box<str>>,
    /// The id of the trace.
    pub trace: Option<Box<str>>,
    /// The arguments.
    pub arguments: Arguments,
    /// How many entries were lost before this one.
    pub lost: u64,
    /// How many like this one were left out since the last that is there.
    pub omitted: u64,
}

/// What is recorded of arguments.
#[derive(Clone, Debug, Default)]
pub enum Arguments {
    /// Nothing.
    #[default]
    None,
    /// The SHA-256 digest of their text.
    Digest(Json),
    /// Their text, with secrets masked.
    Full(Json),
}

impl Entry {
    /// About how many bytes it takes until it is written.
    pub(crate) fn size(&self) -> usize {
        let texts = [
            &self.principal,
            &self.who,
            &self.client,
            &self.endpoint,
            &self.server,
            &self.canary,
            &self.action,
            &self.item,
        ];
        let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        let arguments = match &self.arguments {
            Arguments::None => 0,
            Arguments::Digest(text) | Arguments::Full(text) => text.bytes().len(),
        };
        size_of::<Self>() + texts + arguments
    }

    /// The line, with its number, the process that writes it, and the hash of the line before it.
    pub(crate) fn line(&self, number: u64, replica: Option<&str>, previous: &[u8; 32]) -> String {
        let mut line = ObjectBuilder::new();
        let time =
            humantime::format_rfc3339_millis(self.time.unwrap_or_else(SystemTime::now)).to_string();
        let integer = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        line.integer("seq", integer(number))
            .string("time", &time)
            .string("event", self.event);
        let mut text = |name: &str, text: Option<&str>| {
            if let Some(text) = text {
                line.string(name, cut(text));
            }
        };
        text("replica", replica);
        text("principal", self.principal.as_deref());
        text("who", self.who.as_deref());
        text("authentication", self.authentication);
        if !self.act.is_empty() {
            line.member("act", &texts(self.act.iter().map(|text| &**text)));
        }
        let mut text = |name: &str, text: Option<&str>| {
            if let Some(text) = text {
                line.string(name, cut(text));
            }
        };
        text("client", self.client.as_deref());
        text("era", self.era);
        text("endpoint", self.endpoint.as_deref());
        text("server", self.server.as_deref());
        text("canary", self.canary.as_deref());
        text("action", self.action.as_deref());
        text("item", self.item.as_deref());
        text("shown", self.shown.as_deref());
        text("decision", self.decision);
        if !self.policies.is_empty() {
            line.member("policies", &texts(self.policies.iter().map(|text| &**text)));
        }
        line.string("outcome", self.outcome);
        if let Some(reason) = &self.reason {
            line.string("reason", cut(reason));
        }
        if let Some(code) = self.code {
            line.integer("code", code);
        }
        if let Some(duration) = self.duration {
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            line.integer("durationUs", integer(micros));
        }
        let bytes = [
            ("requestBytes", self.request_bytes),
            ("responseBytes", self.response_bytes),
        ];
        for (name, bytes) in bytes
            .into_iter()
            .filter_map(|(name, bytes)| Some((name, bytes?)))
        {
            line.integer(name, integer(u64::try_from(bytes).unwrap_or(u64::MAX)));
        }
        for (name, id) in [("task", &self.task), ("trace", &self.trace)] {
            if let Some(id) = id {
                line.string(name, cut(id));
            }
        }
        match &self.arguments {
            Arguments::None => {}
            Arguments::Digest(text) => {
                line.string(
                    "argumentsDigest",
                    &HEXLOWER.encode(digest(&SHA256, text.bytes()).as_ref()),
                );
            }
            Arguments::Full(text) => {
                line.member("arguments", &text.on_one_line());
            }
        }
        for (name, count) in [("lost", self.lost), ("omitted", self.omitted)] {
            if count > 0 {
                line.integer(name, integer(count));
            }
        }
        line.string("prev", &HEXLOWER.encode(previous));
        line.finish().as_text().to_owned()
    }
}

/// As much of a text as a line has of it.
#[must_use]
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST))
        .unwrap_or(text)
}

fn texts<'a>(all: impl Iterator<Item = &'a str>) -> Json {
    let mut list = ArrayBuilder::default();
    for text in all {
        list.push(&Json::string(cut(text)));
    }
    list.finish()
}
