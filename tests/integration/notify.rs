//! Webhooks that tell who waits (`notify`), through the real binary.

use fanlight_tests::slicer::member_at;
use tokio::sync::mpsc;

use crate::harness::{Gateway, within};
use crate::http_recorder::{HttpRecorder, Recorded, says};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::server_lives::text_at;

/// A webhook that fails at first, and its requests.
async fn webhook() -> (HttpRecorder, mpsc::UnboundedReceiver<Recorded>) {
    let (sender, requests) = mpsc::unbounded_channel();
    let failed = std::sync::atomic::AtomicBool::new(false);
    let recorder = HttpRecorder::start(move |request| {
        let _ = sender.send(request.clone());
        match failed.swap(true, std::sync::atomic::Ordering::Relaxed) {
            true => says(""),
            false => "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
        }
    })
    .await;
    (recorder, requests)
}

fn notifying(servers: &[String], webhook: &HttpRecorder, more: &str) -> String {
    let servers = config(servers);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let url = format!("http://{}/hook", webhook.address);
    format!(
        r#"{servers},"notify":[{{"url":"{url}","secret":"0123456789abcdef"}}],"x-limits":"notifyPause=10ms,notifyLook=10ms"{more}}}"#
    )
}

fn data<'a>(body: &'a str, name: &str) -> &'a str {
    member_at(body, &["data", name]).unwrap_or_default()
}

#[tokio::test]
async fn webhook_is_told_of_a_call_that_waits_until_it_has_answered() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["erase"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let (recorder, mut requests) = webhook().await;
    let entry = backend.entry_with("files", r#""approval":{"tools":["erase"]}"#);
    let more = r#","timeouts":{"approval":"10ms"}"#;
    let gateway = Gateway::start(&notifying(&[entry], &recorder, more)).await;
    let params = r#""name":"erase","arguments":{"path":"s3cret"}"#;
    let request = modern_request("1", "tools/call", params, "");
    let answer = post_modern(gateway.mcp, &request).await.messages().await.1;
    let id = member_at(&answer, &["error", "data", "approval"])
        .unwrap()
        .to_owned();
    let (first, again) = within("two attempts", async {
        (
            requests.recv().await.unwrap(),
            requests.recv().await.unwrap(),
        )
    })
    .await;
    let body = first.text();
    assert_eq!(body, again.text(), "the same notice");
    let header = |of: &Recorded, name: &str| {
        let line = of
            .head
            .lines()
            .find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {}", of.head))
    };
    assert_eq!(
        header(&first, "webhook-id: "),
        header(&again, "webhook-id: ")
    );
    assert!(header(&first, "webhook-signature: ").starts_with("v1,"));
    header(&first, "webhook-timestamp: ")
        .parse::<u64>()
        .unwrap();
    assert_eq!(data(&body, "server"), r#""files""#, "{body}");
    assert_eq!(data(&body, "tool"), r#""erase""#);
    assert_eq!(data(&body, "id"), id);
    assert!(
        body.starts_with(r#"{"type":"approval","#) && !body.contains("s3cret"),
        "{body}"
    );
    let metrics = text_at(&gateway, "/metrics").await;
    assert!(metrics.contains("fanlight_approvals_open 1"), "{metrics}");
}

#[tokio::test]
async fn webhook_is_told_once_of_a_server_that_is_down() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let (recorder, mut requests) = webhook().await;
    let gone = r#""gone":{"url":"http://127.0.0.1:1/mcp"}"#.to_owned();
    let config = notifying(&[backend.entry("files"), gone], &recorder, "");
    let _gateway = Gateway::start(&config).await;
    let told = within("two attempts", async {
        requests.recv().await.unwrap();
        requests.recv().await.unwrap()
    })
    .await;
    let body = told.text();
    assert!(body.starts_with(r#"{"type":"serverDown","#), "{body}");
    assert_eq!(data(&body, "server"), r#""gone""#);
    assert!(!body.contains("127.0.0.1"), "{body}");
}
