//! A protected resource: metadata, challenges, and the scopes of operations.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::Principal;
use fanlight_canonical::identity::{Identity, Scopes, Source};
use fanlight_credentials::{Authenticate, Authentication, Credentials, Denial};
use fanlight_frontend::{
    FrontendSettings, Guard, LiveGuard, LiveProtection, Origins, ProtectionSettings, PublicUrl,
    RefusedBody, ScopeSettings, ToolScopes,
};
use fanlight_record::AuditLog;

use crate::client::{
    Client, Response, Server, legacy_call, modern_call, modern_headers, modern_request,
};

const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource";
const ISSUER: &str = "https://id.example.com/realm";
const PING: &str = r#"{"jsonrpc":"2.0","id":"seven","method":"ping"}"#;

/// A token is `<name>/<scope>,<scope>…`, or the name of a denial.
#[derive(Debug)]
struct ByToken;

impl Authenticate for ByToken {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let shown = credentials
            .headers
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        Authentication::Ready(
            match shown.map(|shown| shown.strip_prefix("Bearer ").unwrap_or(shown)) {
                None => Err(Denial::Missing),
                Some("malformed") => Err(Denial::Malformed(
                    "the header is not \"Bearer\" and a token".into(),
                )),
                Some("invalid") => Err(Denial::Invalid("the token has <expired>".into())),
                Some("throttled") => Err(Denial::Throttled {
                    retry_after: Duration::from_millis(1500),
                }),
                Some("unavailable") => {
                    Err(Denial::Unavailable("the issuer does not answer".into()))
                }
                Some(token) => {
                    let (name, scopes) = token.split_once('/').unwrap();
                    let endpoints = name
                        .strip_prefix("only-other")
                        .map(|_| Arc::from([Arc::from("/mcp/other")]));
                    // Tokens of the HTTP+SSE transport are issued for its own URL.
                    assert!(
                        ["/mcp", "/mcp/other", "/sse"].contains(&credentials.endpoint),
                        "{}",
                        credentials.endpoint
                    );
                    Ok(Arc::new(Identity {
                        principal: Principal::new("test", name),
                        source: Source::Token,
                        scopes: Scopes::parse(&scopes.replace(',', " ")),
                        endpoints,
                        ..Identity::anonymous()
                    }))
                }
            },
        )
    }
}

fn list(scopes: &[&str]) -> Vec<String> {
    scopes.iter().map(|scope| (*scope).to_owned()).collect()
}

fn protection(authorization_servers: &[&str]) -> LiveProtection {
    let delete = ToolScopes {
        names: Arc::new(|_, name| name.starts_with("files__delete_")),
        scopes: list(&["files:delete", "offline_access"]),
    };
    let scopes = ScopeSettings {
        read: list(&["mcp:read"]),
        call: list(&["mcp:call"]),
        tools: vec![delete],
    };
    let other = ScopeSettings {
        read: list(&["other:read"]),
        call: list(&["other"]),
        ..ScopeSettings::default()
    };
    let endpoints = vec![("/mcp/other".to_owned(), other)];
    let authorization_servers = list(authorization_servers);
    LiveProtection::new(ProtectionSettings {
        authorization_servers,
        scopes,
        forwarded: Vec::new(),
        endpoints,
        rates: Vec::new(),
    })
}

async fn start(authorization_servers: &[&str]) -> Server {
    let guard = Guard::new(&[], Origins::Listed(vec!["https://page.example".into()]));
    let settings = FrontendSettings {
        authenticate: Arc::new(ByToken),
        protection: protection(authorization_servers),
        guard: LiveGuard::new(guard.with_public_url(PublicUrl::parse("https://mcp.example.com"))),
        ..FrontendSettings::default()
    };
    Server::at(&["/mcp", "/mcp/other"], settings).await
}

async fn protected() -> Server {
    start(&[ISSUER]).await
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// A POST to `path` with the headers of a modern request and `headers`.
async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut client = server.connect().await;
    client.send("POST", path, headers, body).await;
    client.response().await
}

/// The challenge for bearer tokens. If an issuer's tokens are accepted, a second challenge says the
/// same for key-bound tokens.
fn challenge(response: &Response) -> &str {
    let all = response
        .headers
        .iter()
        .filter(|(name, _)| name == "www-authenticate");
    let all: Vec<&str> = all.map(|(_, value)| value.as_str()).collect();
    let bound = format!(
        r#"DPoP{}, algs="ES256 "#,
        all[0].strip_prefix("Bearer").unwrap()
    );
    match all[0].contains("resource_metadata") {
        true => assert!(all.len() == 2 && all[1].starts_with(&bound), "{response:?}"),
        false => assert_eq!(all.len(), 1, "{response:?}"),
    }
    all[0]
}

#[tokio::test]
async fn metadata_describe_each_resource() {
    let server = protected().await;
    let mut client = server.connect().await;
    for (suffix, resource, scopes) in [
        ("", "/mcp", ["mcp:read", "mcp:call"]),
        ("/", "/mcp", ["mcp:read", "mcp:call"]),
        ("/mcp", "/mcp", ["mcp:read", "mcp:call"]),
        ("/mcp/other", "/mcp/other", ["other:read", "other"]),
        ("/sse", "/sse", ["mcp:read", "mcp:call"]),
    ] {
        let path = format!("/.well-known/oauth-protected-resource{suffix}");
        let response = client.call("GET", &path, &[]).await;
        assert_eq!(response.status, 200, "{path} {}", response.body);
        let expected = serde_json::json!({
            "resource": format!("https://mcp.example.com{resource}"),
            "authorization_servers": [ISSUER],
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported":
                ["ES256", "ES384", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
            "resource_name": format!("MCP server mcp.example.com{resource}"),
        });
        assert_eq!(response.json(), expected);
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
        assert_eq!(response.header("cache-control"), Some("public, max-age=60"));
        client.send("HEAD", &path, &[], "").await;
        let head = client.head().await;
        assert_eq!(
            (head.status, head.header("content-type")),
            (200, Some("application/json"))
        );
    }
    for suffix in ["/mcp/none", "/MCP", "x", "/mcp%2fother", "/../mcp", "//mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{suffix}");
        let response = client.call("GET", &path, &[]).await;
        assert_eq!(
            (
                response.status,
                response.header("access-control-allow-origin")
            ),
            (404, Some("*")),
            "{suffix}"
        );
    }
    let refused = client
        .call("DELETE", "/.well-known/oauth-protected-resource", &[])
        .await;
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
}

#[tokio::test]
async fn metadata_are_open_to_pages_of_every_origin() {
    let server = protected().await;
    let mut client = server.connect().await;
    let path = "/.well-known/oauth-protected-resource/mcp";
    let page = [
        ("Origin", "https://anywhere.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ];
    let response = client.call("GET", path, &page).await;
    assert_eq!(
        (
            response.status,
            response.header("access-control-allow-origin")
        ),
        (200, Some("*"))
    );
    let asked = [
        page[0],
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "mcp-protocol-version"),
    ];
    let preflight = client.call("OPTIONS", path, &asked).await;
    assert_eq!(
        (
            preflight.status,
            preflight.header("access-control-allow-origin")
        ),
        (204, Some("*"))
    );
    assert!(
        preflight
            .header("access-control-allow-headers")
            .unwrap()
            .contains("MCP-Protocol-Version")
    );
    // The endpoint itself is not.
    assert_eq!(client.post(&page, PING).await.status, 403);
}

#[tokio::test]
async fn urls_are_never_made_from_headers_of_a_request() {
    let server = protected().await;
    let spoofed = [
        ("Host", "localhost:8080"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Original-URL", "/evil"),
        ("Forwarded", "for=1.2.3.4;host=evil.example;proto=http"),
    ];
    let plain = server
        .connect()
        .await
        .call("GET", "/.well-known/oauth-protected-resource/mcp", &[])
        .await;
    let other = server
        .connect()
        .await
        .call("GET", "/.well-known/oauth-protected-resource/mcp", &spoofed)
        .await;
    assert_eq!(plain.body, other.body);
    let denied = post(&server, "/mcp", &spoofed, PING).await;
    assert_eq!(
        challenge(&denied),
        challenge(&post(&server, "/mcp", &[], PING).await)
    );
    let page = [&spoofed[..], &[("Accept", "text/html")]].concat();
    let page = server.connect().await.call("GET", "/mcp", &page).await;
    assert!(
        !format!("{:?} {}", page.headers, page.body).contains("evil")
            && !page.body.contains("localhost")
    );
    let foreign = [("Host", "evil.example")];
    assert_eq!(
        server
            .connect()
            .await
            .call("GET", "/.well-known/oauth-protected-resource", &foreign)
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn without_authorization_server_there_are_no_metadata() {
    let server = start(&[]).await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/x",
    ] {
        assert_eq!(
            server.connect().await.call("GET", path, &[]).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(challenge(&post(&server, "/mcp", &[], PING).await), "Bearer");
    let lacks = post(
        &server,
        "/mcp",
        &[("Authorization", "Bearer ann/mcp:read")],
        &modern_call("1", "echo", ""),
    )
    .await;
    assert_eq!(lacks.status, 400, "headers come first");
    let headers = [
        modern_headers("tools/call", Some("echo")),
        vec![("Authorization", "Bearer ann/mcp:read")],
    ]
    .concat();
    let lacks = post(&server, "/mcp", &headers, &modern_call("1", "echo", "")).await;
    assert_eq!(lacks.status, 403);
    assert!(
        challenge(&lacks).starts_with("Bearer error=\"insufficient_scope\", error_description=\"")
            && !challenge(&lacks).contains("resource_metadata")
    );
}

#[tokio::test]
async fn missing_credentials_are_asked_for_in_the_same_way_everywhere() {
    let server = protected().await;
    for (method, path, accept) in [
        ("POST", "/mcp", "application/json, text/event-stream"),
        ("GET", "/mcp", "text/event-stream"),
        ("DELETE", "/mcp", ""),
        ("PUT", "/mcp", ""),
        ("GET", "/nothing", ""),
        ("POST", "/nothing/here", ""),
    ] {
        let mut client = server.connect().await;
        client
            .send(
                method,
                path,
                &[("Accept", accept), ("Mcp-Session-Id", "x")],
                "",
            )
            .await;
        let response = client.response().await;
        assert_eq!(response.status, 401, "{method} {path}");
        let expected =
            format!("Bearer scope=\"mcp:read mcp:call\", resource_metadata=\"{METADATA}/mcp\"");
        assert_eq!(challenge(&response), expected, "{method} {path}");
        assert_eq!(response.json()["error"]["code"], -31004);
    }
    let other = post(&server, "/mcp/other", &[], PING).await;
    let expected =
        format!("Bearer scope=\"other:read other\", resource_metadata=\"{METADATA}/mcp/other\"");
    assert_eq!(challenge(&other), expected);
    for (method, path) in [("GET", "/sse"), ("POST", "/sse/message?sessionId=x")] {
        let response = server.connect().await.call(method, path, &[]).await;
        let expected =
            format!("Bearer scope=\"mcp:read mcp:call\", resource_metadata=\"{METADATA}/sse\"");
        assert_eq!(
            (response.status, challenge(&response)),
            (401, expected.as_str())
        );
    }
}

#[tokio::test]
async fn challenge_names_the_scopes_of_a_known_operation() {
    let server = protected().await;
    for (headers, scopes) in [
        (modern_headers("tools/list", None), "mcp:read"),
        (modern_headers("tools/call", Some("echo")), "mcp:call"),
        (
            modern_headers("tools/call", Some("files__delete_all")),
            "mcp:call files:delete",
        ),
        (modern_headers("server/discover", None), "mcp:read mcp:call"),
        (
            modern_headers("tools/\"quoted\\", None),
            "mcp:call files:delete",
        ),
    ] {
        let expected = format!("Bearer scope=\"{scopes}\", resource_metadata=\"{METADATA}/mcp\"");
        assert_eq!(
            challenge(&post(&server, "/mcp", &headers, PING).await),
            expected,
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn denials_have_their_status_error_and_id() {
    let server = protected().await;
    for (token, status, error, code) in [
        ("invalid", 401, Some("invalid_token"), -31004),
        ("malformed", 400, Some("invalid_request"), -32600),
        ("throttled", 429, None, -31004),
        ("unavailable", 503, None, -32603),
        ("only-other/mcp:read", 403, None, -31005),
    ] {
        let response = post(&server, "/mcp", &[("Authorization", &bearer(token))], PING).await;
        assert_eq!(
            (response.status, response.code()),
            (status, code),
            "{token}"
        );
        assert_eq!(response.json()["id"], "seven", "{token}");
        match error {
            Some(error) => {
                let expected = format!("Bearer error=\"{error}\", error_description=\"");
                assert!(
                    challenge(&response).starts_with(&expected),
                    "{}",
                    challenge(&response)
                );
            }
            None => assert_eq!(response.header("www-authenticate"), None),
        }
    }
    let malformed = post(
        &server,
        "/mcp",
        &[("Authorization", "Bearer malformed")],
        PING,
    )
    .await;
    assert!(
        challenge(&malformed)
            .contains("error_description=\"the header is not 'Bearer' and a token\"")
    );
    let throttled = post(
        &server,
        "/mcp",
        &[("Authorization", "Bearer throttled")],
        PING,
    )
    .await;
    assert_eq!(throttled.header("retry-after"), Some("2"));
    let unavailable = post(
        &server,
        "/mcp",
        &[("Authorization", "Bearer unavailable")],
        PING,
    )
    .await;
    assert_eq!(unavailable.header("retry-after"), Some("1"));
    let several = [
        ("Authorization", "Bearer ann/mcp:read"),
        ("authorization", "Bearer bob/mcp:read"),
    ];
    let several = post(&server, "/mcp", &several, PING).await;
    assert_eq!(
        (several.status, &several.json()["id"]),
        (400, &serde_json::json!("seven"))
    );
    assert!(challenge(&several).contains("invalid_request"));
}

#[tokio::test]
async fn denied_body_is_read_no_further_than_its_id_needs() {
    let settings = FrontendSettings {
        refused_body: RefusedBody {
            time: Duration::from_millis(50),
            bytes: 1 << 20,
        },
        ..FrontendSettings::default()
    };
    let server = Server::with(FrontendSettings {
        authenticate: Arc::new(ByToken),
        ..settings
    })
    .await;
    let padding = "x".repeat(5 << 10);
    let late =
        format!(r#"{{"jsonrpc":"2.0","method":"ping","params":{{"p":"{padding}"}},"id":7}}"#);
    assert_eq!(
        post(&server, "/mcp", &[], &late).await.json()["id"],
        serde_json::Value::Null
    );
    let early =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"p":"{padding}"}}}}"#);
    assert_eq!(post(&server, "/mcp", &[], &early).await.json()["id"], 7);
    // The answer does not wait for a body that never comes.
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &[("content-length", "100")],
            r#"{"jsonrpc":"2.0","id":8,"#,
        )
        .await;
    let response = client.response().await;
    assert_eq!(
        (response.status, &response.json()["id"]),
        (401, &serde_json::json!(8))
    );
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &[("content-length", "100"), ("Expect", "100-continue")],
            "",
        )
        .await;
    assert_eq!(
        client.response().await.status,
        401,
        "no 100 Continue comes first"
    );
}

#[tokio::test]
async fn browser_is_told_what_this_is() {
    let server = protected().await;
    let mut client = server.connect().await;
    let html = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    for (headers, text) in [
        (vec![html], "401 Unauthorized: authentication is required."),
        (
            vec![html, ("Authorization", "Bearer invalid")],
            "the token has &lt;expired&gt;.",
        ),
    ] {
        let response = client.call("GET", "/mcp", &headers).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (401, Some("text/html; charset=utf-8"))
        );
        assert!(
            response.body.contains(text)
                && response
                    .body
                    .contains("<code>https://mcp.example.com/mcp</code>"),
            "{}",
            response.body
        );
        assert!(response.body.contains(ISSUER) && !response.body.contains("<script"));
        let policy = response.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'")
        );
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert!(challenge(&response).contains(METADATA));
    }
    let keys = start(&[])
        .await
        .connect()
        .await
        .call("GET", "/mcp", &[html])
        .await;
    assert!(keys.body.contains("Authorization: Bearer &lt;key&gt;"));
}

#[tokio::test]
async fn pages_may_read_challenges_and_preflights_need_no_credentials() {
    let server = protected().await;
    let origin = ("Origin", "https://page.example");
    let mut seen = Vec::new();
    for path in ["/mcp", "/mcp/other", "/sse", "/nothing"] {
        let asked = [
            origin,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization"),
        ];
        let preflight = server.connect().await.call("OPTIONS", path, &asked).await;
        assert_eq!(preflight.status, 204, "{path}");
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            Some("https://page.example")
        );
        assert!(
            preflight
                .header("access-control-allow-headers")
                .unwrap()
                .contains("Authorization")
        );
        let mut headers = preflight.headers;
        headers.retain(|(name, _)| name != "date");
        seen.push(headers);
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
    let known = [origin, ("Authorization", "Bearer ann/mcp:read")];
    assert_eq!(
        server
            .connect()
            .await
            .call("OPTIONS", "/nothing", &known)
            .await
            .status,
        404
    );
    let headers = [
        modern_headers("tools/call", Some("echo")),
        vec![origin, ("Authorization", "Bearer ann/mcp:read")],
    ]
    .concat();
    for response in [
        post(&server, "/mcp", &[origin], PING).await,
        post(&server, "/mcp", &headers, &modern_call("1", "echo", "")).await,
    ] {
        assert!([401, 403].contains(&response.status));
        assert_eq!(
            response.header("access-control-allow-origin"),
            Some("https://page.example")
        );
        assert!(
            response
                .header("access-control-expose-headers")
                .unwrap()
                .contains("WWW-Authenticate")
        );
    }
}

#[tokio::test]
async fn client_of_some_endpoints_does_not_learn_of_others() {
    let server = protected().await;
    let own = ("Authorization", "Bearer only-other/other:read");
    let forbidden = post(&server, "/mcp", &[own], PING).await;
    let unknown = post(&server, "/mcp/none", &[own], PING).await;
    assert_eq!((forbidden.status, unknown.status), (403, 403));
    assert_eq!(
        (forbidden.body, forbidden.headers.len()),
        (unknown.body, unknown.headers.len())
    );
    let list = modern_request("1", "tools/list", "", "");
    let headers = [modern_headers("tools/list", None), vec![own]].concat();
    assert_eq!(
        post(&server, "/mcp/other", &headers, &list).await.status,
        200
    );
    let everywhere = ("Authorization", "Bearer ann/mcp:read");
    assert_eq!(
        post(&server, "/mcp/none", &[everywhere], PING).await.status,
        404
    );
}

#[tokio::test]
async fn modern_request_needs_the_scopes_of_its_operation() {
    let server = protected().await;
    for (method, name, scopes, path, missing) in [
        ("server/discover", None, "", "/mcp", None),
        ("tools/list", None, "", "/mcp", Some("mcp:read")),
        ("tools/list", None, "mcp:read", "/mcp", None),
        ("tools/list", None, "mcp:call", "/mcp", Some("mcp:read")),
        (
            "tools/call",
            Some("echo"),
            "mcp:read",
            "/mcp",
            Some("mcp:call"),
        ),
        ("tools/call", Some("echo"), "mcp:call", "/mcp", None),
        (
            "tools/call",
            Some("files__delete_all"),
            "mcp:call",
            "/mcp",
            Some("mcp:call files:delete"),
        ),
        (
            "tools/call",
            Some("files__delete_all"),
            "files:delete,offline_access,mcp:call",
            "/mcp",
            None,
        ),
        // An accepted alternative name, and names that no list contains.
        (
            "tools/call",
            Some("delete_all"),
            "mcp:call",
            "/mcp",
            Some("mcp:call files:delete"),
        ),
        (
            "tools/call",
            Some("Files__Delete_All"),
            "mcp:call",
            "/mcp",
            Some("mcp:call files:delete"),
        ),
        (
            "tools/call",
            Some("unlisted"),
            "mcp:call",
            "/mcp",
            Some("mcp:call files:delete"),
        ),
        (
            "tools/callLater",
            None,
            "mcp:call",
            "/mcp",
            Some("mcp:call files:delete"),
        ),
        (
            "prompts/get",
            Some("p"),
            "mcp:call",
            "/mcp",
            Some("mcp:read"),
        ),
        (
            "subscriptions/listen",
            None,
            "mcp:call",
            "/mcp",
            Some("mcp:read"),
        ),
        (
            "tools/call",
            Some("files__delete_all"),
            "mcp:admin",
            "/mcp/other",
            Some("other"),
        ),
        (
            "tools/call",
            Some("files__delete_all"),
            "other",
            "/mcp/other",
            None,
        ),
    ] {
        let token = bearer(&format!("ann/{scopes}"));
        let headers = [
            modern_headers(method, name),
            vec![("Authorization", token.as_str())],
        ]
        .concat();
        let params = name
            .map(|name| format!(r#""name":"{name}""#))
            .unwrap_or_default();
        let response = post(
            &server,
            path,
            &headers,
            &modern_request("5", method, &params, ""),
        )
        .await;
        let what = format!("{method} {name:?} {scopes} {path}: {}", response.body);
        match missing {
            None => assert_eq!(response.status, 200, "{what}"),
            Some(missing) => {
                assert_eq!((response.status, response.code()), (403, -31005), "{what}");
                assert_eq!(response.json()["id"], 5, "{what}");
                let end = format!("scope=\"{missing}\", resource_metadata=\"{METADATA}{path}\"");
                let challenge = challenge(&response);
                assert!(
                    challenge.starts_with("Bearer error=\"insufficient_scope\", ")
                        && challenge.ends_with(&end),
                    "{challenge}"
                );
            }
        }
    }
}

#[tokio::test]
async fn tool_whose_name_is_no_text_may_be_any() {
    let server = protected().await;
    // The header repeats the readable part.
    for (name, escaped) in [
        ("files__delete_all", r"files\u005f_delete_all"),
        ("x", r"files__delete_all\ud800"),
    ] {
        let headers = [
            modern_headers("tools/call", Some(name)),
            vec![("Authorization", "Bearer ann/mcp:call")],
        ]
        .concat();
        let body = modern_request("5", "tools/call", &format!(r#""name":"{escaped}""#), "");
        let status = post(&server, "/mcp", &headers, &body).await.status;
        assert!(status == 403 || status == 400, "{escaped}: {status}");
    }
}

/// Opens a legacy session.
async fn open(client: &mut Client, revision: &str, token: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    );
    let response = client
        .post(&[("Authorization", &bearer(token))], &body)
        .await;
    response
        .header("mcp-session-id")
        .unwrap_or_else(|| panic!("{}", response.body))
        .to_owned()
}

#[tokio::test]
async fn legacy_request_needs_the_scopes_of_its_operation() {
    let server = protected().await;
    let mut client = server.connect().await;
    let id = open(&mut client, "2025-06-18", "ann/").await;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for (body, scopes, status) in [
        (PING, "", 200),
        (notification, "", 202),
        (list, "", 403),
        (list, "mcp:read", 200),
        (&legacy_call("2", "echo", ""), "mcp:read", 403),
        (&legacy_call("2", "echo", ""), "mcp:call", 200),
        (&legacy_call("3", "delete_all", ""), "mcp:call", 403),
    ] {
        let token = bearer(&format!("ann/{scopes}"));
        let response = client
            .post(&[("Authorization", &token), ("Mcp-Session-Id", &id)], body)
            .await;
        assert_eq!(
            response.status, status,
            "{body} {scopes}: {}",
            response.body
        );
        if status == 403 {
            assert!(challenge(&response).contains("insufficient_scope"));
        }
    }
}

#[tokio::test]
async fn scopes_are_checked_for_each_message_of_a_batch() {
    let server = protected().await;
    let mut client = server.connect().await;
    let id = open(&mut client, "2025-03-26", "ann/").await;
    let batch = format!(
        r#"[{},{{"jsonrpc":"2.0","id":1,"method":"tools/list"}}]"#,
        legacy_call("2", "echo", "")
    );
    let headers = [
        ("Authorization", "Bearer ann/mcp:read"),
        ("Mcp-Session-Id", &*id),
        ("Accept", "application/json"),
    ];
    let response = client.post(&headers, &batch).await;
    let answers = response.json();
    let of = |id: i64| {
        answers
            .as_array()
            .unwrap()
            .iter()
            .find(|answer| answer["id"] == id)
            .unwrap()
            .clone()
    };
    assert!(of(1)["result"].is_object(), "{answers}");
    assert_eq!(
        (&of(2)["error"]["code"], &of(2)["error"]["data"]["scope"]),
        (&(-31005).into(), &"mcp:call".into())
    );
}

#[tokio::test]
async fn message_of_the_sse_transport_needs_the_scopes_of_its_operation() {
    let server = protected().await;
    let mut stream = server.connect().await;
    stream
        .send(
            "GET",
            "/sse",
            &[
                ("Accept", "text/event-stream"),
                ("Authorization", "Bearer ann/"),
            ],
            "",
        )
        .await;
    assert_eq!(stream.head().await.status, 200);
    let first = String::from_utf8(stream.chunk().await.unwrap()).unwrap();
    let endpoint = first
        .strip_prefix("event: endpoint\ndata: ")
        .unwrap()
        .trim_end();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    assert_eq!(
        post(
            &server,
            endpoint,
            &[("Authorization", "Bearer ann/")],
            initialize
        )
        .await
        .status,
        202
    );
    assert!(stream.event().await.unwrap().contains(r#""id":0"#));
    let call = legacy_call("4", "echo", "");
    let refused = post(
        &server,
        endpoint,
        &[("Authorization", "Bearer ann/mcp:read")],
        &call,
    )
    .await;
    assert_eq!(
        (refused.status, &refused.json()["id"]),
        (403, &serde_json::json!(4))
    );
    assert!(challenge(&refused).ends_with(&format!(
        "scope=\"mcp:call\", resource_metadata=\"{METADATA}/sse\""
    )));
    assert_eq!(
        post(
            &server,
            endpoint,
            &[("Authorization", "Bearer ann/mcp:call")],
            &call
        )
        .await
        .status,
        202
    );
    assert!(stream.event().await.unwrap().contains(r#""id":4"#));
}

#[tokio::test]
async fn denied_clients_are_counted_in_the_audit_log() {
    let record = Arc::new(AuditLog::default());
    let server = Server::with(FrontendSettings {
        authenticate: Arc::new(ByToken),
        record: Arc::<AuditLog>::clone(&record),
        ..FrontendSettings::default()
    })
    .await;
    for (token, is_denied) in [("invalid", true), ("ann/", false)] {
        let response = post(&server, "/mcp", &[("Authorization", &bearer(token))], PING).await;
        assert_eq!(response.status == 401, is_denied, "{response:?}");
    }
    let text = fanlight_telemetry::metrics::prometheus(&record.metrics());
    let refusals = text
        .lines()
        .filter(|line| line.starts_with("fanlight_auth_refusals_total{"));
    assert_eq!(
        refusals.collect::<Vec<_>>(),
        ["fanlight_auth_refusals_total{listener=\"clients\",reason=\"invalid\"} 1"]
    );
}
