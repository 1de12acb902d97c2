//! What an endpoint shows of a merged list, as positions in it.

use std::ops::Range;

use fanlight_canonical::Rewritten;

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
