//! Events of a call's span, for the notifications of the call.

use fanlight_protocol::{LogLevel, Method, Notification};
use opentelemetry::KeyValue;

use crate::names::event;

/// An event of a span. A span stores the first 32 events and counts the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A notification `notifications/progress`.
    Progress {
        /// The progress until now.
        progress: Option<f64>,
        /// The total that the progress will reach.
        total: Option<f64>,
    },
    /// A notification `notifications/message`. Its text is not recorded.
    Log {
        /// The severity.
        level: Option<LogLevel>,
    },
}

impl Event {
    /// The event for a notification, if it has one. The caller parses it on demand, because most
    /// events of a long call are only counted.
    pub fn from_notification(notification: &Notification) -> Option<impl FnOnce() -> Self> {
        let has_event = matches!(notification.method, Method::Progress | Method::LogMessage);
        has_event.then_some(move || match notification.method {
            Method::Progress => {
                let params = notification.params();
                let number = |key: &str| params.as_ref()?.get(key)?.as_text().parse().ok();
                Self::Progress {
                    progress: number("progress"),
                    total: number("total"),
                }
            }
            _ => Self::Log {
                level: notification.log_level(),
            },
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Progress { .. } => "notifications/progress",
            Self::Log { .. } => "notifications/message",
        }
    }

    pub(crate) fn attributes(&self) -> Vec<KeyValue> {
        match self {
            Self::Progress { progress, total } => {
                let value = progress.map(|value| KeyValue::new(event::PROGRESS, value));
                let total = total.map(|value| KeyValue::new(event::PROGRESS_TOTAL, value));
                value.into_iter().chain(total).collect()
            }
            Self::Log { level } => level
                .map(|level| KeyValue::new(event::LOG_LEVEL, level.as_str()))
                .into_iter()
                .collect(),
        }
    }
}
