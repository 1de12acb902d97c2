//! The wanted notifications of one server together, as `subscriptions/listen` asks for them.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::Interest;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::subscription::{self, Lists};

/// A choice of notifications: the wanted ones, or those that the server has agreed to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) lists: Lists,
    pub(crate) uris: HashSet<Arc<str>>,
    pub(crate) tasks: HashSet<Arc<str>>,
    /// Members that Fanlight does not know.
    pub(crate) unknown: Option<Json>,
}

impl Filter {
    pub(crate) fn from_interest(interest: &Interest) -> Self {
        Self {
            lists: interest.lists,
            uris: interest.uris.iter().cloned().collect(),
            tasks: interest.tasks.iter().cloned().collect(),
            unknown: interest.unknown.clone(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this contains everything in `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.lists & other.lists == other.lists
            && other.uris.is_subset(&self.uris)
            && other.tasks.is_subset(&self.tasks)
            && (other.unknown.is_none() || other.unknown == self.unknown)
    }

    /// The `params` of `subscriptions/listen`.
    pub(crate) fn to_params(&self) -> Json {
        let Self {
            lists,
            uris,
            tasks,
            unknown,
        } = self;
        let filter = subscription::filter(*lists, uris, tasks, unknown.as_ref());
        ObjectBuilder::new()
            .member("notifications", &filter)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::subscription::Change;

    use super::*;

    #[test]
    fn filter_covers_equal_and_smaller_filters() {
        let filter = Filter {
            lists: Change::Tools.into(),
            uris: ["a".into(), "b".into()].into(),
            ..Filter::default()
        };
        let smaller = Filter {
            uris: ["b".into()].into(),
            ..Filter::default()
        };
        assert!(filter.covers(&filter) && filter.covers(&smaller) && !smaller.covers(&filter));
        let unknown = Filter {
            unknown: Some(Json::literal(r#"{"x":1}"#)),
            ..filter.clone()
        };
        assert!(unknown.covers(&filter) && !filter.covers(&unknown));
    }
}
