//! Selects the notifications for one request's client, and their progress token.

use fanlight_protocol::{Chunks, Json, LogLevel, Method, Notification, Revision};

/// Selects the notifications for one request's client.
#[derive(Clone, Debug)]
pub(crate) struct NotificationFilter {
    /// The client's own progress token, as written.
    pub(crate) progress_token: Option<Json>,
    /// The log messages that the client gets.
    pub(crate) logs: LogGate,
    /// The client's revision, which determines the notifications it knows.
    pub(crate) revision: Revision,
    /// Whether guardrails judge results, including the results of tasks, before the client gets
    /// them.
    pub(crate) judges_results: bool,
}

/// The log messages that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogGate {
    /// None: a modern request without a level (2026-07-28 server/utilities/logging).
    Closed,
    /// Messages at or above a level, or of an unknown level, which the server has let through.
    AtLeast(LogLevel),
    /// All: a legacy session without a level leaves the choice to the server.
    Open,
}

impl NotificationFilter {
    /// The text of `notification` for the client; `None` if the client must not get it.
    pub(crate) fn translate(&self, notification: Notification) -> Option<Chunks> {
        match notification.method {
            Method::Progress => {
                // Replaces Fanlight's token by the client's own. A client without a token gets no
                // progress.
                let token = self.progress_token.as_ref()?;
                Some(notification.to_message(notification.progress_token()?, token))
            }
            Method::LogMessage if !self.logs.lets_through(&notification) => None,
            ref method if !self.revision.has_notification(method) => None,
            _ if self.judges_results && has_result(&notification) => None,
            _ => Some(notification.text.into_bytes().into()),
        }
    }
}

/// Whether a notification contains a task's result.
pub(crate) fn has_result(notification: &Notification) -> bool {
    let has_result = |params: Json| !matches!(params.find_distinct(&["result"]), Ok([None]));
    notification.method == Method::TaskChanged && notification.params().is_some_and(has_result)
}

impl LogGate {
    /// The log messages for a session or request with this level.
    pub(crate) fn new(revision: Revision, level: Option<LogLevel>) -> Self {
        match level {
            Some(level) => Self::AtLeast(level),
            None if revision.has_sessions => Self::Open,
            None => Self::Closed,
        }
    }

    pub(crate) fn lets_through(self, message: &Notification) -> bool {
        match self {
            Self::Closed => false,
            Self::Open => true,
            Self::AtLeast(least) => message.log_level().is_none_or(|level| level >= least),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    fn translate(logs: LogGate, token: Option<&'static str>, text: &'static str) -> Option<String> {
        let Ok(Message::Notification(notification)) =
            Message::parse(Bytes::from_static(text.as_bytes()), 64)
        else {
            panic!("not a notification")
        };
        let filter = NotificationFilter {
            progress_token: token.map(Json::literal),
            logs,
            revision: Revision::V2025_11_25,
            judges_results: false,
        };
        filter
            .translate(notification)
            .map(|text| String::from_utf8(text.into_bytes().to_vec()).unwrap())
    }

    #[test]
    fn progress_carries_the_clients_token_and_no_other_change() {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{ "x":1.0,"progressToken": 17, "progress":1E2}}"#;
        assert_eq!(
            translate(LogGate::Closed, Some(r#""a\u0041""#), text).unwrap(),
            text.replace("17", r#""a\u0041""#)
        );
        assert_eq!(translate(LogGate::Open, None, text), None);
        let tokenless =
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;
        assert_eq!(translate(LogGate::Open, Some("1"), tokenless), None);
    }

    #[test]
    fn log_messages_are_filtered_by_level() {
        let log = |level: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}"}}}}"#
            );
            &*text.leak()
        };
        let passes = |gate, level| translate(gate, None, log(level)).is_some();
        assert!(!passes(LogGate::Closed, "emergency"));
        assert!(passes(LogGate::Open, "debug"));
        assert!(passes(LogGate::AtLeast(LogLevel::Warning), "warning"));
        assert!(passes(LogGate::AtLeast(LogLevel::Warning), "error"));
        assert!(!passes(LogGate::AtLeast(LogLevel::Warning), "notice"));
        assert!(passes(LogGate::AtLeast(LogLevel::Emergency), "loud"));
        assert!(!passes(LogGate::Closed, "loud"));
        assert!(passes(LogGate::Open, "loud"));
    }

    #[test]
    fn notifications_are_filtered_by_era() {
        let known = |revision: Revision, name| revision.has_notification(&Method::from_name(name));
        for (name, legacy, modern) in [
            ("notifications/subscriptions/acknowledged", false, true),
            ("notifications/tasks", false, true),
            ("notifications/tasks/status", true, false),
            ("notifications/elicitation/complete", true, false),
            ("notifications/tools/list_changed", true, true),
            ("notifications/x", true, true),
        ] {
            assert_eq!(
                (
                    known(Revision::V2025_11_25, name),
                    known(Revision::V2026_07_28, name)
                ),
                (legacy, modern),
                "{name}"
            );
        }
        let task = r#"{"jsonrpc":"2.0","method":"notifications/tasks"}"#;
        assert_eq!(translate(LogGate::Open, None, task), None);
    }

    #[test]
    fn other_notifications_pass_verbatim() {
        let text = r#"{ "jsonrpc":"2.0", "method":"notifications/new","params":{"a":1.0} }"#;
        assert_eq!(translate(LogGate::Closed, None, text).unwrap(), text);
    }
}
