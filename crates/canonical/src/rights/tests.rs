//! The decisions of rules, which must not depend on other servers.

use std::sync::Arc;

use proptest::prelude::*;

use crate::rights::{
    ItemFilter, ItemKind, ItemRule, NameForm, ServerNames, Servers, WrittenPattern,
};

fn server(name: &str, prefix: Option<&str>) -> ServerNames {
    ServerNames {
        name: name.to_owned(),
        prefix: prefix.map(str::to_owned),
        renames: Vec::new(),
    }
}

fn servers(all: &[ServerNames]) -> Arc<Servers> {
    Arc::new(Servers::new(all, "__", NameForm::Any))
}

fn texts(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|&pattern| pattern.to_owned()).collect()
}

fn allows(all: &Arc<Servers>, pattern: &str, server: &str, name: &str) -> bool {
    ItemFilter::new(all, ItemKind::Names, Some(&texts(&[pattern])), &[]).permits(server, name)
}

fn denies(all: &Arc<Servers>, pattern: &str, server: &str, name: &str) -> bool {
    !ItemFilter::new(all, ItemKind::Names, None, &texts(&[pattern])).permits(server, name)
}

#[test]
fn pattern_means_the_same_with_any_number_of_servers() {
    let memory = || server("memory", None);
    for all in [vec![memory()], vec![memory(), server("time", None)]].map(|all| servers(&all)) {
        for pattern in [
            "delete_*",
            "memory__delete_*",
            "memory/delete_*",
            "mem*__delete_*",
            "*/delete_*",
            "*__delete_*",
        ] {
            assert!(allows(&all, pattern, "memory", "delete_all"), "{pattern}");
            assert!(denies(&all, pattern, "memory", "delete_all"), "{pattern}");
            assert!(
                ItemRule::new(&all, pattern).is_about("memory", "delete_all"),
                "{pattern}"
            );
            assert!(
                !allows(&all, pattern, "memory", "read")
                    && !denies(&all, pattern, "memory", "read"),
                "{pattern}"
            );
        }
    }
}

#[test]
fn allowed_name_is_not_taken_by_another_server() {
    let all = servers(&[
        server("git", None),
        server("web", Some("web_")),
        server("evil", None),
    ]);
    for (pattern, name) in [
        ("git__*", "git__log"),
        ("git/*", "git/log"),
        ("web_*", "web_fetch"),
    ] {
        assert!(!allows(&all, pattern, "evil", name), "{pattern} {name}");
        assert!(
            denies(&all, pattern, "evil", name),
            "denied in every reading: {pattern} {name}"
        );
    }
    assert!(allows(&all, "web_*", "web", "fetch") && allows(&all, "git__*", "git", "log"));
    assert!(allows(&all, "*/web_fetch", "evil", "web_fetch"));
}

#[test]
fn renamed_tool_has_the_rights_of_both_names_unless_the_new_one_is_another_tools_own() {
    let renames = [("old", "new"), ("x", "y"), ("y", "x")]
        .map(|(old, new)| (old.to_owned(), new.to_owned()))
        .to_vec();
    let all = servers(&[ServerNames {
        renames,
        ..server("a", None)
    }]);
    for pattern in ["new", "a/new", "a__new", "old", "a__old"] {
        assert!(
            allows(&all, pattern, "a", "old") && denies(&all, pattern, "a", "old"),
            "{pattern}"
        );
    }
    assert!(allows(&all, "a__x", "a", "x") && !allows(&all, "a__x", "a", "y"));
    assert!(denies(&all, "a__x", "a", "x") && denies(&all, "a__x", "a", "y"));
}

#[test]
fn uri_belongs_to_a_server_only_where_that_is_written() {
    let all = servers(&[server("files", None), server("evil", None)]);
    let permits = |pattern: &str, server: &str, uri: &str| {
        ItemFilter::new(&all, ItemKind::Uris, Some(&texts(&[pattern])), &[]).permits(server, uri)
    };
    assert!(permits("files/file:///x?q=*", "files", "file:///x?q=1"));
    assert!(
        !permits("files/file:///*", "evil", "file:///x") && !permits("files/*", "evil", "files/x")
    );
    assert!(
        permits("file:///*", "evil", "file:///x")
            && permits("*/public/*", "files", "file:///public/x")
    );
    let deny = ItemFilter::new(
        &all,
        ItemKind::Uris,
        None,
        &texts(&["Files/file:///Private/*"]),
    );
    assert!(
        deny.denies_folded("files", "file:///private/x")
            && !deny.denies_folded("evil", "file:///private/x")
    );
}

#[test]
fn filter_of_a_server_matches_its_own_names_however_they_look() {
    let all = servers(&[server("git", None), server("web", None)]);
    let filter = |allow: &[&str], deny: &[&str]| {
        let allow = (!allow.is_empty()).then(|| texts(allow));
        ItemFilter::new(&all, ItemKind::Names, allow.as_deref(), &texts(deny))
            .limit_to_server("git")
    };
    for pattern in ["log", "git__log", "git/log", "l*", "git__*"] {
        assert!(
            filter(&[pattern], &[]).permits("git", "log")
                && !filter(&[], &[pattern]).permits("git", "log")
        );
    }
    assert!(
        filter(&["a__b", "a/b"], &[]).permits("git", "a__b")
            && filter(&["a/b"], &[]).permits("git", "a/b")
    );
    assert!(!filter(&["web__log", "web/log"], &[]).permits("git", "log"));
}

#[test]
fn written_pattern_concerns_the_servers_that_it_names() {
    let all = servers(&[server("git", None), server("web", Some("w-"))]);
    let concerned = |text: &str| {
        let pattern = WrittenPattern::new(&all, ItemKind::Names, text, true);
        ["git", "web"].map(|server| pattern.concerns(server))
    };
    for (text, expected) in [
        ("log", [true, true]),
        ("git/log", [true, false]),
        ("*/log", [true, true]),
        ("git__log", [true, false]),
        ("g*__log", [true, false]),
        ("w-log*", [false, true]),
        ("*__log", [true, true]),
        ("got/log", [false, false]),
        ("got__log", [false, false]),
    ] {
        assert_eq!(concerned(text), expected, "{text}");
    }
    let given = WrittenPattern::new(&all, ItemKind::Names, "log", true).limit_to_server("web");
    assert!(given.concerns("web") && !given.concerns("git") && given.is_about("web", "log"));
}

/// Names of tools and servers that are easily confused.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a", "b", "a__x", "x", "b-x", "x_y", "a_x", "a/x", "b__a__x", "new",
    ])
    .prop_map(str::to_owned)
}

fn pattern() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "b", "x", "*", "__", "/", "_", "-", "y", "new"]),
        1..6,
    )
    .prop_map(|parts| parts.concat())
}

fn any_server() -> impl Strategy<Value = ServerNames> {
    // A prefix without a separator matches patterns that begin with it. `fanlight check` warns of
    // such a prefix.
    let prefix =
        prop::option::of(prop::sample::select(vec!["", "p__", "a__b__"]).prop_map(str::to_owned));
    (
        prop::sample::select(vec!["a", "b", "c", "x-y"]),
        prefix,
        prop::collection::vec((name(), name()), 0..3),
    )
        .prop_map(|(name, prefix, renames)| ServerNames {
            name: name.to_owned(),
            prefix,
            renames,
        })
}

proptest! {
    #[test]
    fn decision_on_an_item_does_not_depend_on_other_servers(
        one in any_server(),
        others in prop::collection::vec(any_server(), 0..4),
        patterns in prop::collection::vec(pattern(), 1..4),
        name in name(),
        form in prop_oneof![Just(NameForm::Any), (12..20_usize).prop_map(NameForm::AtMost), (12..20_usize).prop_map(NameForm::Safe)],
    ) {
        let others: Vec<_> = others.into_iter().filter(|other| other.name != one.name).collect();
        let alone = Arc::new(Servers::new(std::slice::from_ref(&one), "__", form));
        let with_others = Arc::new(Servers::new(&[vec![one.clone()], others].concat(), "__", form));
        let decisions = |servers: &Arc<Servers>| {
            let allow = ItemFilter::new(servers, ItemKind::Names, Some(&patterns), &[]).permits(&one.name, &name);
            let deny = ItemFilter::new(servers, ItemKind::Names, None, &patterns).permits(&one.name, &name);
            let rules: Vec<_> = patterns.iter().map(|text| ItemRule::new(servers, text).is_about(&one.name, &name)).collect();
            (allow, deny, rules)
        };
        let (allow, deny, rules) = decisions(&alone);
        prop_assert_eq!((allow, deny, rules.clone()), decisions(&with_others));
        // Patterns never permit more than the same patterns would forbid.
        prop_assert!(!allow || !deny && rules.contains(&true));
    }
}
