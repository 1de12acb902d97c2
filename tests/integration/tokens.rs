//! Access tokens of OAuth issuers, through the real binary.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use fanlight_testkit::issuer::{CLIENT, Conduct, Issuer, Place, SigningKey};
use fanlight_testkit::tls::Authority;
use futures_util::future::join_all;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::not_run_over_tls::TlsDoor;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Transport};

const AUDIENCE: &str = "https://mcp.example.com/mcp";

/// A gateway that accepts tokens of these raw entries of `oauth`.
struct Guarded {
    gateway: Gateway,
    backend: Backend,
}

/// A configuration with these issuers and further members.
fn config(backend: &Backend, issuers: &[String], more: &str) -> String {
    format!(
        r#"{{"publicUrl":"https://mcp.example.com","auth":{{"oauth":[{}]}},"mcpServers":{{{}}}{more}}}"#,
        issuers.join(","),
        backend.entry("only")
    )
}

fn trusting(issuer: &Issuer) -> String {
    format!(r#"{{"issuer":"{}"}}"#, issuer.url())
}

impl Guarded {
    async fn start(issuers: &[String], more: &str) -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let gateway = Gateway::start(&config(&backend, issuers, more)).await;
        Self { gateway, backend }
    }

    /// The status and the challenge of a request with this token.
    async fn answer(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let body = modern_request("1", "tools/list", "", "");
        let mut headers = modern_headers(&body);
        headers.extend(token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
        let own = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).collect();
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection
            .request("POST", path, &headers, body.as_bytes())
            .await;
        let response = connection.response().await;
        (
            response.status,
            response
                .header("www-authenticate")
                .unwrap_or_default()
                .to_owned(),
        )
    }

    async fn status(&self, token: &str) -> u16 {
        self.answer("/mcp", Some(token)).await.0
    }
}

/// The status of a request with this token over HTTP/2.
async fn http2_status(address: SocketAddr, token: &str) -> u16 {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
    let driver = tokio::spawn(connection);
    let body = modern_request("1", "tools/list", "", "");
    let mut request = hyper::Request::post(format!("http://{address}/mcp"))
        .header("authorization", format!("bearer {token}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in modern_headers(&body) {
        request = request.header(name, value);
    }
    let response = within(
        "a response",
        client.send_request(request.body(body).unwrap()),
    )
    .await
    .unwrap();
    driver.abort();
    response.status().as_u16()
}

/// The token with a different first character in its signature.
fn with_another_signature(message: &str, signature: &str) -> String {
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{message}.{first}{}", &signature[1..])
}

#[tokio::test]
async fn tokens_decide_over_http1_and_http2() {
    let (issuer, evil) = (Issuer::start().await, Issuer::start().await);
    let guarded = Guarded::start(&[trusting(&issuer)], "").await;
    let good = issuer.token("ann", AUDIENCE, "mcp:read mcp:call");
    for _ in 0..2 {
        assert_eq!(guarded.status(&good).await, 200);
        assert_eq!(http2_status(guarded.gateway.mcp, &good).await, 200);
    }
    let (message, signature) = good.rsplit_once('.').unwrap();
    let wrong = [
        evil.token("ann", AUDIENCE, "mcp:read"),
        issuer.token("ann", "https://other.example.com/mcp", "mcp:read"),
        issuer.key().sign_text(
            r#"{"alg":"none"}"#,
            &issuer.claims("ann", AUDIENCE, "").to_string(),
        ),
        format!("{message}."),
        with_another_signature(message, signature),
        "opaque".to_owned(),
        "x".repeat(17 << 10),
    ];
    for token in &wrong {
        let (status, challenge) = guarded.answer("/mcp", Some(token)).await;
        assert!(
            status == 401 && challenge.contains("error=\"invalid_token\""),
            "{status} {challenge}"
        );
        assert_eq!(http2_status(guarded.gateway.mcp, token).await, 401);
    }
    assert_eq!(
        (evil.asked(Place::Metadata), issuer.asked(Place::Keys)),
        (0, 1)
    );
    let (status, challenge) = guarded
        .answer(&format!("/mcp?access_token={good}"), None)
        .await;
    assert!(
        status == 401 && !challenge.contains("error="),
        "{status} {challenge}"
    );
    assert_eq!(guarded.answer("/mcp", Some("a b")).await.0, 400);
    // Neither the server nor the log learns a token.
    for request in guarded.backend.received("tools/list") {
        assert_eq!(request.header("authorization"), None);
    }
    let log = guarded.gateway.log.text();
    assert!(
        !log.contains(&good)
            && !log.contains(message)
            && wrong.iter().all(|token| !log.contains(token)),
        "{log}"
    );
}

#[tokio::test]
async fn issuer_that_is_down_at_the_start_harms_its_own_tokens_alone() {
    let (up, down) = (Issuer::start().await, Issuer::start().await);
    down.conduct_all(&Conduct::Down);
    let guarded = Guarded::start(&[trusting(&down), trusting(&up)], "").await;
    assert_eq!(guarded.status(&down.token("ann", AUDIENCE, "")).await, 503);
    assert_eq!(guarded.status(&up.token("ann", AUDIENCE, "")).await, 200);
    down.conduct_all(&Conduct::Good);
    within("the issuer to be asked again", async {
        while guarded.status(&down.token("ann", AUDIENCE, "")).await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn keys_rotate_under_load() {
    let issuer = Issuer::start().await;
    let guarded = Guarded::start(&[trusting(&issuer)], r#","x-limits":"unknownKey=100ms""#).await;
    let mut old = Vec::new();
    for round in 0..5 {
        let new: Vec<_> = (0..10)
            .map(|user| issuer.token(&format!("user-{round}-{user}"), AUDIENCE, ""))
            .collect();
        old.extend(new);
        let statuses = join_all(old.iter().map(|token| guarded.status(token))).await;
        assert!(
            statuses.iter().all(|status| *status == 200),
            "round {round}: {statuses:?}"
        );
        // The issuer keeps publishing the keys of tokens in use, as issuers do.
        issuer.add_key(
            [
                SigningKey::eddsa,
                SigningKey::es384,
                SigningKey::rs256,
                SigningKey::es256,
            ][round % 4],
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        issuer.asked(Place::Keys) <= 5,
        "{}",
        issuer.asked(Place::Keys)
    );
}

#[tokio::test]
async fn reload_keeps_what_is_known_of_issuers_that_stay() {
    let (stays, goes) = (Issuer::start().await, Issuer::start().await);
    let guarded = Guarded::start(&[trusting(&stays), trusting(&goes)], "").await;
    let (kept, lost) = (
        stays.token("ann", AUDIENCE, ""),
        goes.token("ann", AUDIENCE, ""),
    );
    assert_eq!(
        (guarded.status(&kept).await, guarded.status(&lost).await),
        (200, 200)
    );
    stays.conduct_all(&Conduct::Down);
    guarded
        .gateway
        .configure(&config(&guarded.backend, &[trusting(&stays)], ""));
    within("the reload", async {
        while guarded.status(&lost).await != 401 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(guarded.status(&kept).await, 200);
    assert_eq!(
        guarded.status(&stays.token("ben", AUDIENCE, "")).await,
        200,
        "its keys are kept"
    );
}

#[tokio::test]
async fn issuer_is_asked_about_opaque_tokens() {
    let issuer = Issuer::start().await;
    let entry = format!(
        r#"{{"issuer":"{}","introspection":{{"clientId":"{}","clientSecret":"{}"}},"require":{{"client_id":["test"]}}}}"#,
        issuer.url(),
        CLIENT.0,
        CLIENT.1
    );
    let guarded = Guarded::start(&[entry], r#","x-limits":"introspection=0s""#).await;
    let token = issuer.opaque(issuer.claims("ann", AUDIENCE, "mcp:read"));
    assert_eq!(guarded.status(&token).await, 200);
    issuer.revoke(&token);
    assert_eq!(guarded.status(&token).await, 401);
    issuer.conduct_all(&Conduct::Down);
    assert_eq!(guarded.status(&token).await, 503);
    let log = guarded.gateway.log.text();
    assert!(!log.contains(&token) && !log.contains(CLIENT.1), "{log}");
}

#[tokio::test]
async fn configuration_without_any_audience_is_refused() {
    let text = r#"{"auth":{"oauth":[{"issuer":"https://id.example.com"}]},"mcpServers":{"s":{"command":"true"}}}"#;
    let file = TempFile::new("json", text);
    let mut command = fanlight();
    command
        .arg("run")
        .arg("--config")
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = within("fanlight to refuse", command.output())
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("publicUrl") && error.contains("audience"),
        "{error}"
    );
}

/// Sends a request with these extra fields; returns the status and all challenges.
async fn with_fields(guarded: &Guarded, path: &str, fields: &[(&str, &str)]) -> (u16, Vec<String>) {
    let body = modern_request("1", "tools/list", "", "");
    let own = modern_headers(&body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = JSON_HEADERS
        .into_iter()
        .chain(own)
        .chain(fields.iter().copied())
        .collect();
    let mut connection = Connection::open(guarded.gateway.mcp).await;
    connection
        .request("POST", path, &headers, body.as_bytes())
        .await;
    let response = connection.response().await;
    let challenges = response
        .headers
        .iter()
        .filter(|(name, _)| name == "www-authenticate");
    (
        response.status,
        challenges.map(|(_, value)| value.clone()).collect(),
    )
}

#[tokio::test]
async fn token_that_is_bound_to_a_key_needs_a_proof_for_each_request() {
    let issuer = Issuer::start().await;
    let guarded = Guarded::start(&[trusting(&issuer)], "").await;
    let (key, mut claims) = (
        SigningKey::es256("k"),
        issuer.claims("ann", AUDIENCE, "mcp:read"),
    );
    claims["cnf"] = serde_json::json!({"jkt": key.thumbprint()});
    let token = issuer.sign(&claims);
    let shown = format!("DPoP {token}");
    let proof = |url: &str| {
        key.sign(
            &key.proof_header(),
            &SigningKey::proof_claims("POST", url, &token),
        )
    };
    let first = proof(AUDIENCE);
    let ask = async |proof: &str| {
        with_fields(
            &guarded,
            "/mcp",
            &[("Authorization", &shown), ("DPoP", proof)],
        )
        .await
    };
    assert_eq!(ask(&first).await, (200, Vec::new()));
    assert_eq!(ask(&proof(AUDIENCE)).await.0, 200);
    for wrong in [
        first,
        proof("https://mcp.example.com/other"),
        "x".to_owned(),
    ] {
        let (status, challenges) = ask(&wrong).await;
        assert_eq!((status, challenges.len()), (401, 2), "{challenges:?}");
        assert!(
            challenges[1].starts_with("DPoP error=\"invalid_dpop_proof\""),
            "{challenges:?}"
        );
        assert!(challenges[1].contains("algs=\"ES256 "), "{challenges:?}");
    }
    let (status, challenges) = with_fields(
        &guarded,
        "/mcp",
        &[("Authorization", &format!("Bearer {token}"))],
    )
    .await;
    assert!(
        status == 401 && challenges[0].starts_with("Bearer error=\"invalid_token\""),
        "{challenges:?}"
    );
    // A client without credentials learns of both ways.
    let (status, challenges) = with_fields(&guarded, "/mcp", &[]).await;
    assert!(
        status == 401 && challenges[0].starts_with("Bearer ") && challenges[1].starts_with("DPoP "),
        "{challenges:?}"
    );
}

#[tokio::test]
async fn keys_of_an_issuer_are_read_over_tls_with_its_authority() {
    let issuer = Issuer::start().await;
    let authority = Authority::new();
    let ca = TempFile::new("pem", &authority.pem());
    let door = TlsDoor::before(&issuer.jwks_uri(), authority.server().acceptor(&[])).await;
    let url = format!("https://{}", door.address);
    let mut claims = issuer.claims("ann", AUDIENCE, "mcp:read");
    claims["iss"] = url.as_str().into();
    let token = issuer.sign(&claims);
    for (more, status) in [
        (format!(r#","caFile":{:?}"#, ca.path()), 200),
        (String::new(), 503),
    ] {
        let entry = format!(r#"{{"issuer":"{url}","jwksUri":"{url}/keys"{more}}}"#);
        let guarded = Guarded::start(&[entry], "").await;
        assert_eq!(guarded.status(&token).await, status);
    }
}
