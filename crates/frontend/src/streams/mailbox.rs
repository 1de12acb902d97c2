//! Messages that wait for a client without an open stream.
//!
//! Their number and size are limited. The oldest are dropped, and a notification that repeats a
//! waiting one is not added.

use std::collections::VecDeque;

use fanlight_protocol::{Json, Method};

/// A waiting message.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The message's text for the client.
    pub(crate) text: Json,
    /// The number of a server request; `None` for a notification.
    pub(crate) request: Option<u64>,
}

/// Waiting messages in order.
#[derive(Debug)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Waiting>,
    /// The maximum number of messages.
    most: usize,
    /// The maximum size of all messages.
    most_bytes: usize,
    dropped: u64,
}

impl Mailbox {
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            most: most.max(1),
            most_bytes,
            dropped: 0,
        }
    }

    /// Adds a notification; returns the dropped messages.
    #[must_use]
    pub(crate) fn notify(&mut self, method: &Method, text: Json) -> Vec<Waiting> {
        let repeats =
            only_says_changed(method) && self.waiting.iter().any(|waiting| waiting.text == text);
        if repeats {
            return Vec::new();
        }
        let request = None;
        self.push(Waiting { text, request })
    }

    /// Adds a message; returns the dropped ones.
    #[must_use]
    pub(crate) fn push(&mut self, waiting: Waiting) -> Vec<Waiting> {
        self.add(waiting);
        let mut dropped = Vec::new();
        while self.waiting.len() > self.most
            || (self.bytes() > self.most_bytes && self.waiting.len() > 1)
        {
            dropped.extend(self.pop());
        }
        self.dropped += dropped.len() as u64;
        if !dropped.is_empty() && self.dropped.is_power_of_two() {
            tracing::warn!(
                dropped = self.dropped,
                "messages for a client without a stream dropped: too many"
            );
        }
        dropped
    }

    /// Adds a message even above the limits.
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Removes and returns the oldest message.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Removes the server request with this number; returns whether it was there.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting
            .retain(|waiting| waiting.request != Some(number));
        self.waiting.len() < before
    }

    fn bytes(&self) -> usize {
        let texts = self.waiting.iter().map(|waiting| &waiting.text);
        texts.map(|text| text.bytes().len()).sum()
    }
}

/// Whether the notification only says that something has changed, without details.
fn only_says_changed(method: &Method) -> bool {
    matches!(
        method,
        Method::ToolsChanged
            | Method::PromptsChanged
            | Method::ResourcesChanged
            | Method::ResourceUpdated
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Mailbox {
        Mailbox::new(3, 20)
    }

    fn texts(mailbox: &mut Mailbox) -> Vec<String> {
        std::iter::from_fn(|| Some(mailbox.pop()?.text.as_text().to_owned())).collect()
    }

    #[test]
    fn oldest_messages_are_dropped_first() {
        let mut mailbox = mailbox();
        for (count, text) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let dropped = mailbox.notify(&Method::LogMessage, Json::literal(text));
            assert_eq!(dropped.len(), usize::from(count == 3));
        }
        let request = Waiting {
            text: Json::string(&"x".repeat(15)),
            request: Some(7),
        };
        assert_eq!(mailbox.push(request).len(), 1);
        let dropped = mailbox.notify(&Method::LogMessage, Json::literal("123456"));
        assert_eq!(
            dropped
                .iter()
                .map(|waiting| waiting.request)
                .collect::<Vec<_>>(),
            [None, None, Some(7)]
        );
        assert_eq!(
            (texts(&mut mailbox), mailbox.bytes(), mailbox.dropped),
            (vec!["123456".to_owned()], 0, 5)
        );
    }

    #[test]
    fn repeated_change_notification_is_entered_once() {
        let mut mailbox = mailbox();
        for text in ["1", "2", "1", "2"] {
            assert!(
                mailbox
                    .notify(&Method::ResourceUpdated, Json::literal(text))
                    .is_empty()
            );
        }
        assert!(
            mailbox
                .notify(&Method::LogMessage, Json::literal("1"))
                .is_empty()
        );
        assert_eq!(texts(&mut mailbox), ["1", "2", "1"]);
    }

    #[test]
    fn waiting_server_request_can_be_withdrawn() {
        let mut mailbox = mailbox();
        let request = Waiting {
            text: Json::null(),
            request: Some(7),
        };
        assert!(mailbox.push(request).is_empty());
        assert!(!mailbox.withdraw(8) && mailbox.withdraw(7) && !mailbox.withdraw(7));
        assert!(mailbox.waiting.is_empty() && mailbox.bytes() == 0);
    }
}
