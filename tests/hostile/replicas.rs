//! One hostile endpoint of a server with several: it costs the others nothing, and gets only its
//! own requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::Gateway;
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};

async fn server(era: Era) -> Backend {
    let server = Backend::start(era, Transport::Http).await;
    server.offers_tools(&["t"]);
    server.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    server
}

async fn gateway(urls: [&str; 2], more: &str) -> Gateway {
    let timeouts = r#""x-limits":"connect=5s,reconnect=100ms,reconnectMax=200ms""#;
    let [one, two] = urls;
    Gateway::start(&format!(
        r#"{{"mcpServers":{{"pay":{{"urls":["{one}","{two}"]{more}}}}},{timeouts}}}"#
    ))
    .await
}

async fn call(gateway: &Gateway) -> String {
    post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
    )
    .await
    .messages()
    .await
    .1
}

/// The endpoint answers every request with a redirect to a third host.
#[tokio::test]
async fn endpoint_that_redirects_lures_no_request_away() {
    let (trap, bad) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let lured = Arc::new(AtomicUsize::new(0));
    let answer = format!(
        "HTTP/1.1 307 X\r\nLocation: http://{}/mcp\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        trap.local_addr().unwrap()
    );
    let url = format!("http://{}/mcp", bad.local_addr().unwrap());
    let (counted, mut tasks) = (Arc::clone(&lured), JoinSet::new());
    tasks.spawn(async move {
        while trap.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    tasks.spawn(async move {
        while let Ok((mut connection, _)) = bad.accept().await {
            let _read = connection.read(&mut [0; 1 << 14]).await;
            let _written = connection.write_all(answer.as_bytes()).await;
        }
    });
    let good = server(Era::Modern).await;
    let headers = r#","headers":{"Authorization":"Bearer s3cret-of-the-server"}"#;
    let gateway = gateway([&url, &good.url()], headers).await;
    for _ in 0..10 {
        let answer = call(&gateway).await;
        assert!(answer.contains("\"result\""), "{answer}");
    }
    assert_eq!(
        (
            lured.load(Ordering::SeqCst),
            good.received("tools/call").len()
        ),
        (0, 10)
    );
    assert!(gateway.terminate().await.success());
}

/// The endpoint accepts calls and answers none.
#[tokio::test]
async fn endpoint_that_answers_no_calls_fails_few_of_them() {
    let (bad, good) = (server(Era::Modern).await, server(Era::Modern).await);
    bad.on("tools/call", Reply::fault(Fault::Hang));
    let gateway = gateway([&bad.url(), &good.url()], r#","timeout":"300ms""#).await;
    let mut failed = 0;
    for _ in 0..12 {
        let answer = call(&gateway).await;
        if !answer.contains("\"result\"") {
            assert!(answer.contains("\"mayHaveRun\":true"), "{answer}");
            failed += 1;
        }
    }
    assert!(
        failed <= 2 && bad.received("tools/call").len() == failed,
        "{failed}"
    );
    assert!(gateway.terminate().await.success());
}
