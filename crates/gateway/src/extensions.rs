//! Extensions of several servers: which ones Fanlight promises to clients, and where it routes
//! methods that it does not know.
//!
//! An unknown method goes to the server that owns a name in its parameters (`routing`). Without
//! such a name it can only go to a server that alone has an extension unknown here. So Fanlight
//! does not promise an unknown extension that several servers have.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use fanlight_protocol::json::{Json, Kind, rewrite_object};
use fanlight_protocol::meta;

/// The extensions whose methods Fanlight routes, or that have no methods.
const KNOWN: [&str; 3] = [
    meta::TASKS_EXTENSION,
    meta::UI_EXTENSION,
    meta::SKILLS_EXTENSION,
];
/// How many strings of a request's parameters are looked up, and the longest one in bytes. No
/// option: only unknown methods need it, and these name one or two things.
const NAMES: usize = 32;
const LONGEST_NAME: usize = 2 << 10;

/// The extensions in `capabilities` that Fanlight does not know.
fn unknown_extensions(capabilities: &Json) -> HashSet<String> {
    let Some(extensions) = capabilities.get("extensions").filter(Json::is_object) else {
        return HashSet::new();
    };
    let names = extensions
        .members()
        .filter_map(|member| member.name(&extensions));
    names
        .filter(|name| !KNOWN.contains(&name.as_str()))
        .collect()
}

/// Whether a server with these capabilities supports `resources/directory/read` (SEP-2640,
/// Capability Negotiation).
pub(crate) fn reads_directories(capabilities: &Json) -> bool {
    let skills = capabilities
        .get("extensions")
        .and_then(|all| all.get(meta::SKILLS_EXTENSION));
    skills
        .and_then(|skills| skills.get("directoryRead"))
        .is_some_and(|flag| flag.is_true())
}

/// The unknown extensions that several of these servers have.
fn shared(servers: &[Json]) -> HashSet<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    servers
        .iter()
        .flat_map(unknown_extensions)
        .for_each(|name| *counts.entry(name).or_default() += 1);
    counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(name, _)| name)
        .collect()
}

/// Removes from `all`, the union of these servers' capabilities, the extensions that cannot be
/// served.
pub(crate) fn promised(all: Json, servers: &[Json]) -> Json {
    let shared = shared(servers);
    let place = all.place("extensions");
    let Some(place) = place.filter(|_| !shared.is_empty()) else {
        return all;
    };
    let extensions = all.slice(place.clone());
    let is_served = |name: Option<String>| name.is_none_or(|name| !shared.contains(&name));
    let served = rewrite_object(
        &extensions,
        |member| is_served(member.name(&extensions)),
        b"",
    );
    all.with(place, &served)
}

/// Removes the unknown extensions from a server's `extensions`; also the one for skills if there
/// are no resources.
pub(crate) fn retain_known(extensions: &Json, has_resources: bool) -> Json {
    let is_served =
        |name: &str| KNOWN.contains(&name) && (has_resources || name != meta::SKILLS_EXTENSION);
    rewrite_object(
        extensions,
        |member| member.name(extensions).is_some_and(|name| is_served(&name)),
        b"",
    )
}

/// The servers that may have `method`: those that alone have an unknown extension. If the method's
/// name begins with the names of some of these extensions, only the servers of those.
pub(crate) fn find_candidates<T: Copy>(method: &str, servers: &[(T, Json)]) -> Vec<T> {
    let capabilities: Vec<_> = servers
        .iter()
        .map(|(_, capabilities)| capabilities.clone())
        .collect();
    let shared = shared(&capabilities);
    let own = |capabilities: &Json| -> Vec<String> {
        unknown_extensions(capabilities)
            .into_iter()
            .filter(|name| !shared.contains(name))
            .collect()
    };
    let candidates: Vec<_> = servers
        .iter()
        .map(|(server, all)| (*server, own(all)))
        .collect();
    let begins = |extension: &String| {
        let name = extension.rsplit('/').next().unwrap_or_default();
        [name, extension].into_iter().any(|name| {
            method
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let named = candidates.iter().filter(|(_, own)| own.iter().any(begins));
    let named: Vec<_> = named.map(|(server, _)| *server).collect();
    let any = candidates
        .iter()
        .filter(|(_, own)| !own.is_empty())
        .map(|(server, _)| *server);
    if named.is_empty() {
        any.collect()
    } else {
        named
    }
}

/// A string in a request's parameters that may name something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The member whose value it is.
    key: String,
    pub(crate) place: Range<usize>,
    pub(crate) text: String,
}

/// The strings in `params` that may name something: members of `params`, and of objects in it.
pub(crate) fn names(params: &Json) -> Vec<Name> {
    let mut found = Vec::new();
    for member in params.members().filter(|member| {
        !["_meta", "arguments"]
            .iter()
            .any(|key| member.is(params, key))
    }) {
        let value = params.slice(member.value.clone());
        match value.kind() {
            Kind::String => add(&mut found, member.name(params), &value, member.value.start),
            Kind::Object => value.members().take(NAMES).for_each(|inner| {
                let start = member.value.start + inner.value.start;
                add(
                    &mut found,
                    inner.name(&value),
                    &value.slice(inner.value),
                    start,
                );
            }),
            _ => {}
        }
        if found.len() >= NAMES {
            break;
        }
    }
    found.truncate(NAMES);
    found
}

fn add(found: &mut Vec<Name>, key: Option<String>, value: &Json, start: usize) {
    let length = value.bytes().len();
    let text = value.as_str().filter(|_| length <= LONGEST_NAME);
    if let (Some(key), Some(text)) = (key, text) {
        found.push(Name {
            key,
            place: start..start + length,
            text: text.into_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(extensions: &'static str) -> Json {
        Json::literal(extensions)
    }

    #[test]
    fn extension_that_several_servers_have_is_promised_only_if_it_is_known() {
        let a =
            with(r#"{"extensions":{"io.modelcontextprotocol/ui":{},"x/both":{"k":1.0},"x/a":{}}}"#);
        let b = with(r#"{"extensions":{"io.modelcontextprotocol/ui":{},"x/both":{}}}"#);
        let all = with(
            r#"{ "extensions":{ "io.modelcontextprotocol/ui":{}, "x/both":{"k":1.0}, "x/a":{}},"y":0}"#,
        );
        let served = r#"{ "extensions":{ "io.modelcontextprotocol/ui":{}, "x/a":{}},"y":0}"#;
        assert_eq!(
            promised(all.clone(), &[a.clone(), b.clone()]).as_text(),
            served
        );
        assert_eq!(promised(all.clone(), &[a]), all);
        assert_eq!(promised(with("{}"), &[b]).as_text(), "{}");
    }

    #[test]
    fn method_may_belong_to_servers_that_alone_have_an_unknown_extension() {
        let servers = [
            (1, with(r#"{"extensions":{"x/one":{},"x/both":{}}}"#)),
            (2, with(r#"{"extensions":{"x/two":{},"x/both":{}}}"#)),
            (
                3,
                with(r#"{"extensions":{"x/both":{},"io.modelcontextprotocol/tasks":{}}}"#),
            ),
        ];
        assert_eq!(find_candidates("other/do", &servers), [1, 2]);
        assert_eq!(find_candidates("two/do", &servers), [2]);
        assert_eq!(find_candidates("x/one/do", &servers), [1]);
        assert_eq!(find_candidates("both/do", &servers[..1]), [1]);
        assert!(find_candidates("both/do", &servers[2..]).contains(&3));
        assert!(find_candidates("x/y", &[(1, with(r#"{"tools":{}}"#))]).is_empty());
    }

    #[test]
    fn names_are_strings_of_parameters_and_of_objects_in_them() {
        let params = Json::literal(
            r#"{"name":"a__t","n":1,"_meta":{"x":"no"},"arguments":{"x":"no"},"ref":{"uri":"u:\/\/1","deep":{"x":"no"}},"list":["no"]}"#,
        );
        let found: Vec<_> = names(&params)
            .into_iter()
            .map(|name| (name.key, name.text, params.slice(name.place)))
            .collect();
        let expected = [
            ("name", "a__t", "\"a__t\""),
            ("uri", "u://1", r#""u:\/\/1""#),
        ];
        assert_eq!(found.len(), expected.len());
        for ((key, text, json), expected) in found.iter().zip(expected) {
            assert_eq!((key.as_str(), text.as_str(), json.as_text()), expected);
        }
        let many: String = (0..1000)
            .map(|n| format!("\"{n}\":{{\"a\":\"x\"}},"))
            .collect();
        let many = Json::parse(
            format!("{{{many}\"last\":\"{}\"}}", "y".repeat(LONGEST_NAME)).into(),
            8,
        )
        .unwrap();
        assert_eq!(names(&many).len(), NAMES);
    }
}
