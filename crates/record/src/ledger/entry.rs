//! One line of the audit log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};

/// The most bytes of a text in a line.
const LONGEST: usize = 1024;

/// One event of the audit log. Empty and unknown members are left out of the line.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The kind of event: `request`, `approval`, `authentication`, `operator`, `connection`,
    /// `start`, `stop`, `lost`.
    pub event: &'static str,
    /// The time of the event; `None` for now.
    pub time: Option<SystemTime>,
    /// The principal: the issuer, `#`, and the subject.
    pub principal: Option<Box<str>>,
    /// The principal's name for people. Not unique.
    pub who: Option<Box<str>>,
    /// The kind of credentials: `token`, `key`, `certificate`, `proxy`, `socket`, `none`.
    pub authentication: Option<&'static str>,
    /// The actors on behalf of the principal, the current one first (RFC 8693, 4.1).
    pub act: Vec<Box<str>>,
    /// The client's own name.
    pub client: Option<Box<str>>,
    /// `legacy` or `modern`.
    pub era: Option<&'static str>,
    /// The path of the endpoint.
    pub endpoint: Option<Box<str>>,
    /// The server, by its name in the configuration.
    pub server: Option<Box<str>>,
    /// The canary that got the request instead of the server, if one did.
    pub canary: Option<Box<str>>,
    /// The method, or the action of an operator.
    pub action: Option<Box<str>>,
    /// The server's own name or URI of the item.
    pub item: Option<Box<str>>,
    /// The client's name for the item, if it differs.
    pub shown: Option<Box<str>>,
    /// `allow`, `ask` or `deny`.
    pub decision: Option<&'static str>,
    /// The policies that decided.
    pub policies: Arc<[Arc<str>]>,
    /// `ok`, `tool_error`, `error`, `refused`, `cancelled`, `not_run`, `decided`, `asked`, `approved`, …
    pub outcome: &'static str,
    /// The reason, if it was refused.
    pub reason: Option<Box<str>>,
    /// The JSON-RPC code of an error, or the HTTP status of an operator's request.
    pub code: Option<i64>,
    /// The duration.
    pub duration: Option<Duration>,
    /// The size of the parameters in bytes.
    pub request_bytes: Option<usize>,
    /// The size of the result in bytes.
    pub response_bytes: Option<usize>,
    /// The id of the approval that the call needed.
    pub approval: Option<Box<str>>,
    /// The task that it created or is about.
    pub task: Option<Box<str>>,
    /// The id of the trace.
    pub trace: Option<Box<str>>,
    /// The arguments.
    pub arguments: Arguments,
    /// The number of entries that were lost before this one.
    pub lost: u64,
    /// The number of similar entries that were left out since the last one.
    pub omitted: u64,
}

/// The recorded form of arguments.
#[derive(Clone, Debug, Default)]
pub enum Arguments {
    /// They are not recorded.
    #[default]
    None,
    /// The SHA-256 digest of their text.
    Digest(Json),
    /// Their text, with secrets masked.
    Full(Json),
}

impl Entry {
    /// The approximate number of bytes until it is written.
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

    /// The line, with its number, the replica that writes it, and the hash of the previous line.
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
        for (name, id) in [
            ("approval", &self.approval),
            ("task", &self.task),
            ("trace", &self.trace),
        ] {
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

/// A text, cut to the length that a line permits.
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
