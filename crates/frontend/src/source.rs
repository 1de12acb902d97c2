//! What one POST is answered with: everything said during its call, or during each call of a batch
//! as it comes.
//!
//! Must not know: transports.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_protocol::json::Chunks;

use fanlight_telemetry::{ErrorType, Outcome, ServerSpan};

use crate::conversation::Conversation;
use crate::event::Event;
use crate::render::Rendering;
use crate::trace::Ending;

/// The calls that are still running, and what has been said already.
#[derive(Debug, Default)]
pub(crate) struct Source {
    said: VecDeque<Said>,
    calls: Vec<Call>,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    conversation: Conversation,
    rendering: Rendering,
    /// `None` once it has ended.
    span: Option<ServerSpan>,
}

/// Something to send.
#[derive(Debug)]
pub(crate) enum Said {
    /// A notification or a question.
    Message(Chunks),
    /// The answer to a call, the code of the error that it is, if it is one, and the end of its span.
    Answer(Chunks, Option<i64>, Option<Box<Ending>>),
    /// A server will say more after a while; see [`Event::Pause`].
    Pause(Option<Duration>),
}

impl Said {
    /// The message, and the end of a span if it is an answer; `None` if it is a pause.
    pub(crate) fn into_text(self) -> Option<(Chunks, Option<Box<Ending>>)> {
        match self {
            Self::Message(text) => Some((text, None)),
            Self::Answer(text, _, ending) => Some((text, ending)),
            Self::Pause(_) => None,
        }
    }
}

impl Call {
    /// A call whose answers are written by `rendering`, and whose span ends with the answer.
    pub(crate) fn new(conversation: Conversation, rendering: Rendering, span: ServerSpan) -> Self {
        Self { conversation, rendering, span: Some(span) }
    }

    /// What comes next; `None` once there is no more. Nothing comes after an answer.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        let Self { conversation, rendering, span } = self;
        Poll::Ready(match ready!(conversation.poll_next(cx)) {
            Event::Message(text) => {
                if let Some(span) = span.take_if(|_| conversation.is_listening()) {
                    span.finish(&Outcome::Finished);
                }
                Some(Said::Message(text))
            }
            Event::Pause(retry) => Some(Said::Pause(retry)),
            Event::Response(response) => {
                let ending = span.take().map(|span| Ending::answered(span, &rendering.method, &response));
                Some(Said::Answer(rendering.message(&response), response.error_code(), ending.map(Box::new)))
            }
            // A cancelled request gets no response (2025-11-25 basic/utilities/cancellation).
            Event::Cancelled => {
                if let Some(span) = span.take() {
                    span.finish(&Outcome::failed(ErrorType::Cancelled));
                }
                None
            }
        })
    }
}

impl From<Call> for Source {
    fn from(call: Call) -> Self {
        Self { said: VecDeque::new(), calls: vec![call] }
    }
}

impl Source {
    /// Adds a call.
    pub(crate) fn add(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Lets `said` come before everything else.
    pub(crate) fn put_back(&mut self, said: Said) {
        self.said.push_front(said);
    }

    /// What comes next; `None` once there is no more.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What comes next; `None` once there is no more.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        if let Some(said) = self.said.pop_front() {
            return Poll::Ready(Some(said));
        }
        let mut at = 0;
        while let Some(call) = self.calls.get_mut(at) {
            let said = match call.poll_next(cx) {
                Poll::Pending => {
                    at += 1;
                    continue;
                }
                Poll::Ready(said) => said,
            };
            if !matches!(said, Some(Said::Message(_) | Said::Pause(_))) {
                drop(self.calls.swap_remove(at));
            }
            if said.is_some() {
                return Poll::Ready(said);
            }
        }
        if self.calls.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }
}
