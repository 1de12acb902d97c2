//! Roles, operators' sign-in and the audit log, through the real binary.

use std::net::SocketAddr;

use fanlight_testkit::signing_in::{ANN, BOB, KEYS};
use fanlight_tests::slicer::member;
use serde_json::{Value, json};

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{Connection, Response};
use crate::scripted::{Era, Reply, Transport, config};

const TOKEN: &str = "0123456789abcdef-operator";
/// The key of a viewer.
const VIEWER: &str = BOB;
/// The key of a client without a role.
const CLIENT: &str = ANN;

async fn send(
    admin: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut connection = Connection::open(admin).await;
    connection
        .request(method, path, headers, body.as_bytes())
        .await;
    connection.response().await
}

/// A gateway with one server, the keys of two clients, `admin.token`, and more members of `admin`.
async fn gateway(more: &str) -> (Gateway, TempFile) {
    let backend = backend(Era::Modern, Transport::Stdio).await;
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let servers = config(&[backend.entry("only")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let keys = TempFile::new("yaml", KEYS);
    let auth = format!(r#""auth":{{"keys":{{"file":{:?}}}}}"#, keys.path());
    let admin = format!(r#""token":"{TOKEN}","roles":{{"viewer":"user:key#bob"}}{more}"#);
    let gateway = Gateway::start(&format!(r#"{servers},{auth},"admin":{{{admin}}}}}"#)).await;
    (gateway, keys)
}

#[tokio::test]
async fn viewer_looks_and_operator_changes_and_the_audit_says_so() {
    let (gateway, _keys) = gateway("").await;
    let json = ("Content-Type", "application/json");
    let body =
        r#"{"method":"tools/call","params":{"name":"t","arguments":{"password":"hunter2"}}}"#;
    for (token, expected) in [(VIEWER, 403), (TOKEN, 200)] {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), json];
        assert_eq!(
            send(gateway.admin, "GET", "/api/overview", &headers, "")
                .await
                .status,
            200
        );
        for (path, body) in [("/api/servers/only/restart", ""), ("/api/call", body)] {
            assert_eq!(
                send(gateway.admin, "POST", path, &headers, body)
                    .await
                    .status,
                expected,
                "{token} {path}"
            );
        }
    }
    let wrong = [("Authorization", "Bearer 0123456789abcdef-guess")];
    assert_eq!(
        send(gateway.admin, "GET", "/api/overview", &wrong, "")
            .await
            .status,
        401
    );
    gateway
        .log
        .line_with("operator not authenticated: invalid")
        .await;
    for expected in [
        ("\"outcome\":\"refused\"", "/api/servers/only/restart"),
        ("\"outcome\":\"refused\"", "\"principal\":\"key#bob\""),
        ("\"outcome\":\"done\"", "/api/servers/only/restart"),
        ("\"about\":\"tools/call t\"", "/api/call"),
        ("\"outcome\":\"refused\"", "\"reason\":\"invalid\""),
    ] {
        let line = gateway
            .log
            .line_with_all(&[r#""target":"audit""#, expected.0, expected.1])
            .await;
        assert!(line.contains("127.0.0.1"), "the peer's address: {line}");
    }
    let log = gateway.log.text();
    assert!(
        ![TOKEN, VIEWER, "guess", "hunter2"]
            .iter()
            .any(|secret| log.contains(secret)),
        "{log}"
    );
    let bearer = format!("Bearer {VIEWER}");
    let metrics = send(
        gateway.admin,
        "GET",
        "/metrics",
        &[("Authorization", &bearer)],
        "",
    )
    .await
    .text()
    .await;
    assert!(
        metrics.contains(r#"fanlight_auth_refusals_total{listener="admin",reason="role"} 2"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn session_of_the_page_ends_when_its_token_changes() {
    let (gateway, _keys) = gateway("").await;
    let origin = format!("http://{}", gateway.admin);
    let headers = [
        ("Content-Type", "application/json"),
        ("Origin", origin.as_str()),
    ];
    let signed = send(
        gateway.admin,
        "POST",
        "/api/session",
        &headers,
        &format!(r#"{{"token":"{TOKEN}"}}"#),
    )
    .await;
    assert_eq!(signed.status, 200);
    let cookie = signed
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let headers = [("Cookie", cookie.as_str()), ("Origin", origin.as_str())];
    assert_eq!(
        send(gateway.admin, "GET", "/api/config", &headers, "")
            .await
            .status,
        200
    );
    assert!(
        !gateway
            .log
            .text()
            .contains(cookie.split('=').nth(1).unwrap()),
        "the id is a secret"
    );
    let text = std::fs::read_to_string(gateway.config_path()).unwrap();
    gateway.configure(&text.replace(TOKEN, "0123456789abcdef-another"));
    let bearer = "Bearer 0123456789abcdef-another";
    let is_new = async || {
        while send(
            gateway.admin,
            "GET",
            "/api/overview",
            &[("Authorization", bearer)],
            "",
        )
        .await
        .status
            != 200
        {
            gateway.hang_up();
            gateway.log.line_with("configuration").await;
        }
    };
    within("the new token", is_new()).await;
    assert_eq!(
        send(gateway.admin, "GET", "/api/config", &headers, "")
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn commands_say_what_to_do_without_a_token_and_as_a_viewer() {
    let (gateway, _keys) = gateway("").await;
    let url = format!("http://{}", gateway.admin);
    let run = async |arguments: &[&str], token: Option<&str>| {
        let mut command = fanlight();
        command
            .args(arguments)
            .args(["--admin", &url])
            .env_remove("FANLIGHT_ADMIN_TOKEN");
        token
            .into_iter()
            .for_each(|token| _ = command.env("FANLIGHT_ADMIN_TOKEN", token));
        let output = within("the command", command.output()).await.unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (_, text) = run(&["status"], None).await;
    assert!(
        text.contains("none was given") && text.contains("FANLIGHT_ADMIN_TOKEN"),
        "{text}"
    );
    let (_, text) = run(&["traces"], Some("wrong")).await;
    assert!(
        text.contains("this one is wrong") && text.contains("admin.roles"),
        "{text}"
    );
    assert!(run(&["traces"], Some(VIEWER)).await.0);
    for arguments in [
        &["reload"][..],
        &["restart", "only"],
        &["end-session", "0123456789abcdef"],
    ] {
        let (is_done, text) = run(arguments, Some(VIEWER)).await;
        assert!(
            !is_done && text.contains("the role operator, but yours is viewer"),
            "{text}"
        );
        assert!(
            text.contains("put a token with the role `operator` into FANLIGHT_ADMIN_TOKEN"),
            "{text}"
        );
    }
    assert!(run(&["restart", "only"], Some(TOKEN)).await.0);
}

#[tokio::test]
async fn shown_configuration_has_neither_token() {
    let (gateway, _keys) = gateway(r#","publicUrl":"https://fanlight.example.com""#).await;
    let bearer = format!("Bearer {VIEWER}");
    let shown = send(
        gateway.admin,
        "GET",
        "/api/config",
        &[("Authorization", &bearer)],
        "",
    )
    .await
    .text()
    .await;
    assert!(!shown.contains(TOKEN) && !shown.contains(VIEWER), "{shown}");
    assert_eq!(member(&shown, "admin.token"), Some(r#""***""#));
    let viewers = member(&shown, "admin.roles.viewer").unwrap_or_default();
    let viewers: Value = serde_json::from_str(viewers).unwrap();
    assert_eq!(viewers, json!(["user:key#bob"]));
}

/// Operators and callers are the same identities: a key that may call may still not look at the
/// admin listener.
#[tokio::test]
async fn client_without_a_role_reaches_nothing_of_the_admin_listener() {
    let (gateway, _keys) = gateway("").await;
    let bearer = format!("Bearer {CLIENT}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    for (method, path) in [
        ("GET", "/api/overview"),
        ("GET", "/api/config"),
        ("GET", "/api/approvals"),
        ("GET", "/api/events"),
        ("GET", "/metrics"),
        ("POST", "/api/call"),
        ("POST", "/api/reload"),
        ("POST", "/api/approvals/0123abcd/approve"),
    ] {
        let mut answer = send(gateway.admin, method, path, &headers, "{}").await;
        let text = answer.text().await;
        assert_eq!(answer.status, 403, "{method} {path}: {text}");
        assert!(
            text.contains("ann has no role") && text.contains("neither `user:key#ann` nor"),
            "{text}"
        );
    }
    let signed = format!(r#"{{"token":"{CLIENT}"}}"#);
    let signed = send(
        gateway.admin,
        "POST",
        "/api/session",
        &headers[1..],
        &signed,
    )
    .await;
    assert_eq!(signed.status, 403);
    assert!(signed.header("set-cookie").is_none());
    gateway
        .log
        .line_with_all(&["no_role", r#""principal":"key#ann""#])
        .await;
}
