//! The entries of a merged list that an endpoint or a policy shows, as positions in the list.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fanlight_canonical::Rewritten;
use fanlight_protocol::Json;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::pages::Pages;
use crate::merge::Merged;

/// The visible part of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The positions of the visible entries in the merged list, ascending.
    pub(super) positions: Vec<u32>,
    /// The visible servers' parts: the index of each, and its range in `positions`.
    pub(super) parts: Vec<(usize, Range<usize>)>,
    pub(super) rest: Merged,
    pub(super) collisions: Vec<Collision>,
    pub(super) rewritten: Rewritten,
    pub(super) pages: Pages,
    /// Tools of Fanlight, which follow the entries of the first page.
    pub(super) own: Vec<Json>,
    /// The lean form of the list, once a client with a lean list has asked.
    pub(super) lean: OnceLock<Option<Box<LeanList>>>,
}

/// The lean form of a list of tools for one view.
#[derive(Debug)]
pub(crate) struct LeanList {
    pub(super) listed: Arc<Shown>,
    /// The definitions of `find_tools` and `call_tool`.
    pub(super) own: [Json; 2],
    pub(super) groups: Vec<LeanGroup>,
}

/// Tools that are found together: a server's, or a configured group's.
#[derive(Debug)]
pub(crate) struct LeanGroup {
    pub(super) name: String,
    /// The beginning of all its tools' names; empty for a configured group.
    pub(super) prefix: String,
    /// The positions of its tools in the whole list, ascending.
    pub(super) tools: Vec<u32>,
}

/// The most visible parts kept for one snapshot. Clients with equal rights share one.
const CLIENTS: usize = 1024;

/// The visible parts of one snapshot, by the number of the client's rights.
#[derive(Debug, Default)]
pub(super) struct ShownByRights(Mutex<HashMap<u64, Arc<Shown>, RandomState>>);

impl ShownByRights {
    /// The visible part for these rights, either kept or made by `new`.
    pub(super) fn get_or(&self, rights: u64, new: impl FnOnce() -> Arc<Shown>) -> Arc<Shown> {
        let kept = || self.0.lock();
        if let Some(shown) = kept().get(&rights) {
            return Arc::clone(shown);
        }
        let shown = new();
        let mut kept = kept();
        if kept.len() >= CLIENTS {
            kept.clear();
        }
        kept.insert(rights, Arc::clone(&shown));
        shown
    }
}

/// A name or URI that two servers claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The name or URI.
    pub key: String,
    /// The server that keeps it: the first in configuration order.
    pub kept: String,
    /// The server that loses it.
    pub other: String,
    /// Another URI for the loser's entry; `None` if clients cannot reach the entry.
    pub alias: Option<String>,
}
