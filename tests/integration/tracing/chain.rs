//! One trace from the client through the gateway to its servers, which return the context that they
//! received.

use fanlight_tests::slicer::{member_at, plain_string};

use super::spans::{CLIENT, SERVER, Trace, TraceFile, from_client, ids};
use crate::harness::Gateway;
use crate::raw_client::{modern_headers, modern_request, post};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

const BACKENDS: [(&str, Era, Transport); 3] = [
    ("one", Era::Modern, Transport::Http),
    ("two", Era::Legacy, Transport::Http),
    ("three", Era::Modern, Transport::Stdio),
];

/// The place of the context in a client's calls.
#[derive(Clone, Copy, Debug)]
enum Carried {
    Meta,
    Header,
    Both,
    /// Both, but the header names another trace.
    Differing,
}

/// Three servers that answer a call with the `_meta` they received, and a gateway in front of them.
struct Peers {
    gateway: Gateway,
    backends: Vec<Backend>,
    file: TraceFile,
}

impl Peers {
    async fn start() -> Self {
        let (mut backends, mut entries) = (Vec::new(), Vec::new());
        for (name, era, transport) in BACKENDS {
            let backend = Backend::start(era, transport).await;
            backend.offers_tools(&["t"]);
            backend.on(
                "tools/call",
                Reply::compute(move |call: &Received| {
                    era.complete(&format!(
                        r#""content":[],"echo":{}"#,
                        call.member("params._meta").unwrap()
                    ))
                }),
            );
            entries.push(backend.entry(name));
            backends.push(backend);
        }
        let file = TraceFile::new();
        let gateway = Gateway::start_with(&config(&entries), &file.arguments()).await;
        Self {
            gateway,
            backends,
            file,
        }
    }

    /// Calls one server's tool and returns the raw `traceparent` that the server received, in
    /// `_meta` and as a header.
    async fn call(
        &self,
        backend: usize,
        meta: Option<&str>,
        header: Option<&str>,
    ) -> [Option<String>; 2] {
        let name = BACKENDS[backend].0;
        let meta = meta
            .map(|meta| format!(r#""traceparent":"{meta}","x":1.0"#))
            .unwrap_or_default();
        let body = modern_request(
            r#""\u0061""#,
            "tools/call",
            &format!(r#""name":"{name}__t""#),
            &meta,
        );
        let own = modern_headers(&body);
        let mut headers: Vec<(&str, &str)> = own
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        headers.extend(header.map(|value| ("traceparent", value)));
        let answer = post(self.gateway.mcp, &headers, &body).await.text().await;
        let echoed = |key| member_at(&answer, &["result", "echo", key]);
        if !meta.is_empty() {
            assert_eq!(echoed("x"), Some("1.0"), "{answer}");
        }
        let received = self.backends[backend].received("tools/call");
        let header = received.last().unwrap().header("traceparent");
        [echoed("traceparent").and_then(plain_string), header].map(|text| text.map(str::to_owned))
    }

    async fn trace_of(&self, backend: usize, context: &str) -> Trace {
        let called = format!("tools/call {}__t", BACKENDS[backend].0);
        self.file
            .trace(context, &[(SERVER, &called), (CLIENT, "tools/call t")])
            .await
    }
}

#[tokio::test]
async fn span_of_each_hop_is_the_child_of_the_previous_one() {
    let peers = Peers::start().await;
    let mut number = 0;
    for (backend, (name, _, transport)) in BACKENDS.into_iter().enumerate() {
        for carried in [
            Carried::Meta,
            Carried::Header,
            Carried::Both,
            Carried::Differing,
        ] {
            for flags in ["01", "00"] {
                number += 2;
                let case = format!("{name}, {carried:?}, {flags}");
                let (context, other) = (from_client(number, flags), from_client(number + 1, "01"));
                let [meta, header] = match carried {
                    Carried::Meta => [Some(&context), None],
                    Carried::Header => [None, Some(&context)],
                    Carried::Both => [Some(&context), Some(&context)],
                    Carried::Differing => [Some(&context), Some(&other)],
                };
                let received = peers
                    .call(
                        backend,
                        meta.map(String::as_str),
                        header.map(String::as_str),
                    )
                    .await;
                let trace = peers.trace_of(backend, &context).await;
                let server = trace.one(SERVER, &format!("tools/call {name}__t"));
                let client = trace.one(CLIENT, "tools/call t");
                assert_eq!(server.parent(), ids(&context).1, "{case}");
                assert_eq!(client.parent(), server.id(), "{case}");
                let sent = format!("00-{}-{}-{flags}", ids(&context).0, client.id());
                let by_header = (transport == Transport::Http).then(|| sent.clone());
                assert_eq!(received, [Some(sent), by_header], "{case}");
                let (trace_id, span_id) = ids(&other);
                let links = [format!("{trace_id}-{span_id}")];
                let links = if matches!(carried, Carried::Differing) {
                    &links[..]
                } else {
                    &[]
                };
                assert_eq!(
                    (server.links(), client.links()),
                    (links.to_vec(), vec![]),
                    "{case}"
                );
                assert!(
                    [server, client]
                        .iter()
                        .all(|span| span.is_sampled() == (flags == "01")),
                    "{case}"
                );
            }
        }
    }
}

/// The conventions' attributes, with the names that each side uses.
#[tokio::test]
async fn spans_name_client_backend_and_method() {
    let peers = Peers::start().await;
    for (backend, (name, era, transport)) in BACKENDS.into_iter().enumerate() {
        let context = from_client(u32::try_from(backend).unwrap() + 1, "01");
        peers.call(backend, Some(&context), None).await;
        let trace = peers.trace_of(backend, &context).await;
        let server = trace.one(SERVER, &format!("tools/call {name}__t"));
        let client = trace.one(CLIENT, "tools/call t");
        for span in [server, client] {
            assert_eq!(span.text("mcp.method.name"), Some("tools/call"));
            assert_eq!(span.text("gen_ai.operation.name"), Some("execute_tool"));
            assert_eq!(span.error(), None);
        }
        assert_eq!(
            server.text("gen_ai.tool.name"),
            Some(format!("{name}__t").as_str())
        );
        assert_eq!(client.text("gen_ai.tool.name"), Some("t"));
        assert_eq!(server.text("mcp.protocol.version"), Some("2026-07-28"));
        let revision = if era == Era::Modern {
            "2026-07-28"
        } else {
            "2025-11-25"
        };
        assert_eq!(
            client.text("mcp.protocol.version"),
            Some(revision),
            "{name}"
        );
        assert_eq!(server.text("jsonrpc.request.id"), Some("a"));
        let sent = peers.backends[backend].received("tools/call")[0]
            .member("id")
            .unwrap()
            .to_owned();
        assert_eq!(
            client.text("jsonrpc.request.id"),
            Some(sent.trim_matches('"'))
        );
        assert_eq!(server.text("network.transport"), Some("tcp"));
        assert_eq!(
            client.text("network.transport"),
            Some(if transport == Transport::Http {
                "tcp"
            } else {
                "pipe"
            })
        );
        assert_eq!(client.text("fanlight.backend.name"), Some(name));
        assert_eq!(
            client.attribute("fanlight.attempt").unwrap()["intValue"],
            "1"
        );
        let has_address = client.text("server.address").is_some();
        assert_eq!(has_address, transport == Transport::Http, "{client:?}");
    }
}
