//! The server capabilities that listening depends on.

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::subscription::{Change, Lists};

use crate::connection::Connection;

/// The notifications that a server declares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notifies {
    pub(super) lists: Lists,
    /// Whether it accepts `resources/subscribe`.
    pub(super) resources: bool,
    pub(super) tasks: bool,
}

impl Notifies {
    pub(super) fn from_connection(connection: &Connection) -> Self {
        Self::declared_by(&connection.description())
    }

    pub(super) fn declared_by(description: &ServerDescription) -> Self {
        let Some(capabilities) = description.capabilities() else {
            return Self::default();
        };
        let declares = |feature: &str, option: &str| {
            capabilities
                .get(feature)
                .and_then(|feature| feature.get(option))
                .is_some_and(|value| value.is_true())
        };
        Self {
            lists: Change::ALL
                .into_iter()
                .filter(|change| declares(change.capability(), "listChanged"))
                .collect(),
            resources: declares("resources", "subscribe"),
            tasks: capabilities
                .get("tasks")
                .is_some_and(|tasks| tasks.is_object()),
        }
    }
}
