//! What an endpoint or a policy shows of a merged list, as positions in it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use fanlight_canonical::Rewritten;
use foldhash::fast::RandomState;

use super::pages::Pages;
use crate::merge::Merged;

/// What an endpoint shows of one state of a merged list.
#[derive(Debug)]
pub(super) struct Shown {
    /// Where the entries are in the merged list, in rising order.
    pub(super) positions: Vec<u32>,
    /// The parts of the backends that it shows: the position of each, and which of `positions` are its.
    pub(super) parts: Vec<(usize, Range<usize>)>,
    pub(super) rest: Merged,
    pub(super) collisions: Vec<Collision>,
    pub(super) rewritten: Rewritten,
    pub(super) pages: Pages,
}

/// Clients for whom it is kept what a list shows them, counted as one where no policy makes a difference.
const CLIENTS: usize = 1024;

/// What clients are shown of one state of a merged list, by the numbers of their rights.
#[derive(Debug, Default)]
pub(super) struct ShownByRights(Mutex<HashMap<u64, Arc<Shown>, RandomState>>);

impl ShownByRights {
    /// What is kept for rights, or what `new` finds.
    pub(super) fn get_or(&self, rights: u64, new: impl FnOnce() -> Arc<Shown>) -> Arc<Shown> {
        // Nothing that can panic runs under this lock.
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A name or URI that two backends claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// What both claim.
    pub key: String,
    /// The backend that has it: the first in configuration order.
    pub kept: String,
    /// The backend that does not.
    pub other: String,
    /// Under which other URI the later one stays readable; `None` if it cannot be reached.
    pub alias: Option<String>,
}
