//! The kinds of lists.

use std::time::SystemTime;

use fanlight_canonical::PolicyKind;
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Method, meta};

fanlight_protocol::named! {
    /// The kinds of lists that servers have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ListKind {
        /// `tools/list`
        Tools = "tools",
        /// `resources/list`
        Resources = "resources",
        /// `resources/templates/list`
        ResourceTemplates = "resourceTemplates",
        /// `prompts/list`
        Prompts = "prompts",
        /// `skills/list` of the extension for skills (SEP-2640)
        Skills = "skills",
    }
}

impl ListKind {
    /// The kind of the entries in policies and guards.
    #[must_use]
    pub fn policy_kind(self) -> PolicyKind {
        match self {
            Self::Tools => PolicyKind::Tool,
            Self::Prompts => PolicyKind::Prompt,
            Self::Resources => PolicyKind::Resource,
            Self::ResourceTemplates => PolicyKind::Template,
            Self::Skills => PolicyKind::Skill,
        }
    }

    /// The list that `method` asks for, if it asks for one.
    pub fn from_method(method: &Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == *method)
    }

    /// The method that asks for the list.
    #[must_use]
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ListTools,
            Self::Resources => Method::ListResources,
            Self::ResourceTemplates => Method::ListResourceTemplates,
            Self::Prompts => Method::ListPrompts,
            Self::Skills => Method::ListSkills,
        }
    }

    /// The result's member that holds the entries.
    pub fn member(self) -> &'static str {
        self.as_str()
    }

    /// The entry's member that identifies it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// The entries of these pages, each with its server's own name or URI.
    #[must_use]
    pub fn own_entries(self, pages: &[Json]) -> Vec<(String, Json)> {
        let named = |entry: Json| Some((entry.text_at(self.key())?, entry));
        let entries = |page: &Json| {
            let list = page.get(self.member()).unwrap_or_default();
            list.items().filter_map(named).collect::<Vec<_>>()
        };
        pages.iter().flat_map(entries).collect()
    }

    /// Whether a server with these capabilities has the list.
    #[must_use]
    pub fn is_offered_by(self, capabilities: &Json) -> bool {
        let capability = match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
            Self::Skills => {
                let extensions = capabilities.get("extensions");
                return extensions.is_some_and(|all| all.get(meta::SKILLS_EXTENSION).is_some());
            }
        };
        capabilities.get(capability).is_some()
    }

    /// Whether a server with these capabilities declares any list.
    pub(crate) fn is_any_offered_by(capabilities: &Json) -> bool {
        Self::ALL
            .iter()
            .any(|kind| kind.is_offered_by(capabilities))
    }

    /// Whether names identify the entries, so that they can get a prefix.
    pub fn is_named(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }

    /// The announcement for changes of this list.
    pub(crate) fn change(self) -> Change {
        match self {
            Self::Tools => Change::Tools,
            // Skills are resources, and have no announcement of their own.
            Self::Resources | Self::ResourceTemplates | Self::Skills => Change::Resources,
            Self::Prompts => Change::Prompts,
        }
    }

    pub(crate) fn index(self) -> u8 {
        match self {
            Self::Tools => 0,
            Self::Resources => 1,
            Self::ResourceTemplates => 2,
            Self::Prompts => 3,
            Self::Skills => 4,
        }
    }
}

/// Stores the lists of one server beyond the end of the process.
///
/// A trait because its implementation depends on this crate.
pub trait ListStore: Send + Sync {
    /// The list that an earlier run kept, if there is one.
    fn load(&self, kind: ListKind) -> Option<KeptList>;

    /// Stores a list; `None` removes it. Does not wait for the disk.
    fn keep(&self, kind: ListKind, list: Option<KeptList>);
}

/// A whole list of one server, as Fanlight read it for all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptList {
    /// The results of all its pages, as received.
    pub pages: Vec<Json>,
    /// The client capabilities that Fanlight declared for the reading.
    pub declared: Json,
    /// When it was read.
    pub read: SystemTime,
}
