//! Client credentials: only their check sees them, and no spelling of a request exceeds a client's
//! scopes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::http2::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, call, exchange, field, frame};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, Response, initialize, legacy_request, modern_headers,
    modern_request,
};
use crate::scripted::{Backend, Era, Reply, Transport};

/// A key and its digest.
const KEY: (&str, &str) = (
    "fanlight_1111111111111111111111111111111111111111111146EDT",
    "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
);
/// Part of every other secret that the client sends.
const MARK: &str = "leaked";
/// Header fields that are for Fanlight alone, or for nobody here.
const SECRETS: [(&str, &str); 3] = [
    ("Cookie", "session=leaked-cookie"),
    ("DPoP", "leaked.proof.of-possession"),
    ("Proxy-Authorization", "Basic leaked-proxy"),
];

async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut connection = Connection::open(address).await;
    let mut all = JSON_HEADERS.to_vec();
    all.retain(|(name, _)| {
        method == "POST"
            && !headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
    });
    all.extend_from_slice(headers);
    all.extend(SECRETS);
    connection
        .request(method, path, &all, body.as_bytes())
        .await;
    connection.response().await
}

/// A collector that keeps all exported bytes.
async fn collector() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&all);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut piece = vec![0; 64 << 10];
                while let Ok(read @ 1..) = stream.read(&mut piece).await {
                    kept.lock().unwrap().extend_from_slice(&piece[..read]);
                    // The exporter waits for the response before it sends more.
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                        .await;
                }
            });
        }
    });
    (address, all)
}

/// A gateway that logs and exports everything it can, to files and a collector.
struct Talkative {
    mcp: SocketAddr,
    admin: SocketAddr,
    log: PathBuf,
    folder: TempFile,
    child: tokio::process::Child,
}

impl Talkative {
    async fn start(config: &str) -> Self {
        let folder = TempFile::folder();
        let [log, out, traces, file] =
            ["log", "out", "traces", "fanlight.yaml"].map(|name| folder.path().join(name));
        fs::write(&file, config).unwrap();
        fs::write(
            folder.path().join("keys.yaml"),
            format!("keys:\n- {{name: ci, sha256: '{}'}}\n", KEY.1),
        )
        .unwrap();
        let mut command = fanlight();
        command.args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--log",
            "trace",
            "--trace-console",
        ]);
        command
            .arg("--trace-file")
            .arg(traces)
            .arg("--config")
            .arg(file);
        command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out).unwrap());
        command.stderr(fs::File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        let (mcp, admin) = within("the listeners", async {
            loop {
                let text = [&log, &out]
                    .map(|file| fs::read_to_string(file).unwrap_or_default())
                    .concat();
                if let (Some(mcp), Some(admin)) = (
                    address(&text, "listening on http://"),
                    address(&text, "admin on http://"),
                ) {
                    return (mcp, admin);
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        Self {
            mcp,
            admin,
            log,
            folder,
            child,
        }
    }
}

fn address(log: &str, before: &str) -> Option<SocketAddr> {
    let after = log.split_once(before)?.1;
    let end = after.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))?;
    after.get(..end)?.parse().ok()
}

/// The head and the body of a response.
async fn whole(response: &mut Response) -> String {
    let text = response.text().await;
    format!("{:?} {text}", response.headers)
}

/// The occurrences of secrets in these bytes.
fn secrets_in(name: &str, bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let found = text
        .lines()
        .filter(|line| line.contains(KEY.0) || line.contains(MARK));
    found.map(|line| format!("{name}: {line}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_of_clients_reach_neither_servers_nor_records() {
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    let legacy = Backend::start(Era::Legacy, Transport::Http).await;
    let process = Backend::start(Era::Legacy, Transport::Stdio).await;
    for (backend, era) in [
        (&modern, Era::Modern),
        (&legacy, Era::Legacy),
        (&process, Era::Legacy),
    ] {
        backend.offers_tools(&["t"]);
        backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    }
    let (collector, exported) = collector().await;
    let servers: Vec<_> = [("m", &modern), ("l", &legacy), ("p", &process)]
        .iter()
        .map(|(name, backend)| backend.entry_with(name, r#""content":true"#))
        .collect();
    let config = format!(
        "publicUrl: https://mcp.example.com\nauth: {{keys: {{file: keys.yaml}}}}\ntelemetry: {{endpoint: 'http://{collector}'}}\nmcpServers: {{{}}}\n",
        servers.join(", ")
    );
    let mut gateway = Talkative::start(&config).await;
    let (address, own) = (gateway.mcp, format!("Bearer {}", KEY.0));
    let mut answers = Vec::new();

    // Credentials that are not accepted.
    for wrong in [
        "Bearer leaked-invalid",
        "Bearer fanlight_leaked",
        "Basic leaked-basic",
        "Bearer leaked several",
        "leaked",
    ] {
        let body = modern_request("1", "tools/list", "", "");
        for (method, path) in [
            ("POST", "/mcp"),
            ("GET", "/mcp"),
            ("DELETE", "/mcp"),
            ("GET", "/sse"),
            ("POST", "/none"),
            ("OPTIONS", "/mcp"),
        ] {
            let mut response =
                send(address, method, path, &[("Authorization", wrong)], &body).await;
            answers.push(whole(&mut response).await);
        }
        let mut page = send(
            address,
            "GET",
            "/mcp",
            &[("Authorization", wrong), ("Accept", "text/html")],
            "",
        )
        .await;
        answers.push(whole(&mut page).await);
    }
    // A token in a URL does not count.
    let mut response = send(
        address,
        "POST",
        &format!("/mcp?access_token={}", KEY.0),
        &[],
        &legacy_request("1", "ping", ""),
    )
    .await;
    assert_eq!(response.status, 401);
    answers.push(whole(&mut response).await);

    // The accepted credential, over all transports and to all servers.
    let authorization = ("Authorization", own.as_str());
    for tool in ["m__t", "l__t", "p__t"] {
        let body = modern_request(
            "1",
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
            "",
        );
        let headers = modern_headers(&body);
        let mut headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        headers.push(authorization);
        let mut response = send(address, "POST", "/mcp", &headers, &body).await;
        let text = response.text().await;
        assert_eq!(response.status, 200, "{text}");
        answers.push(format!("{:?} {text}", response.headers));
    }
    let opened = send(
        address,
        "POST",
        "/mcp",
        &[authorization],
        &initialize("2025-11-25", "{}"),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let in_session = [authorization, ("Mcp-Session-Id", session.as_str())];
    assert_eq!(
        send(address, "POST", "/mcp", &in_session, INITIALIZED)
            .await
            .status,
        202
    );
    let listening = [&in_session[..], &[("Accept", "text/event-stream")]].concat();
    let get = send(address, "GET", "/mcp", &listening, "").await;
    assert_eq!(get.status, 200);
    for tool in ["m__t", "l__t", "p__t"] {
        let call = legacy_request(
            "2",
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
        );
        assert_eq!(
            send(address, "POST", "/mcp", &in_session, &call)
                .await
                .status,
            200
        );
    }
    drop(get);
    assert_eq!(
        send(address, "DELETE", "/mcp", &in_session, "")
            .await
            .status,
        204
    );
    let mut sse = send(
        address,
        "GET",
        "/sse",
        &[authorization, ("Accept", "text/event-stream")],
        "",
    )
    .await;
    let endpoint = sse.event().await.unwrap().expect("an endpoint");
    assert_eq!(
        send(
            address,
            "POST",
            &endpoint,
            &[authorization],
            &initialize("2024-11-05", "{}")
        )
        .await
        .status,
        202
    );
    within("the answer", sse.event()).await.unwrap();
    let (body, mut block) = call("m__t");
    for (name, value) in SECRETS.into_iter().chain([authorization]) {
        block.extend(field(&name.to_ascii_lowercase(), value));
    }
    let request = [
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(DATA, END_STREAM, 1, body.as_bytes()),
    ]
    .concat();
    assert!(exchange(address, &request).await.frames.contains(&HEADERS));
    modern.wait_for("tools/call", 3).await;

    for path in [
        "/metrics",
        "/api/traces",
        "/api/sessions",
        "/api/config",
        "/api/overview",
        "/api/endpoints",
    ] {
        answers.push(send(gateway.admin, "GET", path, &[], "").await.text().await);
    }
    let mut found: Vec<_> = answers
        .iter()
        .flat_map(|answer| secrets_in("answer", answer.as_bytes()))
        .collect();
    for backend in [&modern, &legacy, &process] {
        for method in [
            "server/discover",
            "initialize",
            "tools/list",
            "tools/call",
            "HTTP DELETE",
            "HTTP GET",
        ] {
            for received in backend.received(method) {
                let text = format!("{:?} {}", received.headers, received.text);
                found.extend(secrets_in("server", text.as_bytes()));
                assert!(received.header("cookie").is_none() && received.header("dpop").is_none());
                assert!(
                    received.header("authorization").is_none()
                        && received.header("proxy-authorization").is_none()
                );
            }
        }
    }
    // Processes of ended sessions are gone.
    let environments: Vec<_> = process
        .children(1)
        .await
        .iter()
        .filter_map(|pid| fs::read(format!("/proc/{pid}/environ")).ok())
        .collect();
    assert!(!environments.is_empty());
    found.extend(
        environments
            .iter()
            .flat_map(|environment| secrets_in("environment", environment)),
    );
    // Output at the end counts, too.
    let pid = rustix::process::Pid::from_raw(gateway.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    within("the end", gateway.child.wait()).await.unwrap();
    for file in ["log", "out", "traces"].map(|name| gateway.folder.path().join(name)) {
        let bytes = fs::read(&file).unwrap();
        found.extend(secrets_in(&file.display().to_string(), &bytes));
    }
    assert!(
        size(&gateway.log) > 10_000 && size(&gateway.folder.path().join("traces")) > 1000,
        "there is something to search"
    );
    let exported = exported.lock().unwrap().clone();
    assert!(exported.len() > 1000, "spans have been exported");
    found.extend(secrets_in("export", &exported));
    assert_eq!(found, Vec::<String>::new());
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_may_read_calls_nothing_however_it_spells_it() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let other = Backend::start(Era::Modern, Transport::Http).await;
    for backend in [&backend, &other] {
        backend.offers_tools(&["t", "delete_all"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        backend.on("tools/callLater", Reply::result(Era::Modern.complete("")));
    }
    let folder = TempFile::folder();
    let keys = format!(
        "keys:\n- {{name: reader, sha256: '{}', scopes: [mcp:read]}}\n",
        KEY.1
    );
    fs::write(folder.path().join("keys.yaml"), keys).unwrap();
    let config = format!(
        "auth: {{keys: {{file: keys.yaml}}, scopes: {{read: mcp:read, call: mcp:call, tools: {{'a__delete_*': [delete]}}}}}}\nmcpServers: {{{}, {}}}\n",
        backend.entry("a"),
        other.entry("b")
    );
    fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
    let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
    let (address, own) = (gateway.mcp, format!("Bearer {}", KEY.0));
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = |members: &str| format!(r#"{{"jsonrpc":"2.0","id":1,{members}}}"#);
    let bodies = [
        body(&format!(
            r#""method":"tools/call","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools\/call","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"\u0074ools/call","params":{{"name":"\u0061__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"Tools/Call","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/call ","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/callLater","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/list","method":"tools/call","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/list","Method":"tools/call","params":{{"name":"a__t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/call","params":{{"name":"t",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tools/call","params":{{"name":"delete_all",{meta}}}"#
        )),
        body(&format!(
            r#""method":"tasks/update","params":{{"taskId":"x","name":"a__t",{meta}}}"#
        )),
    ];
    for body in &bodies {
        for (method, name) in [
            ("tools/call", "a__t"),
            ("tools/list", ""),
            ("tools/callLater", ""),
            ("resources/read", "a__t"),
        ] {
            let headers = [
                ("Authorization", own.as_str()),
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", method),
                ("Mcp-Name", name),
            ];
            let headers = headers
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .collect::<Vec<_>>();
            let response = send(address, "POST", "/mcp", &headers, body).await;
            assert!(
                [400, 403, 404].contains(&response.status),
                "{method} {body}: {}",
                response.status
            );
        }
    }
    // The scopes also hold within a session, and in a batch of one.
    for (revision, is_batch) in [("2025-11-25", false), ("2025-03-26", true)] {
        let opened = send(
            address,
            "POST",
            "/mcp",
            &[("Authorization", &own)],
            &initialize(revision, "{}"),
        )
        .await;
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        let headers = [
            ("Authorization", own.as_str()),
            ("Mcp-Session-Id", &session),
        ];
        for (method, params) in [
            ("tools/call", r#""name":"a__t""#),
            ("tools/call", r#""name":"delete_all""#),
            ("tools/callLater", r#""name":"a__t""#),
            ("x/call", r#""tool":"a__t""#),
        ] {
            let one = legacy_request("9", method, params);
            let body = if is_batch {
                format!("[{one},{}]", legacy_request("8", "ping", ""))
            } else {
                one
            };
            let mut response = send(address, "POST", "/mcp", &headers, &body).await;
            let text = response.whole_text().await;
            assert!(
                text.contains("-31005") || response.status == 404,
                "{method}: {text}"
            );
        }
    }
    for backend in [&backend, &other] {
        let called = ["tools/call", "tools/callLater", "x/call", "tasks/update"]
            .map(|method| backend.received(method).len());
        assert_eq!(called, [0; 4]);
    }
}
