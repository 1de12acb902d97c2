//! A revision that does not exist. It shows that another one is a row: nothing else knows it.

use std::sync::Arc;

use fanlight_protocol::Revision;
use fanlight_protocol::revision::{MirroredMember, ResultMember, Rules};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::session::testing::ListenCore;
use crate::{FrontendSettings, serve_http};

pub(super) const REVISION: Revision = Revision(&RULES);

/// It calls tools by another name, repeats their purpose in a header, and wants the cost in results.
pub(super) static RULES: Rules = Rules {
    name: "2099-01-01",
    renamed: &[("tools/call", "tools/run")],
    lacks_requests: &["tools/call"],
    mirrored: Some(&[MirroredMember {
        header: "mcp-purpose",
        shown: "Mcp-Purpose",
        members: &[("tools/run", "purpose")],
    }]),
    result_members: &[ResultMember {
        name: "cost",
        default: r#""cost":0"#,
        of_cacheable: false,
    }],
    ..*Revision::NEWEST_MODERN.0
};

/// The status and body of the answer to a call of the tool `t` by `method`.
async fn answer(revision: &str, method: &str, header: &str) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (core, settings) = (ListenCore::refusing(), FrontendSettings::default());
    let shutdown = CancellationToken::new();
    let served = serve_http(
        listener,
        Arc::clone(&core),
        Arc::new(settings),
        shutdown.clone(),
    );
    let served = tokio::spawn(served);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"t","purpose":"p","_meta":{{"io.modelcontextprotocol/protocolVersion":"{revision}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: {revision}\r\nmcp-method: {method}\r\n{header}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    shutdown.cancel();
    served.await.unwrap().unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.to_owned(), body.to_owned())
}

#[tokio::test]
async fn revision_is_a_row() {
    let answer = async |method: &str, header: &str| answer(RULES.name, method, header).await;
    let (status, body) = answer("tools/run", "mcp-purpose: p").await;
    assert_eq!(body, r#"{"jsonrpc":"2.0","id":1,"result":{"cost":0}}"#);
    assert_eq!(status, "200");
    let (status, body) = answer("tools/run", "mcp-name: t").await;
    assert!(body.contains("Mcp-Purpose is missing"), "{body}");
    assert_eq!(status, "400");
    let (status, body) = answer("tools/call", "mcp-name: t").await;
    assert!(body.contains("no such method"), "{body}");
    assert_eq!(status, "404");
}

#[tokio::test]
async fn other_revisions_are_not_affected() {
    let (status, body) = answer("2026-07-28", "tools/call", "mcp-name: t").await;
    let complete = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#;
    assert_eq!((&*status, &*body), ("200", complete));
    let (status, _) = answer("2026-07-28", "tools/run", "mcp-name: t").await;
    assert_eq!(status, "200", "an unknown method goes to the server");
}
