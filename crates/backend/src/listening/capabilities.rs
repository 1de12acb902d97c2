//! The server capabilities that listening depends on.

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::subscription::{Change, Lists};

/// The notifications that a server declares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notifies {
    pub(crate) lists: Lists,
    /// Whether it accepts `resources/subscribe`.
    pub(crate) resources: bool,
    pub(crate) tasks: bool,
}

impl Notifies {
    pub(crate) fn declared_by(description: &ServerDescription) -> Self {
        let Some(capabilities) = description.capabilities() else {
            return Self::default();
        };
        let declares = |feature: &str, option: &str| {
            let feature = capabilities.get(feature);
            feature.is_some_and(|feature| feature.flag(option))
        };
        Self {
            lists: Change::ALL
                .into_iter()
                .filter(|change| declares(change.capability(), "listChanged"))
                .collect(),
            resources: declares("resources", "subscribe"),
            tasks: capabilities.get("tasks").is_some_and(|it| it.is_object()),
        }
    }
}
