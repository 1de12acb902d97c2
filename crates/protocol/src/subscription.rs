//! Subscriptions to notifications: changes of lists, the filter of `subscriptions/listen`, and the
//! subscription's id in notifications (2026-07-28 basic/patterns/subscriptions).

use std::ops::{BitAnd, BitOr, Range};
use std::sync::Arc;

use crate::json::{DEFAULT_NESTING, Edits, Member, ObjectBuilder, rewrite_object};
use crate::meta::SUBSCRIPTION_ID;
use crate::{Json, Message, Method, Notification};

/// The member of a filter that names resources.
pub const URIS: &str = "resourceSubscriptions";
/// The member of a filter that names tasks (extension `io.modelcontextprotocol/tasks`).
pub const TASKS: &str = "taskIds";

/// The members of a filter that Fanlight knows.
pub const MEMBERS: [&str; 5] = {
    let [tools, prompts, resources] = Change::MEMBERS;
    [tools, prompts, resources, URIS, TASKS]
};

/// An announcement that lists have changed: `notifications/<kind>/list_changed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The lists of resources, templates and skills.
    Resources,
}

impl Change {
    /// All announcements.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];
    /// The members of a filter that ask for each.
    const MEMBERS: [&str; 3] = [
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
    ];

    /// The change that `method` announces, if it announces one.
    pub fn from_method(method: &Method) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|change| change.method() == *method)
    }

    /// The method of the notification.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsChanged,
            Self::Prompts => Method::PromptsChanged,
            Self::Resources => Method::ResourcesChanged,
        }
    }

    /// The capability of servers with these lists.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    /// The index in an array that has one element for each announcement.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The lists whose changes are wanted, or announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists(u8);

impl Lists {
    /// All lists.
    pub const ALL: Self = Self(0b111);

    /// Whether these lists include the changed ones.
    pub fn has(self, change: Change) -> bool {
        self.0 & (1 << change.index()) != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The announcement for each of the lists.
    pub fn changes(self) -> impl Iterator<Item = Change> {
        Change::ALL
            .into_iter()
            .filter(move |change| self.has(*change))
    }
}

impl From<Change> for Lists {
    fn from(change: Change) -> Self {
        Self(1 << change.index())
    }
}

impl FromIterator<Change> for Lists {
    fn from_iter<T: IntoIterator<Item = Change>>(changes: T) -> Self {
        changes
            .into_iter()
            .fold(Self::default(), |all, change| all | change.into())
    }
}

impl BitAnd for Lists {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Lists {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The text of a filter, with the members of `unknown`.
pub fn filter<'a>(
    lists: Lists,
    uris: impl IntoIterator<Item = &'a Arc<str>>,
    tasks: impl IntoIterator<Item = &'a Arc<str>>,
    unknown: Option<&Json>,
) -> Json {
    let mut filter = ObjectBuilder::new();
    for (change, member) in Change::ALL.into_iter().zip(Change::MEMBERS) {
        if lists.has(change) {
            filter.member(member, &Json::literal("true"));
        }
    }
    let mut add = |member, texts: &mut dyn Iterator<Item = &'a Arc<str>>| {
        let mut texts = texts.map(|text| &**text).peekable();
        if texts.peek().is_some() {
            filter.member(member, &Json::strings(texts));
        }
    };
    add(URIS, &mut uris.into_iter());
    add(TASKS, &mut tasks.into_iter());
    for (unknown, member) in unknown
        .into_iter()
        .flat_map(|unknown| unknown.members().map(move |member| (unknown, member)))
    {
        filter.raw_member(&unknown.slice(member.key), &unknown.slice(member.value));
    }
    filter.finish()
}

/// The lists in the filter of a server, which need not be valid.
pub fn lists_of(filter: &Json) -> Lists {
    let is_set = |member| filter.flag(member);
    let all = Change::ALL.into_iter().zip(Change::MEMBERS);
    all.filter(|(_, member)| is_set(member))
        .map(|(change, _)| change)
        .collect()
}

/// The strings in a member of a server's filter, which need not be valid.
pub fn texts_of<T: FromIterator<Arc<str>>>(filter: &Json, member: &str) -> T {
    let array = filter.get(member).unwrap_or_default();
    array
        .items()
        .filter_map(|range| Some(Arc::from(range.as_str()?)))
        .collect()
}

/// The members of a filter that Fanlight does not know, as one object; `None` if there are none.
pub fn unknown_members(filter: &Json) -> Option<Json> {
    let is_unknown = |member: &Member| !MEMBERS.iter().any(|known| member.is(filter, known));
    let unknown = rewrite_object(filter, is_unknown, b"");
    unknown
        .members()
        .next()
        .is_some()
        .then(|| unknown.detached())
}

impl Notification {
    /// The notification that a resource has changed.
    pub fn resource_updated(uri: &str) -> Self {
        let params = ObjectBuilder::new().string("uri", uri).finish();
        Self::new(Method::ResourceUpdated, Some(&params))
    }

    /// The URI of the resource that the notification says has changed.
    pub fn updated_uri(&self) -> Option<String> {
        let is_update = self.method == Method::ResourceUpdated;
        let uri = self.param("uri").filter(|_| is_update)?;
        uri.to_str()
    }

    /// The id of the `subscriptions/listen` request that the notification belongs to.
    pub fn subscription_id(&self) -> Option<Json> {
        self.id_range().map(|range| self.text.slice(range))
    }

    /// The text with the id of a subscription in `params._meta`; all other bytes stay.
    pub fn with_subscription_id(&self, id: &Json) -> Json {
        if let Some(place) = self.id_range() {
            return self.with_value(place, id);
        }
        let own_meta = subscription_meta(id);
        let mut edits = Edits::new(self.text.bytes().clone());
        let params = ObjectBuilder::new().member("_meta", &own_meta).finish();
        match (self.param_range("_meta"), self.params.clone()) {
            (Some(place), _) if self.text.slice(place.clone()).is_object() => {
                edits.insert_members(place.start, own_meta.inner_text());
            }
            // `_meta` is empty.
            (Some(place), _) => edits.replace(place, own_meta.into_bytes()),
            (None, Some(place)) => edits.insert_members(place.start, params.inner_text()),
            (None, None) => {
                let params = ObjectBuilder::new().member("params", &params).finish();
                edits.insert_members(0, params.inner_text());
            }
        }
        edits.finish_json()
    }

    /// The notification without a subscription's id, which belongs to one hop, and without `_meta`
    /// if that becomes empty.
    pub fn without_subscription_id(self) -> Self {
        let (Some(_), Some(at), Some(params)) = (
            self.id_range(),
            self.param_range("_meta"),
            self.params.clone(),
        ) else {
            return self;
        };
        let own_meta = self.text.slice(at.clone());
        let kept = own_meta.without_members(&[SUBSCRIPTION_ID]);
        let text = if kept.has_members() {
            self.with_value(at, &kept)
        } else {
            let rest = self.text.slice(params.clone()).without_members(&["_meta"]);
            self.with_value(params, &rest)
        };
        match Message::parse(text.into_bytes(), DEFAULT_NESTING) {
            Ok(Message::Notification(stripped)) => stripped,
            _ => self,
        }
    }

    /// The range of the subscription's id in the text, if present.
    fn id_range(&self) -> Option<Range<usize>> {
        // Fast path: almost no notification has an id. An escape could hide the key.
        let text = self.text.as_text();
        if !text.contains(SUBSCRIPTION_ID) && !text.contains('\\') {
            return None;
        }
        let place = self.param_range("_meta")?;
        let own_meta = self.text.slice(place.clone());
        let mut members = own_meta.members();
        let value = members
            .find(|member| member.is(&own_meta, SUBSCRIPTION_ID))?
            .value;
        Some(place.start + value.start..place.start + value.end)
    }
}

/// The `_meta` of a message that belongs to a subscription.
pub fn subscription_meta(id: &Json) -> Json {
    ObjectBuilder::new().member(SUBSCRIPTION_ID, id).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "io.modelcontextprotocol/subscriptionId";

    fn notification(text: &str) -> Notification {
        let parsed = Message::parse(text.to_owned().into(), 8);
        let Ok(Message::Notification(notification)) = parsed else {
            panic!("{text}")
        };
        notification
    }

    #[test]
    fn filter_is_written_and_read_with_unknown_members() {
        let (uris, tasks): ([Arc<str>; 1], [Arc<str>; 1]) = (["a:\"1".into()], ["t".into()]);
        let unknown = Json::literal(r#"{"x\u0041": [1.0]}"#);
        let text = filter(Change::Tools.into(), &uris, &tasks, Some(&unknown));
        let expected = r#"{"toolsListChanged":true,"resourceSubscriptions":["a:\"1"],"taskIds":["t"],"x\u0041":[1.0]}"#;
        assert_eq!(text.as_text(), expected);
        assert_eq!(lists_of(&text), Change::Tools.into());
        assert_eq!(
            (texts_of(&text, URIS), texts_of(&text, TASKS)),
            (uris.to_vec(), tasks.to_vec())
        );
        assert_eq!(
            unknown_members(&text).unwrap().as_text(),
            r#"{"x\u0041":[1.0]}"#
        );
        assert_eq!(unknown_members(&Json::literal(r#"{"taskIds":[]}"#)), None);
        let invalid =
            Json::literal(r#"{"toolsListChanged":1,"taskIds":["a",1],"resourceSubscriptions":{}}"#);
        let texts = |member| texts_of::<Vec<_>>(&invalid, member);
        assert!(lists_of(&invalid).is_empty() && texts(URIS).is_empty());
        assert_eq!(texts(TASKS), [Arc::from("a")]);
    }

    #[test]
    fn subscription_id_is_inserted_without_other_changes() {
        let id = Json::literal(r#""\u0041""#);
        let own = format!(r#""{ID}":"\u0041""#);
        for (text, expected) in [
            (
                r#"{ "jsonrpc":"2.0","method":"n","params":{ "a":1.0 ,"_meta":{ "k" : 1E400}} }"#,
                format!(
                    r#"{{ "jsonrpc":"2.0","method":"n","params":{{ "a":1.0 ,"_meta":{{{own}, "k" : 1E400}}}} }}"#
                ),
            ),
            (
                r#"{"method":"n","params":{ },"jsonrpc":"2.0"}"#,
                format!(r#"{{"method":"n","params":{{"_meta":{{{own}}} }},"jsonrpc":"2.0"}}"#),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"n"}"#,
                format!(r#"{{"params":{{"_meta":{{{own}}}}},"jsonrpc":"2.0","method":"n"}}"#),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscription\u0049d":7,"k":0}}}"#,
                r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscription\u0049d":"\u0041","k":0}}}"#
                    .to_owned(),
            ),
        ] {
            assert_eq!(notification(text).with_subscription_id(&id).as_text(), expected);
        }
    }

    #[test]
    fn subscription_id_is_removed_and_other_bytes_are_kept() {
        for (given, left) in [
            (
                r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}, "uri" : "a"}"#,
                r#"{ "uri" : "a"}"#,
            ),
            (
                r#"{ "_meta":{ "a" : 1.0,"io.modelcontextprotocol/subscriptionId":"x"} , "u":"\u0041" }"#,
                r#"{ "_meta":{ "a" : 1.0} , "u":"\u0041" }"#,
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol\/subscriptionId":7}}"#,
                "{}",
            ),
            (r#"{ "_meta":{},"n":1E2}"#, r#"{ "_meta":{},"n":1E2}"#),
            (r#"{"_meta":null}"#, r#"{"_meta":null}"#),
        ] {
            let with =
                |params| format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{params} ,"x":1.0}}"#);
            let stripped = notification(&with(given)).without_subscription_id();
            assert_eq!(stripped.text.as_text(), with(left));
        }
    }

    #[test]
    fn resource_updates_name_their_resource() {
        let updated = Notification::resource_updated("a:\"\n");
        assert_eq!(updated.updated_uri().as_deref(), Some("a:\"\n"));
        assert_eq!(
            notification(r#"{"jsonrpc":"2.0","method":"n","params":{"uri":"a"}}"#).updated_uri(),
            None
        );
    }
}
