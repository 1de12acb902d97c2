//! What waits for a client that has no stream open.
//!
//! Bounded in number and size. The oldest gives way, and what would tell the client the same thing
//! again is not entered twice.
//!
//! Must not know: where messages come from, or who takes them.

use std::collections::VecDeque;

use fanlight_protocol::{Json, Method};

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The message as the client is to have it.
    pub(crate) text: Json,
    /// The number of the question that it asks, if it asks one.
    pub(crate) question: Option<u64>,
}

/// Messages in order.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    dropped: u64,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Mailbox {
    /// Enters a notification.
    #[must_use]
    pub(crate) fn notify(&mut self, method: &Method, text: Json, room: Room) -> Vec<Waiting> {
        let repeats = is_mere_news(method) && self.waiting.iter().any(|waiting| waiting.text == text);
        if repeats { Vec::new() } else { self.push(Waiting { text, question: None }, room) }
    }

    /// Enters a message; returns those that have to give way.
    #[must_use]
    pub(crate) fn push(&mut self, waiting: Waiting, room: Room) -> Vec<Waiting> {
        self.bytes += waiting.text.bytes().len();
        self.waiting.push_back(waiting);
        let mut dropped = Vec::new();
        while self.waiting.len() > room.messages.max(1) || (self.bytes > room.bytes && self.waiting.len() > 1) {
            dropped.extend(self.pop());
        }
        self.dropped += dropped.len() as u64;
        if !dropped.is_empty() && self.dropped.is_power_of_two() {
            tracing::warn!(
                dropped = self.dropped,
                "a client has no stream open, and the messages that wait for it are too many; the oldest are dropped"
            );
        }
        dropped
    }

    /// Takes out the oldest.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let oldest = self.waiting.pop_front()?;
        self.bytes -= oldest.text.bytes().len();
        Some(oldest)
    }

    /// Takes out the question with this number; says whether it was there.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| waiting.question == Some(number)) else {
            return false;
        };
        if let Some(waiting) = self.waiting.remove(place) {
            self.bytes -= waiting.text.bytes().len();
        }
        true
    }
}

/// Whether a notification only says that something is no longer as it was.
fn is_mere_news(method: &Method) -> bool {
    matches!(method, Method::ToolsChanged | Method::PromptsChanged | Method::ResourcesChanged | Method::ResourceUpdated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { messages: 3, bytes: 20 };

    fn texts(mailbox: &mut Mailbox) -> Vec<String> {
        std::iter::from_fn(|| Some(mailbox.pop()?.text.as_text().to_owned())).collect()
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut mailbox = Mailbox::default();
        for (count, text) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let dropped = mailbox.notify(&Method::LogMessage, Json::literal(text), ROOM);
            assert_eq!(dropped.len(), usize::from(count == 3));
        }
        let question = Waiting { text: Json::string(&"x".repeat(15)), question: Some(7) };
        assert_eq!(mailbox.push(question, ROOM).len(), 1);
        let dropped = mailbox.notify(&Method::LogMessage, Json::literal("123456"), ROOM);
        assert_eq!(dropped.iter().map(|waiting| waiting.question).collect::<Vec<_>>(), [None, None, Some(7)]);
        assert_eq!((texts(&mut mailbox), mailbox.bytes, mailbox.dropped), (vec!["123456".to_owned()], 0, 5));
    }

    #[test]
    fn news_is_told_once() {
        let mut mailbox = Mailbox::default();
        for text in ["1", "2", "1", "2"] {
            assert!(mailbox.notify(&Method::ResourceUpdated, Json::literal(text), ROOM).is_empty());
        }
        assert!(mailbox.notify(&Method::LogMessage, Json::literal("1"), ROOM).is_empty());
        assert_eq!(texts(&mut mailbox), ["1", "2", "1"]);
    }

    #[test]
    fn a_question_can_be_withdrawn_before_it_is_asked() {
        let mut mailbox = Mailbox::default();
        let question = Waiting { text: Json::null(), question: Some(7) };
        assert!(mailbox.push(question, ROOM).is_empty());
        assert!(!mailbox.withdraw(8) && mailbox.withdraw(7) && !mailbox.withdraw(7));
        assert!(mailbox.waiting.is_empty() && mailbox.bytes == 0);
    }
}
