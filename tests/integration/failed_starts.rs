//! Servers that do not start: operators see the cause and one remedy everywhere, clients see
//! neither.

use std::process::{Output, Stdio};

use fanlight_testkit::ports::Refusing;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, fanlight, set_limits, within};
use crate::scripted::{Era, Transport};
use crate::server_lives::ask;
use crate::starting::server_when;
use crate::tls::Files;

/// A server's failure, and its report to operators: parts of the cause, the lines and the remedy.
struct Case {
    name: &'static str,
    entry: Value,
    what: &'static str,
    lines: Value,
    remedy: &'static [&'static str],
    /// The remedy that clients are told.
    for_clients: &'static str,
}

fn shell(script: &str) -> Value {
    json!({ "command": "sh", "args": ["-c", script], "startTimeout": "1s" })
}

fn processes() -> Vec<Case> {
    let none = json!([[], []]);
    vec![
        Case {
            name: "missing",
            entry: json!({ "command": "uvx", "args": ["s3cret"], "env": { "PATH": "/nowhere" } }),
            what: "cannot start \"uvx\": no such command",
            lines: none.clone(),
            remedy: &["in no folder of PATH", "install uv"],
            for_clients: "is not installed",
        },
        Case {
            name: "spaces",
            entry: json!({ "command": "sh --foo", "args": ["s3cret"] }),
            what: "cannot start",
            lines: none.clone(),
            remedy: &["write `sh` there, and put `--foo` in `args`"],
            for_clients: "configuration is not usable",
        },
        Case {
            name: "folder",
            entry: json!({ "command": "sh", "cwd": "/nowhere/s3cret" }),
            what: "its working directory does not exist",
            lines: none,
            remedy: &["create the folder /nowhere/s3cret, or correct `cwd`"],
            for_clients: "configuration is not usable",
        },
        Case {
            name: "crash",
            entry: shell(
                "echo 'Error: S3CRET_API_KEY environment variable is not set' >&2; exit 3",
            ),
            what: "it exited before it answered (exit status: 3)",
            lines: json!([
                ["Error: S3CRET_API_KEY environment variable is not set"],
                []
            ]),
            remedy: &["set it in `env`", "`inheritEnv`"],
            for_clients: "configuration is not usable",
        },
        Case {
            name: "banner",
            entry: shell(
                "echo 'Server s3cret is ready'; echo 'loading' >&2; while read -r line; do :; done",
            ),
            what: "it did not answer within 1s",
            lines: json!([["loading"], ["Server s3cret is ready"]]),
            remedy: &["log to standard error"],
            for_clients: "its program does not start",
        },
        Case {
            name: "silent",
            entry: shell("while read -r line; do :; done"),
            what: "it did not answer within 1s",
            lines: json!([[], []]),
            remedy: &["longer `startTimeout`"],
            for_clients: "takes too long to start",
        },
    ]
}

fn config(cases: &[Case]) -> String {
    let servers: serde_json::Map<_, _> = cases
        .iter()
        .map(|case| (case.name.to_owned(), case.entry.clone()))
        .collect();
    // The backoff is long, so that each server is tried once however long the test takes.
    let never = "1h";
    let limits =
        format!("probe=200ms,processStop=100ms,list=5s,reconnect={never},reconnectOnCall={never}");
    json!({ "mcpServers": servers, "x-limits": limits }).to_string()
}

async fn command(arguments: &[&str]) -> (Output, String) {
    let mut command = fanlight();
    command.args(arguments).stdin(Stdio::null());
    set_limits(&mut command);
    let output = within(&format!("{arguments:?}"), command.output())
        .await
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, text)
}

/// Checks what the API, `status` and a client say of each case.
async fn check_all(gateway: &Gateway, cases: &[Case]) {
    for case in cases {
        let server = server_when(gateway, case.name, |server| !server["failure"].is_null()).await;
        let failure = &server["failure"];
        assert!(
            failure["what"].as_str().unwrap().contains(case.what),
            "{}: {failure}",
            case.name
        );
        assert_eq!(
            json!([failure["stderr"], failure["stdout"]]),
            case.lines,
            "{}",
            case.name
        );
        let remedy = failure["remedy"].as_str().unwrap_or_default();
        assert!(
            case.remedy.iter().all(|part| remedy.contains(part)),
            "{}: {failure}",
            case.name
        );
        for text in [failure["what"].as_str().unwrap(), remedy] {
            assert!(
                !text.contains(".rs") && !text.contains("Error {") && !text.contains("Some("),
                "{text}"
            );
        }
        let answer = ask(
            gateway,
            "tools/call",
            &format!(r#""name":"{}__t""#, case.name),
        )
        .await;
        let list = ask(gateway, "tools/list", "").await;
        for text in [&answer, &list] {
            let is_told = [
                "s3cret", "S3CRET", "/nowhere", "127.0.0.", "uvx", "loading", "API_KEY",
            ]
            .iter()
            .find(|word| text.contains(**word));
            assert_eq!(is_told, None, "{}: {text}", case.name);
        }
        let list: Value = serde_json::from_str(&list).unwrap();
        let reason = &list["result"]["_meta"]["dev.fanlight/backends"][case.name]["reason"];
        assert!(
            reason
                .as_str()
                .unwrap_or_default()
                .contains(case.for_clients),
            "{}: {list}",
            case.name
        );
    }
    let admin = format!("http://{}", gateway.admin);
    let (_, status) = command(&["status", "--admin", &admin]).await;
    for case in cases {
        assert!(
            case.remedy.iter().all(|part| status.contains(part)),
            "{}: {status}",
            case.name
        );
        let lines = [("stderr", &case.lines[0]), ("stdout", &case.lines[1])];
        for (stream, line) in lines.iter().flat_map(|(stream, lines)| {
            lines
                .as_array()
                .unwrap()
                .iter()
                .map(move |line| (stream, line))
        }) {
            assert!(
                status.contains(&format!("{stream}: {}", line.as_str().unwrap())),
                "{status}"
            );
        }
    }
}

#[tokio::test]
async fn process_that_does_not_start_shows_cause_and_remedy() {
    let cases = processes();
    let text = config(&cases);
    let gateway = Gateway::start(&text).await;
    check_all(&gateway, &cases).await;
    let admin = format!("http://{}", gateway.admin);
    let (output, log) = command(&["logs", "banner", "--admin", &admin]).await;
    assert!(
        output.status.success() && log.contains("banner  loading"),
        "{log}"
    );
    assert!(log.contains("(stdout) Server s3cret is ready"), "{log}");
    let (output, log) = command(&["logs", "--json", "-n", "1", "--admin", &admin]).await;
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert!(
        output.status.success() && line["server"].is_string() && line["text"].is_string(),
        "{log}"
    );
    let (output, text_of_none) = command(&["logs", "baner", "--admin", &admin]).await;
    assert_eq!(output.status.code(), Some(2), "{text_of_none}");
    assert!(
        text_of_none.contains("has no server \"baner\"; did you mean banner?"),
        "{text_of_none}"
    );
    assert!(gateway.terminate().await.success());

    let file = TempFile::new("yaml", &text);
    let (output, check) = command(&["check", "--config", file.path().to_str().unwrap()]).await;
    assert!(!output.status.success());
    for case in &cases {
        assert!(
            check.contains(&format!("error: server \"{}\" ", case.name)),
            "{check}"
        );
        assert!(
            case.remedy.iter().all(|part| check.contains(part)),
            "{}: {check}",
            case.name
        );
    }
    assert!(
        check.contains("\n  stdout: Server s3cret is ready    (not a message)\n"),
        "{check}"
    );
    assert!(check.contains("6 problems found"), "{check}");
    let (_, list) = command(&["list", "tools", "--config", file.path().to_str().unwrap()]).await;
    assert!(
        list.contains("\n  help: it seems to need a variable"),
        "{list}"
    );
}

/// An HTTP server that answers each request by its path.
async fn http_server(
    answer: impl Fn(&str) -> String + Clone + Send + 'static,
) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Connections are served concurrently, since one may wait for its request.
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            connections.spawn(async move {
                let mut request = vec![0; 64 << 10];
                let read = stream.read(&mut request).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let _ = stream.write_all(answer(path).as_bytes()).await;
            });
        }
    });
    (port, tasks)
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn url(
    name: &'static str,
    url: String,
    more: Value,
    what: &'static str,
    remedy: &'static [&'static str],
) -> Case {
    let mut entry = more;
    entry["url"] = json!(url);
    let for_clients = match remedy {
        [first, ..] if first.contains("token") || first.contains("credentials") => {
            "needs other credentials"
        }
        [first, ..]
            if first.contains("listens")
                || first.contains("spelling")
                || first.contains("path") =>
        {
            "nothing answers"
        }
        _ => "no encrypted connection",
    };
    Case {
        name,
        entry,
        what,
        lines: json!([[], []]),
        remedy,
        for_clients,
    }
}

#[tokio::test]
async fn server_that_cannot_be_reached_shows_cause_and_remedy() {
    let refusing = Refusing::any();
    let unused = refusing.address.port();
    let plain = backend(Era::Modern, Transport::Http).await;
    let files = Files::new();
    files.configure("", "", &[plain.entry("inner")]);
    let tls = files.start().await;
    let elsewhere = Files::new();
    elsewhere.configure_at("127.0.0.2:0", &[plain.entry("inner")]);
    let other_name = elsewhere.start().await;
    let strict = Files::new();
    strict.configure(
        r#","clientCa":"ca.pem","clientAuth":"required""#,
        "",
        &[plain.entry("inner")],
    );
    let strict_gateway = strict.start().await;
    let (protected, _protected) = http_server(|path| match path {
        "/.well-known/oauth-protected-resource/mcp" => response(
            "200 OK",
            "Content-Type: application/json\r\n",
            r#"{"resource":"x","authorization_servers":["https://id.example.com"],"scopes_supported":["notes:read"]}"#,
        ),
        _ => response("401 Unauthorized", "WWW-Authenticate: Bearer error_description=\"s3cret has expired\"\r\n", ""),
    })
    .await;
    let (lost, _lost) = http_server(|_| {
        response(
            "404 Not Found",
            "Content-Type: text/html\r\n",
            "<p>s3cret</p>",
        )
    })
    .await;
    let at = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}/mcp");
    let ca = |files: &Files| json!({ "caFile": files.path("ca.pem") });
    let cases = [
        url(
            "refused",
            at("http", unused),
            json!({}),
            "connection refused",
            &["nothing listens there"],
        ),
        // No name has an empty label, so no name server is asked.
        url(
            "unknown",
            "http://s3cret..invalid/mcp".into(),
            json!({}),
            "host name is not known",
            &["spelling"],
        ),
        url(
            "https",
            plain.url().replace("http:", "https:"),
            json!({}),
            "it speaks http, not https",
            &["`http://`"],
        ),
        url(
            "http",
            at("http", tls.mcp.port()),
            json!({}),
            "",
            &["it speaks https, not http", "`https://`"],
        ),
        url(
            "authority",
            at("https", tls.mcp.port()),
            json!({}),
            "that this machine does not know",
            &["`caFile`"],
        ),
        url(
            "name",
            format!("https://127.0.0.2:{}/mcp", other_name.mcp.port()),
            ca(&elsewhere),
            "its certificate is for 127.0.0.1, localhost, not for 127.0.0.2",
            &["host name that the certificate is for"],
        ),
        url(
            "certificate",
            at("https", strict_gateway.mcp.port()),
            ca(&strict),
            "",
            &[
                "it wants a client certificate",
                "put a proxy with one in between",
            ],
        ),
        url(
            "protected",
            at("http", protected),
            json!({}),
            "HTTP 401",
            &["access token", "https://id.example.com", "notes:read"],
        ),
        url(
            "expired",
            at("http", protected),
            json!({ "headers": { "Authorization": "Bearer s3cret" } }),
            "HTTP 401",
            &[
                "credentials in `headers` are not accepted",
                "s3cret has expired",
            ],
        ),
        url(
            "lost",
            at("http", lost),
            json!({}),
            "HTTP status 404",
            &["path of `url`"],
        ),
    ];
    let text = config(&cases);
    let gateway = Gateway::start(&text).await;
    check_all(&gateway, &cases).await;
    let log = gateway.log.text();
    assert!(
        !log.contains(".rs\"") && !log.contains("UnknownIssuer"),
        "{log}"
    );
    assert!(gateway.terminate().await.success());

    // With the authority's certificate, the server is usable.
    let mut entry = ca(&files);
    entry["url"] = json!(at("https", tls.mcp.port()));
    let file = TempFile::new(
        "yaml",
        &json!({ "mcpServers": { "tls": entry } }).to_string(),
    );
    let (output, check) = command(&["check", "--config", file.path().to_str().unwrap()]).await;
    assert!(output.status.success(), "{check}");
    let wrong = json!({ "mcpServers": { "tls": { "url": at("https", tls.mcp.port()), "caFile": "/nowhere.pem" } } });
    let file = TempFile::new("yaml", &wrong.to_string());
    let (output, check) = command(&["check", "--config", file.path().to_str().unwrap()]).await;
    assert!(
        !output.status.success() && check.contains("its `caFile` /nowhere.pem cannot be used"),
        "{check}"
    );
}

/// The server has answered in plain HTTP, so a TLS attempt would only disturb it.
#[tokio::test]
async fn server_that_refuses_initialize_in_plain_http_is_not_tried_with_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let first_bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&first_bytes);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let seen = std::sync::Arc::clone(&seen);
            tokio::spawn(async move {
                let mut request = Vec::new();
                // The body, which contains the id, arrives last.
                while !request.ends_with(b"}") || !request.windows(4).any(|four| four == b"\r\n\r\n") {
                    let mut bytes = [0; 4096];
                    let count = stream.read(&mut bytes).await.unwrap_or(0);
                    if request.is_empty() && count > 0 {
                        seen.lock().unwrap().push(bytes[0]);
                    }
                    if count == 0 || bytes[0] == 0x16 {
                        return;
                    }
                    request.extend_from_slice(&bytes[..count]);
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let id = text.split("\"id\":").nth(1).unwrap_or("1").split([',', '}']).next().unwrap();
                let body =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#);
                let answer = response("200 OK", "Content-Type: application/json\r\n", &body);
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    let gateway =
        Gateway::start(&json!({ "mcpServers": { "only": { "url": url } } }).to_string()).await;
    let server = server_when(&gateway, "only", |server| !server["failure"].is_null()).await;
    assert!(
        server["failure"]["what"]
            .as_str()
            .unwrap()
            .contains("it refuses initialize"),
        "{server}"
    );
    assert_eq!(server["failure"]["remedy"], Value::Null, "{server}");
    let first_bytes = first_bytes.lock().unwrap().clone();
    assert!(
        !first_bytes.is_empty() && !first_bytes.contains(&0x16),
        "a TLS handshake: {first_bytes:?}"
    );
    assert!(gateway.terminate().await.success());
}
