//! The methods of all revisions, by name.

use std::fmt;

macro_rules! methods {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A JSON-RPC method: a known one, or any other by its name.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// A method that Fanlight does not know.
            Other(Box<str>),
        }

        impl Method {
            /// The names of the methods that Fanlight knows.
            pub const KNOWN: &[&str] = &[$($name),*];

            /// The method called `name`.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }

            /// The method's name on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The name of a known method, which needs no copy.
            pub fn known_name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($name),)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}

methods! {
    Initialize = "initialize",
    Initialized = "notifications/initialized",
    Ping = "ping",
    Discover = "server/discover",
    ListTools = "tools/list",
    CallTool = "tools/call",
    ListResources = "resources/list",
    ListResourceTemplates = "resources/templates/list",
    ReadResource = "resources/read",
    ReadDirectory = "resources/directory/read",
    ListSkills = "skills/list",
    GetSkill = "skills/get",
    ListPrompts = "prompts/list",
    GetPrompt = "prompts/get",
    Complete = "completion/complete",
    SetLogLevel = "logging/setLevel",
    Subscribe = "resources/subscribe",
    Unsubscribe = "resources/unsubscribe",
    Listen = "subscriptions/listen",
    GetTask = "tasks/get",
    TaskResult = "tasks/result",
    UpdateTask = "tasks/update",
    CancelTask = "tasks/cancel",
    ListTasks = "tasks/list",
    Elicit = "elicitation/create",
    CreateMessage = "sampling/createMessage",
    ListRoots = "roots/list",
    Progress = "notifications/progress",
    LogMessage = "notifications/message",
    Cancelled = "notifications/cancelled",
    ToolsChanged = "notifications/tools/list_changed",
    PromptsChanged = "notifications/prompts/list_changed",
    ResourcesChanged = "notifications/resources/list_changed",
    ResourceUpdated = "notifications/resources/updated",
    Acknowledged = "notifications/subscriptions/acknowledged",
    TaskStatus = "notifications/tasks/status",
    TaskChanged = "notifications/tasks",
}

/// The notification that a user has finished at a URL (2025-11-25 client/elicitation). Only the
/// legacy era has it. Fanlight forwards it like an unknown notification.
pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

/// A legacy client's notification that its roots have changed. It names nothing.
pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

impl Method {
    /// Whether a server may answer this request with input requests (2026-07-28
    /// basic/patterns/mrtr, Supported Requests).
    pub fn may_need_input(&self) -> bool {
        matches!(self, Self::CallTool | Self::GetPrompt | Self::ReadResource)
    }

    /// The member of `params` that names the item or task of the request.
    pub fn subject_member(&self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some("taskId"),
            _ => None,
        }
    }

    /// Whether this request names a task.
    pub fn is_about_task(&self) -> bool {
        matches!(
            self,
            Self::GetTask | Self::TaskResult | Self::UpdateTask | Self::CancelTask
        )
    }

    /// Whether this request is about tasks.
    pub fn is_about_tasks(&self) -> bool {
        *self == Self::ListTasks || self.is_about_task()
    }

    /// Whether this method lists entries of a server.
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Self::ListTools | Self::ListResources | Self::ListResourceTemplates | Self::ListPrompts
        )
    }

    /// Whether carrying out this request twice does no more than carrying it out once.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        matches!(
            self,
            Self::Ping
                | Self::Discover
                | Self::ListTools
                | Self::ListResources
                | Self::ListResourceTemplates
                | Self::ListPrompts
                | Self::ListTasks
                | Self::ReadResource
                | Self::GetPrompt
                | Self::Complete
                | Self::SetLogLevel
                | Self::Subscribe
                | Self::Unsubscribe
                | Self::Listen
                | Self::GetTask
                | Self::TaskResult
                | Self::CancelTask
        )
    }

    /// Whether input requests can have this method (2026-07-28 basic/patterns/mrtr, Server
    /// Requirements).
    pub fn is_input_request(&self) -> bool {
        matches!(self, Self::Elicit | Self::CreateMessage | Self::ListRoots)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
