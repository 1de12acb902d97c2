//! The effect of policies through the gateway: listed entries can be used, and hidden ones cannot.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    AuditFacts, Call, CallContext, Caller, Identity, Interest, Policy as _, PolicyItem, PolicyKind,
    Principal, Source,
};
use fanlight_policy::{Policies, PolicySettings, PolicyText};
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Json, Method};
use proptest::prelude::*;
use tokio::time::Instant;

use super::fake::*;
use crate::NamingPolicy;

const TOOLS: &str = r#""result":{"tools":[{"name":"read","annotations":{"readOnlyHint":true}},{"name":"write","annotations":{"destructiveHint":true}},{"name":"other"}]}"#;
const PROMPTS: &str = r#""result":{"prompts":[{"name":"one"},{"name":"two"}]}"#;
const RESOURCES: &str =
    r#""result":{"resources":[{"uri":"file:///x/1","name":"1"},{"uri":"file:///y/2","name":"2"}]}"#;
const SCRIPTS: [(&str, &str); 6] = [
    ("tools/list", TOOLS),
    ("prompts/list", PROMPTS),
    ("resources/list", RESOURCES),
    ("tools/call", r#""result":{"content":[]}"#),
    ("prompts/get", r#""result":{"messages":[]}"#),
    ("resources/read", r#""result":{"contents":[]}"#),
];

/// Parts of policies: principals, actions, resources and conditions.
const WHO: [&str; 4] = [
    "principal",
    r#"principal in Group::"dev""#,
    r#"principal in Group::"ops""#,
    r#"principal == User::"key#ann""#,
];
const ACTIONS: [&str; 5] = [
    "action",
    r#"action == Action::"call""#,
    r#"action == Action::"get""#,
    r#"action == Action::"read""#,
    r#"action == Action::"list""#,
];
const WHAT: [&str; 6] = [
    "resource",
    r#"resource in Server::"a""#,
    r#"resource in Server::"b""#,
    r#"resource == Tool::"a/write""#,
    r#"resource == Prompt::"b/two""#,
    r#"resource == Resource::"a/file:///y/2""#,
];
const WHEN: [&str; 5] = [
    "",
    r#" when { resource.name like "r*" }"#,
    r#" when { resource has readOnlyHint && resource.readOnlyHint }"#,
    r#" unless { principal in Group::"ops" }"#,
    r#" when { resource.server == "b" }"#,
];

fn policy() -> impl Strategy<Value = String> {
    let one = |all: &'static [&'static str]| prop::sample::select(all);
    // Without any action, all conditions fit all kinds.
    (
        any::<bool>(),
        one(&WHO),
        one(&ACTIONS),
        one(&WHAT),
        one(&WHEN),
    )
        .prop_map(|(permits, who, action, what, when)| {
            let effect = if permits { "permit" } else { "forbid" };
            format!("{effect}({who}, {action}, {what}){when};")
        })
}

fn client(name: &str, groups: &[&str]) -> Arc<CallContext> {
    let principal = Principal::new("fanlight:key", name);
    let groups = groups.iter().map(|group| Arc::from(*group)).collect();
    let identity = Identity {
        principal: principal.clone(),
        source: Source::Key,
        groups,
        ..Identity::anonymous()
    };
    let caller = Caller::request_of(principal).with_identity(Arc::new(identity));
    Arc::new(CallContext {
        caller,
        ..(*CallContext::internal()).clone()
    })
}

async fn ask(
    scene: &Scene,
    context: &Arc<CallContext>,
    method: &str,
    params: Option<&str>,
) -> Json {
    let call = Call {
        context: Arc::clone(context),
        ..call(method, params)
    };
    scene.gateway.handle(call).await.body()
}

/// The availability of an item to a client.
#[derive(Debug)]
struct Found {
    what: String,
    is_listed: bool,
    is_usable: bool,
    /// Whether the policy itself shows it.
    is_shown: bool,
}

/// For each existing item, whether the client sees it listed and can use it.
async fn listed_and_usable(
    scene: &Scene,
    policies: &Policies,
    context: &Arc<CallContext>,
) -> Vec<Found> {
    let kinds = [
        (
            PolicyKind::Tool,
            "tools/list",
            "tools",
            "name",
            "tools/call",
            &["read", "write", "other"][..],
        ),
        (
            PolicyKind::Prompt,
            "prompts/list",
            "prompts",
            "name",
            "prompts/get",
            &["one", "two"][..],
        ),
        (
            PolicyKind::Resource,
            "resources/list",
            "resources",
            "uri",
            "resources/read",
            &["file:///x/1", "file:///y/2"][..],
        ),
    ];
    let rights = policies.rights_of(context).unwrap();
    let tools = Json::literal(TOOLS.strip_prefix(r#""result":"#).unwrap());
    let tools = tools.get("tools").unwrap();
    let definitions: Vec<_> = tools.items().collect();
    let mut found = Vec::new();
    for (kind, list, member, key, used, items) in kinds {
        let listed = ask(scene, context, list, None).await;
        let entries = listed.get(member).unwrap_or_else(Json::null);
        let keys: Vec<String> = entries
            .elements()
            .map(|place| {
                entries
                    .slice(place)
                    .get(key)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .into_owned()
            })
            .collect();
        for server in ["a", "b"] {
            for item in items {
                let shown = match (key, server) {
                    ("name", _) => format!("{server}__{item}"),
                    (_, "a") => (*item).to_owned(),
                    // The first server has the URI itself.
                    _ => item.replace("file://", "file://fanlight--b/"),
                };
                let params = format!(r#"{{"{key}":"{shown}","arguments":{{}}}}"#);
                let answer = ask(scene, context, used, Some(&params)).await;
                let definition = definitions
                    .iter()
                    .find(|tool| tool.get("name").unwrap().as_str().unwrap() == *item);
                let is_shown = rights.shows(&PolicyItem {
                    kind,
                    server,
                    name: (*item).into(),
                    definition,
                });
                let (is_listed, is_usable) = (keys.contains(&shown), answer.get("code").is_none());
                found.push(Found {
                    what: format!("{used} {shown}"),
                    is_listed,
                    is_usable,
                    is_shown,
                });
            }
        }
    }
    found
}

async fn scene_under(policies: &[String]) -> Option<(Scene, Arc<Policies>)> {
    let texts = vec![PolicyText {
        name: "p".into(),
        text: policies.join("\n"),
    }];
    let settings = PolicySettings {
        texts,
        ..PolicySettings::default()
    };
    // Some conditions fit no kind of resource that their scope allows.
    let policies = Arc::new(Policies::new(settings).ok()?);
    let scene = scene(vec![fake("a", &SCRIPTS), fake("b", &SCRIPTS)]);
    let entries = scene
        .ids
        .iter()
        .zip(&scene.backends)
        .map(|(id, fake)| entry(*id, fake, None));
    let (naming, policy) = (
        NamingPolicy::default(),
        Some(Arc::clone(&policies) as Arc<_>),
    );
    scene
        .gateway
        .replace(
            entries.collect(),
            &naming,
            limits(1000),
            no_endpoints(),
            policy,
        )
        .await;
    Some((scene, policies))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn listed_items_are_usable_and_usable_items_are_listed(policies in prop::collection::vec(policy(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let Some((scene, compiled)) = scene_under(&policies).await else { return Ok(()) };
            for context in [client("ann", &["dev"]), client("bob", &["ops"]), client("eve", &[])] {
                let found = listed_and_usable(&scene, &compiled, &context).await;
                // The other server may have the same URI, which lists show as an alias.
                let others: Vec<_> = found
                    .iter()
                    .filter(|found| found.is_usable)
                    .map(|found| found.what.replace("fanlight--b/", ""))
                    .collect();
                for Found { what, is_listed, is_usable, is_shown } in found {
                    if what.contains("file:") && !is_shown && others.iter().filter(|it| **it == what).count() > 1 {
                        continue;
                    }
                    prop_assert_eq!(is_listed, is_usable, "{} under {:?}", what, policies);
                    prop_assert_eq!(is_listed, is_shown, "{} under {:?}", what, policies);
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn rights_of_one_client_are_not_those_of_the_next() {
    let policies = [r#"permit(principal in Group::"dev", action, resource);"#.to_owned()];
    let (scene, policies) = scene_under(&policies).await.unwrap();
    for _ in 0..2 {
        let of_ann = listed_and_usable(&scene, &policies, &client("ann", &["dev"])).await;
        let of_eve = listed_and_usable(&scene, &policies, &client("eve", &[])).await;
        assert!(
            of_ann
                .iter()
                .all(|found| found.is_listed && found.is_usable),
            "{of_ann:?}"
        );
        assert!(
            of_eve
                .iter()
                .all(|found| !found.is_listed && !found.is_usable),
            "{of_eve:?}"
        );
    }
}

/// Links tell a client nothing about servers and resources that it may not use.
#[tokio::test]
async fn links_are_the_same_whatever_hidden_servers_have() {
    let policies = [
        r#"permit(principal in Group::"dev", action, resource);"#,
        r#"permit(principal == User::"key#bob", action, resource in Server::"b");"#,
        r#"permit(principal == User::"key#eve", action, resource in Server::"b");"#,
        r#"permit(principal == User::"key#eve", action, resource == Resource::"a/x:other");"#,
    ]
    .map(str::to_owned);
    const LINKS: &str = r#""result":{"content":[{"type":"resource_link","uri":"file:///x/1"},{"type":"resource_link","uri":"x:none"},{"type":"resource_link","uri":"x:fanlight--a/z"}]}"#;
    let (scene, _) = scene_under(&policies).await.unwrap();
    scene.backends[1].answer("tools/call", LINKS);
    let links = async |name: &str, groups: &[&str]| {
        let params = Some(r#"{"name":"b__read","arguments":{}}"#);
        let answer = ask(&scene, &client(name, groups), "tools/call", params).await;
        format!("\"result\":{}", answer.as_text())
    };
    // Eve may use something of the other server, so its aliases are not hidden from her.
    let of_alias = ["x:fanlight--a/z", "x:fanlight--b/fanlight--a/z"];
    for (name, shown) in [("bob", of_alias[0]), ("eve", of_alias[1])] {
        let expected = LINKS.replace(of_alias[0], shown);
        assert_eq!(links(name, &[]).await, expected, "{name}");
        for uri in ["file:///x/1", "x:none"] {
            let params = format!(r#"{{"uri":"{uri}"}}"#);
            scene.forget();
            ask(&scene, &client(name, &[]), "resources/read", Some(&params)).await;
            let received = scene.received(1);
            assert_eq!(received, [format!("resources/read {params}")], "{name}");
        }
    }
    assert!(
        links("ann", &["dev"])
            .await
            .contains("file://fanlight--b//x/1")
    );
}

/// A server with unlisted resources and a method that Fanlight does not know.
const UNLISTED: [(&str, &str); 8] = [
    (
        "tools/list",
        r#""result":{"tools":[{"name":"t"}],"nextCursor":"c"}"#,
    ),
    ("tools/call", r#""result":{"content":[]}"#),
    ("resources/list", r#""result":{"resources":[]}"#),
    ("resources/read", r#""result":{"contents":[]}"#),
    ("resources/subscribe", r#""result":{}"#),
    (
        "skills/get",
        r#""error":{"code":-32002,"message":"no such skill"}"#,
    ),
    ("resources/directory/read", r#""result":{"resources":[]}"#),
    ("acme/do", r#""result":{"done":true}"#),
];

/// A gateway before one or two servers with [`UNLISTED`], under a policy if one is given.
async fn unlisted_under(policy: Option<&str>, servers: &[&'static str]) -> Scene {
    const DESCRIPTION: &str = r#"{"capabilities":{"tools":{},"resources":{"subscribe":true},"extensions":{"x/acme":{},"io.modelcontextprotocol/skills":{"directoryRead":true}}},"serverInfo":{"name":"x"}}"#;
    let all = servers.iter().map(|name| {
        let fake = fake(name, &UNLISTED);
        fake.describe_as(Ok(DESCRIPTION));
        fake
    });
    let scene = scene(all.collect());
    if let Some(text) = policy {
        set_policy(&scene, text).await;
    }
    scene
}

async fn set_policy(scene: &Scene, text: &str) {
    let texts = vec![PolicyText {
        name: "p".into(),
        text: text.to_owned(),
    }];
    let policies = Policies::new(PolicySettings {
        texts,
        ..PolicySettings::default()
    });
    let entries = scene
        .ids
        .iter()
        .zip(&scene.backends)
        .map(|(id, fake)| entry(*id, fake, None));
    let (naming, endpoints) = (NamingPolicy::default(), no_endpoints());
    scene
        .gateway
        .replace(
            entries.collect(),
            &naming,
            limits(1000),
            endpoints,
            Some(Arc::new(policies.unwrap())),
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_server_that_a_client_may_not_use_are_not_told() {
    let scene = scene(vec![
        announcing(
            "a",
            &[("tools/list", r#""result":{"tools":[{"name":"1"}]}"#)],
        ),
        announcing(
            "b",
            &[("tools/list", r#""result":{"tools":[{"name":"1"}]}"#)],
        ),
    ]);
    set_policy(
        &scene,
        r#"permit(principal, action, resource in Server::"b");"#,
    )
    .await;
    let interest = Interest {
        lists: Lists::ALL,
        ..Interest::default()
    };
    let caller =
        Caller::request_of(Principal::anonymous()).with_identity(Arc::new(Identity::anonymous()));
    let mut client = scene.listen_as(caller, interest).await;
    scene.ask("tools/list", None).await;
    rest().await;
    client.received();
    for (server, told) in [(0, 0), (1, 1)] {
        let backend = &scene.backends[server];
        backend.answer("tools/list", r#""result":{"tools":[{"name":"2"}]}"#);
        backend.announce(Method::ToolsChanged, None);
        rest().await;
        assert_eq!(client.received().len(), told, "server {server}");
    }
}

const REQUESTS: [(&str, Option<&str>); 9] = [
    ("tools/list", None),
    ("tools/call", Some(r#"{"name":"unlisted","arguments":{}}"#)),
    ("resources/read", Some(r#"{"uri":"file:///made/1"}"#)),
    (
        "resources/read",
        Some(r#"{"uri":"FILE://made/%41/../1#x"}"#),
    ),
    ("resources/subscribe", Some(r#"{"uri":"file:///made/1"}"#)),
    ("skills/get", Some(r#"{"uri":"skill://none/SKILL.md"}"#)),
    ("resources/directory/read", Some(r#"{"uri":"skill://a"}"#)),
    ("acme/do", Some(r#"{"with":"t"}"#)),
    ("server/discover", None),
];

#[tokio::test]
async fn policy_that_permits_everything_changes_nothing() {
    let ann = client("ann", &["dev"]);
    for servers in [&["a"][..], &["a", "b"]] {
        for policy in [
            "permit(principal, action, resource);",
            r#"permit(principal in Group::"dev", action, resource) unless { principal.name == "eve" };"#,
            r#"permit(principal, action, resource) when { resource in [Server::"a", Server::"b"] };
               forbid(principal in Group::"ops", action, resource);"#,
        ] {
            let without = unlisted_under(None, servers).await;
            let under = unlisted_under(Some(policy), servers).await;
            for (method, params) in REQUESTS {
                assert_eq!(
                    ask(&under, &ann, method, params).await,
                    ask(&without, &ann, method, params).await,
                    "{method} {params:?} under {policy}"
                );
            }
            for backend in 0..servers.len() {
                let (under, without) = (under.received(backend), without.received(backend));
                assert_eq!(under, without, "under {policy}");
            }
        }
    }
}

#[tokio::test]
async fn answers_under_a_policy_are_for_their_client_alone() {
    let hints = r#""ttlMs":9,"cacheScope":"public""#;
    for servers in [&["a"][..], &["a", "b"]] {
        for (policy, scope) in [
            (None, "public"),
            (Some("permit(principal, action, resource);"), "private"),
        ] {
            let scene = unlisted_under(policy, servers).await;
            for backend in &scene.backends {
                backend.answer(
                    "tools/list",
                    r#""result":{"tools":[],"ttlMs":9,"cacheScope":"public"}"#,
                );
                backend.answer(
                    "resources/read",
                    r#""result":{"contents":[],"ttlMs":9,"cacheScope":"public"}"#,
                );
            }
            for (method, params) in [
                ("tools/list", None),
                ("resources/read", Some(r#"{"uri":"file:///made/1"}"#)),
            ] {
                let answer = ask(&scene, &client("ann", &[]), method, params).await;
                assert!(
                    answer.as_text().contains(&hints.replace("public", scope)),
                    "{answer}"
                );
            }
        }
    }
}

#[tokio::test]
async fn unlisted_resource_is_read_where_the_policy_permits_it() {
    const POLICY: &str = r#"permit(principal, action in [Action::"read", Action::"getSkill", Action::"subscribe"], resource);
        forbid(principal, action, resource in Server::"a") when { resource.name like "file:///secret/*" };
        forbid(principal, action == Action::"subscribe", resource in Server::"b");"#;
    let ann = client("ann", &[]);
    let one = unlisted_under(Some(POLICY), &["a"]).await;
    let two = unlisted_under(Some(POLICY), &["a", "b"]).await;
    let read = async |scene: &Scene, method: &str, uri: &str| {
        scene.forget();
        let answer = ask(scene, &ann, method, Some(&format!(r#"{{"uri":"{uri}"}}"#))).await;
        let asked: Vec<_> = (0..scene.backends.len())
            .map(|at| {
                scene
                    .received(at)
                    .iter()
                    .any(|request| request.starts_with(method))
            })
            .collect();
        (answer.get("code").and_then(|code| code.as_i64()), asked)
    };
    for method in ["resources/read", "resources/directory/read"] {
        assert_eq!(
            read(&one, method, "file:///made/1").await,
            (None, vec![true])
        );
        for hidden in ["file:///secret/1", "file:///made/%2e%2e/secret/1"] {
            let (code, asked) = read(&one, method, hidden).await;
            assert!(code.is_some() && asked == [false], "{method} {hidden}");
        }
        assert_eq!(
            read(&two, method, "file:///secret/1").await,
            (None, vec![false, true]),
            "only the other server may be asked"
        );
    }
    assert_eq!(
        read(&one, "skills/get", "skill://none").await,
        (Some(-32002), vec![true]),
        "the server's own error"
    );
    assert_eq!(
        read(&two, "resources/subscribe", "file:///made/1").await,
        (None, vec![true, false])
    );
    assert_eq!(
        read(&two, "resources/subscribe", "file:///secret/1").await,
        (Some(-32002), vec![false, false])
    );
}

#[tokio::test]
async fn unknown_method_reaches_servers_where_the_policy_permits_everything_or_names_it() {
    let ann = client("ann", &["dev"]);
    for (policy, servers, passes) in [
        ("permit(principal, action, resource);", &["a"][..], true),
        (
            r#"permit(principal, action == Action::"call", resource);"#,
            &["a"],
            false,
        ),
        (
            r#"permit(principal, action, resource); forbid(principal, action, resource == Tool::"a/t");"#,
            &["a"],
            false,
        ),
        (
            r#"permit(principal, action, resource); forbid(principal, action, resource == Tool::"b/t");"#,
            &["a"],
            true,
        ),
        (
            r#"permit(principal, action == Action::"call", resource);
               permit(principal, action == Action::"send", resource == Method::"a/acme/do");"#,
            &["a"],
            true,
        ),
        (
            r#"permit(principal, action == Action::"send", resource) when { resource.name like "other/*" };"#,
            &["a"],
            false,
        ),
        (
            r#"permit(principal, action, resource); forbid(principal, action == Action::"send", resource);"#,
            &["a"],
            false,
        ),
    ] {
        let scene = unlisted_under(Some(policy), servers).await;
        let answer = ask(&scene, &ann, "acme/do", None).await;
        assert_eq!(answer.get("done").is_some(), passes, "{policy}: {answer:?}");
        let is_sent = scene.received(0).iter().any(|it| it.starts_with("acme/do"));
        assert_eq!(is_sent, passes, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_waits_for_the_list_of_its_server_alone() {
    let policies = [
        r#"permit(principal, action == Action::"call", resource) when { resource has readOnlyHint && resource.readOnlyHint };"#
            .to_owned(),
    ];
    let (scene, _) = scene_under(&policies).await.unwrap();
    scene.backends[1].set("tools/list", Scripted::Hangs);
    let began = Instant::now();
    let ann = client("ann", &["dev"]);
    let answer = ask(&scene, &ann, "tools/call", Some(r#"{"name":"a__read"}"#)).await;
    assert!(answer.get("content").is_some(), "{answer:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let hidden = ask(&scene, &ann, "tools/call", Some(r#"{"name":"a__write"}"#)).await;
    assert!(hidden.get("code").is_some(), "{hidden:?}");
}

#[tokio::test]
async fn audit_log_learns_of_names_that_clients_may_not_see() {
    let policies = [r#"permit(principal, action, resource) when { resource.name != "write" };"#];
    let (scene, _) = scene_under(&policies.map(str::to_owned)).await.unwrap();
    for (method, name, server, item) in [
        ("tools/call", "a__write", Some("a"), "write"),
        ("tools/call", "b__none", Some("b"), "none"),
        ("tools/call", "none", None, "none"),
        ("prompts/get", "a__one", Some("a"), "one"),
    ] {
        let context = Arc::new(CallContext {
            noted: Some(AuditFacts::default()),
            ..(*client("ann", &[])).clone()
        });
        let params = format!(r#"{{"name":"{name}","arguments":{{}}}}"#);
        ask(&scene, &context, method, Some(&params)).await;
        let about = context.noted.as_ref().unwrap().about.get().unwrap();
        assert_eq!(
            (about.server.as_deref(), about.item.as_deref()),
            (server, Some(item)),
            "{name}"
        );
    }
}
