//! One line of the audit log.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use fanlight_protocol::{Json, ObjectBuilder, sha256_hex};

use crate::ledger::tree::Hash;

/// The most bytes of a text in a line.
const LONGEST: usize = 1024;

/// The capacity for a line: few are longer.
const USUAL: usize = 512;

/// A text of an entry.
type Text<'a> = Option<Cow<'a, str>>;

/// One event of the audit log. Empty and unknown members are left out of the line.
#[derive(Clone, Debug, Default)]
pub struct Entry<'a> {
    /// The kind of event: `request`, `approval`, `authentication`, `operator`, `connection`,
    /// `start`, `stop`, `lost`.
    pub event: &'static str,
    /// The time of the event; `None` for now.
    pub time: Option<SystemTime>,
    /// The principal: the issuer, `#`, and the subject.
    pub principal: Text<'a>,
    /// The principal's name for people. Not unique.
    pub who: Text<'a>,
    /// The kind of credentials: `token`, `key`, `certificate`, `proxy`, `socket`, `none`.
    pub authentication: Option<&'static str>,
    /// The actors on behalf of the principal, the current one first (RFC 8693, 4.1).
    pub act: &'a [Box<str>],
    /// The client's own name.
    pub client: Text<'a>,
    /// `legacy` or `modern`.
    pub era: Option<&'static str>,
    /// The path of the endpoint.
    pub endpoint: Text<'a>,
    /// The server, by its name in the configuration.
    pub server: Text<'a>,
    /// The canary that got the request instead of the server, if one did.
    pub canary: Text<'a>,
    /// The method, or the action of an operator.
    pub action: Text<'a>,
    /// The server's own name or URI of the item.
    pub item: Text<'a>,
    /// The client's name for the item, if it differs.
    pub shown: Text<'a>,
    /// `allow`, `ask` or `deny`.
    pub decision: Option<&'static str>,
    /// The policies that decided.
    pub policies: &'a [Arc<str>],
    /// `ok`, `tool_error`, `error`, `refused`, `cancelled`, `not_run`, `decided`, `asked`, `approved`, …
    pub outcome: &'static str,
    /// The reason, if it was refused.
    pub reason: Text<'a>,
    /// The JSON-RPC code of an error, or the HTTP status of an operator's request.
    pub code: Option<i64>,
    /// The duration.
    pub duration: Option<Duration>,
    /// The size of the parameters in bytes.
    pub request_bytes: Option<usize>,
    /// The size of the result in bytes.
    pub response_bytes: Option<usize>,
    /// The id of the approval that the call needed.
    pub approval: Text<'a>,
    /// The task that it created or is about.
    pub task: Text<'a>,
    /// The id of the trace.
    pub trace: Text<'a>,
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
    /// Arguments are not recorded.
    #[default]
    None,
    /// The SHA-256 digest of their text.
    Digest(Json),
    /// The text of the arguments, with secrets masked.
    Full(Json),
}

/// An entry in the form in which it waits to be written: the writer adds its number, and the hash of
/// the lines before it.
#[derive(Debug)]
pub(crate) struct Prepared {
    time: SystemTime,
    /// The members from `event` on, in braces.
    members: Json,
    /// The arguments whose digest the line gets.
    digested: Option<Json>,
}

impl Entry<'_> {
    /// Prepares the line.
    pub(crate) fn prepare(self) -> Prepared {
        let mut line = ObjectBuilder::with_capacity(USUAL);
        line.string("event", self.event);
        add_texts(
            &mut line,
            [
                ("principal", self.principal.as_deref()),
                ("who", self.who.as_deref()),
                ("authentication", self.authentication),
            ],
        );
        add_list(&mut line, "act", self.act);
        add_texts(
            &mut line,
            [
                ("client", self.client.as_deref()),
                ("era", self.era),
                ("endpoint", self.endpoint.as_deref()),
                ("server", self.server.as_deref()),
                ("canary", self.canary.as_deref()),
                ("action", self.action.as_deref()),
                ("item", self.item.as_deref()),
                ("shown", self.shown.as_deref()),
                ("decision", self.decision),
            ],
        );
        add_list(&mut line, "policies", self.policies);
        line.string("outcome", self.outcome);
        add_texts(&mut line, [("reason", self.reason.as_deref())]);
        if let Some(code) = self.code {
            line.integer("code", code);
        }
        let micros = self.duration.map(|duration| duration.as_micros());
        add_count(&mut line, "durationUs", micros);
        add_count(&mut line, "requestBytes", self.request_bytes);
        add_count(&mut line, "responseBytes", self.response_bytes);
        add_texts(
            &mut line,
            [
                ("approval", self.approval.as_deref()),
                ("task", self.task.as_deref()),
                ("trace", self.trace.as_deref()),
            ],
        );
        if let Arguments::Full(text) = &self.arguments {
            line.member("arguments", &text.on_one_line());
        }
        for (name, count) in [("lost", self.lost), ("omitted", self.omitted)] {
            add_count(&mut line, name, Some(count).filter(|count| *count > 0));
        }
        Prepared {
            time: self.time.unwrap_or_else(SystemTime::now),
            members: line.finish(),
            digested: match self.arguments {
                Arguments::Digest(text) => Some(text),
                Arguments::None | Arguments::Full(_) => None,
            },
        }
    }
}

impl Prepared {
    /// The number of bytes until it is written.
    pub(crate) fn size(&self) -> usize {
        let digested = self.digested.as_ref();
        size_of::<Self>()
            + USUAL.max(self.members.bytes().len())
            + digested.map_or(0, |text| text.bytes().len())
    }

    /// Appends the line with its number and the replica that writes it. The first line of a block
    /// has the hash of the block before it.
    pub(crate) fn write(
        &self,
        out: &mut String,
        number: u64,
        replica: Option<&str>,
        previous: Option<&Hash>,
    ) {
        let time = humantime::format_rfc3339_millis(self.time);
        // Writing to a `String` cannot fail.
        _ = write!(out, r#"{{"seq":{number},"time":"{time}","#);
        if let Some(replica) = replica {
            _ = write!(
                out,
                r#""replica":{},"#,
                Json::string(cut(replica)).as_text()
            );
        }
        let members = self.members.as_text();
        out.push_str(
            members
                .get(1..members.len().saturating_sub(1))
                .unwrap_or_default(),
        );
        if let Some(text) = &self.digested {
            let digest = sha256_hex(text.bytes());
            _ = write!(out, r#","argumentsDigest":"{digest}""#);
        }
        if let Some(previous) = previous {
            _ = write!(out, r#","prev":"{}""#, HEXLOWER.encode(previous));
        }
        out.push_str("}\n");
    }
}

fn add_texts<const N: usize>(line: &mut ObjectBuilder, texts: [(&str, Option<&str>); N]) {
    for (name, text) in texts {
        if let Some(text) = text {
            line.string(name, cut(text));
        }
    }
}

fn add_list(line: &mut ObjectBuilder, name: &str, texts: &[impl AsRef<str>]) {
    if texts.is_empty() {
        return;
    }
    line.member(
        name,
        &Json::strings(texts.iter().map(|text| cut(text.as_ref()))),
    );
}

fn add_count<T: TryInto<i64>>(line: &mut ObjectBuilder, name: &str, count: Option<T>) {
    if let Some(count) = count {
        line.integer(name, count.try_into().unwrap_or(i64::MAX));
    }
}

/// A text, cut to the length that a line permits.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST))
        .unwrap_or(text)
}
