//! Servers that get Fanlight's own credentials: from the configuration, or tokens that it fetches,
//! renews and replaces.

use std::sync::Arc;

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::issuer::{Conduct, SigningKey};
use fanlight_testkit::scripted::{Protection, REFUSED, Verdict};
use serde_json::{Value, json};

use crate::harness::{Gateway, TempFile, within};
use crate::not_run::call;
use crate::raw_client::Connection;
use crate::scripted::{Backend, Era, Reply, Transport};

const SECRET: &str = "s3cret-of-fanlight";

/// A server with a tool `t` that accepts only one authorization server's tokens.
struct World {
    server: Backend,
    authority: Arc<AuthorizationServer>,
}

impl World {
    async fn start(era: Era) -> Self {
        let server = Backend::start(era, Transport::Http).await;
        server.offers_tools(&["t"]);
        server.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
        let authority = Arc::new(AuthorizationServer::start().await);
        let valid = Arc::clone(&authority);
        server.protect(Protection::by_token(
            &server.url(),
            authority.url(),
            move |token| valid.is_valid(token),
        ));
        Self { server, authority }
    }

    fn config(&self, auth: &Value) -> String {
        json!({ "mcpServers": { "only": { "url": self.server.url(), "auth": auth } } }).to_string()
    }

    async fn gateway(&self, auth: &Value) -> Gateway {
        Gateway::start(&self.config(auth)).await
    }

    /// The credentials of each executed call.
    fn ledger(&self) -> Vec<String> {
        let calls = self.server.received("tools/call");
        calls
            .iter()
            .map(|call| call.header("authorization").unwrap_or_default().to_owned())
            .collect()
    }
}

fn client_credentials() -> Value {
    json!({ "type": "clientCredentials", "clientId": "fanlight", "clientSecret": SECRET })
}

async fn admin(gateway: &Gateway, path: &str) -> String {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", path, &[], b"").await;
    connection.response().await.text().await
}

/// Checks that neither the log nor the operators' data contains these secrets.
async fn assert_hidden(gateway: &Gateway, secrets: &[&str]) {
    for shown in [
        gateway.log.text(),
        admin(gateway, "/api/config").await,
        admin(gateway, "/api/backends").await,
    ] {
        for secret in secrets {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

#[tokio::test]
async fn credentials_of_the_configuration_are_shown() {
    let auth = json!({ "type": "basic", "username": "fanlight", "password": SECRET });
    // The base64 of "fanlight:s3cret-of-fanlight"
    let expected = "Basic ZmFubGlnaHQ6czNjcmV0LW9mLWZhbmxpZ2h0";
    let world = World::start(Era::Modern).await;
    world.server.protect(Protection {
        resource: None,
        challenge: "Basic".to_owned(),
        accepts: Arc::new(
            move |message| match message.header("authorization") == Some(expected) {
                true => Verdict::Accepted,
                false => Verdict::Unauthorized,
            },
        ),
    });
    let gateway = world.gateway(&auth).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert_eq!(world.ledger(), [expected]);
    assert_hidden(&gateway, &[SECRET, expected]).await;
}

#[tokio::test]
async fn token_of_a_client_is_shared_by_all_calls() {
    for era in [Era::Legacy, Era::Modern] {
        let world = World::start(era).await;
        let gateway = world.gateway(&client_credentials()).await;
        for _ in 0..3 {
            assert!(call(&gateway, "t", "{}").await["result"].is_object());
        }
        assert_eq!(world.ledger(), ["Bearer token-1"; 3]);
        let asked = world.authority.asked("/token");
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].parameter("grant_type"), Some("client_credentials"));
        assert_eq!(
            asked[0].parameter("resource"),
            Some(world.server.url().as_str())
        );
        assert_hidden(&gateway, &[SECRET, "token-1", "ZmFubGlnaHQ"]).await;
    }
}

#[tokio::test]
async fn call_with_an_expired_token_runs_once() {
    for era in [Era::Legacy, Era::Modern] {
        let world = World::start(era).await;
        let gateway = world.gateway(&client_credentials()).await;
        assert!(call(&gateway, "t", "{}").await["result"].is_object());
        world.authority.revoke_all();
        // The gateway does not replace a token that it has just fetched, so the first token must be
        // older.
        world
            .authority
            .grants_with(json!({ "access_token": "renewed" }));
        let refused = world.server.received(REFUSED).len();
        let answer = call(&gateway, "t", "{}").await;
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(world.ledger(), ["Bearer token-1", "Bearer renewed"]);
        assert_eq!(world.server.received(REFUSED).len(), refused + 1);
        assert_eq!(world.authority.asked("/token").len(), 2);
    }
}

#[tokio::test]
async fn server_that_refuses_every_token_is_not_asked_for_ever() {
    let world = World::start(Era::Modern).await;
    let gateway = world.gateway(&client_credentials()).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    let nobody = Protection::by_token(&world.server.url(), world.authority.url(), |_| false);
    world.server.protect(nobody);
    for _ in 0..3 {
        let answer = call(&gateway, "t", "{}").await;
        assert!(answer["error"].is_object(), "{answer}");
    }
    assert_eq!(world.ledger().len(), 1);
    assert!(
        world.authority.asked("/token").len() <= 3,
        "{:?}",
        world.authority.paths()
    );
}

#[tokio::test]
async fn scopes_that_a_call_needs_are_asked_for_in_addition() {
    let world = World::start(Era::Modern).await;
    let valid = Arc::clone(&world.authority);
    let server = world.server.url();
    world.authority.on_token(|asked| {
        let scope = asked.parameter("scope").unwrap_or_default().to_owned();
        (200, json!({ "access_token": scope.replace(' ', "+"), "token_type": "Bearer", "scope": scope }))
    });
    let narrow = r#"Bearer error="insufficient_scope", scope="call""#;
    world.server.protect(Protection {
        resource: Some(format!(
            r#"{{"resource":"{server}","authorization_servers":["{}"],"scopes_supported":["read"]}}"#,
            valid.url()
        )),
        challenge: "Bearer".to_owned(),
        accepts: Arc::new(move |message| {
            let token = message.header("authorization").and_then(|shown| shown.strip_prefix("Bearer "));
            match token.filter(|token| valid.is_valid(token)) {
                None => Verdict::Unauthorized,
                Some("read") if message.method() == "tools/call" => {
                    Verdict::Refused(403, vec![("www-authenticate", narrow.to_owned())])
                }
                Some(_) => Verdict::Accepted,
            }
        }),
    });
    let gateway = world.gateway(&client_credentials()).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert_eq!(world.ledger(), ["Bearer call+read"; 2]);
    assert_eq!(world.authority.asked("/token").len(), 2);
}

#[tokio::test]
async fn authorization_server_that_is_down_fails_calls_that_did_not_run() {
    let world = World::start(Era::Modern).await;
    world.authority.conduct("/token", Conduct::Down);
    let gateway = world.gateway(&client_credentials()).await;
    let answer = call(&gateway, "t", "{}").await;
    assert_eq!(answer["error"]["data"]["mayHaveRun"], false, "{answer}");
    // Operators learn the address, clients do not.
    assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
    let origin = world.authority.url();
    within(
        "the log to name it",
        gateway.log.line_with_all(&["cannot get a token", origin]),
    )
    .await;
    assert!(world.ledger().is_empty());
    world.authority.conduct("/token", Conduct::Good);
    within("the server to be reached", async {
        while !call(&gateway, "t", "{}").await["result"].is_object() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(
        "the log to say so",
        gateway.log.line_with("got a token for a server again"),
    )
    .await;
    assert_hidden(&gateway, &[SECRET]).await;
}

#[tokio::test]
async fn modern_server_that_refuses_initialize_is_not_said_to_be_wrong_for_lack_of_credentials() {
    let world = World::start(Era::Modern).await;
    let valid = Arc::clone(&world.authority);
    let by_token = Protection::by_token(&world.server.url(), world.authority.url(), move |token| {
        valid.is_valid(token)
    });
    let accepts = Arc::clone(&by_token.accepts);
    // Some servers want credentials only for methods other than `initialize`.
    world.server.protect(Protection {
        accepts: Arc::new(move |message| match message.method() {
            "initialize" => Verdict::Accepted,
            _ => accepts(message),
        }),
        ..by_token
    });
    world.authority.conduct("/token", Conduct::Down);
    let gateway = world.gateway(&client_credentials()).await;
    let answer = call(&gateway, "t", "{}").await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be signed in to"),
        "{answer}"
    );
    assert!(world.server.received("initialize").is_empty());
}

#[tokio::test]
async fn rotated_secret_replaces_no_server() {
    let world = World::start(Era::Modern).await;
    let gateway = world.gateway(&client_credentials()).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    let connected = world.server.received("server/discover").len();
    let mut rotated = client_credentials();
    rotated["clientSecret"] = json!("another-s3cret");
    gateway.configure(&world.config(&rotated));
    assert_eq!(gateway.reload().await.0, 200);
    world.authority.revoke_all();
    world
        .authority
        .grants_with(json!({ "access_token": "renewed" }));
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert_eq!(world.server.received("server/discover").len(), connected);
    let asked = world.authority.asked("/token");
    let shown: Vec<_> = asked
        .iter()
        .map(|asked| asked.header("authorization").unwrap())
        .collect();
    // The base64 of "fanlight:s3cret-of-fanlight" and "fanlight:another-s3cret"
    assert_eq!(
        shown,
        [
            "Basic ZmFubGlnaHQ6czNjcmV0LW9mLWZhbmxpZ2h0",
            "Basic ZmFubGlnaHQ6YW5vdGhlci1zM2NyZXQ="
        ]
    );
}

#[tokio::test]
async fn other_credentials_replace_the_server() {
    let world = World::start(Era::Modern).await;
    let gateway = world.gateway(&client_credentials()).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    let mut other = client_credentials();
    other["clientId"] = json!("other");
    gateway.configure(&world.config(&other));
    let (status, report) = gateway.reload().await;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (status, &report["servers"]["changed"]),
        (200, &json!(["only"]))
    );
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert_eq!(world.ledger(), ["Bearer token-1", "Bearer token-2"]);
}

#[tokio::test]
async fn workload_shows_the_assertion_of_its_platform() {
    let world = World::start(Era::Modern).await;
    let claims = json!({ "sub": "workload", "aud": world.authority.url() });
    let assertion = SigningKey::es256("k").sign(&json!({ "alg": "ES256" }), &claims);
    let file = TempFile::new("jwt", &assertion);
    let gateway = world
        .gateway(&json!({ "type": "workload", "tokenFile": file.path() }))
        .await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    let asked = world.authority.asked("/token");
    assert_eq!(asked[0].parameter("assertion"), Some(assertion.as_str()));
    assert_hidden(&gateway, &[&assertion, "token-1"]).await;
}

#[tokio::test]
async fn tokens_of_a_file_are_exchanged() {
    let (world, idp) = (
        World::start(Era::Modern).await,
        AuthorizationServer::start().await,
    );
    let file = TempFile::new("jwt", "subject-t0ken");
    let exchange = json!({
        "type": "exchange", "tokenFile": file.path(), "tokenEndpoint": format!("{}/token", world.authority.url()),
        "clientId": "fanlight", "clientSecret": SECRET, "audience": "crm",
    });
    let gateway = world.gateway(&exchange).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    let asked = world.authority.asked("/token").remove(0);
    assert_eq!(asked.parameter("subject_token"), Some("subject-t0ken"));
    assert_hidden(&gateway, &[SECRET, "subject-t0ken", "token-1"]).await;

    let world = World::start(Era::Modern).await;
    let kind = "urn:ietf:params:oauth:token-type:id-jag";
    idp.grants_with(
        json!({ "access_token": "j4g", "issued_token_type": kind, "token_type": "N_A" }),
    );
    let enterprise = json!({
        "type": "enterprise", "tokenFile": file.path(), "clientId": "fanlight", "clientSecret": SECRET,
        "idp": { "issuer": idp.url(), "clientId": "at-idp", "clientSecret": "idp-s3cret" },
    });
    let gateway = world.gateway(&enterprise).await;
    assert!(call(&gateway, "t", "{}").await["result"].is_object());
    assert_eq!(
        idp.asked("/token")[0].parameter("audience"),
        Some(world.authority.url())
    );
    assert_eq!(
        world.authority.asked("/token")[0].parameter("assertion"),
        Some("j4g")
    );
    assert_hidden(
        &gateway,
        &[SECRET, "subject-t0ken", "idp-s3cret", "j4g", "token-1"],
    )
    .await;
}

#[tokio::test]
async fn server_whose_credentials_cannot_be_used_harms_no_other() {
    let (world, other) = (
        World::start(Era::Modern).await,
        World::start(Era::Modern).await,
    );
    let broken = json!({ "type": "clientCredentials", "clientId": "fanlight", "key": "no key" });
    let config = json!({ "mcpServers": {
        "broken": { "url": world.server.url(), "auth": broken },
        "good": { "url": other.server.url(), "auth": client_credentials() },
    } });
    let gateway = Gateway::start(&config.to_string()).await;
    assert!(call(&gateway, "good__t", "{}").await["result"].is_object());
    within("the log to say why", gateway.log.line_with("PKCS #8")).await;
    assert!(world.server.received("tools/call").is_empty());
    assert_hidden(&gateway, &["no key"]).await;
}
