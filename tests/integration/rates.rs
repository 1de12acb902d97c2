//! Rate limits of clients, through the real binary.

use std::time::Duration;

use fanlight_testkit::signing_in::{ANN, BOB, KEYS};
use fanlight_tests::slicer::{elements, member, plain_string};
use futures_util::future::join_all;

use crate::clients::Client;
use crate::harness::{Gateway, TempFile};
use crate::raw_client::{Connection, JSON_HEADERS, Response, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::server_lives::text_at;

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["search", "look"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

/// A configuration with these raw members of `rates`, and more configuration.
fn limited(backend: &Backend, rates: &str, more: &str) -> String {
    let servers = config(&[backend.entry("only")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    format!(r#"{servers},"limits":{{"rates":[{rates}]}}{more}}}"#)
}

async fn call(gateway: &Gateway, tool: &str, key: Option<&str>) -> Response {
    let body = modern_request(
        "1",
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{}}"#),
        "",
    );
    let mut headers = modern_headers(&body);
    headers.extend(key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))));
    let own = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).collect();
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection.response().await
}

fn calls(backend: &Backend) -> usize {
    backend.received("tools/call").len()
}

#[tokio::test]
async fn request_over_the_limit_is_told_when_to_come_again() {
    let backend = backend().await;
    let rates = r#"{"for":"principal","match":{"tool":"only/sea*"},"rate":"2/h"}"#;
    let gateway = Gateway::start(&limited(&backend, rates, "")).await;
    for _ in 0..2 {
        assert_eq!(call(&gateway, "search", None).await.status, 200);
    }
    let mut refused = call(&gateway, "search", None).await;
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(refused.status, 429);
    assert!((1..=1800).contains(&seconds), "{seconds}");
    let text = refused.text().await;
    assert!(
        text.contains(r#""code":-31008"#) && text.contains(r#""retryAfterMs":"#),
        "{text}"
    );
    assert!(
        text.contains(r#""id":1"#) && text.contains(r#""mayHaveRun":false,"gate":"rate""#),
        "{text}"
    );
    // No list has this name, and only the server knows which tool it means, so it counts.
    assert_eq!(call(&gateway, "SEARCH", None).await.status, 429);
    // Other tools and requests do not count.
    assert_eq!(call(&gateway, "look", None).await.status, 200);
    assert_eq!(calls(&backend), 3);
    gateway
        .log
        .line_with_all(&[r#""target":"audit""#, "not allowed to a client: rate"])
        .await;
}

#[tokio::test]
async fn parallel_calls_get_no_more_than_the_burst_and_each_principal_its_own() {
    let backend = backend().await;
    let keys = TempFile::new("yaml", KEYS);
    let auth = format!(r#","auth":{{"keys":{{"file":{:?}}}}}"#, keys.path());
    let gateway = Gateway::start(&limited(&backend, r#"{"rate":"1000/h","burst":5}"#, &auth)).await;
    let of = async |key| {
        let answers = join_all((0..40).map(|_| call(&gateway, "search", Some(key)))).await;
        answers.iter().filter(|answer| answer.status == 200).count()
    };
    let (ann, bob) = (of(ANN).await, of(BOB).await);
    // A round that takes long enough earns one more call.
    assert!(
        (5..=6).contains(&ann) && (5..=6).contains(&bob),
        "{ann} {bob}"
    );
    assert_eq!(calls(&backend), ann + bob);
}

#[tokio::test]
async fn client_that_may_not_use_a_server_takes_nothing_from_its_common_limit() {
    let (backend, other) = (backend().await, backend().await);
    let keys = TempFile::new("yaml", KEYS);
    let policy = TempFile::new(
        "cedar",
        r#"permit(principal == User::"key#ann", action, resource);"#,
    );
    let servers = config(&[backend.entry("only"), other.entry("other")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let rates = r#"{"for":"tool","match":{"tool":"only/search"},"rate":"2/h"},{"for":"server","rate":"3/h"},{"for":"endpoint","rate":"4/h"}"#;
    let gateway = Gateway::start(&format!(
        r#"{servers},"limits":{{"rates":[{rates}]}},"auth":{{"keys":{{"file":{:?}}}}},"policy":{{"files":[{:?}]}}}}"#,
        keys.path(),
        policy.path()
    ))
    .await;
    let names = ["only__search", "only__look", "only__none", "search", "x"];
    for name in names.into_iter().cycle().take(20) {
        assert_ne!(call(&gateway, name, Some(BOB)).await.status, 429, "{name}");
    }
    // Names that do not exist are nobody's, but for one that a server itself has to refuse.
    for name in ["x", "y"] {
        assert_ne!(call(&gateway, name, Some(ANN)).await.status, 429, "{name}");
    }
    let of_ann = async |name| call(&gateway, name, Some(ANN)).await.status;
    let statuses = [of_ann("only__search").await, of_ann("only__search").await];
    assert_eq!(statuses, [200, 200]);
    assert_eq!(of_ann("only__search").await, 429);
    assert_eq!(calls(&backend), 2);
}

#[tokio::test]
async fn refused_request_takes_from_no_other_limit() {
    let backend = backend().await;
    let rates =
        r#"{"for":"endpoint","rate":"4/h"},{"for":"tool","match":{"tool":"search"},"rate":"1/h"}"#;
    let gateway = Gateway::start(&limited(&backend, rates, "")).await;
    let mut statuses = Vec::new();
    for tool in [
        "search", "search", "search", "search", "search", "look", "look", "look", "look",
    ] {
        statuses.push(call(&gateway, tool, None).await.status);
    }
    assert_eq!(statuses, [200, 429, 429, 429, 429, 200, 200, 200, 429]);
}

#[tokio::test]
async fn queued_call_waits_for_its_turn_in_both_eras_and_one_that_leaves_gives_it_back() {
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Stdio),
    ] {
        let backend = backend().await;
        let rates =
            r#"{"for":"server","match":{"server":"only"},"rate":"20/s","burst":1,"queue":"30s"}"#;
        let mut client = Client::start(&limited(&backend, rates, ""), era, transport).await;
        let began = std::time::Instant::now();
        for _ in 0..5 {
            client.call("search").await.member("result.content");
        }
        assert!(
            began.elapsed() >= Duration::from_millis(150),
            "each waits for its turn"
        );
        assert_eq!(calls(&backend), 5);
    }
    let backend = backend().await;
    let rates = r#"{"for":"server","rate":"2/h","burst":1,"queue":"60s"}"#;
    let gateway = Gateway::start(&limited(&backend, rates, "")).await;
    assert_eq!(call(&gateway, "search", None).await.status, 200);
    assert_eq!(
        call(&gateway, "search", None).await.status,
        429,
        "half an hour is too long"
    );
    assert_eq!(calls(&backend), 1);
}

#[tokio::test]
async fn input_for_a_suspended_call_counts_though_it_waits_for_no_turn() {
    const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["search"]);
    backend.on(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).asking(&[ASK]),
    );
    let config = limited(&backend, r#"{"rate":"2/m","burst":1,"queue":"40s"}"#, "");
    let mut client =
        Client::start_with(r#"{"roots":{}}"#, &config, Era::Modern, Transport::Http).await;
    let call = r#""name":"search","arguments":{}"#;
    let asked = client.request("1", "tools/call", call, "").await;
    let input = asked.inputs().unwrap()[0].0.trim_matches('"').to_owned();
    let state = asked.member("result.requestState");
    let retry =
        format!(r#"{call},"requestState":{state},"inputResponses":{{"{input}":{{"roots":[]}}}}"#);
    client
        .request("2", "tools/call", &retry, "")
        .await
        .member("result.content");
    // Without the input, the call would be next after half a minute.
    assert_eq!(
        client
            .request("3", "tools/call", call, "")
            .await
            .member("error.code"),
        "-31008"
    );
}

#[tokio::test]
async fn batch_takes_for_each_of_its_requests() {
    let backend = backend().await;
    let gateway = Gateway::start(&limited(
        &backend,
        r#"{"for":"principal","match":{"tool":"*"},"rate":"2/h"}"#,
        "",
    ))
    .await;
    let session = crate::raw_client::LegacySession::open_as(gateway.mcp, "2025-03-26").await;
    let one = |id: usize| {
        crate::raw_client::legacy_request(&id.to_string(), "tools/call", r#""name":"search""#)
    };
    let batch = format!("[{}]", (1..=4).map(one).collect::<Vec<_>>().join(","));
    let mut answer = session.post(&batch).await;
    let (before, last) = answer.messages().await;
    let text = format!("{}{last}", before.join(""));
    assert_eq!(text.matches("-31008").count(), 2, "{text}");
    assert_eq!(calls(&backend), 2);
}

#[tokio::test]
async fn limit_that_stays_configured_keeps_what_was_used() {
    let backend = backend().await;
    let rates = r#"{"rate":"1/h","match":{"tool":"search"}}"#;
    let gateway = Gateway::start(&limited(&backend, rates, "")).await;
    assert_eq!(call(&gateway, "search", None).await.status, 200);
    gateway.configure(&limited(
        &backend,
        &format!(r#"{rates},{{"rate":"1000/s"}}"#),
        "",
    ));
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(call(&gateway, "search", None).await.status, 429);
    gateway.configure(&limited(&backend, r#"{"rate":"1000/s"}"#, ""));
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(call(&gateway, "search", None).await.status, 200);
}

#[tokio::test]
async fn use_of_each_limit_is_shown_and_counted() {
    let backend = backend().await;
    let keys = TempFile::new("yaml", KEYS);
    let auth = format!(r#","auth":{{"keys":{{"file":{:?}}}}}"#, keys.path());
    let rates = r#"{"for":["principal","tool"],"match":{"tool":"only/sea*"},"rate":"2/h"},{"for":"server","rate":"9/m"}"#;
    let gateway = Gateway::start(&limited(&backend, rates, &auth)).await;
    for (key, tool) in [
        (ANN, "search"),
        (ANN, "search"),
        (ANN, "search"),
        (BOB, "search"),
        (BOB, "look"),
    ] {
        call(&gateway, tool, Some(key)).await;
    }
    let limits = text_at(&gateway, "/api/limits").await;
    let limits = elements(member(&limits, "limits").unwrap()).unwrap();
    let rule = |limit: &str| {
        plain_string(member(limit, "rule").unwrap())
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        (limits.len(), rule(limits[0]), rule(limits[1])),
        (
            2,
            "principal,tool 2/h tool=only/sea*".into(),
            "server 9/m".into()
        )
    );
    let counts = |limit: &str| {
        ["passed", "waited", "refused", "keys"].map(|name| member(limit, name).unwrap().to_owned())
    };
    assert_eq!(counts(limits[0]), ["3", "0", "1", "2"]);
    assert_eq!(counts(limits[1]), ["4", "0", "0", "1"]);
    // Ann is closest to her limit.
    let nearest = elements(member(limits[0], "nearest").unwrap()).unwrap();
    let ann = r#"{"client":"key#ann","endpoint":null,"server":"only","tool":"search","used":2}"#;
    assert_eq!((nearest.len(), nearest[0]), (2, ann));
    let metrics = text_at(&gateway, "/metrics").await;
    for (rule, outcome, count) in [
        (rule(limits[0]), "refused", 1),
        (rule(limits[0]), "passed", 3),
        (rule(limits[1]), "passed", 4),
    ] {
        let line = format!(
            "fanlight_limits_requests_total{{rule=\"{rule}\",outcome=\"{outcome}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    let one = text_at(&gateway, "/api/limits?nearest=1").await;
    assert!(one.contains("key#ann") && !one.contains("key#bob"), "{one}");
}
