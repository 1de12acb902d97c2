//! Fanlight as a protected resource, through the real binary: metadata, challenges, and the scopes
//! that requests need.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use fanlight_tests::slicer::{member, plain_string};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, Response, initialize, legacy_request, modern_headers,
    modern_request, modern_request_with,
};
use crate::scripted::{Backend, Era, Gate, Reply, Transport};

/// Keys with their digests: this one may read, the next one may read and call.
const READER: (&str, &str) = (
    "fanlight_00000000000000000000000000000000000000000002okinW",
    "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
);
const CALLER: (&str, &str) = (
    "fanlight_1111111111111111111111111111111111111111111146EDT",
    "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
);
const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource";

/// A gateway in front of the servers `files` and `git`, whose clients have keys.
struct Guarded {
    gateway: Gateway,
    folder: TempFile,
    files: Backend,
    git: Backend,
}

/// The configuration. Tools that delete need the scope `deleting`.
fn configuration(deleting: &str, [files, git]: [&Backend; 2]) -> String {
    let servers = format!(
        "mcpServers: {{{}, {}}}\n",
        files.entry("files"),
        git.entry("git")
    );
    let auth = format!(
        r#"publicUrl: https://mcp.example.com
auth:
  oauth: [{{issuer: "https://id.example.com"}}]
  keys: {{file: keys.yaml}}
  scopes:
    read: mcp:read
    call: mcp:call
    tools: {{"files__delete_*": [{deleting}]}}
endpoints:
  /mcp: {{}}
  /mcp/git: {{servers: [git], scopes: {{read: git:read, call: git:write}}}}
"#
    );
    auth + &servers
}

impl Guarded {
    async fn start() -> Self {
        let [files, git] = [
            Backend::start(Era::Modern, Transport::Http).await,
            Backend::start(Era::Modern, Transport::Http).await,
        ];
        files.offers_tools(&["read", "delete_all"]);
        git.offers_tools(&["log"]);
        for backend in [&files, &git] {
            backend.on(
                "tools/call",
                Reply::result(Era::Modern.complete(r#""content":[]"#)),
            );
        }
        let configured = configuration("files:delete", [&files, &git]);
        Self::start_with([files, git], &configured).await
    }

    async fn start_with([files, git]: [Backend; 2], configured: &str) -> Self {
        let folder = TempFile::folder();
        let entry = |(_, digest): (&str, &str), name: &str, scopes: &str| {
            format!("- {{name: {name}, sha256: '{digest}', scopes: [{scopes}]}}\n")
        };
        let keys = format!(
            "keys:\n{}{}",
            entry(READER, "reader", "mcp:read"),
            entry(CALLER, "caller", "mcp:call, mcp:read, mcp:list")
        );
        fs::write(folder.path().join("keys.yaml"), keys).unwrap();
        fs::write(folder.path().join("fanlight.yaml"), configured).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        Self {
            gateway,
            folder,
            files,
            git,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("fanlight.yaml")
    }

    /// A modern request with this key.
    async fn ask(&self, key: &str, path: &str, method: &str, params: &str) -> Response {
        self.post(key, path, &modern_request("1", method, params, ""))
            .await
    }

    /// Posts a modern request with this key and body.
    async fn post(&self, key: &str, path: &str, body: &str) -> Response {
        let headers = modern_headers(body);
        let mut headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let key = format!("Bearer {key}");
        headers.push(("Authorization", &key));
        send(self.gateway.mcp, "POST", path, &headers, body).await
    }

    /// Applies this configuration.
    async fn reconfigure(&self, configured: &str) {
        fs::write(self.path(), configured).unwrap();
        let (status, report) = self.gateway.reload().await;
        assert_eq!(status, 200, "{report}");
    }

    /// A modern call of a tool with this key.
    async fn call(&self, key: &str, path: &str, tool: &str) -> Response {
        self.ask(
            key,
            path,
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
        )
        .await
    }
}

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
    connection
        .request(method, path, &all, body.as_bytes())
        .await;
    connection.response().await
}

/// The challenge of a refused request, whose error must have the id.
async fn challenge(mut response: Response, status: u16, id: &str) -> String {
    assert_eq!(response.status, status);
    let text = response.text().await;
    assert_eq!(member(&text, "id"), Some(id), "{text}");
    response
        .header("www-authenticate")
        .unwrap_or_else(|| panic!("no challenge: {text}"))
        .to_owned()
}

#[tokio::test]
async fn metadata_follow_the_configuration() {
    let guarded = Guarded::start().await;
    let get = |path: &'static str| {
        send(
            guarded.gateway.mcp,
            "GET",
            path,
            &[("X-Forwarded-Host", "evil.example")],
            "",
        )
    };
    for (path, resource, read) in [
        ("/.well-known/oauth-protected-resource", "/mcp", "mcp:read"),
        (
            "/.well-known/oauth-protected-resource/mcp",
            "/mcp",
            "mcp:read",
        ),
        (
            "/.well-known/oauth-protected-resource/mcp/git",
            "/mcp/git",
            "git:read",
        ),
        (
            "/.well-known/oauth-protected-resource/sse",
            "/sse",
            "mcp:read",
        ),
    ] {
        let mut response = get(path).await;
        let document = response.text().await;
        assert_eq!(
            (
                response.status,
                response.header("access-control-allow-origin")
            ),
            (200, Some("*")),
            "{document}"
        );
        let url = member(&document, "resource").and_then(plain_string);
        assert_eq!(
            url,
            Some(format!("https://mcp.example.com{resource}").as_str())
        );
        assert_eq!(
            member(&document, "authorization_servers"),
            Some(r#"["https://id.example.com"]"#)
        );
        assert!(
            member(&document, "scopes_supported")
                .unwrap()
                .contains(read),
            "{document}"
        );
        assert!(!document.contains("evil") && !document.contains("offline_access"));
    }
    assert_eq!(
        get("/.well-known/oauth-protected-resource/mcp/none")
            .await
            .status,
        404
    );
    // Behind a proxy that removes a prefix, the prefix follows the well-known part.
    let before = fs::read_to_string(guarded.path()).unwrap();
    let below = before.replace("mcp.example.com", "mcp.example.com/gate");
    fs::write(guarded.path(), below).unwrap();
    assert_eq!(guarded.gateway.reload().await.0, 200);
    for (path, resource) in [
        (
            "/.well-known/oauth-protected-resource/gate/mcp/git",
            "/mcp/git",
        ),
        ("/.well-known/oauth-protected-resource/gate", "/mcp"),
        ("/.well-known/oauth-protected-resource/mcp", "/mcp"),
    ] {
        let document = get(path).await.text().await;
        let resource = format!(r#""https://mcp.example.com/gate{resource}""#);
        assert_eq!(member(&document, "resource"), Some(&*resource), "{path}");
    }
    let path = "/.well-known/oauth-protected-resource/gateway/mcp";
    assert_eq!(get(path).await.status, 404);
    let body = legacy_request("3", "ping", "");
    let denied = send(guarded.gateway.mcp, "POST", "/mcp", &[], &body).await;
    let challenge_below = challenge(denied, 401, "3").await;
    assert!(
        challenge_below.contains(&format!("{METADATA}/gate/mcp\"")),
        "{challenge_below}"
    );
    fs::write(guarded.path(), before).unwrap();
    // Without an issuer there is no metadata, from the next request on.
    let keys_alone = fs::read_to_string(guarded.path())
        .unwrap()
        .replace("oauth:", "#");
    fs::write(guarded.path(), keys_alone).unwrap();
    assert_eq!(guarded.gateway.reload().await.0, 200);
    assert_eq!(
        get("/.well-known/oauth-protected-resource/mcp")
            .await
            .status,
        404
    );
    let plain = challenge(
        send(
            guarded.gateway.mcp,
            "POST",
            "/mcp",
            &[],
            &legacy_request("3", "ping", ""),
        )
        .await,
        401,
        "3",
    )
    .await;
    assert_eq!(plain, "Bearer");
}

#[tokio::test]
async fn request_without_credentials_learns_how_to_get_them() {
    let guarded = Guarded::start().await;
    let ping = legacy_request("\"p\"", "ping", "");
    for (path, resource, scopes) in [
        ("/mcp", "/mcp", "mcp:read mcp:call"),
        ("/mcp/git", "/mcp/git", "git:read git:write"),
        ("/none", "/mcp", "mcp:read mcp:call"),
    ] {
        let challenge = challenge(
            send(guarded.gateway.mcp, "POST", path, &[], &ping).await,
            401,
            "\"p\"",
        )
        .await;
        assert_eq!(
            challenge,
            format!("Bearer scope=\"{scopes}\", resource_metadata=\"{METADATA}{resource}\""),
            "{path}"
        );
    }
    for wrong in [
        "Bearer fanlight_x",
        "Bearer a b",
        "Bearer",
        "Basic YTpi",
        "bearer\tx",
    ] {
        let response = send(
            guarded.gateway.mcp,
            "POST",
            "/mcp",
            &[("Authorization", wrong)],
            &ping,
        )
        .await;
        assert!(
            [400, 401].contains(&response.status),
            "{wrong}: {}",
            response.status
        );
        let challenge = response
            .header("www-authenticate")
            .unwrap_or_else(|| panic!("no challenge for {wrong}"));
        assert!(
            challenge.starts_with("Bearer ") && challenge.contains(METADATA),
            "{wrong}: {challenge}"
        );
    }
    assert_eq!(
        guarded.files.received("tools/call").len() + guarded.git.received("tools/call").len(),
        0
    );
}

#[tokio::test]
async fn each_operation_needs_its_scopes() {
    let guarded = Guarded::start().await;
    let listed = guarded
        .ask(READER.0, "/mcp", "tools/list", "")
        .await
        .text()
        .await;
    assert!(
        listed.contains("files__delete_all"),
        "lists show what may not be called: {listed}"
    );
    for (key, tool, missing) in [
        (READER.0, "git__log", Some("mcp:call")),
        (CALLER.0, "git__log", None),
        (CALLER.0, "files__read", None),
        (READER.0, "files__delete_all", Some("mcp:call files:delete")),
        (CALLER.0, "files__delete_all", Some("mcp:call files:delete")),
        // The server's own name, which is accepted, and other names that the server might know.
        (CALLER.0, "delete_all", Some("mcp:call files:delete")),
        (CALLER.0, "files__DELETE_ALL", Some("mcp:call files:delete")),
        (CALLER.0, "files__other", Some("mcp:call files:delete")),
        (CALLER.0, "log", None),
    ] {
        let response = guarded.call(key, "/mcp", tool).await;
        match missing {
            None => assert_eq!(response.status, 200, "{tool}"),
            Some(missing) => {
                let challenge = challenge(response, 403, "1").await;
                assert!(
                    challenge.starts_with("Bearer error=\"insufficient_scope\", "),
                    "{challenge}"
                );
                assert!(
                    challenge.ends_with(&format!(
                        "scope=\"{missing}\", resource_metadata=\"{METADATA}/mcp\""
                    )),
                    "{challenge}"
                );
            }
        }
    }
    assert_eq!(guarded.files.count_of_target("tools/call", "delete_all"), 0);
    let challenge = challenge(
        guarded.call(CALLER.0, "/mcp/git", "git__log").await,
        403,
        "1",
    )
    .await;
    assert!(
        challenge.contains("scope=\"git:write\"")
            && challenge.ends_with(&format!("{METADATA}/mcp/git\"")),
        "{challenge}"
    );
    // The required scopes may change while clients are served.
    fs::write(
        guarded.path(),
        configuration("mcp:read", [&guarded.files, &guarded.git]),
    )
    .unwrap();
    assert_eq!(guarded.gateway.reload().await.0, 200);
    assert_eq!(
        guarded.call(CALLER.0, "/mcp", "delete_all").await.status,
        200
    );
}

#[tokio::test]
async fn messages_of_sessions_need_their_scopes_over_both_legacy_transports() {
    let guarded = Guarded::start().await;
    let address = guarded.gateway.mcp;
    let own = |key: &str| format!("Bearer {key}");
    let (reader, caller) = (own(READER.0), own(CALLER.0));
    let call = legacy_request("5", "tools/call", r#""name":"git__log","arguments":{}"#);
    let list = legacy_request("4", "tools/list", "");

    let opened = send(
        address,
        "POST",
        "/mcp",
        &[("Authorization", &reader)],
        &initialize("2025-11-25", "{}"),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let of = |key| vec![("Authorization", key), ("Mcp-Session-Id", session.as_str())];
    assert_eq!(
        send(address, "POST", "/mcp", &of(&reader), INITIALIZED)
            .await
            .status,
        202
    );
    assert_eq!(
        send(address, "POST", "/mcp", &of(&reader), &list)
            .await
            .status,
        200
    );
    let denied = challenge(
        send(address, "POST", "/mcp", &of(&reader), &call).await,
        403,
        "5",
    )
    .await;
    assert!(denied.contains("insufficient_scope"), "{denied}");
    assert_eq!(
        send(address, "POST", "/mcp", &of(&caller), &list)
            .await
            .status,
        404,
        "a session of another principal"
    );
    for method in ["POST", "GET", "DELETE"] {
        let response = send(
            address,
            method,
            "/mcp",
            &[
                ("Mcp-Session-Id", &session),
                ("Accept", "text/event-stream, application/json"),
            ],
            &list,
        )
        .await;
        assert_eq!(response.status, 401, "{method}");
    }

    let mut stream = send(
        address,
        "GET",
        "/sse",
        &[("Authorization", &reader), ("Accept", "text/event-stream")],
        "",
    )
    .await;
    let endpoint = stream.event().await.unwrap().expect("an endpoint");
    let post = |key: Option<&str>, body: &str| {
        let headers: Vec<_> = key
            .iter()
            .map(|key| ("Authorization", (*key).to_owned()))
            .collect();
        let (endpoint, body) = (endpoint.clone(), body.to_owned());
        async move {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            send(address, "POST", &endpoint, &headers, &body).await
        }
    };
    assert_eq!(
        post(Some(&reader), &initialize("2024-11-05", "{}"))
            .await
            .status,
        202
    );
    assert!(
        within("the answer", stream.event())
            .await
            .unwrap()
            .unwrap()
            .contains("protocolVersion")
    );
    let denied = challenge(post(Some(&reader), &call).await, 403, "5").await;
    assert!(
        denied.ends_with(&format!(
            "scope=\"mcp:call\", resource_metadata=\"{METADATA}/sse\""
        )),
        "{denied}"
    );
    assert_eq!(
        (
            post(None, &list).await.status,
            post(Some(&caller), &list).await.status
        ),
        (401, 404)
    );
    assert_eq!(post(Some(&reader), &list).await.status, 202);
    let listed = within("the list", stream.event()).await.unwrap().unwrap();
    assert_eq!(
        member(&listed, "id"),
        Some("4"),
        "the refused call has no answer on the stream: {listed}"
    );
    assert!(guarded.git.received("tools/call").is_empty());
}

#[tokio::test]
async fn scopes_added_by_a_reload_end_open_streams() {
    let guarded = Guarded::start().await;
    let listen = async |key| {
        let mut stream = guarded
            .ask(
                key,
                "/mcp",
                "subscriptions/listen",
                r#""notifications":{"toolsListChanged":true}"#,
            )
            .await;
        let opened = within("the acknowledgement", stream.event())
            .await
            .unwrap()
            .unwrap();
        assert!(opened.contains("acknowledged"), "{opened}");
        stream
    };
    let (mut reader, mut caller) = (listen(READER.0).await, listen(CALLER.0).await);
    let configured = fs::read_to_string(guarded.path()).unwrap();
    // A reload that changes nothing for a stream leaves it open.
    guarded
        .reconfigure(&configured.replace("call: mcp:call", "call: mcp:other"))
        .await;
    let added = configured
        .replace("    read: mcp:read", "    read: mcp:list")
        .replace("[mcp:read]}", "[mcp:list]}");
    guarded.reconfigure(&added).await;
    let ended = within("the end of the stream", reader.event())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        member(&ended, "error.data.scope").and_then(plain_string),
        Some("mcp:list"),
        "{ended}"
    );
    assert!(
        within("the end of the stream", reader.event())
            .await
            .unwrap()
            .is_none()
    );
    challenge(
        guarded
            .ask(
                READER.0,
                "/mcp",
                "subscriptions/listen",
                r#""notifications":{}"#,
            )
            .await,
        403,
        "1",
    )
    .await;
    // The other client has the new scope, too, so it goes on listening.
    let without_git = added
        .replace(&format!(", {}", guarded.git.entry("git")), "")
        .replace("  /mcp/git", "  #/mcp/git");
    guarded.reconfigure(&without_git).await;
    let told = within("a changed list", caller.event())
        .await
        .unwrap()
        .unwrap();
    assert!(told.contains("tools/list_changed"), "{told}");
}

#[tokio::test]
async fn retry_of_a_suspended_call_needs_the_scopes_of_the_call_that_goes_on() {
    let [files, git] = [
        Backend::start(Era::Legacy, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    ];
    for backend in [&files, &git] {
        backend.offers_tools(&["delete_all"]);
    }
    let ask = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    files.on(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).asking(&[ask]),
    );
    git.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let auth = "auth: {keys: {file: keys.yaml}, scopes: {call: mcp:call, tools: {RULES}}}\n";
    let configured = |rules: &str, prefixes: [&str; 2]| {
        let entry = |backend: &Backend, name, prefix| {
            backend.entry_with(name, &format!(r#""prefix":"{prefix}""#))
        };
        let servers = [
            entry(&files, "files", prefixes[0]),
            entry(&git, "git", prefixes[1]),
        ]
        .join(", ");
        format!(
            "{}mcpServers: {{{servers}}}\n",
            auth.replace("RULES", rules)
        )
    };
    let free = configured("", ["files__", "git__"]);
    // The name that the client knows now belongs to another server's tool, which needs no scope.
    let bound = configured(r#""files/delete_*": [files:delete]"#, ["old__", "files__"]);
    let rebound = configured("", ["old__", "files__"]);
    let guarded = Guarded::start_with([files, git], &free).await;
    let call = |more: &str| {
        let params = format!(r#""name":"files__delete_all","arguments":{{}}{more}"#);
        modern_request_with(r#"{"roots":{}}"#, "1", "tools/call", &params, "")
    };
    let asked = guarded
        .post(CALLER.0, "/mcp", &call(""))
        .await
        .messages()
        .await
        .1;
    let state =
        member(&asked, "result.requestState").unwrap_or_else(|| panic!("not suspended: {asked}"));
    let retry = call(&format!(
        r#","inputResponses":{{"input-1":{{"roots":[]}}}},"requestState":{state}"#
    ));
    guarded.reconfigure(&bound).await;
    let denied = challenge(guarded.post(CALLER.0, "/mcp", &retry).await, 403, "1").await;
    assert!(
        denied.contains("scope=\"mcp:call files:delete\""),
        "{denied}"
    );
    assert_eq!(
        guarded.files.received("").len(),
        0,
        "the server got an answer"
    );
    // The question still waits for a client that may continue it.
    guarded.reconfigure(&rebound).await;
    let done = guarded
        .post(CALLER.0, "/mcp", &retry)
        .await
        .messages()
        .await
        .1;
    assert!(member(&done, "result.content").is_some(), "{done}");
    let [of_files, of_git] =
        [&guarded.files, &guarded.git].map(|backend| backend.received("tools/call").len());
    assert_eq!(
        (of_files, of_git),
        (1, 0),
        "the call that was decided about is the one that ran"
    );
}

#[tokio::test]
async fn operators_see_who_has_opened_a_session() {
    let guarded = Guarded::start().await;
    let own = format!("Bearer {}", READER.0);
    let headers = [("Authorization", own.as_str())];
    assert_eq!(
        send(
            guarded.gateway.mcp,
            "POST",
            "/mcp",
            &headers,
            &initialize("2025-11-25", "{}")
        )
        .await
        .status,
        200
    );
    let sessions = send(guarded.gateway.admin, "GET", "/api/sessions", &[], "")
        .await
        .text()
        .await;
    assert!(
        sessions.contains(r#""principal":"reader","source":"key""#),
        "{sessions}"
    );
    assert!(!sessions.contains(READER.0));
}

#[tokio::test]
async fn revoked_key_ends_streams_and_running_calls() {
    let guarded = Guarded::start().await;
    let address = guarded.gateway.mcp;
    let own = format!("Bearer {}", CALLER.0);
    let gate = Gate::new();
    guarded.git.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let opened = send(
        address,
        "POST",
        "/mcp",
        &[("Authorization", &own)],
        &initialize("2025-11-25", "{}"),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let of = |accept| {
        [
            ("Authorization", own.as_str()),
            ("Mcp-Session-Id", session.as_str()),
            ("Accept", accept),
        ]
    };
    let mut get = send(address, "GET", "/mcp", &of("text/event-stream"), "").await;
    let call = legacy_request("5", "tools/call", r#""name":"git__log","arguments":{}"#);
    let calling = tokio::spawn({
        let headers: Vec<_> = of("application/json, text/event-stream")
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        async move {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let mut response = send(address, "POST", "/mcp", &headers, &call).await;
            response.text().await
        }
    });
    guarded.git.wait_for("tools/call", 1).await;
    let keys = guarded.folder.path().join("keys.yaml");
    let rest = fs::read_to_string(&keys)
        .unwrap()
        .lines()
        .filter(|line| !line.contains("caller"))
        .collect::<Vec<_>>()
        .join("\n");
    fs::write(keys, rest).unwrap();
    let answer = within("the end of the call", calling).await.unwrap();
    assert!(
        answer.contains("-31004") && answer.contains(r#""mayHaveRun":true"#),
        "{answer}"
    );
    guarded.git.wait_abandoned("tools/call").await;
    within("the end of the stream", async {
        while let Ok(Some(_)) = get.event().await {}
    })
    .await;
}

#[tokio::test]
async fn challenges_are_those_of_http1_over_http2() {
    let guarded = Guarded::start().await;
    let stream = tokio::net::TcpStream::connect(guarded.gateway.mcp)
        .await
        .unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = within("a connection", handshake).await.unwrap();
    let connection = tokio::spawn(connection);
    let reader = format!("Bearer {}", READER.0);
    let call = modern_request("1", "tools/call", r#""name":"git__log","arguments":{}"#, "");
    for (method, key, status, part) in [
        (
            "POST",
            None,
            401,
            "Bearer scope=\"mcp:call\", resource_metadata=\"",
        ),
        (
            "GET",
            None,
            401,
            "Bearer scope=\"mcp:read mcp:call\", resource_metadata=\"",
        ),
        (
            "DELETE",
            None,
            401,
            "Bearer scope=\"mcp:read mcp:call\", resource_metadata=\"",
        ),
        (
            "POST",
            Some("Bearer fanlight_x"),
            401,
            "Bearer error=\"invalid_token\", ",
        ),
        (
            "POST",
            Some(reader.as_str()),
            403,
            "Bearer error=\"insufficient_scope\", ",
        ),
    ] {
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(format!("http://{}/mcp", guarded.gateway.mcp));
        let own = if method == "POST" {
            modern_headers(&call)
        } else {
            Vec::new()
        };
        for (name, value) in JSON_HEADERS.into_iter().chain(
            own.iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        ) {
            request = request.header(name, value);
        }
        if let Some(key) = key {
            request = request.header("Authorization", key);
        }
        let body = if method == "POST" {
            call.clone()
        } else {
            String::new()
        };
        let response = within(
            "a response",
            sender.send_request(request.body(body).unwrap()),
        )
        .await
        .unwrap();
        assert_eq!(response.status().as_u16(), status, "{method} {key:?}");
        let challenge = response.headers()["www-authenticate"].to_str().unwrap();
        assert!(
            challenge.starts_with(part) && challenge.contains(METADATA),
            "{challenge}"
        );
    }
    connection.abort();
}
