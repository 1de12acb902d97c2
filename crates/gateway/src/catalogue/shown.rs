//! The entries of a merged list that an endpoint or a policy shows, as positions in the list. Ready
//! answers for its pages are kept, so that an unchanged list is not written again for each client.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fanlight_canonical::{Holder, Rewritten};
use fanlight_protocol::{Json, Response};
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::merge::Merged;
use crate::topology::BackendId;

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

/// The most pages that are kept. A page without a cursor is kept once for each position where it
/// begins; one with a cursor is kept for each holder of that cursor. Clients rarely need more,
/// unless they page with cursors of many earlier snapshots.
const KEPT: usize = 64;
/// The largest page that is kept of a filtered list, in bytes.
const LARGEST: usize = 64 << 10;

/// The pages of one snapshot that were written so far.
#[derive(Debug)]
pub(super) struct Pages {
    kept: Mutex<HashMap<Key, Page, RandomState>>,
    /// How many pages are kept, and the most bytes of each.
    most: (usize, usize),
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            most: (KEPT, usize::MAX),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) start: usize,
    /// The only client that may use the page's cursor; `None` for a page without one.
    pub(super) holder: Option<Holder>,
    /// The servers whose tools the page offers as tasks although they do not say so.
    pub(super) taking_tasks: Vec<BackendId>,
    /// The extensions that the client lacks, so that the page omits entries.
    pub(super) lacking: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Page {
    end: usize,
    ttl_left: Duration,
    answer: Response,
}

impl Pages {
    /// Pages of a filtered list, of which there is one for each set of rights.
    pub(super) fn for_filtered_list() -> Self {
        Self {
            most: (1, LARGEST),
            ..Self::default()
        }
    }

    /// The answer with the entries from `key.start` to `end`, either kept or made by `write`.
    pub(super) fn get_or_write(
        &self,
        key: &Key,
        end: usize,
        ttl_left: Duration,
        write: impl FnOnce() -> Json,
    ) -> Response {
        let kept = |pages: &HashMap<Key, Page, RandomState>| {
            let page = pages
                .get(key)
                .filter(|page| page.end == end && page.ttl_left == ttl_left)?;
            Some(page.answer.clone())
        };
        if let Some(answer) = kept(&self.kept.lock()) {
            return answer;
        }
        // Written without the lock, so two requests may write the same page.
        let answer = Response::from_result(&write()).cached();
        let mut pages = self.kept.lock();
        let (most, largest) = self.most;
        if answer.body().bytes().len() > largest {
            return answer;
        }
        if pages.len() >= most && !pages.contains_key(key) {
            pages.clear();
        }
        pages.insert(
            key.clone(),
            Page {
                end,
                ttl_left,
                answer: answer.clone(),
            },
        );
        answer
    }
}

/// The `ttlMs` that clients get. A long one is rounded down to whole seconds, so that answers stay
/// equal for a while.
pub(super) fn rounded(left: Duration) -> Duration {
    const LONG: Duration = Duration::from_secs(10);
    if left < LONG {
        Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(left.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fanlight_canonical::Principal;

    use super::*;

    #[test]
    fn page_is_written_once_while_it_is_unchanged() {
        let pages = Pages::default();
        let written = Cell::new(0);
        let page = |start, left| {
            let write = || {
                written.set(written.get() + 1);
                Json::string(&format!("{start} {left:?}"))
            };
            pages
                .get_or_write(
                    &Key {
                        start,
                        ..Key::default()
                    },
                    start + 5,
                    rounded(left),
                    write,
                )
                .body()
                .as_text()
                .to_owned()
        };
        let second = Duration::from_secs(1);
        assert_eq!(page(0, 60 * second), page(0, 60 * second + second / 3));
        assert_eq!(written.get(), 1);
        assert_ne!(page(0, 60 * second), page(0, 59 * second));
        assert_eq!(page(5, 59 * second), "\"5 59s\"");
        assert_eq!(written.get(), 3);
        (0..10 * KEPT).for_each(|start| drop(page(start, second)));
        assert!(pages.kept.lock().len() <= KEPT);
    }

    #[test]
    fn page_with_a_cursor_is_kept_for_one_principal_alone() {
        let pages = Pages::default();
        let page = |name: &str| {
            let key = Key {
                holder: Some(Principal::new("issuer", name).into()),
                ..Key::default()
            };
            pages
                .get_or_write(&key, 5, Duration::ZERO, || Json::string(name))
                .body()
                .as_text()
                .to_owned()
        };
        assert_eq!(
            [page("ann"), page("bob"), page("ann")],
            ["\"ann\"", "\"bob\"", "\"ann\""]
        );
    }

    #[test]
    fn short_ttl_is_given_in_milliseconds() {
        assert_eq!(
            rounded(Duration::from_micros(1500)),
            Duration::from_millis(1)
        );
        assert_eq!(
            rounded(Duration::from_millis(9999)),
            Duration::from_millis(9999)
        );
        assert_eq!(
            rounded(Duration::from_millis(10_999)),
            Duration::from_secs(10)
        );
    }
}
