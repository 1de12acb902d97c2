//! Extensions of several servers: skills, and extensions that Fanlight does not know.

use super::fake::*;
use crate::NamingPolicy;

const SKILLS: &str = r#"{"capabilities":{"resources":{},"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}}}"#;
const REFUNDS: &str = r#""result":{"skills":[{"uri":"skill:\/\/refunds/SKILL.md","frontmatter":{"name":"refunds"},"resources":[{"uri":"skill://refunds/SKILL.md","size":1.0},{"uri":"skill://refunds/only-here.md"}]}],"ttlMs":9,"cacheScope":"public"}"#;

fn with_skills(name: &'static str, script: &[(&str, &'static str)]) -> Fake {
    let fake = fake(name, script);
    fake.describe_as(Ok(SKILLS));
    fake
}

fn extended(
    name: &'static str,
    description: &'static str,
    script: &[(&str, &'static str)],
) -> Fake {
    let fake = fake(name, script);
    fake.describe_as(Ok(description));
    fake
}

#[tokio::test]
async fn skills_of_all_backends_are_listed_with_all_pages() {
    let first = r#""result":{"skills":[{"uri":"skill://one/SKILL.md"}],"nextCursor":"2"}"#;
    let second = r#""result":{"skills":[{"uri":"skill://two/SKILL.md"}]}"#;
    let a = with_skills(
        "a",
        &[
            ("skills/list", first),
            (r#"skills/list {"cursor":"2"}"#, second),
        ],
    );
    let b = with_skills(
        "b",
        &[(
            "skills/list",
            r#""result":{"skills":[{"uri":"skill://three/SKILL.md"}]}"#,
        )],
    );
    let scene = scene_with(vec![(a, None), (fake("none", &[]), None), (b, None)], 2);
    let page = scene.ask("skills/list", None).await;
    assert!(
        page.starts_with(r#"{"skills":[{"uri":"skill://one/SKILL.md"},{"uri":"skill://two/SKILL.md"}],"nextCursor":""#),
        "{page}"
    );
    let cursor = page
        .split(r#""nextCursor":""#)
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let page = scene
        .ask("skills/list", Some(&format!(r#"{{"cursor":"{cursor}"}}"#)))
        .await;
    assert!(
        page.starts_with(r#"{"skills":[{"uri":"skill://three/SKILL.md"}]"#),
        "{page}"
    );
    assert!(
        !scene
            .received(1)
            .iter()
            .any(|request| request.starts_with("skills/"))
    );
}

#[tokio::test]
async fn skill_of_a_shared_uri_gets_aliases_for_all_its_files() {
    let contents = r#""result":{"contents":[{"uri":"skill://refunds/only-here.md","text":""}]}"#;
    let directory = r#""result":{"resources":[{"uri":"skill://refunds/only-here.md"}]}"#;
    let skill = r#""result":{"skill":{"uri":"skill://refunds/SKILL.md","resources":[{"uri":"skill://refunds/only-here.md"}]}}"#;
    let script = [
        ("skills/list", REFUNDS),
        ("skills/get", skill),
        ("resources/read", contents),
        ("resources/directory/read", directory),
    ];
    let scene = scene(vec![with_skills("a", &script), with_skills("b", &script)]);
    let list = scene.ask("skills/list", None).await;
    let own = r#"{"uri":"skill:\/\/refunds/SKILL.md","frontmatter":{"name":"refunds"},"resources":[{"uri":"skill://refunds/SKILL.md","size":1.0},{"uri":"skill://refunds/only-here.md"}]}"#;
    let aliased = r#"{"uri":"skill://fanlight--b/refunds/SKILL.md","frontmatter":{"name":"refunds"},"resources":[{"uri":"skill://fanlight--b/refunds/SKILL.md","size":1.0},{"uri":"skill://fanlight--b/refunds/only-here.md"}]}"#;
    assert!(
        list.starts_with(&format!(r#"{{"skills":[{own},{aliased}]"#)),
        "{list}"
    );
    scene.forget();
    for (method, file) in [
        ("skills/get", "SKILL.md"),
        ("resources/read", "only-here.md"),
        ("resources/directory/read", ""),
    ] {
        let uri = format!("refunds/{file}");
        let uri = uri.trim_end_matches('/');
        let answer = scene
            .ask(
                method,
                Some(&format!(r#"{{"uri":"skill://fanlight--b/{uri}"}}"#)),
            )
            .await;
        assert!(
            answer.contains(r#""skill://fanlight--b/refunds/only-here.md""#),
            "{method}: {answer}"
        );
        assert!(
            !answer.contains(r#""skill://refunds/"#),
            "{method}: {answer}"
        );
        assert_eq!(
            scene.received(1).last().unwrap(),
            &format!(r#"{method} {{"uri":"skill://{uri}"}}"#)
        );
        assert!(scene.received(0).is_empty(), "{method}");
        scene
            .ask(method, Some(&format!(r#"{{"uri":"skill://{uri}"}}"#)))
            .await;
        assert!(
            scene
                .received(0)
                .iter()
                .any(|request| request.starts_with(method)),
            "{method}"
        );
        scene.forget();
    }
}

#[tokio::test]
async fn skill_that_no_list_has_is_asked_for_where_there_are_skills() {
    let found = (
        "skills/get",
        r#""result":{"skill":{"uri":"skill://x/SKILL.md"}}"#,
    );
    let refused = (
        "skills/get",
        r#""error":{"code":-32602,"message":"No skill"}"#,
    );
    let list = ("skills/list", r#""result":{"skills":[]}"#);
    let scene = scene(vec![
        fake("plain", &[found]),
        with_skills("a", &[list, refused]),
        with_skills("b", &[list, found]),
    ]);
    let answer = scene
        .ask("skills/get", Some(r#"{"uri":"skill://x/SKILL.md"}"#))
        .await;
    assert_eq!(answer, r#"{"skill":{"uri":"skill://x/SKILL.md"}}"#);
    assert!(
        !scene
            .received(0)
            .iter()
            .any(|request| request.starts_with("skills/"))
    );
    scene.backends[2].answer(r#"skills/get {"uri":"skill://y/SKILL.md"}"#, refused.1);
    assert_eq!(
        error_of(
            &scene
                .ask("skills/get", Some(r#"{"uri":"skill://y/SKILL.md"}"#))
                .await
        )
        .0,
        -32602
    );
}

#[tokio::test]
async fn unknown_method_goes_to_the_backend_of_what_it_names() {
    let script = [
        ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#),
        (
            "resources/list",
            r#""result":{"resources":[{"uri":"x://1"}]}"#,
        ),
        ("x/do", r#""result":{"done":1.0}"#),
        (
            "tools/call",
            r#""result":{"resultType":"task","taskId":"t1"}"#,
        ),
    ];
    let scene = scene(vec![fake("a", &script), fake("b", &script)]);
    scene.ask("tools/call", Some(r#"{"name":"b__t"}"#)).await;
    for (sent, received) in [
        (r#"{ "tool":"b__t", "k":1.0}"#, r#"{ "tool":"t", "k":1.0}"#),
        (
            r#"{"ref":{"name":"b__unlisted"}}"#,
            r#"{"ref":{"name":"unlisted"}}"#,
        ),
        (r#"{"uri":"x://fanlight--b/1"}"#, r#"{"uri":"x://1"}"#),
        (
            r#"{"a":"b__t","b":"b__u","c":"text: no name"}"#,
            r#"{"a":"t","b":"u","c":"text: no name"}"#,
        ),
    ] {
        scene.forget();
        assert_eq!(
            scene.ask("x/do", Some(sent)).await,
            r#"{"done":1.0}"#,
            "{sent}"
        );
        assert!(
            scene.received(1).contains(&format!("x/do {received}")),
            "{sent}"
        );
        assert!(
            !scene
                .received(0)
                .iter()
                .any(|request| request.starts_with("x/do")),
            "{sent}"
        );
    }
    for (refused, code) in [
        (r#"{"one":"a__t","two":"b__t"}"#, -32602),
        (r#"{"k":"nothing known"}"#, -32601),
        ("{}", -32601),
    ] {
        assert_eq!(
            error_of(&scene.ask("x/do", Some(refused)).await).0,
            code,
            "{refused}"
        );
    }
}

#[tokio::test]
async fn unknown_method_with_a_task_goes_to_its_backend() {
    let script = [
        (
            "tools/call",
            r#""result":{"resultType":"task","taskId":"t1"}"#,
        ),
        ("x/pause", r#""result":{}"#),
    ];
    let scene = scene(vec![fake("a", &script), fake("b", &script)]);
    let caller = fanlight_canonical::Caller::request_of(fanlight_canonical::Principal::anonymous());
    let context = std::sync::Arc::new(fanlight_canonical::CallContext {
        caller,
        ..(*fanlight_canonical::CallContext::internal()).clone()
    });
    for (method, params) in [
        ("tools/call", r#"{"name":"b__t"}"#),
        ("x/pause", r#"{"taskId":"t1"}"#),
    ] {
        let call = fanlight_canonical::Call {
            context: context.clone(),
            ..call(method, Some(params))
        };
        assert!(!scene.gateway.handle(call).await.is_error());
    }
    assert!(
        scene
            .received(1)
            .contains(&r#"x/pause {"taskId":"t1"}"#.to_owned())
    );
}

#[tokio::test]
async fn extension_of_one_backend_is_promised_and_served_and_that_of_several_is_not() {
    let a = r#"{"capabilities":{"extensions":{"x/shared":{},"x/alone":{"k":1}}}}"#;
    let b = r#"{"capabilities":{"extensions":{"x/shared":{}}}}"#;
    let done = ("alone/do", r#""result":{"done":1}"#);
    let scene = scene(vec![extended("b", b, &[done]), extended("a", a, &[done])]);
    let description = scene.ask("server/discover", None).await;
    assert!(
        description.contains(r#""extensions":{"x/alone":{"k":1}}"#),
        "{description}"
    );
    assert_eq!(scene.ask("alone/do", None).await, r#"{"done":1}"#);
    assert!(
        !scene
            .received(0)
            .iter()
            .any(|request| request.starts_with("alone"))
    );
    assert_eq!(error_of(&scene.ask("shared/do", None).await).0, -32601);
}

#[tokio::test]
async fn unknown_method_is_sent_on_only_after_a_server_did_not_know_it() {
    let a = extended("a", r#"{"capabilities":{"extensions":{"x/a":{}}}}"#, &[]);
    let b = extended(
        "b",
        r#"{"capabilities":{"extensions":{"x/b":{}}}}"#,
        &[("y/do", r#""result":{"done":1}"#)],
    );
    let scene = scene(vec![a, b]);
    assert_eq!(scene.ask("y/do", None).await, r#"{"done":1}"#);
    scene.backends[0].answer("y/do", r#""error":{"code":-32603,"message":"half done"}"#);
    scene.forget();
    assert_eq!(error_of(&scene.ask("y/do", None).await).0, -32603);
    assert!(
        !scene
            .received(1)
            .iter()
            .any(|request| request.starts_with("y/do"))
    );
}

#[tokio::test]
async fn hidden_tool_cannot_be_named_by_an_unknown_method() {
    let scene = scene(vec![fake("c", &[]), fake("d", &[])]);
    let fakes = ["a", "b"].map(|name| {
        std::sync::Arc::new(fake(
            name,
            &[
                (
                    "tools/list",
                    r#""result":{"tools":[{"name":"read"},{"name":"write"}]}"#,
                ),
                ("x/do", r#""result":{}"#),
            ],
        ))
    });
    let mut entries: Vec<_> = fakes
        .iter()
        .map(|fake| entry(crate::BackendId::generate(), fake, None))
        .collect();
    entries[0].tools = offering("a", Some(&["read"]), &[]);
    scene
        .gateway
        .replace(
            entries,
            &NamingPolicy::default(),
            limits(1000),
            no_endpoints(),
            None,
        )
        .await;
    assert_eq!(scene.ask("x/do", Some(r#"{"tool":"b__read"}"#)).await, "{}");
    for name in ["a__read", "a__write", "a__WRITE", "a__unlisted"] {
        let body = scene
            .ask("x/do", Some(&format!(r#"{{"tool":"{name}"}}"#)))
            .await;
        assert_eq!(error_of(&body).0, -32601, "{name}: {body}");
    }
}
