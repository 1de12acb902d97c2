//! Notifications on the way of a call, as events of its span.
//!
//! Must not know: what the notifications say beyond this.

use fanlight_protocol::Method;
use fanlight_protocol::message::Notification;
use fanlight_protocol::meta::LogLevel;
use opentelemetry::KeyValue;

use crate::names::event;

/// An event of a span. A span keeps the first 32 and counts the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// `notifications/progress`
    Progress {
        /// How far.
        progress: Option<f64>,
        /// Of how much.
        total: Option<f64>,
    },
    /// `notifications/message`; its text is not recorded.
    Log {
        /// How severe.
        level: Option<LogLevel>,
    },
}

impl Event {
    /// The event that a notification makes, to be read when it is kept: of a long call, most are
    /// only counted. Most notifications make none.
    #[must_use]
    pub fn of(notification: &Notification) -> Option<impl FnOnce() -> Self> {
        let makes_one = matches!(notification.method, Method::Progress | Method::LogMessage);
        makes_one.then_some(move || match notification.method {
            Method::Progress => {
                let params = notification.params();
                let number = |key: &str| params.as_ref()?.get(key)?.as_text().parse().ok();
                Self::Progress { progress: number("progress"), total: number("total") }
            }
            _ => Self::Log { level: LogLevel::of(notification) },
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
            Self::Log { level } => {
                level.map(|level| KeyValue::new(event::LOG_LEVEL, level.as_str())).into_iter().collect()
            }
        }
    }
}
