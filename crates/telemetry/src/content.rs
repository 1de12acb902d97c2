//! The content of calls: arguments, results, progress, questions and answers.
//!
//! A running call copies the beginning of each message and does nothing else with it. Readers and
//! exporters mask the secrets, which takes longer than a call may wait.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_protocol::{Json, Method};
use opentelemetry::trace::SpanId;
use parking_lot::Mutex;

use crate::text::start_of;

/// The limit of the bytes that are kept of one message.
pub(crate) const MOST: usize = 64 << 10;
/// The limit of the kept messages of one call. Their bytes are limited, too.
const MESSAGES: usize = 256;

fanlight_protocol::named! {
    /// The calls whose content is kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Level {
        /// No calls.
        #[default]
        Off = "off",
        /// Failed calls.
        Errors = "errors",
        /// All calls.
        On = "on",
    }
}

/// The decision about the content of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The level in memory.
    pub(crate) kept: Level,
    /// The level in exports and the trace file.
    pub(crate) exported: Level,
}

impl Choice {
    pub(crate) fn narrower(self, other: Self) -> Self {
        Self {
            kept: self.kept.min(other.kept),
            exported: self.exported.min(other.exported),
        }
    }
}

fanlight_protocol::named! {
    /// The part that a message plays in a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ContentKind {
        /// The arguments of the call.
        Arguments = "arguments",
        /// The result of the call.
        Result = "result",
        /// The error that is the answer to the call.
        Error = "error",
        /// A progress notification.
        Progress = "progress",
        /// A log notification.
        Log = "log",
        /// A request of the server to the client, or the requests for input in a result.
        Question = "question",
        /// The answer to a question.
        Answer = "answer",
        /// The server's own spans in a result.
        ServerSpans = "serverSpans",
    }
}

/// A kept message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) span: SpanId,
    pub(crate) at: SystemTime,
    pub(crate) kind: ContentKind,
    /// The beginning of the message, with its secrets.
    pub(crate) text: Arc<str>,
    /// The length of the whole message in bytes.
    pub(crate) bytes: usize,
}

/// The content of one call, which all its spans share.
#[derive(Debug)]
pub(crate) struct CallContent {
    /// The span of the request. The content belongs to it.
    pub(crate) owner: SpanId,
    /// The limit of the kept bytes.
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    choice: Choice,
    messages: Vec<Message>,
    bytes: usize,
    /// Whether the request has ended.
    is_closed: bool,
}

impl CallContent {
    pub(crate) fn new(owner: SpanId, choice: Choice, most: usize) -> Self {
        let kept = Mutex::new(Kept {
            choice,
            messages: Vec::new(),
            bytes: 0,
            is_closed: false,
        });
        Self { owner, most, kept }
    }

    /// Keeps no more than `choice` allows. The call may go to several servers.
    pub(crate) fn narrow(&self, choice: Choice) {
        let mut kept = self.kept.lock();
        kept.choice = kept.choice.narrower(choice);
        if kept.choice.kept == Level::Off {
            kept.forget();
        }
    }

    /// Keeps the beginning of a message, unless the limits are reached. Equal messages share it.
    pub(crate) fn keep(&self, span: SpanId, at: SystemTime, kind: ContentKind, message: &Json) {
        let (whole, mut kept) = (message.as_text(), self.kept.lock());
        if kept.is_closed || kept.choice.kept == Level::Off || kept.messages.len() >= MESSAGES {
            return;
        }
        let start = start_of(whole, MOST);
        let equal = kept
            .messages
            .iter()
            .rfind(|one| one.bytes == whole.len() && *one.text == *start);
        let text = match equal {
            Some(equal) => Arc::clone(&equal.text),
            None => {
                let start = start_of(start, self.most - kept.bytes);
                kept.bytes += start.len();
                Arc::from(start)
            }
        };
        kept.messages.push(Message {
            span,
            at,
            kind,
            text,
            bytes: whole.len(),
        });
    }

    /// Ends the content with its request. Returns its size in bytes.
    pub(crate) fn close(&self, has_failed: bool) -> usize {
        let mut kept = self.kept.lock();
        kept.is_closed = true;
        if kept.choice.kept == Level::Errors && !has_failed {
            kept.forget();
        }
        kept.bytes + kept.messages.capacity() * size_of::<Message>() + size_of::<Self>()
    }

    /// The kept messages, oldest first.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = self.kept.lock().messages.clone();
        messages.sort_by_key(|message| message.at);
        messages
    }

    /// The messages of a span that may be exported.
    pub(crate) fn exported(&self, span: SpanId, has_failed: bool) -> Vec<Message> {
        let kept = self.kept.lock();
        let is_exported = match kept.choice.exported {
            Level::Off => false,
            Level::Errors => has_failed,
            Level::On => true,
        };
        let of_span = kept.messages.iter().filter(|one| one.span == span);
        of_span.filter(|_| is_exported).cloned().collect()
    }
}

impl Kept {
    fn forget(&mut self) {
        (self.messages, self.bytes) = (Vec::new(), 0);
    }
}

/// Whether traces keep the content of messages of this method. Requests of servers belong to a call.
pub(crate) fn has_content(method: &Method) -> bool {
    matches!(
        method,
        Method::CallTool | Method::GetPrompt | Method::ReadResource
    )
}
