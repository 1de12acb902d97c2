//! Keeps the messages of a call that its spans see.

use std::time::SystemTime;

use fanlight_protocol::input::{INPUT_RESPONSES, InputRequired};
use fanlight_protocol::{Json, Method, Response};

use crate::content::{ContentKind, MOST, has_content};
use crate::record::Record;

/// The input that a result asks for. Longer results do not ask for any.
pub(crate) fn input(answer: &Response) -> Option<InputRequired> {
    (answer.size() <= MOST).then(|| InputRequired::from_response(answer))?
}

impl Record {
    /// Keeps a message of the span's call.
    pub(crate) fn keep(&self, at: SystemTime, kind: ContentKind, message: &Json) {
        if let Some(content) = self.content.get() {
            content.keep(self.context.span_id(), at, kind, message);
        }
    }

    /// Keeps the content in `params` of a call, or of a server's request.
    pub(crate) fn keep_params(&self, method: &Method, params: &Json) {
        let at = self.start.began.wall();
        if method.is_input_request() {
            return self.keep(at, ContentKind::Question, params);
        }
        let parts = [
            ("arguments", ContentKind::Arguments),
            (INPUT_RESPONSES, ContentKind::Answer),
        ];
        for (key, kind) in parts.into_iter().filter(|_| has_content(method)) {
            if let Some(part) = params.get(key) {
                self.keep(at, kind, &part);
            }
        }
    }

    /// Keeps the answer to a call, or to a server's request.
    pub(crate) fn keep_answer(&self, method: &Method, answer: &Response) {
        let is_answer = method.is_input_request();
        if self.content.get().is_none() || !(is_answer || has_content(method)) {
            return;
        }
        let questions = input(answer).and_then(|input| input.requests);
        let (kind, message) = match questions {
            _ if is_answer => (ContentKind::Answer, answer.body()),
            Some(questions) => (ContentKind::Question, questions),
            None if answer.is_error() => (ContentKind::Error, answer.body()),
            None => (ContentKind::Result, answer.body()),
        };
        self.keep(self.start.began.later().wall(), kind, &message);
    }
}
