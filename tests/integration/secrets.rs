//! Secrets of the configuration in files and in outputs of programs.

use std::fs;
use std::path::Path;

use fanlight_testkit::signing_in::ANN;
use serde_json::{Value, json};

use crate::harness::{Gateway, PATIENCE, TempFile, fanlight};
use crate::raw_client::{Connection, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

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

async fn server() -> Backend {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.offers_tools(&["t"]);
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    server
}

/// Calls until the server gets this key, since a changed secret takes effect a moment later.
async fn is_shown(gateway: &Gateway, server: &Backend, key: &str) {
    let shown = async {
        loop {
            call(gateway).await;
            if server
                .received("tools/call")
                .last()
                .and_then(|call| call.header("x-key"))
                == Some(key)
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .unwrap_or_else(|_| panic!("never shown {key}"));
}

fn handshakes(server: &Backend) -> usize {
    server.received("server/discover").len()
}

#[tokio::test]
async fn changed_secret_is_shown_without_replacing_the_server() {
    let folder = TempFile::folder();
    let secret = folder.path().join("key");
    for reference in [
        format!("file:{}", secret.display()),
        format!("exec:1s cat '{}'", secret.display()),
    ] {
        fs::write(&secret, "first\n").unwrap();
        let server = server().await;
        let entry = server.entry_with("s", &format!(r#""headers":{{"X-Key":"${{{reference}}}"}}"#));
        let gateway = Gateway::start(&config(&[entry])).await;
        is_shown(&gateway, &server, "first").await;
        let before = handshakes(&server);
        fs::write(&secret, "second\n").unwrap();
        is_shown(&gateway, &server, "second").await;
        assert_eq!(
            handshakes(&server),
            before,
            "{reference}: the server was replaced"
        );
    }
}

#[tokio::test]
async fn missing_secret_disables_its_server_alone_until_it_is_there() {
    let folder = TempFile::folder();
    let secret = folder.path().join("key");
    let (needs, other) = (server().await, server().await);
    let entry = needs.entry_with(
        "needs",
        &format!(r#""headers":{{"X-Key":"${{file:{}}}"}}"#, secret.display()),
    );
    let gateway = Gateway::start(&config(&[entry, other.entry("other")])).await;
    gateway.log.line_with_all(&["needs", "is not used"]).await;
    let answer = post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"other__t""#, ""),
    )
    .await
    .messages()
    .await
    .1;
    assert!(answer.contains("result"), "{answer}");
    fs::write(&secret, "there").unwrap();
    let called = async {
        while needs.received("tools/call").is_empty() {
            post_modern(
                gateway.mcp,
                &modern_request("1", "tools/call", r#""name":"needs__t""#, ""),
            )
            .await
            .messages()
            .await;
        }
    };
    tokio::time::timeout(PATIENCE, called)
        .await
        .expect("it stays disabled");
    assert_eq!(
        needs.received("tools/call")[0].header("x-key"),
        Some("there")
    );
}

#[tokio::test]
async fn secrets_are_shown_to_nobody_but_their_server() {
    let server = server().await;
    let entry = server.entry_with(
        "s",
        r#""headers":{"X-Key":"${exec:1h printf s3cr3t-of-the-program}"}"#,
    );
    let gateway = Gateway::start_with(&config(&[entry]), &["--log", "trace"]).await;
    is_shown(&gateway, &server, "s3cr3t-of-the-program").await;
    for path in ["/api/config", "/api/backends", "/metrics"] {
        let mut connection = Connection::open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        let shown = connection.response().await.text().await;
        assert!(!shown.contains("s3cr3t-of"), "{path}: {shown}");
    }
    assert!(!gateway.log.text().contains("s3cr3t-of"));
}

#[test]
fn found_configuration_runs_no_program_for_a_secret_unless_the_user_says_so() {
    let folder = TempFile::folder();
    let ran = folder.path().join("ran");
    let text = format!(
        r#"mcpServers: {{s: {{url: "http://127.0.0.1:9/mcp", headers: {{X-Key: "${{exec:touch '{}'}}"}}}}}}"#,
        ran.display()
    );
    let file = folder.path().join("fanlight.yaml");
    fs::write(&file, text).unwrap();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(fanlight().as_std().get_program());
        let output = command
            .args(words)
            .current_dir(folder.path())
            .stdin(std::process::Stdio::null());
        output.output().unwrap()
    };
    for words in [
        &["audit", "query"][..],
        &["connections"],
        &["lean", "suggest"],
        &["login"],
        &["logout"],
        &["policy", "show"],
        &["state", "export"],
        &["validate"],
        &["check"],
    ] {
        let refused = String::from_utf8_lossy(&run(words).stderr).into_owned();
        assert!(!ran.exists(), "{words:?} ran a program of a strange folder");
        let starts = ["check", "login"].contains(&words[0]);
        assert!(!starts || refused.contains("--config"), "{refused}");
    }
    run(&["check", "--yes"]);
    assert!(ran.exists(), "--yes runs it");
}

/// A private key, the secret of the option `serverAuth.key`.
const PRIVATE_KEY: &str = "MC4CAQAwBQYDK2VwBCIEIB+3bFL3nqeNsHkww4juszDNFimbkxV68Ry/TVFkuWgi";
/// A key of 32 bytes, the secret of the option `config.keys`.
const SEALING_KEY: &str = "U0VLUkVULWNvbmZpZy5rZXlzLTMyLWJ5dGVzLTAxMjM=";
/// The digest of [`ANN`].
const ANN_DIGEST: &str = "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1";

/// The credentials of the user `u` with the secret of `serverAuth.password`, as servers get them.
const BASIC: &str = "dTpTRUtSRVQtc2VydmVyQXV0aC5wYXNzd29yZA==";

/// The secret that is the value of an option, or a part of it.
fn planted(option: &str) -> String {
    match option {
        "config.keys" => SEALING_KEY.to_owned(),
        "serverAuth.key" => PRIVATE_KEY.to_owned(),
        _ => format!("SEKRET-{option}"),
    }
}

/// The options that may hold a secret, as the JSON Schema marks them.
fn secret_options() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let sections = schema["$defs"].as_object().unwrap().iter();
    let sections = sections.map(|(name, section)| (name.as_str(), section));
    let options = sections
        .chain([("config", &schema)])
        .flat_map(|(name, section)| {
            let options = section["properties"].as_object().into_iter().flatten();
            let secret = options.filter(|(_, option)| option["writeOnly"] == true);
            secret.map(move |(key, _)| format!("{name}.{key}"))
        });
    // A public URL with user, path or query is refused.
    options
        .filter(|option| option != "config.publicUrl")
        .collect()
}

/// A configuration with a secret in each of its options that may hold one. Only the server `web`
/// can be reached.
fn configuration(web: &str, folder: &Path) -> Value {
    let dead = "http://127.0.0.1:9";
    let url = |option: &str| format!("{dead}/{0}?key={0}", planted(option));
    let key = format!("-----BEGIN PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END PRIVATE KEY-----\n");
    let client = |kind: &str, more: Value| {
        let mut auth = json!({"type": kind, "issuer": dead, "clientId": "c", "clientSecret": planted("serverAuth.clientSecret")});
        auth.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        auth.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        json!({"url": format!("{dead}/mcp"), "auth": auth})
    };
    let auth = |auth: Value| json!({"url": format!("{dead}/mcp"), "auth": auth});
    json!({
        "publicUrl": "https://gateway.example",
        "keys": [SEALING_KEY],
        "admin": {"token": planted("admin.token")},
        "auth": {"keys": {"file": folder.join("keys.yaml")}, "oauth": [
            {
                "issuer": format!("{dead}/a"),
                "introspection": {"endpoint": url("introspection.endpoint"), "clientId": "c", "clientSecret": planted("introspection.clientSecret")},
                "signIn": {"clientId": "c", "clientSecret": planted("userSignIn.clientSecret")},
            },
            {"issuer": format!("{dead}/b"), "jwksUri": url("issuer.jwksUri")},
        ]},
        "stateDir": folder.join("state"),
        "audit": {"arguments": "full"},
        "hooks": [{"url": url("hook.url"), "timeout": "1s", "onFailure": "allow",
            "headers": {"X-Key": planted("hook.headers")}}],
        "notify": [{"url": url("notify.url"), "secret": planted("notify.secret")}],
        "replicas": {"valkey": format!("redis://u:{}@127.0.0.1:9", planted("replicas.valkey"))},
        "telemetry": {"endpoint": format!("http://u:{0}@127.0.0.1:9/?key={0}", planted("telemetry.endpoint"))},
        "mcpServers": {
            "web": {"url": format!("{web}?key={}", planted("server.url")), "headers": {"X-Key": planted("server.headers")},
                "arguments": {"t": {"x": {"value": planted("argument.value")}}}},
            "a": {"httpUrl": url("server.httpUrl")},
            "b": {"serverUrl": url("server.serverUrl")},
            "c": {"urls": [url("server.urls")]},
            "p": {"command": format!("false --key={}", planted("server.command")), "args": [planted("server.args")], "env": {"E": planted("server.env")}},
            "secret": client("clientCredentials", json!({})),
            "key": client("clientCredentials", json!({"clientSecret": null, "key": key})),
            "basic": auth(json!({"type": "basic", "username": "u", "password": planted("serverAuth.password")})),
            "users": auth(json!({"type": "userKey", "prefix": format!("{} ", planted("serverAuth.prefix"))})),
            "exchange": client("exchange", json!({"issuer": null, "tokenEndpoint": url("serverAuth.tokenEndpoint")})),
            "enterprise": client("enterprise", json!({"tokenFile": folder.join("keys.yaml"), "idp": {
                "issuer": format!("{dead}/idp"),
                "clientId": "c", "clientSecret": planted("identityProvider.clientSecret"),
            }})),
        },
    })
}

#[tokio::test]
async fn secret_of_any_option_is_in_no_output() {
    let web = server().await;
    let folder = TempFile::folder();
    let config = configuration(&web.url(), folder.path()).to_string();
    let options = secret_options();
    for option in &options {
        let written = Value::from(planted(option)).to_string();
        assert!(
            config.contains(written.trim_matches('"')),
            "plant a secret in `{option}`"
        );
    }
    let keys = format!("keys:\n  - {{name: ann, groups: [dev], sha256: \"{ANN_DIGEST}\"}}\n");
    fs::write(folder.path().join("keys.yaml"), keys).unwrap();
    let gateway = Gateway::start_with(&config, &["--log", "trace"]).await;
    let mut outputs = Vec::new();

    let ann = format!("Bearer {ANN}");
    let servers = [
        "web",
        "a",
        "b",
        "c",
        "p",
        "secret",
        "key",
        "basic",
        "users",
        "exchange",
        "enterprise",
    ];
    let calls = servers.map(|server| {
        (
            "tools/call",
            format!(r#""name":"{server}__t","arguments":{{"y":1}}"#),
        )
    });
    for (method, params) in [("tools/list", String::new())].into_iter().chain(calls) {
        for credential in [ann.as_str(), "Bearer another"] {
            let name = params.split('"').nth(3).unwrap_or_default();
            let request = modern_request("1", method, &params, "");
            let mut headers = vec![
                ("authorization", credential),
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", method),
            ];
            headers.extend((!name.is_empty()).then_some(("mcp-name", name)));
            let mut response = crate::raw_client::post(gateway.mcp, &headers, &request).await;
            outputs.push((format!("{method} {name}"), response.text().await));
        }
    }
    assert!(!web.received("tools/call").is_empty(), "{outputs:?}");

    let token = format!("Bearer {}", planted("admin.token"));
    let mut pages: Vec<_> = [
        "approvals",
        "audit",
        "backends",
        "calls",
        "catalogue",
        "config",
        "connect",
        "connections",
        "endpoints",
        "limits",
        "log",
        "openapi.json",
        "overview",
        "pins",
        "session",
        "sessions",
        "tools/statistics",
        "traces",
        "usage",
    ]
    .map(|page| format!("/api/{page}"))
    .into();
    pages.extend(["/", "/metrics", "/readyz"].map(str::to_owned));
    for server in servers {
        pages.extend(["", "/log"].map(|page| format!("/api/backends/{server}{page}")));
    }
    let mut at = 0;
    while let Some(page) = pages.get(at).cloned() {
        at += 1;
        let mut connection = Connection::open(gateway.admin).await;
        connection
            .request("GET", &page, &[("authorization", &token)], b"")
            .await;
        let text = connection.response().await.text().await;
        if page == "/api/traces" {
            let traces: Value = serde_json::from_str(&text).unwrap();
            let ids = traces["traces"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|trace| trace["traceId"].as_str());
            pages.extend(ids.map(|id| format!("/api/traces/{id}")));
        }
        outputs.push((page, text));
    }
    let validated = fanlight()
        .arg("validate")
        .arg("--config")
        .arg(gateway.config_path())
        .output()
        .await
        .unwrap();
    outputs.push(("validate".to_owned(), format!("{validated:?}")));
    let log = gateway.log.clone();
    // At its end it tries to export.
    gateway.terminate().await;
    outputs.push(("log".to_owned(), log.text()));
    for entry in fs::read_dir(folder.path().join("state/audit")).unwrap() {
        let record = entry.unwrap().path();
        outputs.push((
            format!("{}", record.display()),
            fs::read_to_string(&record).unwrap_or_default(),
        ));
    }

    let mut found = Vec::new();
    for option in &options {
        let secret = planted(option);
        let mut encoded = vec![secret.clone(), secret.replace('/', "%2F")];
        if option == "serverAuth.password" {
            encoded.push(BASIC.to_owned());
        }
        for (place, text) in &outputs {
            if let Some(line) = text
                .lines()
                .find(|line| encoded.iter().any(|one| line.contains(one)))
            {
                found.push(format!(
                    "{option} in {place}: {}",
                    line.chars().take(600).collect::<String>()
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
