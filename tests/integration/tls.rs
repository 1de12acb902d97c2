//! Clients and operators over TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use fanlight_testkit::tls::{Authority, Pair, TlsClient};
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{Connection, LISTEN, modern_headers, modern_request, post_modern_on};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const ANY: &str = "127.0.0.1:0";

/// The files of a gateway with TLS.
pub(crate) struct Files {
    folder: TempFile,
    authority: Authority,
}

impl Files {
    /// Creates the files, with a certificate for the gateway.
    pub(crate) fn new() -> Self {
        let files = Self {
            folder: TempFile::folder(),
            authority: Authority::new(),
        };
        files.renew(&files.authority.server());
        files.write("ca.pem", &files.authority.pem());
        files
    }

    fn write(&self, name: &str, text: &str) {
        // The new file replaces the old one as a whole, as renewal tools do, so no reader sees half
        // of it.
        let (new, path) = (self.path("new"), self.path(name));
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn renew(&self, pair: &Pair) {
        self.write("server.key", &pair.key());
        self.write("server.pem", &pair.pem());
    }

    /// Writes a configuration with these extra members of `tls` for both listeners, and these
    /// servers.
    pub(crate) fn configure(&self, tls: &str, more: &str, entries: &[String]) {
        self.configure_with(ANY, tls, more, entries);
    }

    /// Writes a configuration with this address for clients, and these servers.
    pub(crate) fn configure_at(&self, listen: &str, entries: &[String]) {
        self.configure_with(listen, "", "", entries);
    }

    fn configure_with(&self, listen: &str, tls: &str, more: &str, entries: &[String]) {
        let servers = config(entries);
        let of_clients = format!(r#"{{"cert":"server.pem","key":"server.key"{tls}}}"#);
        let text = format!(
            r#"{{"listen":"{listen}","tls":{of_clients},"admin":{{"listen":"{ANY}"}},"x-limits":"configSettle=20ms",{more}{}"#,
            &servers[1..]
        );
        self.write("fanlight.yaml", &text);
    }

    pub(crate) async fn start(&self) -> Gateway {
        Gateway::start_at_addresses_of(self.path("fanlight.yaml")).await
    }
}

/// A server with a tool `t` whose result has `bytes` bytes. It announces changes.
async fn server_with_results_of(bytes: usize) -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    backend.on(LISTEN, Reply::listening());
    backend.offers_tools(&["t"]);
    let text = format!(
        r#""content":[{{"type":"text","text":"{}"}}]"#,
        "x".repeat(bytes)
    );
    backend.on("tools/call", Reply::result(Era::Modern.complete(&text)));
    backend
}

fn call() -> String {
    modern_request("1", "tools/call", r#""name":"t""#, "")
}

/// Calls the tool on a new connection; returns the answer and the gateway's certificate.
async fn answer_and_certificate(client: &TlsClient, address: SocketAddr) -> (String, Vec<u8>) {
    let stream = client.connect(address).await.unwrap();
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let mut response = post_modern_on(Connection::on(stream, address), &call()).await;
    (response.messages().await.1, certificate)
}

/// The status of a request on a new connection; an error if the gateway does not accept the client.
async fn status(client: &TlsClient, address: SocketAddr) -> std::io::Result<u16> {
    let mut stream = client.connect(address).await?;
    stream
        .write_all(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .await?;
    let mut text = String::new();
    // In TLS 1.3, the client reads the refusal of its certificate after the handshake.
    let read = within("an answer", stream.read_to_string(&mut text)).await;
    match text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
    {
        Some(status) => Ok(status),
        None => Err(read
            .err()
            .unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into())),
    }
}

#[tokio::test]
async fn calls_are_answered_over_both_versions_of_tls_and_http() {
    let (files, backend) = (Files::new(), server_with_results_of(300_000).await);
    files.configure("", "", &[backend.entry("only")]);
    let gateway = files.start().await;
    for client in [
        TlsClient::new(&files.authority),
        TlsClient::of_tls_1_2(&files.authority),
    ] {
        let (answer, _) = answer_and_certificate(&client, gateway.mcp).await;
        assert!(answer.len() > 300_000, "{}", answer.len());
        for (offered, chosen) in [
            (&["h2", "http/1.1"][..], Some("h2")),
            (&["http/1.1"], Some("http/1.1")),
            (&[], None),
        ] {
            let stream = client
                .clone()
                .offering(offered)
                .connect(gateway.mcp)
                .await
                .unwrap();
            assert_eq!(
                stream.get_ref().1.alpn_protocol(),
                chosen.map(str::as_bytes)
            );
        }
        let stream = client
            .clone()
            .offering(&["h2"])
            .connect(gateway.mcp)
            .await
            .unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let driver = tokio::spawn(connection);
        let uri: Uri = format!("https://{}/mcp", gateway.mcp).parse().unwrap();
        let body = call();
        let mut request = Request::post(uri)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in modern_headers(&body) {
            request = request.header(name.as_str(), value.as_str());
        }
        let response = within(
            "an answer",
            sender.send_request(request.body(body).unwrap()),
        )
        .await
        .unwrap();
        assert_eq!(response.status(), 200);
        driver.abort();
    }
    assert!(
        gateway
            .log
            .text()
            .contains(&format!("listening on https://{}/mcp", gateway.mcp))
    );
    let mut admin = Connection::open(gateway.admin).await;
    admin.request("GET", "/api/overview", &[], b"").await;
    let overview = admin.response().await.text().await;
    assert!(
        overview.contains(&format!("https://{}/mcp", gateway.mcp)),
        "{overview}"
    );
}

#[tokio::test]
async fn event_streams_arrive_at_once_over_tls() {
    let (files, backend) = (Files::new(), server_with_results_of(1).await);
    let later = server_with_results_of(1).await;
    files.configure("", "", &[backend.entry("one")]);
    let gateway = files.start().await;
    let connection = TlsClient::new(&files.authority).open(gateway.mcp).await;
    let request = modern_request(
        "1",
        LISTEN,
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let mut stream = post_modern_on(connection, &request).await;
    assert!(stream.is_event_stream());
    assert!(
        stream
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains("acknowledged")
    );
    files.configure("", "", &[backend.entry("one"), later.entry("two")]);
    let event = within("the change", stream.event()).await.unwrap().unwrap();
    assert!(event.contains("list_changed"), "{event}");
}

/// TLS buffers what the socket does not take: everything arrives, however slowly the client reads.
#[tokio::test]
async fn long_answer_arrives_whole_at_a_slow_reader() {
    const LENGTH: usize = 8 << 20;
    let (files, backend) = (Files::new(), server_with_results_of(LENGTH).await);
    files.configure("", "", &[backend.entry("only")]);
    let gateway = files.start().await;
    let mut stream = TlsClient::new(&files.authority)
        .connect(gateway.mcp)
        .await
        .unwrap();
    let body = call();
    let mut head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\n"
        .to_owned();
    modern_headers(&body)
        .iter()
        .for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut buffer, mut read) = (vec![0; 64 << 10], 0);
    loop {
        match within("more of the answer", stream.read(&mut buffer))
            .await
            .unwrap()
        {
            0 => break,
            more => read += more,
        }
        tokio::task::yield_now().await;
    }
    assert!(read > LENGTH, "{read}");
}

#[tokio::test]
async fn renewed_certificate_is_shown_while_old_connections_go_on() {
    let (files, backend, later) = (
        Files::new(),
        server_with_results_of(1).await,
        server_with_results_of(1).await,
    );
    let pair = files.authority.server();
    files.renew(&pair);
    files.configure("", "", &[backend.entry("only")]);
    let gateway = files.start().await;
    let client = TlsClient::new(&files.authority);
    let old = client.open(gateway.mcp).await;
    assert_eq!(
        answer_and_certificate(&client, gateway.mcp).await.1,
        pair.der()
    );
    let request = modern_request(
        "2",
        LISTEN,
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let mut stream = post_modern_on(client.open(gateway.mcp).await, &request).await;
    assert!(
        stream
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains("acknowledged")
    );

    let renewed = files.authority.server();
    files.renew(&renewed);
    gateway.log.line_with("TLS of the listener changed").await;
    assert_eq!(
        answer_and_certificate(&client, gateway.mcp).await.1,
        renewed.der()
    );
    let mut response = post_modern_on(old, &call()).await;
    assert!(
        response.messages().await.1.contains("result"),
        "the old connection is still in use"
    );

    // Unusable files change nothing.
    for broken in ["", "garbage", &files.authority.server().key()] {
        files.write("server.key", broken);
        gateway.log.line_with("configuration not reloaded").await;
        assert_eq!(
            answer_and_certificate(&client, gateway.mcp).await.1,
            renewed.der()
        );
    }
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 422, "{report}");
    assert!(
        report.contains("`key` is not the key of the certificate in `cert`"),
        "{report}"
    );
    files.write("server.key", &renewed.key());
    assert_eq!(gateway.reload().await.0, 200);

    files.configure("", "", &[backend.entry("only"), later.entry("other")]);
    assert!(
        within("the change", stream.event())
            .await
            .unwrap()
            .unwrap()
            .contains("list_changed")
    );
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn certificates_of_clients_are_verified() {
    let (files, foreign, backend) = (
        Files::new(),
        Authority::new(),
        server_with_results_of(1).await,
    );
    let uri = "spiffe://example.org/agent";
    let [own, expired, other] = [
        files.authority.client(uri),
        files.authority.expired_client(uri),
        foreign.client(uri),
    ];
    let of_server = files.authority.server();
    let showing = |pair| TlsClient::showing(&files.authority, pair);
    for (tls, is_required) in [
        (r#","clientCa":"ca.pem""#, true),
        (r#","clientCa":"ca.pem","clientAuth":"required""#, true),
        (r#","clientCa":"ca.pem","clientAuth":"optional""#, false),
    ] {
        files.configure(tls, "", &[backend.entry("only")]);
        let gateway = files.start().await;
        assert_eq!(status(&showing(&own), gateway.mcp).await.unwrap(), 404);
        assert_eq!(
            status(&TlsClient::new(&files.authority), gateway.mcp)
                .await
                .is_err(),
            is_required,
            "{tls}"
        );
        assert_eq!(
            status(&TlsClient::of_tls_1_2(&files.authority), gateway.mcp)
                .await
                .is_err(),
            is_required,
            "{tls}"
        );
        for wrong in [&expired, &other] {
            assert!(status(&showing(wrong), gateway.mcp).await.is_err(), "{tls}");
        }
        // The certificate is of the same authority and does not restrict its use.
        assert_eq!(
            status(&showing(&of_server), gateway.mcp).await.unwrap(),
            404
        );
    }
}

#[tokio::test]
async fn connections_end_when_another_authority_signs_for_clients() {
    let (files, next, backend) = (
        Files::new(),
        Authority::new(),
        server_with_results_of(1).await,
    );
    files.configure(r#","clientCa":"ca.pem""#, "", &[backend.entry("only")]);
    let gateway = files.start().await;
    let own = TlsClient::showing(&files.authority, &files.authority.client("spiffe://a/b"));
    let connection = own.open(gateway.mcp).await;
    files.write("ca.pem", &next.pem());
    gateway.log.line_with("TLS of the listener changed").await;
    assert_eq!(
        within("the end of the connection", connection.rest()).await,
        ""
    );
    assert!(status(&own, gateway.mcp).await.is_err());
    let new = TlsClient::showing(&files.authority, &next.client("spiffe://a/b"));
    assert_eq!(status(&new, gateway.mcp).await.unwrap(), 404);
}

#[tokio::test]
async fn plain_http_is_answered_that_this_port_speaks_https() {
    let (files, backend) = (Files::new(), server_with_results_of(1).await);
    files.configure("", "", &[backend.entry("only")]);
    let gateway = files.start().await;
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut connection = Connection::open(gateway.mcp).await;
        connection.send(request.as_bytes()).await.unwrap();
        let mut response = connection.response().await;
        assert_eq!(response.status, 400);
        let text = response.text().await;
        assert!(text.contains("speaks https"), "{text}");
    }
    let mut long = Connection::open(gateway.mcp).await;
    long.request(
        "POST",
        "/mcp",
        &[("Content-Type", "application/json")],
        &vec![b' '; 40_000],
    )
    .await;
    assert_eq!(long.response().await.status, 400);
}

#[tokio::test]
async fn tls_begins_and_ends_with_a_reload() {
    let (files, backend) = (Files::new(), server_with_results_of(1).await);
    let servers = config(&[backend.entry("only")]);
    let plain = format!(
        r#"{{"listen":"{ANY}","admin":{{"listen":"{ANY}"}},{}"#,
        &servers[1..]
    );
    files.write("fanlight.yaml", &plain);
    let gateway = files.start().await;
    let connection = Connection::open(gateway.mcp).await;
    files.configure("", "", &[backend.entry("only")]);
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(
        within("the end of the plain connection", connection.rest()).await,
        ""
    );
    let client = TlsClient::new(&files.authority);
    assert!(
        answer_and_certificate(&client, gateway.mcp)
            .await
            .0
            .contains("result")
    );
    files.write("fanlight.yaml", &plain);
    assert_eq!(gateway.reload().await.0, 200);
    let mut response = post_modern_on(Connection::open(gateway.mcp).await, &call()).await;
    assert!(response.messages().await.1.contains("result"));
    assert!(client.connect(gateway.mcp).await.is_err());
}

#[tokio::test]
async fn operators_are_served_over_tls() {
    let (files, backend) = (Files::new(), server_with_results_of(1).await);
    let servers = config(&[backend.entry("only")]);
    let tls = r#"{"cert":"server.pem","key":"server.key"}"#;
    let with = |tls: &str| {
        files.write(
            "fanlight.yaml",
            &format!(
                r#"{{"listen":"{ANY}","admin":{{"listen":"{ANY}","tls":{tls}}},{}"#,
                &servers[1..]
            ),
        );
    };
    with(tls);
    let gateway = files.start().await;
    let client = TlsClient::new(&files.authority);
    let get = async |client: &TlsClient, path: &str| {
        let mut connection = client.open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        let mut response = connection.response().await;
        (response.status, response.text().await)
    };
    assert_eq!(get(&client, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(
        get(&client.clone().offering(&["h2", "http/1.1"]), "/readyz")
            .await
            .0,
        200
    );
    let mut plain = Connection::open(gateway.admin).await;
    plain.request("GET", "/healthz", &[], b"").await;
    assert_eq!(plain.response().await.status, 400);
    assert!(
        gateway
            .log
            .text()
            .contains(&format!("admin on https://{}", gateway.admin))
    );

    let renewed = files.authority.server();
    files.renew(&renewed);
    gateway.log.line_with("TLS of the listener changed").await;
    let stream = client.connect(gateway.admin).await.unwrap();
    assert_eq!(
        stream.get_ref().1.peer_certificates().unwrap()[0].as_ref(),
        renewed.der()
    );
}

#[tokio::test]
async fn files_that_cannot_be_used_end_the_start() {
    let (files, backend) = (Files::new(), server_with_results_of(1).await);
    files.configure("", "", &[backend.entry("only")]);
    for (name, text, problem) in [
        ("server.pem", "", "`cert` has no certificate"),
        ("server.key", "", "`key` has no private key"),
    ] {
        let before = fs::read_to_string(files.path(name)).unwrap();
        files.write(name, text);
        assert!(
            failed_start(&files.path("fanlight.yaml"))
                .await
                .contains(problem)
        );
        files.write(name, &before);
    }
    fs::remove_file(files.path("server.key")).unwrap();
    let text = failed_start(&files.path("fanlight.yaml")).await;
    assert!(
        text.contains("cannot read") && text.contains("server.key"),
        "{text}"
    );
}

async fn failed_start(config: &Path) -> String {
    let mut command = crate::harness::fanlight();
    command
        .args(["run", "--config"])
        .arg(config)
        .stdin(std::process::Stdio::null());
    let output = within("the end", command.output()).await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
