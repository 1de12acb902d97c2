//! The differences of two answers to the same request.

use fanlight_protocol::json::{Member, rewrite_object};
use fanlight_protocol::meta::SERVER_INFO;
use fanlight_protocol::{Json, Response};

use super::{Change, Comparison, Difference, Tolerance, members};

/// Members that are valid at their own server only, or that differ between versions by intent.
const OWN: [&str; 3] = [
    "/result/nextCursor",
    "/result/requestState",
    "/result/_meta/io.modelcontextprotocol~1serverInfo",
];
/// Members that only one era's results have.
const OF_ERA: [&str; 3] = ["/result/resultType", "/result/ttlMs", "/result/cacheScope"];

/// Compares two answers to the same request.
pub fn compare_answers(was: &Response, is: &Response, tolerance: &Tolerance) -> Vec<Difference> {
    let (before, after) = (was.body(), is.body());
    let mut tolerance = tolerance.clone();
    tolerance.exempt(OWN.map(str::to_owned));
    let has_type = |body: &Json| body.get("resultType").is_some();
    if has_type(&before) != has_type(&after) {
        tolerance.exempt(OF_ERA.map(str::to_owned));
    }
    let start = if is.is_error() { "/error" } else { "/result" };
    let mut comparison = Comparison::new(&tolerance, start);
    match (was.is_error(), is.is_error()) {
        (true, true) => comparison.errors(&before, &after),
        (false, false) => comparison.results(&before, &after),
        _ => comparison.add(Change::OutcomeChanged, Some(&before), Some(&after)),
    }
    comparison.found
}

impl Comparison<'_> {
    fn errors(&mut self, was: &Json, is: &Json) {
        let (before, after) = (was.get("code"), is.get("code"));
        if before == after {
            return self.values(was, is);
        }
        self.at_member("code", |at| {
            at.add(Change::ErrorCodeChanged, before.as_ref(), after.as_ref());
        });
    }

    fn results(&mut self, was: &Json, is: &Json) {
        let is_failed = |body: &Json| body.flag("isError");
        if is_failed(was) == is_failed(is) {
            return self.values(&compared(was), &compared(is));
        }
        // The content of a failure has nothing in common with a result.
        self.at_member("isError", |at| {
            at.add(Change::IsErrorChanged, Some(was), Some(is));
        });
    }
}

/// The compared part of a result: without `isError`, which may be left out for false, and without
/// `_meta` if that has nothing but the server's identity.
fn compared(result: &Json) -> Json {
    let is_empty = result.get("_meta").is_some_and(|meta| {
        meta.is_object() && members(&meta).iter().all(|(name, _)| name == SERVER_INFO)
    });
    let is_left_out =
        |member: &Member| member.is(result, "isError") || (is_empty && member.is(result, "_meta"));
    rewrite_object(result, |member| !is_left_out(member), &[])
}
