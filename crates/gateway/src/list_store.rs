//! Storage for a server's lists that outlasts the process.

use std::time::SystemTime;

use fanlight_protocol::Json;

use crate::list_kind::ListKind;

/// Stores the lists of one server beyond the end of the process.
pub trait ListStore: Send + Sync {
    /// The list that an earlier run kept, if there is one.
    fn kept(&self, kind: ListKind) -> Option<KeptList>;

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
