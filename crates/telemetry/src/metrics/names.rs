//! Learning names of tools and prompts from the lists that pass by.
//!
//! Must not know: who asked for the list.

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
    let Some(list) = answer.result().and_then(|result| result.get(key)) else { return };
    let names: Vec<Json> = list.elements().filter_map(|entry| list.slice(entry).get("name")).take(MOST).collect();
    let names: Vec<_> = names.iter().filter_map(Json::as_str).collect();
    metrics.add_known(backend.map(|backend| &**backend), kind, names.iter().map(|name| &**name));
}

/// Names looked at in one page: there are never more labels than this.
const MOST: usize = 1000;
