//! What a server says that it tells of.
//!
//! Must not know: whether it does.

use crate::connection::Connection;
use crate::hub::Lists;

/// The capabilities of a server that listening goes by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Declares {
    pub(super) lists: Lists,
    /// It takes `resources/subscribe`.
    pub(super) subscribe: bool,
    pub(super) tasks: bool,
}

impl Declares {
    pub(super) fn of(connection: &Connection) -> Self {
        let Some(capabilities) = connection.description().capabilities() else { return Self::default() };
        let says = |of: &str, what: &str| {
            capabilities.get(of).and_then(|of| of.get(what)).is_some_and(|declared| declared.is_true())
        };
        Self {
            lists: Lists {
                tools: says("tools", "listChanged"),
                prompts: says("prompts", "listChanged"),
                resources: says("resources", "listChanged"),
            },
            subscribe: says("resources", "subscribe"),
            tasks: capabilities.get("tasks").is_some_and(|tasks| tasks.is_object()),
        }
    }
}
