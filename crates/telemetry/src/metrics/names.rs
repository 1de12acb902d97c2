//! Learning names of tools and prompts from the lists that pass by.
//!
//! Must not know: who asked for the list.

use std::borrow::Cow;

use fanlight_protocol::{Json, Method, Response};

use super::{BackendMetrics, Metrics, NameKind};

/// Takes the names in the answer to a list; `backend` is the one that answered, none means this side.
pub(crate) fn learn(
    metrics: &Metrics,
    backend: Option<&std::sync::Arc<BackendMetrics>>,
    method: &Method,
    answer: &Response,
) {
    let (kind, key) = match method {
        Method::ListTools => (NameKind::Tool, "tools"),
        Method::ListPrompts => (NameKind::Prompt, "prompts"),
        _ => return,
    };
    if let Some(derived) = answer.derived() {
        let mut first = false;
        derived.get_or_insert_with(|| {
            first = true;
            NamesLearned
        });
        if !first {
            return;
        }
    }
    let Some(list) = answer.result().and_then(|result| result.get(key)) else { return };
    metrics.learn(backend.map(|backend| &**backend), kind, list.bytes(), || names_in(&list));
}

/// Marks a cached list whose names have been learned.
struct NamesLearned;

fn names_in(list: &Json) -> Vec<String> {
    let names = list.elements().filter_map(|entry| list.slice(entry).get("name")).take(MOST);
    names.filter_map(|name| name.as_str().map(Cow::into_owned)).collect()
}

/// Names looked at in one page: there are never more labels than this.
const MOST: usize = 1000;
