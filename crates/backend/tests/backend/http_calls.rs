//! Successful requests to HTTP servers, and their cancellation.

use fanlight_backend::{BackendSettings, Secret, TransportSettings};
use fanlight_canonical::BackendClient;
use fanlight_protocol::meta::LogLevel;
use fanlight_testkit::tls::Authority;
use tokio::net::{TcpListener, TcpStream};

use crate::support::server::{Reply, Server, event, legacy, modern, ok};
use crate::support::{ask, call, listening, revision, send, settings, start};

#[tokio::test]
async fn answers_keep_their_bytes() {
    const RESULT: &str =
        r#"{ "content" : [ ],"structuredContent":1E400,"_meta":{"\u0061":1.0},"x":null}"#;
    let server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result(RESULT))).await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "prompts/get", r#"{"name":"a"}"#)
            .await
            .unwrap(),
        RESULT
    );
}

#[tokio::test]
async fn server_with_tls_is_reached_by_its_authority_only() {
    let server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let inner = server.url.trim_start_matches("http://").to_owned();
    let inner = inner.split('/').next().unwrap().to_owned();
    let authority = Authority::new();
    let acceptor = authority.server().acceptor(&["http/1.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((outer, _)) = listener.accept().await {
            let (acceptor, inner) = (acceptor.clone(), inner.clone());
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(outer).await else {
                    return;
                };
                let mut inner = TcpStream::connect(inner).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    let file = std::env::temp_dir().join(format!("fanlight-authority-{}.pem", std::process::id()));
    std::fs::write(&file, authority.pem()).unwrap();
    let transport = || TransportSettings::Http {
        url: url.clone(),
        headers: Vec::new(),
    };
    let trusting = BackendSettings {
        ca_file: Some(file.clone()),
        ..settings(transport())
    };
    let trusting = start(trusting);
    for _ in 0..2 {
        assert_eq!(ask(&trusting, "x/y", "").await.unwrap(), "{}");
    }
    let error = ask(&start(settings(transport())), "x/y", "")
        .await
        .unwrap_err();
    assert!(
        format!("{error:?}").contains("of an authority that this machine does not know"),
        "{error:?}"
    );
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn body_may_arrive_in_pieces() {
    let server = Server::start(|seen| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"n":1.0}}}}"#,
            seen.id()
        );
        modern(seen).unwrap_or(Reply::Chunked(body))
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(ask(&backend, "x/y", "").await.unwrap(), r#"{"n":1.0}"#);
}

#[tokio::test]
async fn modern_requests_have_their_headers_and_no_others() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let headers = vec![
        ("authorization".into(), Secret::new("Bearer t")),
        ("mcp-name".into(), Secret::new("x")),
    ];
    let transport = TransportSettings::Http {
        url: server.url.clone(),
        headers,
    };
    let backend = start(settings(transport));
    let (call, _inbox) = listening(
        call("resources/read", r#"{"uri":"file:///é"}"#),
        |context| {
            context.wants_progress = true;
            context.log_level = Some(LogLevel::Error);
        },
    );
    send(&backend, call).await.unwrap();
    let read = server.next_of("resources/read").await;
    assert_eq!(read.header("mcp-name"), Some("=?base64?ZmlsZTovLy/DqQ==?="));
    assert_eq!(read.header("mcp-method"), Some("resources/read"));
    assert_eq!(read.header("authorization"), Some("Bearer t"));
    assert_eq!(read.header("mcp-session-id"), None);
    let meta = read.params().get("_meta").unwrap();
    assert_eq!(meta.get("progressToken").unwrap().as_text(), read.id());
    assert_eq!(
        meta.get("io.modelcontextprotocol/logLevel")
            .unwrap()
            .as_text(),
        r#""error""#
    );
}

#[tokio::test]
async fn errors_with_an_http_status_are_answers() {
    let server = Server::start(|seen| {
        modern(seen).unwrap_or_else(|| match seen.method().as_str() {
            "resources/read" => {
                seen.error(400, r#"{"code":-32602,"message":"none such","data":1.0}"#)
            }
            _ => seen.error(404, r#"{"code":-32601,"message":"m","data":{ }}"#),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "x/y", "").await.unwrap(),
        r#"{"code":-32601,"message":"m","data":{ }}"#
    );
    let missing = ask(&backend, "resources/read", r#"{"uri":"a"}"#)
        .await
        .unwrap();
    assert_eq!(
        missing,
        r#"{"code":-32002,"message":"none such","data":1.0}"#
    );
}

#[tokio::test]
async fn notifications_are_delivered_before_the_answer() {
    let server = Server::start(|seen| {
        modern(seen).unwrap_or_else(|| {
            let id = seen.id();
            let progress = |token: &str, n: u8| {
                event(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n}}}}}"#
                ))
            };
            let events = [
                ":comment\nid: 1\ndata:\n\n".to_owned(),
                progress(&id, 1),
                progress("\"other\"", 9),
                event(&format!(r#"{{"jsonrpc":"2.0","id":"other-{id}","result":{{"wrong":1}}}}"#)),
                progress(&id, 2),
                event(&format!("{{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\"result\":{{\"n\":1.0}}}}")),
                event("never read"),
            ];
            Reply::Stream(events.concat())
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = listening(call("tools/call", r#"{"name":"a"}"#), |context| {
        context.wants_progress = true;
    });
    assert_eq!(send(&backend, call).await.unwrap(), r#"{"n":1.0}"#);
    for n in ["1", "2"] {
        let notification = inbox.recv().await.unwrap();
        assert_eq!(
            notification
                .params()
                .unwrap()
                .get("progress")
                .unwrap()
                .as_text(),
            n
        );
    }
    assert!(inbox.recv().await.is_none());
}

#[tokio::test]
async fn requests_of_a_legacy_server_are_answered_by_posts() {
    let mut server = Server::start(|seen| {
        legacy(seen, "s").unwrap_or_else(|| match seen.method().as_str() {
            "tools/call" => Reply::Stream(
                [
                    event(r#"{"jsonrpc":"2.0","id":"p\u0031","method":"ping"}"#),
                    event(
                        r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}"#,
                    ),
                    event(&format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
                        seen.id()
                    )),
                ]
                .concat(),
            ),
            _ => Reply::Whole(202, String::new(), "text/plain", String::new()),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "tools/call", r#"{"name":"a"}"#)
            .await
            .unwrap(),
        "{}"
    );
    server.next_of("tools/call").await;
    assert_eq!(
        server.next().await.body,
        r#"{"jsonrpc":"2.0","id":"p\u0031","result":{}}"#
    );
    assert!(
        server
            .next()
            .await
            .body
            .starts_with(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"#)
    );
}

#[tokio::test]
async fn batches_of_2025_03_26_are_understood() {
    let server = Server::start(|seen| match seen.method().as_str() {
        "initialize" => seen.result(r#"{"protocolVersion":"2025-03-26"}"#),
        "tools/list" => ok(format!(
            r#"[{{"jsonrpc":"2.0","method":"notifications/x"}},{{"jsonrpc":"2.0","id":{},"result":{{"n":1}}}}]"#,
            seen.id()
        )),
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(ask(&backend, "tools/list", "").await.unwrap(), r#"{"n":1}"#);
}

#[tokio::test]
async fn modern_request_is_cancelled_by_closing_its_stream() {
    let mut server =
        Server::start(|seen| modern(seen).unwrap_or_else(|| Reply::Open(": working\n\n".into())))
            .await;
    let backend = start(settings(server.transport()));
    let request = backend.request(call("x/y", ""));
    tokio::select! {
        outcome = request => panic!("{outcome:?}"),
        _ = server.next_of("x/y") => {}
    }
    assert_eq!(server.next().await.verb, "closed");
    assert_eq!(server.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn legacy_request_is_cancelled_by_a_notification() {
    let mut server = Server::start(|seen| legacy(seen, "s").unwrap_or(Reply::Hang)).await;
    let backend = start(settings(server.transport()));
    let request = backend.request(call("x/y", ""));
    let asked = tokio::select! {
        outcome = request => panic!("{outcome:?}"),
        asked = server.next_of("x/y") => asked,
    };
    let cancelled = server.next_of("notifications/cancelled").await;
    assert_eq!(
        cancelled.params().get("requestId").unwrap().as_text(),
        asked.id()
    );
    assert_eq!(cancelled.header("mcp-session-id"), Some("s"));
}

#[tokio::test]
async fn log_level_of_a_legacy_server_follows_the_lowest_of_all_calls() {
    let mut server =
        Server::start(|seen| legacy(seen, "s").unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    for level in [LogLevel::Warning, LogLevel::Error, LogLevel::Debug] {
        let (call, _inbox) = listening(call("x/y", ""), |context| context.log_level = Some(level));
        send(&backend, call).await.unwrap();
    }
    let mut methods = Vec::new();
    while methods.iter().filter(|method| *method == "x/y").count() < 3 {
        let seen = server.next().await;
        match seen.method().as_str() {
            "logging/setLevel" => {
                methods.push(seen.params().get("level").unwrap().as_text().to_owned());
            }
            "x/y" => methods.push("x/y".into()),
            _ => {}
        }
    }
    assert_eq!(methods, ["\"warning\"", "x/y", "x/y", "\"debug\"", "x/y"]);
}

#[tokio::test]
async fn requests_unknown_to_the_modern_era_are_answered_locally() {
    let mut server = Server::start(|seen| modern(seen).unwrap()).await;
    let backend = start(settings(server.transport()));
    assert_eq!(ask(&backend, "ping", "").await.unwrap(), "{}");
    assert_eq!(
        ask(&backend, "logging/setLevel", r#"{"level":"info"}"#)
            .await
            .unwrap(),
        "{}"
    );
    assert_eq!(server.count("ping") + server.count("logging/setLevel"), 0);
}

#[tokio::test]
async fn stopping_ends_the_session() {
    let mut server = Server::start(|seen| legacy(seen, "s").unwrap()).await;
    let backend = start(settings(server.transport()));
    revision(&backend).await;
    backend.stop().await;
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s")
    );
    let error = ask(&backend, "x/y", "").await.unwrap_err();
    assert_eq!(error, fanlight_canonical::BackendError::ShuttingDown);
}
