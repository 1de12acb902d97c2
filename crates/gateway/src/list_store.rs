//! Where the lists of a backend are kept beyond the end of the process.

use std::time::SystemTime;

use fanlight_protocol::Json;

use crate::list_kind::ListKind;

/// Keeps the lists of one backend beyond the end of the process.
pub trait ListStore: Send + Sync {
    /// A list as it was kept in an earlier run, if one was.
    fn kept(&self, kind: ListKind) -> Option<KeptList>;

    /// Keeps a list that has been read, or, if it is `None`, none of this kind. Does not wait for that.
    fn keep(&self, kind: ListKind, list: Option<KeptList>);
}

/// A whole list of one backend, as Fanlight read it for all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptList {
    /// The results of all its pages, as received.
    pub pages: Vec<Json>,
    /// The client capabilities that it was read with.
    pub declared: Json,
    /// When it was read.
    pub read: SystemTime,
}
