//! The merge policy for everything in an answer that is not a list entry: `_meta`, unknown members,
//! caching hints, capabilities and instructions.
//!
//! A key that only one server sets, or that several set to equal bytes, is put at the top level. If
//! anything conflicts or fails, `dev.fanlight/backends` in `_meta` has each server's outcome,
//! `_meta` and conflicting members. Nothing is lost and nothing is made up.

use std::collections::HashMap;

use fanlight_canonical::Outcome;
use fanlight_protocol::Json;
use fanlight_protocol::json::{Member, ObjectBuilder};
use fanlight_protocol::meta::{PROGRESS_TOKEN, RELATED_TASK};
use fanlight_protocol::result::{CACHING_HINTS, has_caching_hints, is_private, is_public};

/// The `_meta` key that contains each server's own part.
const BACKENDS_KEY: &str = "dev.fanlight/backends";
/// The `_meta` key that lists names which two servers claim.
pub const COLLISIONS_KEY: &str = "dev.fanlight/collisions";

/// The `_meta` key that lists definitions which strict clients would reject.
pub const LEFT_OUT_KEY: &str = "dev.fanlight/leftOut";

/// One server's contribution to a merged answer.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// The server's name.
    pub backend: String,
    /// Whether the server answered, or how it failed.
    pub outcome: Outcome,
    /// A short reason for the failure.
    pub reason: Option<String>,
    /// The server's results: one for each page of its list.
    pub results: Vec<Json>,
    /// The results are from before a failure.
    pub is_stale: bool,
}

/// The members of a merged answer other than its entries, as raw text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Members in order, with keys quoted as received.
    pub members: Vec<(Json, Json)>,
    /// The merged `_meta`, if it is not empty.
    pub meta: Option<Json>,
}

/// The number of contributions that are missing or incomplete.
pub fn failures<'a>(contributions: impl Iterator<Item = &'a Contribution>) -> usize {
    contributions
        .filter(|contribution| contribution.outcome != Outcome::Ok)
        .count()
}

/// The members that the caller of [`merge`] merges itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Except<'a> {
    /// Members of results that the caller merges by rules of their own.
    pub members: &'a [&'a str],
    /// Members of results, and keys of `_meta`, that the merged answer sets itself. Each server's
    /// own value is put under its name.
    pub replaced: &'a [&'a str],
}

/// Merges the members of the contributions' results. `more_meta` are members of `_meta` that the
/// caller adds.
pub fn merge<'a>(
    contributions: impl IntoIterator<Item = &'a Contribution, IntoIter: Clone>,
    except: Except<'_>,
    more_meta: &[(&str, Json)],
) -> Merged {
    let contributions = contributions.into_iter();
    let mut members = Keys::new(except.replaced);
    let mut metas = Keys::new(except.replaced);
    for contribution in contributions.clone() {
        for result in &contribution.results {
            members.add(result, |key| {
                key == "_meta" || CACHING_HINTS.contains(&key) || except.members.contains(&key)
            });
            if let Some(meta) = result.get("_meta") {
                metas.add(&meta, |key| [PROGRESS_TOKEN, RELATED_TASK].contains(&key));
            }
        }
    }
    let mut merged = Merged {
        members: members.agreed(),
        meta: None,
    };
    merged.members.extend(hints(contributions.clone()));

    // A server that is itself a Fanlight gateway uses the same keys. Where both would be at the top
    // level, the server's own is put under its name.
    more_meta
        .iter()
        .for_each(|(key, _)| metas.yield_to_ours(key));
    let reports_each =
        failures(contributions.clone()) > 0 || members.conflicted() || metas.conflicted();
    if reports_each {
        metas.yield_to_ours(BACKENDS_KEY);
    }
    let mut meta = ObjectBuilder::new();
    for (key, value) in metas.agreed() {
        meta.raw_member(&key, &value);
    }
    if reports_each {
        meta.member(BACKENDS_KEY, &each_backend(contributions, &members));
    }
    for (key, value) in more_meta {
        meta.member(key, value);
    }
    merged.meta = (!meta.is_empty()).then(|| meta.finish());
    merged
}

/// The keys of all servers in order of first appearance, with their values.
struct Keys<'a> {
    keys: Vec<Key>,
    /// The index in `keys` by name. A server can send many keys, so a search of the list would be
    /// slow.
    places: HashMap<String, usize>,
    replaced: &'a [&'a str],
}

struct Key {
    quoted: Json,
    value: Json,
    conflicted: bool,
}

impl<'a> Keys<'a> {
    fn new(replaced: &'a [&'a str]) -> Self {
        Self {
            keys: Vec::new(),
            places: HashMap::new(),
            replaced,
        }
    }

    fn add(&mut self, object: &Json, skip: impl Fn(&str) -> bool) {
        for member in object.members() {
            let name = name_of(object, &member);
            if skip(&name) {
                continue;
            }
            let value = object.slice(member.value);
            match self
                .places
                .get(&name)
                .and_then(|place| self.keys.get_mut(*place))
            {
                Some(key) => key.conflicted |= key.value != value,
                None => {
                    let conflicted = self.replaced.contains(&name.as_str());
                    self.places.insert(name, self.keys.len());
                    self.keys.push(Key {
                        quoted: object.slice(member.key),
                        value,
                        conflicted,
                    });
                }
            }
        }
    }

    /// Takes a key from the top level because the merged answer sets it itself.
    fn yield_to_ours(&mut self, name: &str) {
        if let Some(key) = self
            .places
            .get(name)
            .and_then(|place| self.keys.get_mut(*place))
        {
            key.conflicted = true;
        }
    }

    fn agreed(&self) -> Vec<(Json, Json)> {
        self.keys
            .iter()
            .filter(|key| !key.conflicted)
            .map(|key| (key.quoted.clone(), key.value.clone()))
            .collect()
    }

    fn conflicted(&self) -> bool {
        self.keys.iter().any(|key| key.conflicted)
    }

    fn is_conflict(&self, object: &Json, member: &Member) -> bool {
        let key = self
            .places
            .get(&name_of(object, member))
            .and_then(|place| self.keys.get(*place));
        key.is_some_and(|key| key.conflicted)
    }
}

/// A member's name. A name with a lone surrogate is not valid text, so its spelling is used.
fn name_of(object: &Json, member: &Member) -> String {
    member
        .name(object)
        .unwrap_or_else(|| object.slice(member.key.clone()).as_text().to_owned())
}

/// Each server's outcome, its `_meta`, and its conflicting members.
fn each_backend<'a>(
    contributions: impl Iterator<Item = &'a Contribution>,
    members: &Keys<'_>,
) -> Json {
    let mut all = ObjectBuilder::new();
    for contribution in contributions {
        let mut own = ObjectBuilder::new();
        own.string("outcome", contribution.outcome.as_str())
            .optional_string("reason", contribution.reason.as_deref());
        if contribution.is_stale {
            own.member("stale", &Json::literal("true"));
        }
        let parts: Vec<Json> = contribution
            .results
            .iter()
            .filter_map(|result| own_part(result, members))
            .collect();
        match parts.as_slice() {
            [] => {}
            [only] => add_all(&mut own, only),
            several => {
                own.member("pages", &Json::array(several.iter().cloned()));
            }
        }
        all.member(&contribution.backend, &own.finish());
    }
    all.finish()
}

fn own_part(result: &Json, members: &Keys<'_>) -> Option<Json> {
    let mut part = ObjectBuilder::new();
    for member in result.members() {
        if member.is(result, "_meta") || members.is_conflict(result, &member) {
            part.raw_member(&result.slice(member.key), &result.slice(member.value));
        }
    }
    (!part.is_empty()).then(|| part.finish())
}

fn add_all(object: &mut ObjectBuilder, part: &Json) {
    for member in part.members() {
        object.raw_member(&part.slice(member.key), &part.slice(member.value));
    }
}

impl Contribution {
    /// Whether any of its results is private.
    pub fn is_private(&self) -> bool {
        self.results.iter().any(is_private)
    }
}

/// The least `ttlMs` and the strictest `cacheScope` (2026-07-28 server/utilities/caching). By that
/// page, a result without hints is stale at once and private. If no result has hints, the merged
/// answer has none.
fn hints<'a>(contributions: impl Iterator<Item = &'a Contribution> + Clone) -> Vec<(Json, Json)> {
    let results = || {
        contributions
            .clone()
            .flat_map(|contribution| &contribution.results)
    };
    if !results().any(has_caching_hints) {
        return Vec::new();
    }
    let zero = Json::literal("0");
    let millis = |ttl: &Json| ttl.as_i64().filter(|ttl| *ttl >= 0).unwrap_or(0);
    // A failed server makes the answer incomplete, so clients must not cache it.
    let failed = failures(contributions.clone()) > 0;
    let ttl = results()
        .map(|result| result.get("ttlMs").unwrap_or_else(|| zero.clone()))
        .min_by_key(millis)
        .filter(|ttl| !failed && millis(ttl) > 0)
        .unwrap_or(zero);
    let public = results().all(is_public);
    let scope = Json::string(if public { "public" } else { "private" });
    vec![
        (Json::string("ttlMs"), ttl),
        (Json::string("cacheScope"), scope),
    ]
}

/// Joins the instructions of several servers into one text, each under its server's name. Escapes
/// in the texts are kept. `None` if no server has instructions.
pub fn join_instructions(instructions: &[(&str, Json)]) -> Option<Json> {
    let mut text = vec![b'"'];
    for (backend, instruction) in instructions {
        let Some(inner) = instruction
            .as_text()
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
        else {
            continue;
        };
        if text.len() > 1 {
            text.extend_from_slice(b"\\n\\n");
        }
        let heading = Json::string(&format!("# {backend}\n\n"));
        text.extend_from_slice(heading.inner_text());
        text.extend_from_slice(inner.as_bytes());
    }
    text.push(b'"');
    (text.len() > 2)
        .then(|| Json::parse(text.into(), 1).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contribution(backend: &str, results: &[&'static str]) -> Contribution {
        Contribution {
            backend: backend.into(),
            outcome: Outcome::Ok,
            reason: None,
            results: results.iter().map(|text| Json::literal(text)).collect(),
            is_stale: false,
        }
    }

    fn text(merged: &Merged) -> (String, String) {
        let members = merged
            .members
            .iter()
            .map(|(k, v)| format!("{k}:{v}"))
            .collect::<Vec<_>>()
            .join(",");
        (
            members,
            merged
                .meta
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )
    }

    #[test]
    fn members_that_agree_stand_at_the_top() {
        let merged = merge(
            &[
                contribution(
                    "a",
                    &[r#"{"tools":[],"x":1.0,"_meta":{"k":1E2,"same":[ 1 ]}}"#],
                ),
                contribution(
                    "b",
                    &[r#"{"tools":[],"y":"\u0041","_meta":{"same":[ 1 ]}}"#],
                ),
            ],
            Except {
                members: &["tools"],
                replaced: &[],
            },
            &[],
        );
        assert_eq!(
            text(&merged),
            (
                r#""x":1.0,"y":"\u0041""#.into(),
                r#"{"k":1E2,"same":[ 1 ]}"#.into()
            )
        );
    }

    #[test]
    fn members_that_conflict_stand_under_each_backend() {
        let merged = merge(
            &[
                contribution("a", &[r#"{"x":1,"_meta":{"k":1,"own":0}}"#]),
                contribution("b", &[r#"{"x":1.0,"_meta":{"k":2}}"#]),
                contribution("c", &[]),
            ],
            Except::default(),
            &[(COLLISIONS_KEY, Json::literal("[]"))],
        );
        let meta = r#"{"own":0,"dev.fanlight/backends":{"a":{"outcome":"ok","x":1,"_meta":{"k":1,"own":0}},"b":{"outcome":"ok","x":1.0,"_meta":{"k":2}},"c":{"outcome":"ok"}},"dev.fanlight/collisions":[]}"#;
        assert_eq!(text(&merged), (String::new(), meta.into()));
    }

    #[test]
    fn failure_is_reported_and_pages_are_listed_separately() {
        let mut failed = contribution("b", &[]);
        failed.outcome = Outcome::Timeout;
        failed.reason = Some("did not answer within 1s".into());
        let pages = contribution("a", &[r#"{"_meta":{"page":1}}"#, r#"{"_meta":{"page":2}}"#]);
        let merged = merge(&[pages, failed], Except::default(), &[]);
        let meta = r#"{"dev.fanlight/backends":{"a":{"outcome":"ok","pages":[{"_meta":{"page":1}},{"_meta":{"page":2}}]},"b":{"outcome":"timeout","reason":"did not answer within 1s"}}}"#;
        assert_eq!(text(&merged).1, meta);
    }

    #[test]
    fn results_from_before_a_failure_are_marked() {
        let mut stale = contribution("a", &[r#"{"x":1}"#]);
        (stale.outcome, stale.is_stale) = (Outcome::Timeout, true);
        let meta = r#"{"dev.fanlight/backends":{"a":{"outcome":"timeout","stale":true}}}"#;
        assert_eq!(
            text(&merge(&[stale], Except::default(), &[])),
            (r#""x":1"#.into(), meta.into())
        );
    }

    #[test]
    fn replaced_members_are_kept_under_each_backend() {
        let except = Except {
            members: &[],
            replaced: &["serverInfo"],
        };
        let merged = merge(
            &[contribution("a", &[r#"{"serverInfo":{"name":"A"}}"#])],
            except,
            &[],
        );
        let meta = r#"{"dev.fanlight/backends":{"a":{"outcome":"ok","serverInfo":{"name":"A"}}}}"#;
        assert_eq!(text(&merged), (String::new(), meta.into()));
    }

    #[test]
    fn report_of_a_gateway_behind_this_one_is_kept() {
        let inner = r#"{"_meta":{"dev.fanlight/backends":{"x":1},"dev.fanlight/collisions":[7]}}"#;
        // Without a report of this gateway, the key is merged like any other.
        let merged = merge(
            &[contribution("a", &[inner]), contribution("b", &["{}"])],
            Except::default(),
            &[],
        );
        assert_eq!(
            text(&merged).1,
            r#"{"dev.fanlight/backends":{"x":1},"dev.fanlight/collisions":[7]}"#
        );
        let merged = merge(
            &[contribution("a", &[inner])],
            Except::default(),
            &[(COLLISIONS_KEY, Json::literal("[]"))],
        );
        let meta = r#"{"dev.fanlight/backends":{"a":{"outcome":"ok","_meta":{"dev.fanlight/backends":{"x":1},"dev.fanlight/collisions":[7]}}},"dev.fanlight/collisions":[]}"#;
        assert_eq!(text(&merged).1, meta);
    }

    #[test]
    fn keys_of_one_request_are_not_taken() {
        let own =
            r#"{"_meta":{"progressToken":null,"io.modelcontextprotocol/related-task":{},"k":1}}"#;
        let merged = merge(&[contribution("a", &[own])], Except::default(), &[]);
        assert_eq!(text(&merged).1, r#"{"k":1}"#);
    }

    #[test]
    fn hints_are_the_least_ttl_and_the_strictest_scope() {
        let of = |results: &[&'static str]| {
            text(&merge(
                &results
                    .iter()
                    .map(|r| contribution("a", &[r]))
                    .collect::<Vec<_>>(),
                Except::default(),
                &[],
            ))
            .0
        };
        assert_eq!(of(&["{}", "{}"]), "");
        assert_eq!(
            of(&[
                r#"{"ttlMs":50,"cacheScope":"public"}"#,
                r#"{"ttlMs":9,"cacheScope":"public"}"#
            ]),
            r#""ttlMs":9,"cacheScope":"public""#
        );
        assert_eq!(
            of(&[
                r#"{"ttlMs":50,"cacheScope":"public"}"#,
                r#"{"ttlMs":9,"cacheScope":"private"}"#
            ]),
            r#""ttlMs":9,"cacheScope":"private""#
        );
        assert_eq!(
            of(&[r#"{"ttlMs":50,"cacheScope":"public"}"#, "{}"]),
            r#""ttlMs":0,"cacheScope":"private""#
        );
        assert_eq!(
            of(&[r#"{"ttlMs":-5,"cacheScope":"public"}"#]),
            r#""ttlMs":0,"cacheScope":"public""#
        );
    }

    #[test]
    fn instructions_stand_under_their_backends() {
        let joined = join_instructions(&[
            ("a", Json::literal(r#""Use\u0041""#)),
            ("b\"", Json::literal(r#""B""#)),
        ])
        .unwrap();
        assert_eq!(joined.as_text(), r##""# a\n\nUse\u0041\n\n# b\"\n\nB""##);
        assert_eq!(join_instructions(&[]), None);
    }
}
