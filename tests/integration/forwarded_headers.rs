//! Headers of clients that servers get (`forwardHeaders`), also from an attacker's side: what one
//! client sends never decides what another one gets.

use fanlight_tests::slicer::member_at;
use tokio::join;

use crate::harness::Gateway;
use crate::raw_client::{
    Connection, LegacySession, Response, legacy_request, modern_headers, modern_request, post,
};
use crate::scripted::{Backend, Era, Gate, Received, Reply, Transport, config};
use crate::server_lives::text_at;

const FORWARDED: &str = r#""forwardHeaders":{"X-Tenant":"X-Org","x-plain":"X-Plain"}"#;

/// The answer to a modern request with these headers.
async fn ask(gateway: &Gateway, body: &str, headers: &[(&str, &str)]) -> Response {
    let own = modern_headers(body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let all: Vec<_> = own.chain(headers.iter().copied()).collect();
    post(gateway.mcp, &all, body).await
}

/// The text of [`ask`].
async fn text(gateway: &Gateway, body: &str, headers: &[(&str, &str)]) -> String {
    ask(gateway, body, headers).await.messages().await.1
}

/// A server whose answers tell the tenant.
async fn server(era: Era) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let tenant = |received: &Received| received.header("x-org").unwrap_or("nobody").to_owned();
    let called = move |received: &Received| {
        era.complete(&format!(
            r#""content":[{{"type":"text","text":"{}"}}]"#,
            tenant(received)
        ))
    };
    backend.on("tools/call", Reply::compute(called));
    backend
}

fn call() -> String {
    modern_request("1", "tools/call", r#""name":"t","arguments":{}"#, "")
}

#[tokio::test]
async fn only_named_headers_reach_a_server_in_both_eras() {
    for era in [Era::Modern, Era::Legacy] {
        let backend = server(era).await;
        let gateway = Gateway::start(&config(&[backend.entry_with("s", FORWARDED)])).await;
        let headers = [
            ("X-Tenant", "acme"),
            ("X-Plain", "1"),
            ("X-Other", "no"),
            ("Cookie", "no=1"),
            ("X-Org", "forged"),
        ];
        let answer = text(&gateway, &call(), &headers).await;
        assert!(answer.contains("acme"), "{answer}");
        let session = LegacySession::open(gateway.mcp).await;
        let mut own = session.headers();
        own.extend(headers);
        let body = legacy_request("1", "tools/call", r#""name":"t","arguments":{}"#);
        let answer = post(gateway.mcp, &own, &body).await.messages().await.1;
        assert!(answer.contains("acme"), "{answer}");
        for received in backend.received("tools/call") {
            assert_eq!(received.header("x-org"), Some("acme"));
            assert_eq!(received.header("x-plain"), Some("1"));
            for foreign in ["x-tenant", "x-other", "cookie"] {
                assert_eq!(received.header(foreign), None, "{foreign}");
            }
        }
        // The next request is another one's.
        assert!(text(&gateway, &call(), &[]).await.contains("nobody"));
        text(
            &gateway,
            &modern_request("2", "tools/list", "", ""),
            &headers,
        )
        .await;
        let lists = backend.received("tools/list");
        assert!(lists.iter().all(|list| list.header("x-org").is_none()));
    }
}

#[tokio::test]
async fn headers_that_could_be_read_differently_are_refused() {
    let backend = server(Era::Modern).await;
    let gateway = Gateway::start(&config(&[backend.entry_with("s", FORWARDED)])).await;
    let long = "a".repeat(9000);
    for headers in [
        &[("X-Tenant", "acme"), ("x-tenant", "evil")][..],
        &[("X-Tenant", "\u{e9}")],
        &[("X-Tenant", &long)],
    ] {
        assert_eq!(ask(&gateway, &call(), headers).await.status, 400);
    }
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test]
async fn equal_reads_of_two_tenants_are_neither_joined_nor_kept() {
    let backend = server(Era::Modern).await;
    let listed = r#""resources":[{"uri":"a://1","name":"one"}]"#;
    backend.on(
        "resources/list",
        Reply::result(Era::Modern.cacheable(listed)),
    );
    let gate = Gate::new();
    let tenant = |received: &Received| {
        let tenant = received.header("x-org").unwrap_or("nobody");
        Era::Modern.complete(&format!(
            r#""contents":[{{"uri":"a://1","text":"{tenant}"}}],"ttlMs":600000,"cacheScope":"public""#
        ))
    };
    backend.on("resources/read", Reply::compute(tenant).gated(&gate));
    let gateway = Gateway::start(&config(&[backend.entry_with("s", FORWARDED)])).await;
    let body = modern_request("1", "resources/read", r#""uri":"a://1""#, "");
    let (acme, evil, nobody) = ([("X-Tenant", "acme")], [("X-Tenant", "evil")], []);
    let all = async {
        join!(
            text(&gateway, &body, &acme),
            text(&gateway, &body, &evil),
            text(&gateway, &body, &nobody)
        )
    };
    let open = async {
        gate.reached(3).await;
        gate.open();
    };
    let ((first, second, third), ()) = join!(all, open);
    assert!(first.contains(r#""acme""#), "{first}");
    assert!(second.contains(r#""evil""#), "{second}");
    assert!(third.contains(r#""nobody""#), "{third}");
    // A result without a tenant may be kept, and is not for tenants.
    let again = text(&gateway, &body, &evil).await;
    assert!(again.contains(r#""evil""#), "{again}");
}

#[tokio::test]
async fn clients_of_one_machine_share_no_session_across_tenants() {
    let backend = server(Era::Legacy).await;
    let gateway = Gateway::start(&config(&[backend.entry_with("s", FORWARDED)])).await;
    for tenant in ["acme", "evil", "acme"] {
        text(&gateway, &call(), &[("X-Tenant", tenant)]).await;
    }
    text(&gateway, &call(), &[]).await;
    let called = backend.received("tools/call");
    let sessions: Vec<_> = called
        .iter()
        .map(|it| it.header("mcp-session-id"))
        .collect();
    assert!(sessions.iter().all(Option::is_some), "{sessions:?}");
    assert_eq!(sessions[0], sessions[2]);
    assert_ne!(sessions[0], sessions[1]);
    assert!(!sessions[..3].contains(&sessions[3]), "{sessions:?}");
}

#[tokio::test]
async fn approval_for_one_tenant_is_none_for_another() {
    let backend = server(Era::Modern).await;
    let rule = format!(r#"{FORWARDED},"approval":{{"tools":["t"]}}"#);
    let servers = config(&[backend.entry_with("s", &rule)]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let config = format!(r#"{servers},"timeouts":{{"approval":"10ms"}}}}"#);
    let gateway = Gateway::start(&config).await;
    let (acme, evil) = ([("X-Tenant", "acme")], [("X-Tenant", "evil")]);
    let waiting = text(&gateway, &call(), &acme).await;
    let id = member_at(&waiting, &["error", "data", "approval"])
        .unwrap()
        .trim_matches('"');
    let list = text_at(&gateway, "/api/approvals").await;
    assert!(list.contains("x-tenant") && list.contains("acme"), "{list}");
    let mut connection = Connection::open(gateway.admin).await;
    let path = format!("/api/approvals/{id}/approve");
    connection.request("POST", &path, &[], b"").await;
    assert_eq!(connection.response().await.status, 200);
    let other = text(&gateway, &call(), &evil).await;
    assert!(other.contains("-31007"), "{other}");
    assert!(backend.received("tools/call").is_empty());
    assert!(text(&gateway, &call(), &acme).await.contains("acme"));
}
