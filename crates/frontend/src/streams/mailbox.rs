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
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    dropped: u64,
}

/// Limits of the waiting messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) messages: usize,
    /// The total size of all messages.
    pub(crate) bytes: usize,
}

impl Mailbox {
    /// Adds a notification.
    #[must_use]
    pub(crate) fn notify(
        &mut self,
        method: &Method,
        text: Json,
        limits: QueueLimits,
    ) -> Vec<Waiting> {
        let repeats =
            only_says_changed(method) && self.waiting.iter().any(|waiting| waiting.text == text);
        if repeats {
            Vec::new()
        } else {
            self.push(
                Waiting {
                    text,
                    request: None,
                },
                limits,
            )
        }
    }

    /// Adds a message; returns the dropped ones.
    #[must_use]
    pub(crate) fn push(&mut self, waiting: Waiting, limits: QueueLimits) -> Vec<Waiting> {
        self.bytes += waiting.text.bytes().len();
        self.waiting.push_back(waiting);
        let mut dropped = Vec::new();
        while self.waiting.len() > limits.messages.max(1)
            || (self.bytes > limits.bytes && self.waiting.len() > 1)
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

    /// Removes and returns the oldest message.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let oldest = self.waiting.pop_front()?;
        self.bytes -= oldest.text.bytes().len();
        Some(oldest)
    }

    /// Removes the server request with this number; returns whether it was there.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let Some(at) = self
            .waiting
            .iter()
            .position(|waiting| waiting.request == Some(number))
        else {
            return false;
        };
        if let Some(waiting) = self.waiting.remove(at) {
            self.bytes -= waiting.text.bytes().len();
        }
        true
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

    const LIMITS: QueueLimits = QueueLimits {
        messages: 3,
        bytes: 20,
    };

    fn texts(mailbox: &mut Mailbox) -> Vec<String> {
        std::iter::from_fn(|| Some(mailbox.pop()?.text.as_text().to_owned())).collect()
    }

    #[test]
    fn oldest_messages_are_dropped_first() {
        let mut mailbox = Mailbox::default();
        for (count, text) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let dropped = mailbox.notify(&Method::LogMessage, Json::literal(text), LIMITS);
            assert_eq!(dropped.len(), usize::from(count == 3));
        }
        let request = Waiting {
            text: Json::string(&"x".repeat(15)),
            request: Some(7),
        };
        assert_eq!(mailbox.push(request, LIMITS).len(), 1);
        let dropped = mailbox.notify(&Method::LogMessage, Json::literal("123456"), LIMITS);
        assert_eq!(
            dropped
                .iter()
                .map(|waiting| waiting.request)
                .collect::<Vec<_>>(),
            [None, None, Some(7)]
        );
        assert_eq!(
            (texts(&mut mailbox), mailbox.bytes, mailbox.dropped),
            (vec!["123456".to_owned()], 0, 5)
        );
    }

    #[test]
    fn repeated_change_notification_is_entered_once() {
        let mut mailbox = Mailbox::default();
        for text in ["1", "2", "1", "2"] {
            assert!(
                mailbox
                    .notify(&Method::ResourceUpdated, Json::literal(text), LIMITS)
                    .is_empty()
            );
        }
        assert!(
            mailbox
                .notify(&Method::LogMessage, Json::literal("1"), LIMITS)
                .is_empty()
        );
        assert_eq!(texts(&mut mailbox), ["1", "2", "1"]);
    }

    #[test]
    fn waiting_server_request_can_be_withdrawn() {
        let mut mailbox = Mailbox::default();
        let request = Waiting {
            text: Json::null(),
            request: Some(7),
        };
        assert!(mailbox.push(request, LIMITS).is_empty());
        assert!(!mailbox.withdraw(8) && mailbox.withdraw(7) && !mailbox.withdraw(7));
        assert!(mailbox.waiting.is_empty() && mailbox.bytes == 0);
    }
}
