//! Decisions by policies.

use std::sync::Arc;

use fanlight_canonical::identity::{Identity, Principal, Scopes, Source};
use fanlight_canonical::{
    ApprovedBy, CallContext, Caller, Endpoint, Holder, Policy as _, PolicyAction, PolicyItem,
    PolicyKind, PolicyOutcome, Rights,
};
use fanlight_protocol::{Era, Json};

use super::*;

fn text(text: &str) -> PolicyText {
    PolicyText {
        name: "p.cedar".into(),
        text: text.to_owned(),
    }
}

fn settings(policies: &str) -> PolicySettings {
    PolicySettings {
        texts: vec![text(policies)],
        ..PolicySettings::default()
    }
}

fn policies(source: &str) -> Policies {
    Policies::new(settings(source)).unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

fn problems(source: &str) -> Vec<String> {
    Policies::new(settings(source))
        .err()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn identity(name: &str, groups: &[&str]) -> Identity {
    Identity {
        principal: Principal::new("fanlight:key", name),
        name: name.into(),
        source: Source::Key,
        groups: groups.iter().map(|group| Arc::from(*group)).collect(),
        scopes: Scopes::parse("mcp:read"),
        ..Identity::anonymous()
    }
}

fn client_of(identity: Identity, endpoint: Endpoint) -> CallContext {
    let holder = Holder::new(identity.principal.clone(), endpoint);
    let caller = Caller::request_of(holder).with_identity(Arc::new(identity));
    CallContext {
        caller,
        era: Era::Modern,
        ..(*CallContext::internal()).clone()
    }
}

fn client(name: &str, groups: &[&str]) -> CallContext {
    client_of(identity(name, groups), Endpoint::Default)
}

fn rights(policies: &Policies, name: &str, groups: &[&str]) -> Arc<dyn Rights> {
    policies.rights_of(&client(name, groups)).unwrap()
}

fn item(kind: PolicyKind, name: &str) -> PolicyItem<'_> {
    let (server, name) = name.split_once('/').unwrap();
    PolicyItem {
        kind,
        server,
        name: name.into(),
        definition: None,
    }
}

fn tool<'a>(name: &'a str, definition: &'a Json) -> PolicyItem<'a> {
    PolicyItem {
        definition: Some(definition),
        ..item(PolicyKind::Tool, name)
    }
}

fn plain() -> Json {
    Json::literal(
        r#"{"name":"x","inputSchema":{"type":"object","properties":{"path":{},"mode":{},"amount":{}}}}"#,
    )
}

/// The outcome of a call: `hidden`, or the decision about the arguments.
fn call(rights: &dyn Rights, name: &str, arguments: &str) -> String {
    let definition = plain();
    let tool = tool(name, &definition);
    if !rights.shows(&tool) {
        return "hidden".to_owned();
    }
    let arguments = Json::parse(arguments.to_owned().into(), 64).unwrap();
    match rights.decide(PolicyAction::Call, &tool, Some(&arguments)) {
        Ok(verdict) => verdict.outcome.as_str().to_owned(),
        Err(error) => error.to_string(),
    }
}

/// A URI is forbidden in every form in which a server may read it, and permitted only as written.
#[test]
fn uris_are_forbidden_in_every_form() {
    let forbid = |condition: &str| {
        format!(
            "permit(principal, action, resource); forbid(principal, action, resource) {condition};"
        )
    };
    let all: Vec<_> = [
        r#"when { resource.name like "file:///private/*" }"#,
        r#"when { resource.name like "file:///Private/*" }"#,
        r#"when { resource.name like "file:///%50rivate/*" }"#,
        r#"when { resource.name == "file:///private/Key" || "x" == resource.name }"#,
        r#"when { ["file:///Private/key", "x"].contains(resource.name) }"#,
        r#"when { resource == Resource::"files/file:///private/Key" }"#,
        r#"when { resource in [Resource::"files/x", Resource::"files/file:///private/key"] }"#,
        r#"when { resource is Resource in Resource::"files/file:///private/key" }"#,
        r#"when { !(resource.name != "file:///private/Key") }"#,
        r#"when { if resource.name like "file:///private/*" then true else false }"#,
        r#"unless { !(resource.name like "file:///Private/*") }"#,
    ]
    .map(forbid)
    .into_iter()
    .chain([
        forbid("").replace("resource) ;", r#"resource == Resource::"files/file:///Private/key");"#),
        forbid("").replace("resource) ;", r#"resource is Resource in Resource::"files/file:///Private/key");"#),
        r#"permit(principal, action, resource) unless { resource.name like "file:///private/*" };"#.to_owned(),
        r#"permit(principal, action, resource) when { !(resource.name like "file:///private/*") };"#.to_owned(),
    ])
    .collect();
    for source in all {
        let all = policies(&source);
        let client = rights(&all, "a", &[]);
        let shows = |name: &str| client.shows(&item(PolicyKind::Resource, name));
        for uri in [
            "private/key",
            "PRIVATE/key",
            "%70rivate/KEY",
            "Private/key?x",
            "private/key;v=1",
            "private/key#f",
            "private/key/",
        ] {
            assert!(!shows(&format!("files/file:///{uri}")), "{source} {uri}");
        }
        assert!(shows("files/file:///public/key"), "{source}");
        assert!(client.shows(&item(PolicyKind::Tool, "files/t")), "{source}");
        assert!(client.reaches("files"), "{source}");
    }
    for source in [
        r#"permit(principal, action, resource) when { resource.name like "file:///Public/*" };"#,
        r#"permit(principal, action, resource == Resource::"files/file:///Public/a");"#,
        r#"permit(principal, action, resource); forbid(principal, action, resource) unless { resource.name like "file:///Public/*" };"#,
        r#"permit(principal, action, resource); forbid(principal, action, resource) when { resource.name != "file:///Public/a" };"#,
    ] {
        let all = policies(source);
        let client = rights(&all, "a", &[]);
        let shows = |name: &str| client.shows(&item(PolicyKind::Resource, name));
        assert!(shows("files/file:///Public/a"), "{source}");
        assert!(!shows("files/file:///public/a"), "{source}");
    }
    let all = policies(&forbid(
        r#"when { resource == Resource::"other/file:///a" || resource.name == "Write" }"#,
    ));
    let client = rights(&all, "a", &[]);
    assert!(client.shows(&item(PolicyKind::Resource, "files/file:///a")));
    assert!(client.shows(&item(PolicyKind::Tool, "files/write")));
    assert!(!client.shows(&item(PolicyKind::Tool, "files/Write")));
}

#[test]
fn what_no_policy_permits_is_hidden() {
    let all = policies(
        r#"permit(principal in Group::"dev", action == Action::"call", resource in Server::"git");
           forbid(principal, action, resource == Tool::"git/push") unless { principal in Group::"lead" };"#,
    );
    let (dev, lead, none) = (
        rights(&all, "a", &["dev"]),
        rights(&all, "b", &["dev", "lead"]),
        rights(&all, "c", &["ops"]),
    );
    assert_eq!(call(&*dev, "git/log", "{}"), "allow");
    assert_eq!(call(&*dev, "git/push", "{}"), "hidden");
    assert_eq!(call(&*lead, "git/push", "{}"), "allow");
    assert_eq!(call(&*none, "git/log", "{}"), "hidden");
    assert_eq!(call(&*dev, "files/read", "{}"), "hidden");
    assert!(
        !dev.shows(&item(PolicyKind::Prompt, "git/log")),
        "a prompt is got, not called"
    );
}

#[test]
fn rules_about_arguments_leave_the_tool_listed_and_decide_the_call() {
    let all = policies(
        r#"permit(principal, action == Action::"call", resource == Tool::"files/read")
             when { context.arguments has path && context.arguments.path like "/data/*" };
           permit(principal, action == Action::"call", resource == Tool::"files/write");
           forbid(principal, action == Action::"call", resource)
             when { context.arguments has path && context.arguments.path like "*secret*" };"#,
    );
    let one = rights(&all, "a", &[]);
    assert_eq!(call(&*one, "files/read", r#"{"path":"/data/x"}"#), "allow");
    assert_eq!(call(&*one, "files/read", r#"{"path":"/etc/x"}"#), "deny");
    assert_eq!(call(&*one, "files/read", r#"{}"#), "deny");
    assert_eq!(call(&*one, "files/read", r#"{"path":["/data/x"]}"#), "deny");
    assert_eq!(
        call(&*one, "files/read", r#"{"path":"/data/secret"}"#),
        "deny"
    );
    assert_eq!(call(&*one, "files/write", r#"{"path":"/data/x"}"#), "allow");
    assert_eq!(
        call(&*one, "files/write", r#"{"path":["secret"]}"#),
        "deny",
        "an error in what forbids counts as met"
    );
    assert_eq!(
        call(&*one, "files/write", r#"{"path":"/data/\u0073ecret"}"#),
        "deny",
        "escapes are the same text"
    );
    assert_eq!(call(&*one, "files/other", "{}"), "hidden");
}

#[test]
fn rule_about_an_argument_is_no_rule_about_tools_without_it() {
    let all = policies(
        r#"permit(principal, action, resource);
           forbid(principal, action, resource) when { context.arguments.owner == "evil" };
           forbid(principal, action == Action::"call", resource) when { context.arguments.mode == "wild" };"#,
    );
    let one = rights(&all, "a", &[]);
    assert_eq!(
        call(&*one, "git/log", r#"{"mode":"tame"}"#),
        "allow",
        "the tool has no owner"
    );
    assert_eq!(
        call(&*one, "git/log", r#"{"mode":"tame","owner":"evil"}"#),
        "deny"
    );
    assert_eq!(
        call(&*one, "git/log", "{}"),
        "deny",
        "the tool has a mode, for which the server may take any"
    );
    for kind in [
        PolicyKind::Prompt,
        PolicyKind::Resource,
        PolicyKind::Template,
        PolicyKind::Skill,
    ] {
        assert!(one.shows(&item(kind, "git/x")), "{kind:?}");
    }
    let read = one
        .decide(
            PolicyAction::Read,
            &item(PolicyKind::Resource, "git/x"),
            None,
        )
        .unwrap();
    assert_eq!(read.outcome, PolicyOutcome::Allowed);
}

#[test]
fn arguments_that_two_readers_could_read_differently_are_refused() {
    let all = policies(
        r#"permit(principal, action, resource);
           forbid(principal, action == Action::"call", resource) when { context.arguments has path && context.arguments.path == "x" };"#,
    );
    let one = rights(&all, "a", &[]);
    for (arguments, expected) in [
        (r#"{"path":"y","path":"x"}"#, "twice"),
        (r#"{"path":"y","p\u0061th":"x"}"#, "twice"),
        (r#"{"path":"y","Path":"x"}"#, "could be taken for \"path\""),
        (r#"{"ＰＡＴＨ":"x"}"#, "could be taken for \"path\""),
        (r#"{"other":{"PATH":1}}"#, "allow"),
        (r#"{"path":{"PATH":1}}"#, "could be taken for \"path\""),
        (r#"{"path":{"a":1,"a":2}}"#, "twice"),
        (r#"{"path":null}"#, "allow"),
        ("[]", "must be an object"),
    ] {
        let outcome = call(&*one, "s/t", arguments);
        assert!(outcome.contains(expected), "{arguments}: {outcome}");
    }
    let deep = format!(r#"{{"path":{}1{}}}"#, "[".repeat(40), "]".repeat(40));
    assert!(call(&*one, "s/t", &deep).contains("too many"));
    let many = format!(r#"{{"path":[{}1]}}"#, "1,".repeat(20_000));
    assert!(call(&*one, "s/t", &many).contains("too many"));
}

/// The rights under a `forbid` and under a `permit` with this condition.
fn both(condition: &str) -> [Arc<dyn Rights>; 2] {
    let texts = [
        format!(
            "permit(principal, action, resource);
             forbid(principal, action == Action::\"call\", resource) when {{ {condition} }};"
        ),
        format!("permit(principal, action == Action::\"call\", resource) when {{ {condition} }};"),
    ];
    texts.map(|text| rights(&policies(&text), "a", &["dev"]))
}

#[test]
fn value_of_another_type_passes_no_comparison() {
    const OF_TEXT: &[&str] = &[
        "1",
        "true",
        r#"["main"]"#,
        r#"[["main"]]"#,
        r#"{"0":"main"}"#,
        "1.5",
        "1e40",
    ];
    const OF_LONG: &[&str] = &[
        r#""100""#,
        "[100]",
        "true",
        r#"{"a":100}"#,
        "100.00001",
        "9007199254740993",
        "1e40",
    ];
    const OF_BOOL: &[&str] = &[r#""true""#, "1", "0", "[true]", r#""on""#, r#"{"a":true}"#];
    const OF_DECIMAL: &[&str] = &[r#""99.5""#, "99", "[99.5]", "99.500001", "true"];
    const OF_TEXTS: &[&str] = &[
        r#""main""#,
        r#"[["main"]]"#,
        "[1]",
        r#"[1,"main"]"#,
        r#"{"0":"main"}"#,
        r#"[null,"main"]"#,
    ];
    for (condition, others) in [
        (r#"context.arguments.x == "main""#, OF_TEXT),
        (r#"context.arguments.x != "main""#, OF_TEXT),
        (r#"!(context.arguments.x == "main")"#, OF_TEXT),
        (r#""main" == context.arguments.x"#, OF_TEXT),
        (r#"context.arguments.x like "main*""#, OF_TEXT),
        (r#"["main", "prod"].contains(context.arguments.x)"#, OF_TEXT),
        (r#"["main"].containsAll([context.arguments.x])"#, OF_TEXT),
        (
            r#"if context.arguments.x == "main" then true else false"#,
            OF_TEXT,
        ),
        (
            r#"(if principal.allScopes then context.arguments.x else context.arguments.x) == "main""#,
            OF_TEXT,
        ),
        (r#"context.arguments.x == principal.name"#, OF_TEXT),
        (r#"context.arguments.x == resource.server"#, OF_TEXT),
        (r#"resource.tags.contains(context.arguments.x)"#, OF_TEXT),
        (
            r#"principal.hasTag("dept") || context.arguments.x == "main""#,
            OF_TEXT,
        ),
        (r#"{a: context.arguments.x == "main"}.a"#, OF_TEXT),
        (r#"context.arguments.x == 100"#, OF_LONG),
        (r#"context.arguments.x != 100"#, OF_LONG),
        (r#"context.arguments.x < 100"#, OF_LONG),
        (r#"context.arguments.x + 1 == 100"#, OF_LONG),
        (r#"[100, 200].contains(context.arguments.x)"#, OF_LONG),
        (r#"context.arguments.x == true"#, OF_BOOL),
        (r#"context.arguments.x != false"#, OF_BOOL),
        (r#"(context.arguments.x == true) == true"#, OF_BOOL),
        (r#"context.arguments.x"#, OF_BOOL),
        (r#"context.arguments.x == (principal.allScopes)"#, OF_BOOL),
        (r#"context.arguments.x == decimal("99.5")"#, OF_DECIMAL),
        (
            r#"context.arguments.x.greaterThan(decimal("99.5"))"#,
            OF_DECIMAL,
        ),
        (r#"context.arguments.x.contains("main")"#, OF_TEXTS),
        (
            r#"context.arguments.x.containsAny(["main", "prod"])"#,
            OF_TEXTS,
        ),
        (r#"context.arguments.x.containsAll(["main"])"#, OF_TEXTS),
        (r#"["main"].containsAll(context.arguments.x)"#, OF_TEXTS),
        (r#"context.arguments.x == ["main"]"#, OF_TEXTS),
        (r#"context.arguments.x == principal.scopes"#, OF_TEXTS),
        (
            r#"context.arguments.x == {a: "main"}"#,
            &[r#"{"a":["main"]}"#, r#"["main"]"#, r#"{"a":1}"#],
        ),
    ] {
        let below = condition.replace("arguments.x", "arguments.x.y");
        for (condition, start, end) in [(condition, "", ""), (&below, r#"{"y":"#, "}")] {
            let both = both(condition);
            for value in others {
                let arguments = format!(r#"{{"x":{start}{value}{end}}}"#);
                let outcomes = both.each_ref().map(|one| call(&**one, "s/t", &arguments));
                assert_eq!(outcomes, ["deny", "deny"], "{condition} {arguments}");
            }
        }
    }
    // Of two arguments, too.
    for condition in [
        "context.arguments.x == context.arguments.y",
        "context.arguments.y != context.arguments.x",
    ] {
        let both = both(condition);
        for arguments in [
            r#"{"x":1,"y":"1"}"#,
            r#"{"x":true,"y":1}"#,
            r#"{"x":["a"],"y":"a"}"#,
            r#"{"x":1,"y":1.5}"#,
            r#"{"x":9007199254740993,"y":9007199254740995}"#,
            r#"{"x":[1e40],"y":[2e40]}"#,
            r#"{"x":{"a":1},"y":{"a":"1"}}"#,
        ] {
            let outcomes = both.each_ref().map(|one| call(&**one, "s/t", arguments));
            assert_eq!(outcomes, ["deny", "deny"], "{condition} {arguments}");
        }
    }
}

#[test]
fn values_of_one_type_are_compared_as_before() {
    for (condition, met, not_met) in [
        (
            r#"context.arguments.x == "main""#,
            r#""m\u0061in""#,
            r#""dev""#,
        ),
        (r#"context.arguments.x != "main""#, r#""dev""#, r#""main""#),
        (r#"context.arguments.x == 100"#, "1e2", "101"),
        (r#"context.arguments.x == true"#, "true", "false"),
        (r#"context.arguments.x == decimal("99.5")"#, "99.50", "99.6"),
        (
            r#"context.arguments.x.contains("main")"#,
            r#"["a","main"]"#,
            r#"[]"#,
        ),
        (
            r#"["main"].contains(context.arguments.x)"#,
            r#""main""#,
            r#""dev""#,
        ),
        (
            r#"context.arguments.x.containsAny(["main", "prod"])"#,
            r#"["prod"]"#,
            r#"["dev"]"#,
        ),
        (r#"context.arguments.x == ["main"]"#, r#"["main"]"#, r#"[]"#),
        (
            r#"context.arguments.x == {a: "main", b: 1}"#,
            r#"{"b":1,"a":"main"}"#,
            r#"{"b":2,"a":"main"}"#,
        ),
        (
            r#"context.arguments.x == context.arguments.x && context.arguments.x.contains(1)"#,
            r#"[1]"#,
            "[2]",
        ),
        (
            r#"context.arguments has x && context.arguments.x has y && context.arguments.x.y == "z""#,
            r#"{"y":"z"}"#,
            r#"{"q":"z"}"#,
        ),
        (
            r#"context.arguments.x == resource.server"#,
            r#""s""#,
            r#""t""#,
        ),
        (
            r#"context.arguments == {x: "main"}"#,
            r#""main""#,
            r#""dev""#,
        ),
    ] {
        let both = both(condition);
        for (value, expected) in [(met, ["deny", "allow"]), (not_met, ["allow", "deny"])] {
            let arguments = format!(r#"{{"x":{value}}}"#);
            let outcomes = both.each_ref().map(|one| call(&**one, "s/t", &arguments));
            assert_eq!(outcomes, expected, "{condition} {value}");
        }
    }
    for never in [
        r#"context.arguments.x == User::"key#a""#,
        r#"["a", 1].contains(context.arguments.x)"#,
        r#"context.arguments.x == principal"#,
    ] {
        let source = format!("permit(principal, action, resource) when {{ {never} }};");
        assert!(
            problems(&source)
                .iter()
                .any(|one| one.contains("no type of arguments")),
            "{never}"
        );
    }
}

#[test]
fn numbers_are_compared_however_they_are_written() {
    let all = policies(
        r#"permit(principal, action, resource);
           forbid(principal, action == Action::"call", resource)
             when { context.arguments has amount && context.arguments.amount > 100 };"#,
    );
    let one = rights(&all, "a", &[]);
    for (amount, expected) in [
        ("100", "allow"),
        ("101", "deny"),
        ("1e3", "deny"),
        ("1.0e2", "allow"),
        ("100.5", "deny"),
        ("1e300", "deny"),
    ] {
        assert_eq!(
            call(&*one, "s/t", &format!(r#"{{"amount":{amount}}}"#)),
            expected,
            "{amount}"
        );
    }
}

#[test]
fn what_servers_say_of_tools_and_what_tokens_say_of_clients_can_be_asked() {
    let all = policies(
        r#"permit(principal, action == Action::"call", resource) when { resource has readOnlyHint && resource.readOnlyHint };
           permit(principal, action == Action::"call", resource)
             when { principal.hasTag("department") && principal.getTag("department").contains("it") };
           permit(principal, action == Action::"call", resource) when { principal.scopes.contains("admin") };
           permit(principal, action == Action::"call", resource) when { resource.tags.contains("open") };"#,
    );
    let reading = Json::literal(r#"{"name":"x","annotations":{"readOnlyHint":true}}"#);
    let other = Json::literal(r#"{"name":"x","annotations":{"readOnlyHint":false}}"#);
    let one = rights(&all, "a", &[]);
    assert!(one.shows(&tool("s/t", &reading)) && !one.shows(&tool("s/t", &other)));
    assert!(
        !one.shows(&item(PolicyKind::Tool, "s/t")),
        "without its definition it is not known to read only"
    );
    let mut of_it = identity("b", &[]);
    of_it.claims = Arc::new([("department".into(), Box::from(["it".into()]))].into());
    assert!(
        all.rights_of(&client_of(of_it, Endpoint::Default))
            .unwrap()
            .shows(&tool("s/t", &other))
    );
    let admin = Identity {
        scopes: Scopes::parse("admin"),
        ..identity("c", &[])
    };
    assert!(
        all.rights_of(&client_of(admin, Endpoint::Default))
            .unwrap()
            .shows(&tool("s/t", &other))
    );
}

#[test]
fn clients_share_rights_unless_a_policy_tells_them_apart() {
    let all = policies(
        r#"permit(principal in Group::"dev", action, resource);
           forbid(principal == User::"key#eve", action, resource);"#,
    );
    let number = |name: &str, groups: &[&str]| rights(&all, name, groups).number();
    assert_eq!(number("a", &["dev", "x"]), number("b", &["y", "dev"]));
    assert_ne!(number("a", &["dev"]), number("a", &[]));
    assert_ne!(number("eve", &["dev"]), number("a", &["dev"]));
    assert_eq!(call(&*rights(&all, "eve", &["dev"]), "s/t", "{}"), "hidden");
    let elsewhere = Identity {
        principal: Principal::new("https://idp", "eve"),
        ..identity("eve", &["dev"])
    };
    let elsewhere = all
        .rights_of(&client_of(elsewhere, Endpoint::Default))
        .unwrap();
    assert_eq!(
        call(&*elsewhere, "s/t", "{}"),
        "allow",
        "the same subject of another issuer is somebody else"
    );
}

#[test]
fn calls_that_are_to_be_asked_about_say_whom_and_what() {
    let all = policies(
        r#"permit(principal, action, resource);
           @ask("Really delete?") @by("other")
           permit(principal, action == Action::"call", resource) when { resource.name like "delete_*" };"#,
    );
    let one = rights(&all, "a", &[]);
    assert_eq!(call(&*one, "s/read", "{}"), "allow");
    assert_eq!(call(&*one, "s/delete_all", "{}"), "ask");
    let definition = plain();
    let verdict = one
        .decide(PolicyAction::Call, &tool("s/delete_all", &definition), None)
        .unwrap();
    let PolicyOutcome::Asked { by, text, .. } = verdict.outcome else {
        panic!("{verdict:?}")
    };
    assert_eq!((by, &*text), (ApprovedBy::Other, "Really delete?"));
    assert!(
        verdict.policies.iter().any(|id| &**id == "p.cedar:2"),
        "{:?}",
        verdict.policies
    );
}

#[test]
fn client_cannot_make_policies_remember_more_by_what_it_says_of_itself() {
    let mut source: String = (0..200)
        .map(|n| {
            format!(r#"forbid(principal, action, resource) when {{ resource.name == "no{n}" }};"#)
                + "\n"
        })
        .collect();
    source += r#"permit(principal, action, resource);
        forbid(principal, action, resource) when { context has clientName && context.clientName == "bad" };
        forbid(principal, action, resource) when { context has address && context.address.isInRange(ip("192.0.2.0/24")) };
        forbid(principal, action, resource) when { context.time < datetime("2020-01-01") };"#;
    let all = policies(&source);
    let rights_of = |name: &str, last: u8| {
        let info = Json::parse(
            format!(r#"{{"name":"{name}","version":"{last}"}}"#).into(),
            8,
        )
        .unwrap();
        let client = client_of(identity("a", &[]), Endpoint::Default);
        all.rights_of(&CallContext {
            client_info: Some(info),
            address: Some([192, 0, 2 + last, last].into()),
            ..client
        })
        .unwrap()
    };
    for last in 1..=100 {
        let rights = rights_of(&format!("n{last}"), last);
        assert_eq!(call(&*rights, "s/t", "{}"), "allow");
        assert_eq!(call(&*rights, "s/no7", "{}"), "hidden");
        assert!(!rights.is_lasting(), "lists are not kept by the number");
    }
    assert_eq!(all.remembered(), (1, 1), "clients and sets of rules");
    // A name in one request counts for no other request.
    assert_eq!(call(&*rights_of("bad", 1), "s/t", "{}"), "hidden");
    assert_eq!(call(&*rights_of("good", 0), "s/t", "{}"), "hidden");
    assert_eq!(call(&*rights_of("good", 1), "s/t", "{}"), "allow");
}

#[test]
fn client_that_hides_its_address_may_do_nothing_if_policies_read_addresses() {
    let rights_of = |policies: &Policies, address: [u8; 4]| {
        let client = client_of(identity("a", &[]), Endpoint::Default);
        let address = Some(address.into());
        let context = CallContext { address, ..client };
        policies.rights_of(&context).unwrap()
    };
    let blocked = policies(
        r#"permit(principal, action, resource);
        forbid(principal, action, resource) when { context has address && context.address == ip("192.0.2.7") };"#,
    );
    assert_eq!(
        call(&*rights_of(&blocked, [192, 0, 2, 8]), "s/t", "{}"),
        "allow"
    );
    for address in [[192, 0, 2, 7], [0; 4]] {
        assert_eq!(call(&*rights_of(&blocked, address), "s/t", "{}"), "hidden");
    }
    let other = policies("permit(principal, action, resource);");
    assert_eq!(call(&*rights_of(&other, [0; 4]), "s/t", "{}"), "allow");
}

#[test]
fn what_policies_remember_is_limited_in_bytes_and_shared_among_clients() {
    let source: String = (0..50)
        .map(|n| {
            format!(
                r#"permit(principal == User::"key#u{n}", action, resource in Server::"s{n}");
                   permit(principal in Group::"g{n}", action, resource);"#
            ) + "\n"
        })
        .collect();
    let all = Policies::with_memory(settings(&source), 1 << 20).unwrap();
    for user in 0..2000 {
        let group = format!("g{}", user % 50);
        let rights = rights(&all, &format!("u{user}"), &[&group, &format!("x{user}")]);
        assert_eq!(call(&*rights, "s/t", "{}"), "allow");
    }
    let (clients, sets) = all.remembered();
    assert!(clients <= 130 && sets <= 100, "{clients} {sets}");
    let long: Vec<String> = (0..1000)
        .map(|n| format!("{n}{}", "x".repeat(200)))
        .collect();
    let texts =
        policies(r#"permit(principal, action, resource) when { principal.subject == "a" };"#);
    for name in &long {
        assert_eq!(call(&*rights(&texts, name, &[]), "s/t", "{}"), "hidden");
    }
    assert_eq!(texts.remembered().1, 1, "one set of rules for all");
    let small = r#"permit(principal, action, resource) when { principal.subject == "a" };"#;
    let texts = Policies::with_memory(settings(small), 400 << 10).unwrap();
    long.iter().for_each(|name| drop(rights(&texts, name, &[])));
    assert!(texts.remembered().0 < 100, "{:?}", texts.remembered());
}

#[test]
fn name_of_a_client_that_is_longer_than_any_is_none() {
    let all = policies(
        r#"permit(principal, action, resource) when { context has clientName && context.clientName like "x*" };"#,
    );
    let rights_of = |name: &str| {
        let info = Json::parse(format!(r#"{{"name":"{name}"}}"#).into(), 8).unwrap();
        let client = client_of(identity("a", &[]), Endpoint::Default);
        all.rights_of(&CallContext {
            client_info: Some(info),
            ..client
        })
        .unwrap()
    };
    assert_eq!(call(&*rights_of(&"x".repeat(256)), "s/t", "{}"), "allow");
    assert_eq!(call(&*rights_of(&"x".repeat(257)), "s/t", "{}"), "hidden");
    // So that nothing is kept for each of them.
    assert_eq!(
        rights_of(&"x".repeat(257)).number(),
        rights_of(&"y".repeat(999)).number()
    );
}

#[test]
fn strictest_of_all_policies_that_ask_counts() {
    let ask = |text: &str, by: &str| {
        format!(
            r#"@ask("{text}") @by("{by}") permit(principal, action == Action::"call", resource);"#
        )
    };
    let by = |texts: &[String]| {
        let all = policies(&texts.join("\n"));
        let definition = plain();
        let verdict = rights(&all, "a", &[])
            .decide(PolicyAction::Call, &tool("s/t", &definition), None)
            .unwrap();
        let PolicyOutcome::Asked { by, text, .. } = verdict.outcome else {
            panic!("{verdict:?}")
        };
        let in_order: Vec<_> = (1..=texts.len())
            .map(|at| format!("p.cedar:{at}"))
            .collect();
        assert_eq!(
            verdict.policies.iter().map(|id| &**id).collect::<Vec<_>>(),
            in_order
        );
        (by, text.to_string())
    };
    let [caller, operator, first, second] = [
        ("1", "caller"),
        ("2", "operator"),
        ("3", "other"),
        ("4", "other"),
    ]
    .map(|(text, by)| ask(text, by));
    let strict = (ApprovedBy::Other, "3".to_owned());
    assert_eq!(
        by(&[
            caller.clone(),
            first.clone(),
            operator.clone(),
            second.clone()
        ]),
        strict
    );
    assert_eq!(
        by(&[first, second, operator.clone(), caller.clone()]),
        strict
    );
    assert_eq!(
        by(&[caller, operator]),
        (ApprovedBy::Approver, "2".to_owned())
    );
}

#[test]
fn endpoints_and_lists_can_be_forbidden() {
    let all = policies(
        r#"permit(principal, action, resource);
           forbid(principal, action, resource in Endpoint::"/mcp/ops") unless { principal in Group::"ops" };
           forbid(principal, action == Action::"list", resource == Tool::"s/quiet");"#,
    );
    let at = |path: &str, groups: &[&str]| {
        all.rights_of(&client_of(identity("a", groups), Endpoint::from_path(path)))
            .unwrap()
    };
    assert_eq!(call(&*at("/mcp/ops", &[]), "s/t", "{}"), "hidden");
    assert_eq!(call(&*at("/mcp/ops", &["ops"]), "s/t", "{}"), "allow");
    assert_eq!(call(&*at("/mcp", &[]), "s/t", "{}"), "allow");
    assert_eq!(
        call(&*at("/mcp", &[]), "s/quiet", "{}"),
        "hidden",
        "what is not listed cannot be called"
    );
}

#[test]
fn allow_lists_mean_policies() {
    let allow = |about: Allowed, who: Who| Allowance {
        place: format!("{about:?}"),
        about,
        who: vec![who],
    };
    let settings = PolicySettings {
        permits_by_default: true,
        allowances: vec![
            allow(Allowed::Server("git".into()), Who::Group("dev".into())),
            allow(
                Allowed::Tools {
                    server: "git".into(),
                    pattern: "push*".into(),
                },
                Who::User("key#ann".into()),
            ),
        ],
        ..settings("")
    };
    let all = Policies::new(settings).unwrap();
    assert_eq!(
        call(&*rights(&all, "bob", &["dev"]), "git/log", "{}"),
        "allow"
    );
    assert_eq!(call(&*rights(&all, "bob", &[]), "git/log", "{}"), "hidden");
    assert_eq!(
        call(&*rights(&all, "bob", &["dev"]), "git/push", "{}"),
        "hidden"
    );
    assert_eq!(
        call(&*rights(&all, "ann", &["dev"]), "git/push_all", "{}"),
        "allow"
    );
    assert_eq!(
        call(&*rights(&all, "bob", &[]), "files/read", "{}"),
        "allow"
    );
}

#[test]
fn wrong_policies_are_named_by_file_and_line() {
    for (source, expected) in [
        (
            "permit(principal, action, resource);\n\npermit(principal, acton, resource);",
            "p.cedar:3: ",
        ),
        (
            "permit(principal, action, resource) when { resource.nam == \"x\" };",
            "p.cedar:1: ",
        ),
        (
            "// a ; comment\npermit(principal, action == Action::\"cal\", resource);",
            "p.cedar:2: ",
        ),
        (
            "permit(principal == ?principal, action, resource);",
            "p.cedar:1: this is a template that no link uses",
        ),
        (
            "permit(principal == ?principl, action, resource);",
            "p.cedar:1: ",
        ),
        (
            "@ask(\"x\") permit(principal, action, resource);",
            "only calls can wait",
        ),
        (
            "@ask(\"x\") @by(\"me\") permit(principal, action == Action::\"call\", resource);",
            "none of",
        ),
        (
            "@id(\"a\") permit(principal, action, resource);\n@id(\"a\") permit(principal, action, resource);",
            "p.cedar:2: the id",
        ),
        (
            "permit(principal, action, resource) when { context.arguments.x == 1 && principal.nme == \"x\" };",
            "nme",
        ),
        ("permit(principal, action, resource", "p.cedar:1: "),
    ] {
        let found = problems(source);
        assert!(
            found.len() == 1 && found.iter().any(|one| one.contains(expected)),
            "{source}: {found:?}"
        );
    }
    assert!(
        problems("permit(principal, action, resource) when { context.arguments.x == 1 || context.arguments has y };")
            .is_empty()
    );
}

#[test]
fn policies_in_one_line_have_ids_of_their_own() {
    let source = "permit(principal, action, resource); forbid(principal, action, resource == Tool::\"a/b\"); forbid(principal, action, resource == Tool::\"a/c\");";
    assert_eq!(problems(source), Vec::<String>::new());
    let policies = policies(source);
    let rights = rights(&policies, "bob", &[]);
    let decided = ["a/a", "a/b", "a/c"].map(|name| call(&*rights, name, "{}"));
    assert_eq!(
        decided.map(|outcome| outcome == "allow"),
        [true, false, false]
    );
}

#[test]
fn policies_are_told_apart_in_comments_and_texts() {
    let source = "// one; two\npermit(principal, action, resource) when { \"a;\\\"b\" == \"}\" };;\n\nforbid(principal, action, resource)";
    let found: Vec<_> = source::policies(source)
        .into_iter()
        .map(|range| source::line(source, range.start))
        .collect();
    assert_eq!(found, [2, 4]);
}

#[test]
fn server_of_which_a_client_may_use_nothing_is_not_reached() {
    let reached = |source: &str, groups: &[&str]| {
        let policies = policies(source);
        let rights = rights(&policies, "ann", groups);
        ["git", "files"].map(|server| rights.reaches(server))
    };
    let dev = &["dev"];
    for (source, of_dev, of_others) in [
        (
            r#"permit(principal in Group::"dev", action, resource);"#,
            [true, true],
            [false, false],
        ),
        (
            r#"permit(principal in Group::"dev", action, resource in Server::"git");"#,
            [true, false],
            [false, false],
        ),
        (
            r#"permit(principal, action, resource == Tool::"git/push");"#,
            [true, false],
            [true, false],
        ),
        (
            r#"permit(principal, action, resource == Tool::"git");"#,
            [false, false],
            [false, false],
        ),
        (
            r#"permit(principal, action, resource) when { resource in Server::"git" };"#,
            [true, false],
            [true, false],
        ),
        (
            r#"permit(principal, action, resource) when { resource.server == "git" };"#,
            [true, false],
            [true, false],
        ),
        // If only the server is known, the item's name is unknown.
        (
            r#"permit(principal, action, resource) when { resource.name like "r*" };"#,
            [true, true],
            [true, true],
        ),
        (
            r#"permit(principal, action, resource);
            forbid(principal, action, resource) when { resource.name like "*" };"#,
            [true, true],
            [true, true],
        ),
        (
            r#"permit(principal, action, resource);
            forbid(principal, action, resource in Server::"git") unless { principal in Group::"dev" };"#,
            [true, true],
            [false, true],
        ),
        (
            r#"permit(principal, action, resource);
            forbid(principal, action, resource == Tool::"git/push");"#,
            [true, true],
            [true, true],
        ),
        // Prompts and resources remain.
        (
            r#"permit(principal, action, resource);
            forbid(principal, action == Action::"call", resource in Server::"git");"#,
            [true, true],
            [true, true],
        ),
        (
            r#"permit(principal, action, resource);
            forbid(principal, action == Action::"list", resource in Server::"git");"#,
            [false, true],
            [false, true],
        ),
        (
            r#"permit(principal, action == Action::"call", resource is Tool) when { context.arguments has path };"#,
            [true, true],
            [true, true],
        ),
    ] {
        assert_eq!(
            (reached(source, dev), reached(source, &[])),
            (of_dev, of_others),
            "{source}"
        );
    }
}

const TEMPLATES: &str = r#"
    @id("works") permit(principal in ?principal, action, resource in ?resource);
    @id("reads") permit(principal in ?principal, action == Action::"call", resource)
      when { context.arguments has path && context.arguments.path like "/data/*" };
    @id("never") forbid(principal, action, resource == ?resource);"#;
const LINKS: &str = r#"
    [{"template_id": "works", "link_id": "dev git", "args": {"?principal": "Group::\"dev\"", "?resource": "Server::\"git\""}},
     {"template_id": "works", "link_id": "ops all", "args": {"?principal": "Group::\"ops\"", "?resource": "Endpoint::\"/mcp\""}},
     {"template_id": "reads", "link_id": "reading", "args": {"?principal": "Group::\"dev\""}},
     {"template_id": "never", "link_id": "no push", "args": {"?resource": "Tool::\"git/push\""}}]"#;

fn linked(templates: &str, links: &str) -> Result<Policies, Vec<InvalidPolicy>> {
    let texts = vec![
        text(templates),
        PolicyText {
            name: "l.json".into(),
            text: links.to_owned(),
        },
    ];
    Policies::new(PolicySettings {
        texts,
        ..settings("")
    })
}

#[test]
fn policies_are_made_of_templates_by_links() {
    let all = linked(TEMPLATES, LINKS).unwrap();
    let (dev, ops) = (rights(&all, "a", &["dev"]), rights(&all, "b", &["ops"]));
    for (rights, name, arguments, expected) in [
        (&dev, "git/log", "{}", "allow"),
        (&dev, "git/push", "{}", "hidden"),
        (&ops, "git/push", "{}", "hidden"),
        (&ops, "files/read", "{}", "allow"),
        (&dev, "files/read", r#"{"path":"/data/x"}"#, "allow"),
        (&dev, "files/read", r#"{"path":"/etc/x"}"#, "deny"),
        (&dev, "files/read", "{}", "deny"),
    ] {
        assert_eq!(
            call(&**rights, name, arguments),
            expected,
            "{name} {arguments}"
        );
    }
    let shown = all
        .written_rules()
        .find(|rule| rule.id == "dev git")
        .expect("it is named by its link")
        .text;
    assert!(
        shown.contains(r#"Group::"dev""#) && !shown.contains('?'),
        "{shown}"
    );
}

#[test]
fn wrong_links_are_named_by_file_and_line() {
    let templates = r#"@id("t") permit(principal == ?principal, action, resource);"#;
    let one =
        |args: &str| format!("[\n{{\"template_id\":\"t\",\"link_id\":\"l\",\"args\":{{{args}}}}}]");
    for (links, expected) in [
        (one(""), "l.json:2: "),
        (one(r#""?principal":"Usr::\"a\"""#), "l.json:2: "),
        (one(r#""?principal":"Group""#), "l.json:2: ?principal: "),
        (
            one(r#""?who":"User::\"a\"""#),
            "l.json:2: \"?who\" is neither",
        ),
        (
            "[\n\n{\"template_id\":\"x\",\"link_id\":\"l\"}]".to_owned(),
            "l.json:3: no file",
        ),
        ("{}".to_owned(), "l.json:1: a file of links is a list"),
        ("[{\"link_id\":\"l\"}]".to_owned(), "l.json:1: a link needs"),
        (
            "[{\"templateId\":\"t\"}]".to_owned(),
            "l.json:1: a link has no",
        ),
        ("[".to_owned(), "l.json:1: "),
    ] {
        let wrong = linked(templates, &links).err().unwrap_or_default();
        assert!(
            wrong
                .iter()
                .any(|one| one.to_string().starts_with(expected)),
            "{links}: {wrong:?}"
        );
    }
    let twice = format!(
        "[{0},{0}]",
        r#"{"template_id":"t","link_id":"l","args":{"?principal":"User::\"key#a\""}}"#
    );
    assert!(
        linked(templates, &twice).unwrap_err()[0]
            .to_string()
            .contains("also that of"),
        "ids are their own"
    );
    assert!(
        linked(
            templates,
            &twice.replacen(r#""link_id":"l""#, r#""link_id":"m""#, 1)
        )
        .is_ok()
    );
}

#[test]
fn signing_in_is_an_action_on_a_server() {
    let all = policies(
        r#"permit(principal in Group::"dev", action, resource in Server::"git");
           permit(principal in Group::"ops", action == Action::"signIn", resource) when { resource.server == "crm" };
           permit(principal in Group::"ops", action == Action::"call", resource);
           forbid(principal == User::"key#eve", action == Action::"signIn", resource in Endpoint::"/mcp");
           forbid(principal, action == Action::"list", resource);"#,
    );
    let may = |name: &str, groups: &[&str], server: &str| {
        let verdict = rights(&all, name, groups).decide(
            PolicyAction::SignIn,
            &PolicyItem::from_server(server),
            None,
        );
        let shown = rights(&all, name, groups).shows(&PolicyItem::from_server(server));
        assert_eq!(
            verdict.as_ref().unwrap().outcome == PolicyOutcome::Allowed,
            shown,
            "a server is in no list"
        );
        shown
    };
    assert!(may("a", &["dev"], "git") && !may("a", &["dev"], "crm"));
    assert!(
        may("b", &["ops"], "crm") && !may("b", &["ops"], "git"),
        "a permit to call is none to sign in"
    );
    assert!(!may("eve", &["dev"], "git") && !may("c", &[], "git"));
}

#[test]
fn client_may_do_everything_at_a_server_only_if_no_item_or_call_can_differ() {
    const ALL: &str = "permit(principal, action, resource);";
    for (source, expected) in [
        (ALL.to_owned(), true),
        (String::new(), false),
        (
            r#"permit(principal in Group::"dev", action, resource) when { principal.scopes.contains("mcp:read") };"#.to_owned(),
            true,
        ),
        (r#"permit(principal, action, resource in Server::"git");"#.to_owned(), true),
        (r#"permit(principal, action, resource in Server::"crm");"#.to_owned(), false),
        (r#"permit(principal, action, resource) when { resource.tags.contains("x") };"#.to_owned(), false),
        (r#"permit(principal, action, resource is Tool);"#.to_owned(), false),
        (r#"permit(principal, action, resource) unless { resource.name like "x*" };"#.to_owned(), false),
        (r#"permit(principal, action == Action::"call", resource);"#.to_owned(), false),
        (format!(r#"{ALL} forbid(principal, action, resource == Tool::"git/push");"#), false),
        (format!(r#"{ALL} forbid(principal, action, resource == Tool::"crm/push");"#), true),
        (format!(r#"{ALL} forbid(principal in Group::"ops", action, resource);"#), true),
        (format!(r#"{ALL} forbid(principal, action, resource) when {{ action == Action::"get" }};"#), false),
        (format!(r#"{ALL} forbid(principal, action == Action::"list", resource is Prompt);"#), false),
        (format!(r#"{ALL} forbid(principal, action == Action::"signIn", resource);"#), false),
        (format!(r#"{ALL} forbid(principal, action, resource) when {{ context has address && context.address.isLoopback() }};"#), false),
        (format!(r#"{ALL} forbid(principal, action == Action::"call", resource) when {{ context.arguments has path }};"#), false),
        (format!(r#"{ALL} forbid(principal, action, resource == Tool::"git/push") unless {{ principal in Group::"dev" }};"#), true),
        (format!(r#"{ALL} forbid(principal, action, resource) when {{ resource.name like "x*" }} unless {{ principal in Group::"ops" }};"#), false),
        (format!(r#"{ALL} @ask("?") permit(principal, action == Action::"call", resource == Tool::"git/push") unless {{ principal in Group::"dev" }};"#), true),
        (format!(r#"{ALL} @ask("?") permit(principal, action == Action::"call", resource == Tool::"git/push");"#), false),
    ] {
        let all = policies(&source);
        let rights = rights(&all, "a", &["dev"]);
        assert_eq!(rights.is_whole("git"), expected, "{source}");
        let may_send = rights.judge_sending("git", "acme/do").outcome == PolicyOutcome::Allowed;
        assert_eq!(may_send, expected, "{source}");
    }
}
