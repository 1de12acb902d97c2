//! Learns the names of tools and prompts from the responses to list requests.

use std::borrow::Cow;

use fanlight_protocol::{Json, Method, Response};

use super::{BackendMetrics, Metrics, NameKind};

/// Learns the names in the response to a list request. The response comes from `backend`, or from
/// Fanlight if there is no `backend`.
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
    if let Some(derived) = answer.derived_values() {
        let mut first = false;
        derived.get_or_insert_with(|| {
            first = true;
            NamesLearned
        });
        if !first {
            return;
        }
    }
    let Some(list) = answer.result().and_then(|result| result.get(key)) else {
        return;
    };
    metrics.learn(
        backend.map(|backend| &**backend),
        kind,
        list.bytes(),
        || names_in(&list),
    );
}

/// A mark on a cached list whose names have been learned.
struct NamesLearned;

fn names_in(list: &Json) -> Vec<String> {
    let names = list
        .elements()
        .filter_map(|entry| list.slice(entry).get("name"))
        .take(MOST);
    names
        .filter_map(|name| name.as_str().map(Cow::into_owned))
        .collect()
}

/// The limit of the names that are read from one page. Metrics distinguish fewer names.
const MOST: usize = 1000;
