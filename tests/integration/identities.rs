//! Clients identified by their connection: TLS certificates, and local users on a Unix socket.

use std::fs;
use std::process::Stdio;

use fanlight_testkit::tls::{Authority, TlsClient};
use tokio::net::UnixStream;

use crate::harness::{Gateway, Log, TempFile, fanlight, within};
use crate::raw_client::{
    Connection, JSON_HEADERS, NEWEST_LEGACY, initialize, legacy_request, modern_request,
    post_modern_on,
};
use crate::scripted::{Backend, Era, Transport};

const TOKEN: &str = "0123456789abcdef-operator";

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend
}

async fn status(connection: Connection) -> u16 {
    post_modern_on(connection, &modern_request("1", "tools/list", "", ""))
        .await
        .status
}

#[tokio::test]
async fn certificate_names_the_principal() {
    let (backend, folder, authority) = (backend().await, TempFile::folder(), Authority::new());
    let (pair, path) = (authority.server(), |name: &str| folder.path().join(name));
    for (name, text) in [
        ("server.pem", pair.pem()),
        ("server.key", pair.key()),
        ("ca.pem", authority.pem()),
    ] {
        fs::write(path(name), text).unwrap();
    }
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{listen: 127.0.0.1:0}}\n\
         tls: {{cert: server.pem, key: server.key, clientCa: ca.pem, clientAuth: optional}}\n\
         auth: {{certificates: true}}\nmcpServers: {{{}}}\n",
        backend.entry("only")
    );
    fs::write(path("fanlight.yaml"), text).unwrap();
    let gateway = Gateway::start_at_addresses_of(path("fanlight.yaml")).await;
    let showing = |uri: &str| TlsClient::showing(&authority, &authority.client(uri));
    let (ann, bob) = (
        showing("spiffe://example.org/ann"),
        showing("spiffe://example.org/bob"),
    );
    let none = TlsClient::new(&authority);
    assert_eq!(status(ann.open(gateway.mcp).await).await, 200);
    assert_eq!(status(none.open(gateway.mcp).await).await, 401);
    // A certificate without a URI is known by its DNS name.
    let host = TlsClient::showing(&authority, &pair);
    assert_eq!(status(host.open(gateway.mcp).await).await, 200);

    let mut connection = ann.open(gateway.mcp).await;
    connection
        .request(
            "POST",
            "/mcp",
            &JSON_HEADERS,
            initialize(NEWEST_LEGACY, "{}").as_bytes(),
        )
        .await;
    let opened = connection.response().await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    opened.finish().await;
    let ping = async |client: &TlsClient| {
        let mut headers = JSON_HEADERS.to_vec();
        headers.extend([
            ("Mcp-Session-Id", session.as_str()),
            ("MCP-Protocol-Version", NEWEST_LEGACY),
        ]);
        let mut connection = client.open(gateway.mcp).await;
        connection
            .request(
                "POST",
                "/mcp",
                &headers,
                legacy_request("1", "ping", "").as_bytes(),
            )
            .await;
        connection.response().await.status
    };
    assert_eq!(
        (ping(&ann).await, ping(&bob).await, ping(&none).await),
        (200, 404, 401)
    );
    // Another certificate of the same name on another connection is the same principal.
    assert_eq!(ping(&showing("spiffe://example.org/ann")).await, 200);
}

#[tokio::test]
async fn user_of_a_unix_socket_is_known_to_the_system() {
    let (backend, folder) = (backend().await, TempFile::folder());
    let text = format!(
        "listen: unix:clients.sock\nadmin: {{listen: unix:admin.sock, token: {TOKEN}}}\nauth: {{socket: true}}\nmcpServers: {{{}}}\n",
        backend.entry("only")
    );
    fs::write(folder.path().join("fanlight.yaml"), text).unwrap();
    let mut command = fanlight();
    command
        .args(["run", "--no-watch", "--config"])
        .arg(folder.path().join("fanlight.yaml"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = Log::print("out", child.stdout.take().unwrap());
    let _err = Log::print("err", child.stderr.take().unwrap());
    log.line_with("listening on").await;
    let open = async |name: &str| {
        let stream = within(
            "a connection",
            UnixStream::connect(folder.path().join(name)),
        )
        .await
        .unwrap();
        Connection::at_host(stream, "localhost")
    };
    assert_eq!(status(open("clients.sock").await).await, 200);
    let mut connection = open("clients.sock").await;
    connection
        .request(
            "POST",
            "/mcp",
            &JSON_HEADERS,
            initialize(NEWEST_LEGACY, "{}").as_bytes(),
        )
        .await;
    assert_eq!(connection.response().await.status, 200);
    let mut connection = open("admin.sock").await;
    let operator = format!("Bearer {TOKEN}");
    connection
        .request("GET", "/api/sessions", &[("Authorization", &operator)], b"")
        .await;
    let shown = connection.response().await.text().await;
    let user = rustix::process::geteuid().as_raw();
    assert!(
        shown.contains(&format!(r#""principal":"uid:{user}","source":"socket""#)),
        "{shown}"
    );
}
