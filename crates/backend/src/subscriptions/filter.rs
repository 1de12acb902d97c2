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
}

impl Filter {
    pub(crate) fn from_interest(interest: &Interest) -> Self {
        Self {
            lists: interest.lists,
            uris: interest.uris.iter().cloned().collect(),
            tasks: interest.tasks.iter().cloned().collect(),
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
    }

    /// The `params` of `subscriptions/listen`, with further members of the filter.
    pub(crate) fn to_params(&self, further: Option<&Json>) -> Json {
        let filter = subscription::filter(self.lists, &self.uris, &self.tasks, further);
        ObjectBuilder::new()
            .member("notifications", &filter)
            .finish()
    }

    /// The part of an interest that this filter contains.
    pub(crate) fn honours(&self, interest: &Interest) -> Interest {
        let mut honoured = Interest {
            lists: self.lists & interest.lists,
            unknown: None,
            ..interest.clone()
        };
        honoured.uris.retain(|uri| self.uris.contains(uri));
        honoured.tasks.retain(|task| self.tasks.contains(task));
        honoured
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::subscription::Change;

    use super::*;

    #[test]
    fn filter_honours_requested_parts_only() {
        let offered = Filter {
            lists: Change::Tools.into(),
            uris: ["a".into(), "b".into()].into(),
            tasks: HashSet::new(),
        };
        let interest = Interest {
            lists: [Change::Tools, Change::Resources].into_iter().collect(),
            uris: vec!["b".into(), "c".into()],
            ..Interest::default()
        };
        let honoured = offered.honours(&interest);
        assert_eq!(
            honoured,
            Interest {
                lists: Change::Tools.into(),
                uris: vec!["b".into()],
                ..Interest::default()
            }
        );
        assert!(
            offered.covers(&Filter::from_interest(&honoured))
                && !offered.covers(&Filter::from_interest(&interest))
        );
    }
}
