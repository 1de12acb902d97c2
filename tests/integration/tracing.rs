//! Tracing through the real binary: the context that servers receive, the spans, the log lines and
//! `/metrics`.

mod chain;
mod content;
mod logs;
mod metrics;
mod outcomes;
mod server_requests;
mod spans;

use fanlight_tests::slicer::plain_string;

use self::spans::{CLIENT, SERVER, TraceFile, from_client};

use crate::harness::Gateway;
use crate::raw_client::{LISTEN, modern_headers, modern_request, post, post_modern};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

const A: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const B: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
/// No collector listens at this address. With a destination for spans, Fanlight propagates its own
/// context.
const EXPORTING: &str = r#""telemetry":{"endpoint":"http://127.0.0.1:9"}"#;

async fn start(transport: Transport, telemetry: &str, more: &str) -> (Gateway, Backend) {
    let backend = Backend::start(Era::Modern, transport).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(r#"{"resultType":"complete","content":[]}"#),
    );
    let servers = config(&[backend.entry_with("b", more)]);
    let text = match telemetry {
        "" => servers,
        section => format!(
            "{},{section}}}",
            servers.trim_end().strip_suffix('}').unwrap()
        ),
    };
    (Gateway::start(&text).await, backend)
}

/// Calls the tool with this context and returns the context that the server received.
async fn sent(
    gateway: &Gateway,
    backend: &Backend,
    meta: Option<&str>,
    header: Option<&str>,
) -> std::sync::Arc<Received> {
    let before = backend.received("tools/call").len();
    let meta = meta
        .map(|meta| format!(r#""traceparent":"{meta}","baggage":"k=v""#))
        .unwrap_or_default();
    let body = modern_request("1", "tools/call", r#""name":"t""#, &meta);
    let own = modern_headers(&body);
    let mut headers: Vec<(&str, &str)> = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    headers.extend(header.map(|value| ("traceparent", value)));
    let mut response = post(gateway.mcp, &headers, &body).await;
    assert_eq!(response.status, 200);
    response.text().await;
    backend
        .wait_for("tools/call", before + 1)
        .await
        .last()
        .unwrap()
        .clone()
}

fn in_meta(message: &Received) -> Option<&str> {
    message
        .member_at(&["params", "_meta", "traceparent"])
        .and_then(plain_string)
}

#[tokio::test]
async fn client_context_passes_untouched_without_an_exporter() {
    for transport in [Transport::Http, Transport::Stdio] {
        let (gateway, backend) = start(transport, "", "").await;
        assert_eq!(
            in_meta(&*sent(&gateway, &backend, Some(A), Some(B)).await),
            Some(A)
        );
        assert_eq!(in_meta(&*sent(&gateway, &backend, None, None).await), None);
        let by_header = sent(&gateway, &backend, None, Some(B)).await;
        match transport {
            Transport::Http => assert_eq!(
                (in_meta(&by_header), by_header.header("traceparent")),
                (None, Some(B))
            ),
            Transport::Stdio => assert_eq!(in_meta(&by_header), Some(B)),
        }
    }
}

#[tokio::test]
async fn exported_span_is_the_parent_of_backend_spans() {
    for transport in [Transport::Http, Transport::Stdio] {
        let (gateway, backend) = start(transport, EXPORTING, "").await;
        for (meta, header, trace, flags) in [
            (Some(A), None, Some(A), "01"),
            (None, Some(A), Some(A), "01"),
            (Some(A), Some(A), Some(A), "01"),
            (Some(A), Some(B), Some(A), "01"),
            (Some(B), None, Some(B), "00"),
            (None, None, None, "01"),
            (Some("00-malformed"), None, None, "01"),
        ] {
            let got = sent(&gateway, &backend, meta, header).await;
            let parent = in_meta(&got).expect("a traceparent");
            assert!(parent.ends_with(&format!("-{flags}")), "{parent}");
            assert!(
                [Some(A), Some(B)]
                    .iter()
                    .flatten()
                    .all(|given| *given != parent),
                "{parent}"
            );
            match trace {
                Some(given) => assert_eq!(parent[..36], given[..36]),
                None => assert!(parent[..36] != A[..36] && parent[..36] != B[..36]),
            }
            if transport == Transport::Http {
                assert_eq!(got.header("traceparent"), Some(parent));
            }
            if meta.is_some() {
                assert_eq!(
                    got.member_at(&["params", "_meta", "baggage"]),
                    Some(r#""k=v""#)
                );
            }
        }
    }
}

#[tokio::test]
async fn merged_list_is_one_trace_that_names_missing_backends() {
    let (good, other) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Stdio).await,
    );
    good.offers_tools(&["t"]);
    other.offers_tools(&["u"]);
    let bad = Backend::start(Era::Modern, Transport::Http).await;
    bad.offers_tools(&["v"]);
    bad.on(
        "tools/list",
        Reply::error(r#"{"code":-32603,"message":"no"}"#),
    );
    let file = TraceFile::new();
    let servers = config(&[good.entry("g"), other.entry("o"), bad.entry("b")]);
    let gateway = Gateway::start_with(&servers, &file.arguments()).await;
    let context = from_client(1, "01");
    let meta = format!(r#""traceparent":"{context}""#);
    post_modern(gateway.mcp, &modern_request("1", "tools/list", "", &meta))
        .await
        .text()
        .await;
    let trace = file.trace(&context, &[(SERVER, "tools/list")]).await;
    let root = trace.one(SERVER, "tools/list");
    let clients = trace.all(CLIENT, "tools/list");
    assert!(
        clients.iter().all(|span| span.parent() == root.id()),
        "{trace:#?}"
    );
    let mut backends: Vec<_> = clients
        .iter()
        .map(|span| span.text("fanlight.backend.name").unwrap())
        .collect();
    backends.sort_unstable();
    assert_eq!(backends, ["b", "g", "o"]);
    assert_eq!(
        root.attribute("fanlight.partial_failures").unwrap()["intValue"],
        "1",
        "{root:#?}"
    );
    assert_eq!(
        root.attribute("fanlight.cache.hit").unwrap()["boolValue"],
        false
    );
    let failed: Vec<_> = clients.iter().filter_map(|span| span.error()).collect();
    assert_eq!(failed, ["-32603"]);
}

#[tokio::test]
async fn subscription_span_counts_backends_without_a_stream() {
    let mut backends = Vec::new();
    for reply in [
        Reply::listening(),
        Reply::error(r#"{"code":-32603,"message":"no"}"#),
    ] {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        backend.on("subscriptions/listen", reply);
        backends.push(backend);
    }
    let file = TraceFile::new();
    let servers = config(&[backends[0].entry("good"), backends[1].entry("bad")]);
    let gateway = Gateway::start_with(&servers, &file.arguments()).await;
    let context = from_client(1, "01");
    // Unknown members are forwarded; each server decides about them.
    let params = r#""notifications":{"vendor/changed":true}"#;
    let body = modern_request(
        "1",
        LISTEN,
        params,
        &format!(r#""traceparent":"{context}""#),
    );
    let mut stream = post_modern(gateway.mcp, &body).await;
    stream.event().await.unwrap().expect("an acknowledgement");
    let trace = file.trace(&context, &[(SERVER, LISTEN)]).await;
    let root = trace.one(SERVER, LISTEN);
    assert_eq!(
        root.attribute("fanlight.partial_failures").unwrap()["intValue"],
        "1",
        "{root:#?}"
    );
    assert_eq!(root.error(), None);
}
