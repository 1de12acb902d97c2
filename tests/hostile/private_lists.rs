//! Principals that try to see each other's lists.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_testkit::slicer::{elements, member, plain_string};
use futures_util::future::join_all;

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{modern_headers, modern_request, post};
use crate::scripted::{Backend, Era, Reply, Transport};

/// Keys with their digests.
const ANN: (&str, &str) = (
    "fanlight_00000000000000000000000000000000000000000002okinW",
    "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
);
const BOB: (&str, &str) = (
    "fanlight_1111111111111111111111111111111111111111111146EDT",
    "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
);

/// A server whose list is private and differs at each reading.
async fn private(transport: Transport) -> Backend {
    let server = Backend::start(Era::Modern, transport).await;
    let reads = AtomicUsize::new(0);
    server.on(
        "tools/list",
        Reply::compute(move |_| {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            let tool = format!(r#"{{"name":"note-{number}","inputSchema":{{"type":"object"}}}}"#);
            format!(r#"{{"resultType":"complete","tools":[{tool}],"ttlMs":600000,"cacheScope":"private"}}"#)
        }),
    );
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    server
}

/// A gateway with these servers, whose clients are Ann and Bob.
async fn gateway(entries: &[String], more: &str) -> (Gateway, TempFile) {
    let folder = TempFile::folder();
    let key =
        |(_, digest): (&str, &str), name: &str| format!("- {{name: {name}, sha256: '{digest}'}}\n");
    fs::write(
        folder.path().join("keys.yaml"),
        format!("keys:\n{}{}", key(ANN, "ann"), key(BOB, "bob")),
    )
    .unwrap();
    let config = format!(
        "auth: {{keys: {{file: keys.yaml}}}}\n{more}\nmcpServers: {{{}}}\n",
        entries.join(", ")
    );
    fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
    (
        Gateway::start_at(folder.path().join("fanlight.yaml")).await,
        folder,
    )
}

async fn ask((key, _): (&str, &str), gateway: &Gateway, method: &str, params: &str) -> String {
    let body = modern_request("1", method, params, "");
    let mut headers = modern_headers(&body);
    headers.push(("Authorization".to_owned(), format!("Bearer {key}")));
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    post(gateway.mcp, &headers, &body).await.messages().await.1
}

/// The private server's tool names that a principal sees.
async fn notes(who: (&str, &str), gateway: &Gateway) -> Vec<String> {
    let list = ask(who, gateway, "tools/list", "").await;
    let tools = member(&list, "result.tools")
        .and_then(elements)
        .unwrap_or_else(|| panic!("{list}"));
    let names = tools
        .into_iter()
        .filter_map(|tool| plain_string(member(tool, "name")?));
    names
        .filter(|name| name.contains("note-"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_list_reaches_its_principal_alone() {
    for (transport, others) in [
        (Transport::Http, 1),
        (Transport::Stdio, 1),
        (Transport::Http, 2),
    ] {
        let (server, other) = (
            private(transport).await,
            Backend::start(Era::Legacy, Transport::Http).await,
        );
        other.offers_tools(&["t"]);
        let entries = [
            server.entry("notes"),
            other.entry("other"),
            private(Transport::Http).await.entry("away"),
        ];
        let (gateway, _folder) = gateway(&entries[..=others], "x-limits: list=2s").await;
        // All requests come at once, before the gateway knows anything about the list.
        let first =
            join_all((0..20).map(|at| notes(if at % 2 == 0 { ANN } else { BOB }, &gateway))).await;
        let seen_by = |rest: usize| {
            first
                .iter()
                .skip(rest)
                .step_by(2)
                .cloned()
                .collect::<BTreeSet<_>>()
        };
        let (ann, bob) = (seen_by(0), seen_by(1));
        assert_eq!(
            (ann.len(), bob.len()),
            (1, 1),
            "each sees one list: {first:?}"
        );
        let (ann, bob) = (ann.first().unwrap().clone(), bob.first().unwrap().clone());
        assert!(
            ann.iter().all(|name| !bob.contains(name)),
            "{ann:?} {bob:?}"
        );
        assert_eq!(ann.len(), others.min(1), "{ann:?}");
        for _ in 0..5 {
            assert_eq!(
                (notes(ANN, &gateway).await, notes(BOB, &gateway).await),
                (ann.clone(), bob.clone())
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_of_another_principals_list_is_not_called_where_lists_decide() {
    for count in [1, 2] {
        let (server, other) = (
            private(Transport::Http).await,
            Backend::start(Era::Legacy, Transport::Http).await,
        );
        let entries = [
            server.entry_with("notes", r#""tools":{"deny":["nothing"]}"#),
            other.entry("other"),
        ];
        let (gateway, _folder) = gateway(&entries[..count], "").await;
        let (ann, bob) = (notes(ANN, &gateway).await, notes(BOB, &gateway).await);
        assert_ne!(ann, bob);
        let call = async |who, name: &str| {
            ask(
                who,
                &gateway,
                "tools/call",
                &format!(r#""name":"{name}","arguments":{{}}"#),
            )
            .await
        };
        for (who, own, of_other) in [(ANN, &ann[0], &bob[0]), (BOB, &bob[0], &ann[0])] {
            let before = server.received("tools/call").len();
            let answer = call(who, of_other).await;
            assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
            assert_eq!(server.received("tools/call").len(), before);
            // Another request may have read a newer list of the principal's own.
            let own_now = notes(who, &gateway).await;
            let answer = call(who, own_now.first().unwrap_or(own)).await;
            assert!(answer.contains(r#""content":[]"#), "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_a_principal_is_not_kept_on_disk() {
    let (server, other) = (
        private(Transport::Stdio).await,
        Backend::start(Era::Legacy, Transport::Http).await,
    );
    let state = TempFile::folder();
    let more = format!("stateDir: {}", state.path().join("state").display());
    let (gateway, _folder) = gateway(&[server.entry("notes"), other.entry("other")], &more).await;
    let seen = [notes(ANN, &gateway).await, notes(BOB, &gateway).await].concat();
    assert_eq!(seen.len(), 2);
    assert!(gateway.terminate().await.success());
    let files = fs::read_dir(state.path().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    // The audit log may name tools; it is not a list.
    for file in files.filter(|path| path.is_file()) {
        let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
        for name in &seen {
            let name = name.trim_start_matches("notes__");
            assert!(!text.contains(&format!("\"{name}\"")), "{name}: {text}");
        }
    }
}
