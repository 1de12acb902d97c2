//! The wanted notifications of one server, and their form in `subscriptions/listen` (2026-07-28
//! basic/patterns/subscriptions, Notification Filter).

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::{Json, Method};

use fanlight_canonical::Interest;

const TOOLS: &str = "toolsListChanged";
const PROMPTS: &str = "promptsListChanged";
const RESOURCES: &str = "resourcesListChanged";
const URIS: &str = "resourceSubscriptions";
/// A member of the extension `io.modelcontextprotocol/tasks`.
const TASKS: &str = "taskIds";

/// A choice of lists whose changes are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
}

/// A choice of notifications: the wanted ones, or those that the server has agreed to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) lists: Lists,
    pub(crate) uris: HashSet<Arc<str>>,
    pub(crate) tasks: HashSet<Arc<str>>,
}

/// Selects the list that a notification announces a change of; `None` for other methods.
pub(super) fn list_of(method: &Method) -> Option<fn(Lists) -> bool> {
    match method {
        Method::ToolsChanged => Some(|lists| lists.tools),
        Method::PromptsChanged => Some(|lists| lists.prompts),
        Method::ResourcesChanged => Some(|lists| lists.resources),
        _ => None,
    }
}

impl Lists {
    pub(crate) fn of(interest: &Interest) -> Self {
        Self {
            tools: interest.tools,
            prompts: interest.prompts,
            resources: interest.resources,
        }
    }

    pub(crate) fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            tools: self.tools && other.tools,
            prompts: self.prompts && other.prompts,
            resources: self.resources && other.resources,
        }
    }
}

impl Filter {
    pub(crate) fn of(interest: &Interest) -> Self {
        Self {
            lists: Lists::of(interest),
            uris: interest.uris.iter().cloned().collect(),
            tasks: interest.tasks.iter().cloned().collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.lists.any() && self.uris.is_empty() && self.tasks.is_empty()
    }

    /// Whether this contains everything in `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.lists.and(other.lists) == other.lists
            && other.uris.is_subset(&self.uris)
            && other.tasks.is_subset(&self.tasks)
    }

    /// The `params` of `subscriptions/listen`, with further members of the filter.
    pub(crate) fn to_params(&self, further: Option<&Json>) -> Json {
        let mut filter = ObjectBuilder::new();
        let yes = Json::literal("true");
        for (key, wanted) in [
            (TOOLS, self.lists.tools),
            (PROMPTS, self.lists.prompts),
            (RESOURCES, self.lists.resources),
        ] {
            if wanted {
                filter.member(key, &yes);
            }
        }
        for (key, texts) in [(URIS, &self.uris), (TASKS, &self.tasks)] {
            if !texts.is_empty() {
                filter.member(key, &array(texts));
            }
        }
        if let Some(further) = further {
            for member in further
                .members()
                .filter(|member| !is_known(further, member))
            {
                filter.raw_member(
                    &further.slice(member.key.clone()),
                    &further.slice(member.value.clone()),
                );
            }
        }
        let mut params = ObjectBuilder::new();
        params.member("notifications", &filter.finish());
        params.finish()
    }

    /// The filter in a server's acknowledgement.
    pub(crate) fn acknowledged(notifications: &Json) -> Self {
        let flag = |key| notifications.get(key).is_some_and(|value| value.is_true());
        let texts = |key| {
            notifications
                .get(key)
                .map(|value| strings(&value))
                .unwrap_or_default()
        };
        Self {
            lists: Lists {
                tools: flag(TOOLS),
                prompts: flag(PROMPTS),
                resources: flag(RESOURCES),
            },
            uris: texts(URIS),
            tasks: texts(TASKS),
        }
    }

    /// Members of a server's acknowledgement that Fanlight does not know.
    pub(crate) fn unknown(notifications: &Json) -> Option<Json> {
        let mut unknown = ObjectBuilder::new();
        for member in notifications
            .members()
            .filter(|member| !is_known(notifications, member))
        {
            unknown.raw_member(
                &notifications.slice(member.key.clone()),
                &notifications.slice(member.value.clone()),
            );
        }
        (!unknown.is_empty()).then(|| unknown.finish())
    }

    /// The part of an interest that this filter contains.
    pub(crate) fn honours(&self, interest: &Interest) -> Interest {
        let lists = self.lists.and(Lists::of(interest));
        Interest {
            tools: lists.tools,
            prompts: lists.prompts,
            resources: lists.resources,
            uris: interest
                .uris
                .iter()
                .filter(|uri| self.uris.contains(*uri))
                .cloned()
                .collect(),
            tasks: interest
                .tasks
                .iter()
                .filter(|task| self.tasks.contains(*task))
                .cloned()
                .collect(),
            session: interest.session,
            unknown: None,
        }
    }
}

fn is_known(object: &Json, member: &fanlight_protocol::json::Member) -> bool {
    [TOOLS, PROMPTS, RESOURCES, URIS, TASKS]
        .iter()
        .any(|key| member.is(object, key))
}

fn array(texts: &HashSet<Arc<str>>) -> Json {
    let mut array = ArrayBuilder::default();
    for text in texts {
        array.push(&Json::string(text));
    }
    array.finish()
}

fn strings(array: &Json) -> HashSet<Arc<str>> {
    array
        .elements()
        .filter_map(|range| Some(Arc::from(array.slice(range).as_str()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_written_and_read_with_unknown_members() {
        let interest = Interest {
            tools: true,
            uris: vec!["a:\"1".into()],
            tasks: vec!["t".into()],
            unknown: Some(Json::literal(
                r#"{"x\u0041": [1.0],"toolsListChanged":false}"#,
            )),
            ..Interest::default()
        };
        let filter = Filter::of(&interest);
        let params = filter.to_params(interest.unknown.as_ref());
        let expected = r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:\"1"],"taskIds":["t"],"x\u0041":[1.0]}}"#;
        assert_eq!(params.as_text(), expected);
        let notifications = params.get("notifications").unwrap();
        assert_eq!(Filter::acknowledged(&notifications), filter);
        assert_eq!(
            Filter::unknown(&notifications).unwrap().as_text(),
            r#"{"x\u0041":[1.0]}"#
        );
        assert_eq!(Filter::unknown(&Json::literal(r#"{"taskIds":[]}"#)), None);
    }

    #[test]
    fn filter_honours_requested_parts_only() {
        let offered = Filter {
            lists: Lists {
                tools: true,
                prompts: true,
                resources: false,
            },
            uris: ["a".into(), "b".into()].into(),
            tasks: HashSet::new(),
        };
        let interest = Interest {
            tools: true,
            resources: true,
            uris: vec!["b".into(), "c".into()],
            ..Interest::default()
        };
        let honoured = offered.honours(&interest);
        assert_eq!(
            honoured,
            Interest {
                tools: true,
                uris: vec!["b".into()],
                ..Interest::default()
            }
        );
        assert!(offered.covers(&Filter::of(&honoured)) && !offered.covers(&Filter::of(&interest)));
    }
}
