//! `fanlight check URL` and `fanlight check -- COMMAND`: the findings about one server, and the
//! HTML report.

use std::fs;
use std::path::Path;

use futures_util::FutureExt as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Ran, run_in};
use crate::harness::{Gateway, PATIENCE, TempFile};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// A server that runs the shell fragment `answer` for each request; `$id` is the request's id,
/// `$method` its method.
fn shell_server(before: &str, answer: &str) -> String {
    format!(
        r#"{before}
while read -r line; do
  id=${{line#*\"id\":}}; id=${{id%%[!0-9]*}}
  method=${{line#*\"method\":\"}}; method=${{method%%\"*}}
  [ -n "$id" ] || continue
  case $method in
    {answer}
    *) printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"no"}}}}\n' "$id" ;;
  esac
done"#
    )
}

/// The answers of a legacy server with these tools.
fn with_tools(tools: &str) -> String {
    format!(
        r#"initialize) printf '{{"jsonrpc":"2.0","id":%s,"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"shell","version":"1"}}}}}}\n' "$id" ;;
    ping) printf '{{"jsonrpc":"2.0","id":%s,"result":{{}}}}\n' "$id" ;;
    tools/list) printf '{{"jsonrpc":"2.0","id":%s,"result":{{"tools":[{tools}]}}}}\n' "$id" ;;"#
    )
}

async fn check(arguments: &[&str]) -> Ran {
    run_in(Path::new("/"), &[&["check", "--json"], arguments].concat()).await
}

async fn check_shell(script: &str) -> Ran {
    check(&["--", "sh", "-c", script]).await
}

fn rules(report: &Value) -> Vec<&str> {
    report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn good_server_has_no_findings() {
    let program = fanlight_testkit::programs::fanlight().to_str().unwrap();
    for (name, revision) in [("legacy", "2025-11-25"), ("modern", "2026-07-28")] {
        let ran = check(&["--", program, "demo-server", name]).await;
        let report = ran.json();
        assert!(
            ran.status == 0 && report["isGood"] == true,
            "{}",
            ran.text()
        );
        let era = report["eras"]
            .as_array()
            .unwrap()
            .iter()
            .find(|era| era["era"] == name)
            .unwrap();
        assert_eq!(
            (&era["isServed"], era["revision"].as_str()),
            (&Value::Bool(true), Some(revision)),
            "{report}"
        );
        assert_eq!(era["pings"]["count"], 20);
        let tools = &era["lists"][0];
        assert!(
            tools["kind"] == "tools" && tools["bytes"].as_u64().unwrap() > 100,
            "{tools}"
        );
        let ran = run_in(
            Path::new("/"),
            &["check", "--", program, "demo-server", name],
        )
        .await;
        assert!(
            ran.status == 0 && ran.out.contains(revision) && ran.out.contains("tokens"),
            "{}",
            ran.text()
        );
    }
}

#[tokio::test]
async fn server_over_http_is_judged_in_both_eras() {
    let both = Backend::start(Era::Modern, Transport::Http).await;
    both.offers_tools(&["t"]);
    both.on(
        "initialize",
        Reply::result(r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#),
    );
    let ran = check(&[&both.url()]).await;
    let report = ran.json();
    let served: Vec<_> = report["eras"]
        .as_array()
        .unwrap()
        .iter()
        .map(|era| &era["isServed"])
        .collect();
    assert_eq!(served, [true, true], "{}", ran.text());
    assert_eq!(report["transport"], "http");
    let modern = both.received("server/discover");
    assert_eq!(modern[0].header("mcp-method"), Some("server/discover"));
    assert_eq!(modern[0].header("mcp-protocol-version"), Some("2026-07-28"));
}

/// The judged server is another gateway, which has the deprecated transport at `/sse`.
#[tokio::test]
async fn server_of_the_deprecated_transport_is_judged() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["a_tool"]);
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let ran = check(&[&format!("http://{}/sse", gateway.mcp)]).await;
    let report = ran.json();
    assert!(
        ran.status == 0 && report["isGood"] == true,
        "{}",
        ran.text()
    );
    assert_eq!(
        rules(&report)
            .iter()
            .filter(|rule| **rule == "deprecated-transport")
            .count(),
        1,
        "{}",
        ran.text()
    );
    let [legacy, modern] = &report["eras"].as_array().unwrap()[..] else {
        panic!("{report}")
    };
    assert_eq!(
        (&legacy["isServed"], &legacy["transport"]),
        (&true.into(), &"HTTP+SSE".into()),
        "{report}"
    );
    assert_eq!(legacy["lists"][0]["entries"][0]["key"], "a_tool");
    assert_eq!(legacy["pings"]["count"], 20);
    assert_eq!(
        (&modern["isServed"], &modern["transport"]),
        (&false.into(), &Value::Null),
        "{report}"
    );
    let nothing = check(&[&format!("http://{}/nothing", gateway.mcp)]).await;
    let reason = nothing.json()["eras"][0]["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        nothing.status == 1 && reason.contains("deprecated HTTP+SSE transport either"),
        "{}",
        nothing.text()
    );
}

/// Messages and credentials are only sent to the server's own origin.
#[tokio::test]
async fn endpoint_of_another_origin_is_refused() {
    let foreign = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}/messages", foreign.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    let endpoint = elsewhere.clone();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut streams = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 16 << 10];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let event = format!("event: endpoint\ndata: {endpoint}\n\n");
            let answer = match request[..read].starts_with(b"GET") {
                true => {
                    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{event}")
                }
                false => {
                    "HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
                }
            };
            let _ = stream.write_all(answer.as_bytes()).await;
            streams.push(stream);
        }
    });
    let ran = check(&[&url, "--header", "Authorization: Bearer s3cret-of-a-server"]).await;
    assert!(
        ran.status == 1 && rules(&ran.json()).contains(&"sse-endpoint"),
        "{}",
        ran.text()
    );
    assert!(
        foreign.accept().now_or_never().is_none(),
        "a connection was made to {elsewhere}"
    );
}

#[tokio::test]
async fn faults_of_a_server_are_found() {
    let tool = |name: &str, schema: &str| {
        format!(r#"{{"name":"{name}","description":"d","inputSchema":{schema}}}"#)
    };
    for (rule, tools) in [
        (
            "duplicate",
            [
                tool("a", r#"{"type":"object"}"#),
                tool("a", r#"{"type":"object"}"#),
            ]
            .join(","),
        ),
        ("tool-name", tool("a b", r#"{"type":"object"}"#)),
        (
            "schema",
            tool(
                "a",
                r#"{"type":"object","properties":{"x":{"type":"strin"}}}"#,
            ),
        ),
        ("schema-root", tool("a", "{}")),
        ("entry-shape", r#"{"name":"a"}"#.to_owned()),
        (
            "x-mcp-header",
            tool(
                "a",
                r#"{"type":"object","properties":{"x":{"type":"object","x-mcp-header":"X"}}}"#,
            ),
        ),
        (
            "schema-reference",
            tool(
                "a",
                r#"{"type":"object","properties":{"x":{"$ref":"https://example.com/x"}}}"#,
            ),
        ),
        ("list-changed", tool("a", r#"{"type":"object"}"#)),
    ] {
        let ran = check_shell(&shell_server("", &with_tools(&tools))).await;
        assert!(rules(&ran.json()).contains(&rule), "{rule}: {}", ran.text());
    }
}

#[tokio::test]
async fn faults_of_a_conversation_are_found() {
    let noise = shell_server("echo Listening on stdio", &with_tools(""));
    let ran = check_shell(&noise).await;
    assert!(
        ran.status == 1 && rules(&ran.json()).contains(&"stdout-noise"),
        "{}",
        ran.text()
    );
    let looping = r#"initialize) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}\n' "$id" ;;
    tools/list) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"again"}}\n' "$id" ;;"#;
    let ran = check_shell(&shell_server("", looping)).await;
    let report = ran.json();
    assert_eq!(
        report["eras"][0]["lists"][0]["entries"]
            .as_array()
            .unwrap()
            .len(),
        1,
        "{}",
        ran.text()
    );
    assert!(!rules(&report).contains(&"duplicate"), "{}", ran.text());
    assert!(
        rules(&report).contains(&"cursor-loop") && rules(&report).contains(&"ping"),
        "{}",
        ran.text()
    );
    let asking = shell_server(
        r#"echo '{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}'"#,
        &with_tools(""),
    );
    let ran = check_shell(&asking).await;
    assert!(
        rules(&ran.json()).contains(&"undeclared-request"),
        "{}",
        ran.text()
    );
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    modern.on(
        "tools/list",
        Reply::result(r#"{"resultType":"complete","tools":[]}"#),
    );
    let ran = check(&[&modern.url()]).await;
    assert!(
        rules(&ran.json()).contains(&"modern-page"),
        "without `ttlMs`: {}",
        ran.text()
    );
}

/// The answers of a server that offers the tool `ask` only to clients with elicitation, and asks
/// during its call.
const ASKING: &str = r#"initialize)
      case $line in *'"elicitation":{'*) tools='{"name":"ask","inputSchema":{"type":"object"}}' ;; *) tools= ;; esac
      printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}\n' "$id" ;;
    ping) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
    tools/list)
      for method in elicitation/create roots/list sampling/createMessage; do
        printf '{"jsonrpc":"2.0","id":"q","method":"%s","params":{}}\n' "$method"
        read -r reply
        case $reply in *'"result":{"action":"decline"}'* | *'"result":{"roots":[]}'* | *'"code":-1'*) ;; *) tools= ;; esac
      done
      printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}\n' "$id" "$tools" ;;"#;

#[tokio::test]
async fn client_declares_all_capabilities_and_declines_what_it_is_asked() {
    let ran = check_shell(&shell_server("", ASKING)).await;
    let report = ran.json();
    assert_eq!(
        report["eras"][0]["lists"][0]["entries"][0]["key"],
        "ask",
        "{}",
        ran.text()
    );
    assert!(
        !rules(&report).contains(&"undeclared-request"),
        "{}",
        ran.text()
    );
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    modern.offers_tools(&["t"]);
    check(&[&modern.url()]).await;
    let path = [
        "params",
        "_meta",
        "io.modelcontextprotocol/clientCapabilities",
    ];
    let listed = modern.received("tools/list");
    assert!(
        !listed.is_empty()
            && listed.iter().all(|request| request
                .member_at(&path)
                .is_some_and(|all| all.contains("sampling"))),
        "{listed:?}"
    );
}

#[tokio::test]
async fn unusable_server_is_reported() {
    let ran = check(&["--", "/nonexistent/server"]).await;
    assert!(
        ran.status == 1
            && ran.json()["eras"][0]["reason"]
                .as_str()
                .unwrap()
                .contains("cannot be started")
    );
    let ran = check_shell("echo cause of the end >&2; exit 3").await;
    let reason = ran.json()["eras"][0]["reason"].as_str().unwrap().to_owned();
    assert!(
        ran.status == 1 && reason.contains("cause of the end") && reason.contains('3'),
        "{}",
        ran.text()
    );
    for wrong in [
        &["not-a-url"][..],
        &["ftp://x"],
        &["--report", "x.html"],
        &["http://x", "--header", "nothing"],
    ] {
        let ran = run_in(Path::new("/"), &[&["check"], wrong].concat()).await;
        assert_eq!(ran.status, 2, "{wrong:?}: {}", ran.text());
    }
}

#[tokio::test]
async fn server_that_requires_credentials_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let metadata =
        format!(r#"{{"resource":"{url}","authorization_servers":["https://id.example.com"]}}"#);
    let answer = |head: &str, body: &str| {
        format!(
            "HTTP/1.1 {head}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let refused = answer(
        "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"x\"\r\n",
        r#"{"error":"invalid_token"}"#,
    );
    let described = answer("200 OK\r\n", &metadata);
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let count = stream.read(&mut request).await.unwrap_or(0);
            let is_metadata =
                request[..count].starts_with(b"GET /.well-known/oauth-protected-resource/mcp");
            let _ = stream
                .write_all(if is_metadata { &described } else { &refused }.as_bytes())
                .await;
        }
    });
    let ran = check(&[&url]).await;
    let report = ran.json();
    assert_eq!(
        (ran.status, rules(&report)),
        (1, vec!["credentials"]),
        "{}",
        ran.text()
    );
    let text = report["findings"][0]["examples"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("OAuth")
            && text.contains("https://id.example.com")
            && text.contains("--header"),
        "{text}"
    );
    serving.abort();
}

#[tokio::test]
async fn server_that_cannot_be_reached_has_a_finding() {
    let refusing = fanlight_testkit::ports::Refusing::any();
    let url = format!("http://{}/mcp", refusing.address);
    let ran = check(&[&url]).await;
    let report = ran.json();
    assert_eq!(
        (ran.status, rules(&report)),
        (1, vec!["unreachable"]),
        "{}",
        ran.text()
    );
    let ran = run_in(Path::new("/"), &["check", &url]).await;
    assert!(
        ran.status == 1 && !ran.out.contains("no findings"),
        "{}",
        ran.text()
    );
}

/// Waits until a process has ended after a signal, which takes time on a busy machine.
fn wait_for_end(what: &str, pid: i32) {
    let process = match pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return,
        Err(error) => panic!("{what}: {error}"),
    };
    // The descriptor is readable once the process has ended, even before its parent waits for it.
    let patience = PATIENCE.try_into().unwrap();
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ended, 1, "the {what} is still running");
}

/// A process that ignores the end of its input ends with the command, and so do its children.
#[tokio::test]
async fn processes_end_with_the_command() {
    let folder = TempFile::folder();
    let script = format!(
        "trap '' TERM; sleep 3600 & echo $! > child; echo $$ > parent\n{}\nsleep 3600",
        shell_server("", &with_tools(""))
    );
    let ran = run_in(
        folder.path(),
        &["check", "--json", "--", "sh", "-c", &script],
    )
    .await;
    assert!(
        rules(&ran.json()).contains(&"does-not-end"),
        "{}",
        ran.text()
    );
    for name in ["child", "parent"] {
        let pid = fs::read_to_string(folder.path().join(name)).unwrap();
        wait_for_end(name, pid.trim().parse().unwrap());
    }
}

/// The HTML report may be read by people other than the server's owner.
#[tokio::test]
async fn report_has_no_markup_of_a_server_and_no_secrets() {
    let folder = TempFile::folder();
    let evil = r#"</title></style><script>alert(1)</script><img src=x onerror=alert(1)>"#;
    let tool = format!(
        r#"{{"name":"{evil}","description":"s3cret-in-arguments","inputSchema":{{"type":"<b>"}}}}"#
    );
    let script = shell_server(&format!("echo '{evil} '\"$2\""), &with_tools(&tool))
        .replace("\"shell\"", &format!("\"{evil}\""));
    let ran = run_in(
        folder.path(),
        &[
            "check",
            "--report",
            "report.html",
            "--",
            "sh",
            "-c",
            &script,
            "x",
            "--api-key",
            "s3cret-in-arguments",
        ],
    )
    .await;
    assert_eq!(ran.status, 1, "{}", ran.text());
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    for markup in ["<script", "<img", "<b>", "onerror=alert(1)>"] {
        assert!(!page.contains(markup), "{markup} in {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(page.contains("default-src 'none'") && page.contains("<html lang=\"en\">"));
    assert!(
        !page.contains("s3cret") && !ran.text().contains("s3cret"),
        "{}",
        ran.text()
    );
    // The report loads nothing from elsewhere.
    for loading in ["src=", "href=", "url(", "@import"] {
        assert!(
            !page.replace("src=x", "").contains(loading),
            "{loading} in {page}"
        );
    }
}
