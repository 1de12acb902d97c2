//! Lists that outlast the process, so that Fanlight need not start a server to list its entries.
//!
//! A kept list is read as if the server had answered with its pages, with the same checks and
//! limits. It is used at most once: while the server's process is not running and nothing else is
//! known of the list. After the server has been connected, its own list replaces the kept one
//! (`watch`).

use fanlight_canonical::{BackendError, Call};
use fanlight_protocol::Response;
use fanlight_protocol::json::{Json, Kind};

/// Whether a list read with the capabilities `declared` is good for `wanted` too: it lacks no
/// extension, and nothing else differs.
pub(super) fn covers(declared: &Json, wanted: &Json) -> bool {
    let is_covered = |member: &str, value: &Json| match (member, declared.get(member)) {
        ("extensions", Some(declared)) => value.members().all(|one| {
            one.name(value)
                .is_some_and(|id| declared.get(&id).is_some())
        }),
        (_, declared) => declared.as_ref() == Some(value),
    };
    declared.members().count() == wanted.members().count()
        && wanted.members().all(|member| {
            member
                .name(wanted)
                .is_some_and(|name| is_covered(&name, &wanted.slice(member.value.clone())))
        })
}

/// The pages of a list of an earlier run.
pub(super) struct KeptPages(pub(super) Vec<Json>);

impl KeptPages {
    /// The answer to a request for a page.
    pub(super) fn answer(&self, call: &Call) -> Result<Response, BackendError> {
        let cursor = call.params.as_ref().and_then(|params| params.get("cursor"));
        let page = self.page(cursor.as_ref()).map(Response::from_result);
        page.ok_or_else(|| BackendError::Malformed {
            reason: "the kept list lacks a page".to_owned(),
        })
    }

    /// The page after the one that ended with `cursor`.
    fn page(&self, cursor: Option<&Json>) -> Option<&Json> {
        let Some(cursor) = cursor else {
            return self.0.first();
        };
        let ends_with_it = |page: &Json| {
            page.get("nextCursor")
                .filter(|next| next.kind() == Kind::String)
                .as_ref()
                == Some(cursor)
        };
        let position = self.0.iter().position(ends_with_it)?;
        self.0.get(position + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_read_with_more_extensions_covers_one_with_fewer() {
        let json = |text: &'static str| Json::literal(text);
        let few = json(r#"{"roots":{},"extensions":{"a/a":{}}}"#);
        let more = json(r#"{"roots":{},"extensions":{"b/b":{},"a/a":{}}}"#);
        assert!(covers(&few, &few) && covers(&more, &few) && !covers(&few, &more));
        assert!(!covers(&json(r#"{"extensions":{"a/a":{}}}"#), &few));
        assert!(!covers(
            &json(r#"{"roots":{},"sampling":{},"extensions":{"a/a":{}}}"#),
            &few
        ));
        assert!(!covers(
            &json(r#"{"roots":{"x":1},"extensions":{"a/a":{}}}"#),
            &few
        ));
        assert!(!covers(&json("7"), &few));
    }
}
