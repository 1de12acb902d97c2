//! Access without a browser: one token for all calls, its renewal, and reactions to refusals.

use std::sync::Arc;

use fanlight_config::settings::Secret;
use fanlight_grants::fetch::Trust;
use fanlight_grants::oauth::{
    ClientCredentials, ConfiguredClient, Headers, ID_JAG, ID_TOKEN, IdentityProvider,
    MachineAccess, MachineGrant, MachineSettings, Message, OAuthError, Refused, Subject, TokenFile,
};
use fanlight_testkit::authorization_server::{Asked, AuthorizationServer};
use fanlight_testkit::harness::TempFile;
use fanlight_testkit::issuer::{Conduct, SigningKey};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::json;
use url::Url;

use crate::{World, url};

fn settings(server: &Url, grant: MachineGrant) -> MachineSettings {
    let credentials = ClientCredentials::Secret(Secret::new("s3cret"));
    MachineSettings {
        name: "only".to_owned(),
        trust: Trust::in_server(server.clone()),
        grant,
        client: ConfiguredClient {
            id: "fanlight".to_owned(),
            credentials,
        },
        issuer: None,
        token_endpoint: None,
        scopes: None,
        sends_resource: true,
    }
}

fn access(world: &World) -> Arc<MachineAccess> {
    MachineAccess::new(settings(&world.url(), MachineGrant::ClientCredentials))
}

async fn shown(access: &Arc<MachineAccess>, server: &Url) -> Result<HeaderMap, OAuthError> {
    match access.headers(&Method::POST, server) {
        Headers::Ready(headers) => Ok(headers),
        Headers::Wait(pending) => pending.await,
    }
}

async fn token(access: &Arc<MachineAccess>, server: &Url) -> Result<String, OAuthError> {
    let headers = shown(access, server).await?;
    Ok(headers["authorization"].to_str().unwrap().to_owned())
}

/// The new headers after a refusal with this status and challenge.
async fn replaced(
    access: &Arc<MachineAccess>,
    server: &Url,
    headers: &HeaderMap,
    (status, challenge): (u16, &str),
) -> Option<Result<HeaderMap, OAuthError>> {
    let challenges = [HeaderValue::from_str(challenge).unwrap()];
    let refused = Refused {
        status: StatusCode::from_u16(status).unwrap(),
        challenges: &challenges,
        nonce: None,
        shown: headers,
        message: Message {
            method: &Method::POST,
            url: server,
        },
    };
    match access.replace(refused) {
        Some(pending) => Some(pending.await),
        None => None,
    }
}

#[tokio::test]
async fn calls_at_the_same_time_share_one_request() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    world.authority.conduct("/token", Conduct::Slow);
    let calls = join_all((0..200).map(|_| token(&access, &server)));
    let all = tokio::join!(calls, async {
        world.authority.wait_for("/token", 1).await;
        world.authority.conduct("/token", Conduct::Good);
    });
    assert!(
        all.0
            .iter()
            .all(|token| token.as_deref() == Ok("Bearer token-1"))
    );
    assert_eq!(
        token(&access, &server).await.as_deref(),
        Ok("Bearer token-1")
    );
    assert_eq!(world.authority.asked("/token").len(), 1);
}

#[tokio::test]
async fn token_is_renewed_before_it_ends_and_used_meanwhile() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    // A fifth of its lifetime is over at once.
    world.authority.grants_with(json!({ "expires_in": 1 }));
    assert_eq!(
        token(&access, &server).await.as_deref(),
        Ok("Bearer token-1")
    );
    world.authority.grants_with(json!({}));
    world.authority.conduct("/token", Conduct::Slow);
    fanlight_testkit::harness::within("the token to be renewed", async {
        while world.authority.asked("/token").len() < 2 {
            let waiting = matches!(access.headers(&Method::POST, &server), Headers::Wait(_));
            if waiting {
                // The token has expired while the test was paused; its successor is on its way.
                world.authority.wait_for("/token", 2).await;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.authority.conduct("/token", Conduct::Good);
    fanlight_testkit::harness::within("the new token", async {
        while token(&access, &server).await.unwrap() != "Bearer token-2" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.authority.asked("/token").len(), 2);
}

#[tokio::test]
async fn failure_is_not_repeated_at_once() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    world.authority.conduct("/token", Conduct::Down);
    for _ in 0..10 {
        assert!(token(&access, &server).await.unwrap_err().is_temporary());
    }
    assert_eq!(world.authority.asked("/token").len(), 1);
    // New secrets are tried at once.
    world.authority.conduct("/token", Conduct::Good);
    assert!(access.change(settings(&server, MachineGrant::ClientCredentials)));
    // Settings for another server are not for this access.
    let other = "https://other.example.com/mcp".parse().unwrap();
    assert!(!access.change(settings(&other, MachineGrant::ClientCredentials)));
    assert!(token(&access, &server).await.is_ok());
}

#[tokio::test]
async fn refused_token_is_replaced_once() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    let first = shown(&access, &server).await.unwrap();
    let refusal = (401, r#"Bearer error="invalid_token""#);
    let second = replaced(&access, &server, &first, refusal)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second["authorization"], "Bearer token-2");
    // Another call with the refused token gets the same new one.
    let third = replaced(&access, &server, &first, refusal)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(third["authorization"], "Bearer token-2");
    // A token fetched just now for the same challenge is not fetched again.
    assert!(replaced(&access, &server, &second, refusal).await.is_none());
    assert_eq!(world.authority.asked("/token").len(), 2);
}

#[tokio::test]
async fn scopes_that_a_challenge_wants_are_added_once() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    assert!(access.change(MachineSettings {
        scopes: Some(fanlight_grants::oauth::Scopes::read("read")),
        ..settings(&server, MachineGrant::ClientCredentials)
    }));
    let first = shown(&access, &server).await.unwrap();
    let refusal = (403, r#"Bearer error="insufficient_scope", scope="write""#);
    let second = replaced(&access, &server, &first, refusal)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        world.authority.asked("/token")[1].parameter("scope"),
        Some("read write")
    );
    // The token has the scopes, and is refused again.
    assert!(replaced(&access, &server, &second, refusal).await.is_none());
    // Any other refusal concerns the request itself.
    for other in [
        (403, "Bearer"),
        (403, r#"Bearer error="invalid_token""#),
        (403, r#"Basic realm="x""#),
    ] {
        assert!(replaced(&access, &server, &second, other).await.is_none());
    }
    // A scope that is not granted is requested once.
    world
        .authority
        .grants_with(json!({ "scope": "read write" }));
    let refusal = (403, r#"Bearer error="insufficient_scope", scope="admin""#);
    let third = replaced(&access, &server, &second, refusal)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        world.authority.asked("/token")[2].parameter("scope"),
        Some("admin read write")
    );
    assert!(replaced(&access, &server, &third, refusal).await.is_none());
    assert_eq!(world.authority.asked("/token").len(), 3);
    // If a request for more scopes is refused, the existing token stays.
    world
        .authority
        .on_token(|_| (400, json!({ "error": "invalid_scope" })));
    let refusal = (403, r#"Bearer error="insufficient_scope", scope="root""#);
    let fourth = replaced(&access, &server, &third, refusal)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(fourth["authorization"], third["authorization"]);
    assert!(replaced(&access, &server, &fourth, refusal).await.is_none());
    assert_eq!(shown(&access, &server).await.unwrap(), third);
}

#[tokio::test]
async fn client_that_is_refused_does_not_try_on() {
    let world = World::start().await;
    let (access, server) = (access(&world), world.url());
    world
        .authority
        .on_token(|_| (401, json!({ "error": "invalid_client" })));
    for _ in 0..3 {
        assert_eq!(
            token(&access, &server).await.unwrap_err().refusal(),
            Some("invalid_client")
        );
    }
    assert_eq!(world.authority.asked("/token").len(), 1);
}

#[tokio::test]
async fn secret_is_not_shown_to_another_authorization_server() {
    let (world, evil) = (World::start().await, AuthorizationServer::start().await);
    let (access, server) = (access(&world), world.url());
    let first = shown(&access, &server).await.unwrap();
    let document = format!(
        r#"{{"resource":"{server}","authorization_servers":["{}"]}}"#,
        evil.url()
    );
    evil.conduct("/metadata", Conduct::Text(document));
    let challenge = format!(r#"Bearer resource_metadata="{}/metadata""#, evil.url());
    let refused = replaced(&access, &server, &first, (401, &challenge))
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(refused, OAuthError::OtherAuthorizationServer { .. }),
        "{refused}"
    );
    assert_eq!(evil.paths(), ["/metadata"]);
}

#[tokio::test]
async fn server_that_says_nothing_is_asked_by_the_message_itself() {
    // This is not an MCP server: only the challenge names the place of its metadata.
    let (world, silent) = (World::start().await, AuthorizationServer::start().await);
    let server = url(&format!("{}/mcp", silent.url()));
    let access = MachineAccess::new(settings(&server, MachineGrant::ClientCredentials));
    for _ in 0..3 {
        assert!(shown(&access, &server).await.unwrap().is_empty());
    }
    assert_eq!(silent.paths().len(), 2, "{:?}", silent.paths());
    let document = format!(
        r#"{{"resource":"{server}","authorization_servers":["{}"]}}"#,
        world.authority.url()
    );
    silent.conduct("/metadata", Conduct::Text(document));
    let challenge = format!(r#"Bearer resource_metadata="{}/metadata""#, silent.url());
    let headers = replaced(&access, &server, &HeaderMap::new(), (401, &challenge))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(headers["authorization"], "Bearer token-1");
}

/// A platform's assertion for this audience.
fn assertion(audience: &str) -> String {
    SigningKey::es256("k").sign(
        &json!({ "alg": "ES256" }),
        &json!({ "sub": "workload", "aud": audience }),
    )
}

#[tokio::test]
async fn assertion_of_a_workload_is_read_again_for_each_token() {
    let world = World::start().await;
    let server = world.url();
    let first = assertion(world.authority.url());
    let file = TempFile::new("jwt", &format!("{first}\n"));
    let workload = MachineGrant::Assertion(TokenFile(file.path().to_owned()));
    let access = MachineAccess::new(MachineSettings {
        client: ConfiguredClient::default(),
        ..settings(&server, workload)
    });
    let headers = shown(&access, &server).await.unwrap();
    let second = assertion(world.authority.url());
    std::fs::write(file.path(), &second).unwrap();
    replaced(
        &access,
        &server,
        &headers,
        (401, r#"Bearer error="invalid_token""#),
    )
    .await
    .unwrap()
    .unwrap();
    let asked = world.authority.asked("/token");
    assert_eq!(
        asked
            .iter()
            .map(|asked| asked.parameter("assertion").unwrap())
            .collect::<Vec<_>>(),
        [first, second]
    );
    assert!(
        asked[0].parameter("client_id").is_none() && asked[0].header("authorization").is_none()
    );
}

#[tokio::test]
async fn assertion_is_sent_to_no_authorization_server_that_it_is_not_for() {
    let world = World::start().await;
    let server = world.url();
    let file = TempFile::new("jwt", &assertion("https://sts.example.com"));
    let workload = MachineGrant::Assertion(TokenFile(file.path().to_owned()));
    let unnamed = settings(&server, workload);
    let refused = token(&MachineAccess::new(unnamed.clone()), &server)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("write it as `issuer`"),
        "{refused}"
    );
    assert!(world.authority.asked("/token").is_empty());
    let named = MachineSettings {
        issuer: Some(world.authority.url().to_owned()),
        ..unnamed
    };
    assert!(token(&MachineAccess::new(named), &server).await.is_ok());
}

#[tokio::test]
async fn token_file_that_cannot_be_used_is_named() {
    let world = World::start().await;
    let server = world.url();
    let (empty, large) = (
        TempFile::new("jwt", " \n"),
        TempFile::new("jwt", &"x".repeat(70_000)),
    );
    let missing = std::path::PathBuf::from("/nonexistent/token");
    for (path, reason) in [
        (empty.path(), "no token"),
        (large.path(), "larger than"),
        (missing.as_path(), "No such file"),
    ] {
        let workload = MachineGrant::Assertion(TokenFile(path.to_owned()));
        let error = token(&MachineAccess::new(settings(&server, workload)), &server)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(reason) && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[tokio::test]
async fn identity_of_an_enterprise_becomes_a_token_of_the_server() {
    let (world, idp) = (World::start().await, AuthorizationServer::start().await);
    idp.grants_with(
        json!({ "access_token": "jag", "issued_token_type": ID_JAG, "token_type": "N_A" }),
    );
    let (server, file) = (world.url(), TempFile::new("jwt", "id-token"));
    let subject = Subject {
        file: Some(TokenFile(file.path().to_owned())),
        kind: ID_TOKEN,
    };
    let credentials = ClientCredentials::Secret(Secret::new("idp-secret"));
    let client = ConfiguredClient {
        id: "at-idp".to_owned(),
        credentials,
    };
    let idp_settings = IdentityProvider {
        issuer: idp.url().to_owned(),
        client,
    };
    let grant = MachineGrant::Enterprise {
        subject,
        idp: Some(idp_settings),
    };
    let mut settings = settings(&server, grant);
    settings.trust.configured.push(url(idp.url()));
    settings.sends_resource = false;
    assert_eq!(
        token(&MachineAccess::new(settings), &server)
            .await
            .as_deref(),
        Ok("Bearer token-1")
    );
    let asked: Vec<Asked> = idp
        .asked("/token")
        .into_iter()
        .chain(world.authority.asked("/token"))
        .collect();
    let [at_idp, at_server] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (
            at_idp.parameter("subject_token"),
            at_idp.parameter("audience")
        ),
        (Some("id-token"), Some(world.authority.url()))
    );
    assert_eq!(at_idp.parameter("resource"), Some(server.as_str()));
    assert_eq!(
        (
            at_server.parameter("assertion"),
            at_server.parameter("resource")
        ),
        (Some("jag"), None)
    );
    assert!(at_idp.header("authorization") != at_server.header("authorization"));
}

#[tokio::test]
async fn proofs_are_made_for_a_server_that_wants_them() {
    let world = World::start().await;
    world
        .authority
        .describe(json!({ "dpop_signing_alg_values_supported": ["ES256"] }));
    let (access, server) = (access(&world), world.url());
    let first = shown(&access, &server).await.unwrap();
    assert!(first.get("dpop").is_none());
    let second = replaced(&access, &server, &first, (401, "DPoP"))
        .await
        .unwrap()
        .unwrap();
    assert!(
        second.get("dpop").is_some()
            && second["authorization"]
                .to_str()
                .unwrap()
                .starts_with("DPoP ")
    );
    // The next proof has the server's nonce, and no third one is made for the same nonce.
    let nonce = HeaderValue::from_static("n-1");
    let challenges = [HeaderValue::from_static(r#"DPoP error="use_dpop_nonce""#)];
    let refused = || Refused {
        status: StatusCode::UNAUTHORIZED,
        challenges: &challenges,
        nonce: Some(&nonce),
        shown: &second,
        message: Message {
            method: &Method::POST,
            url: &server,
        },
    };
    let third = access.replace(refused()).unwrap().await.unwrap();
    let claims = |headers: &HeaderMap| {
        fanlight_testkit::authorization_server::payload(headers["dpop"].to_str().unwrap())
    };
    assert_eq!(
        (&claims(&third)["nonce"], &claims(&third)["htm"]),
        (&json!("n-1"), &json!("POST"))
    );
    assert_eq!(third["authorization"], second["authorization"]);
    assert!(access.replace(refused()).is_none());
    let later = shown(&access, &server).await.unwrap();
    assert_eq!(claims(&later)["nonce"], json!("n-1"));
    assert_ne!(claims(&later)["jti"], claims(&third)["jti"]);
}

#[test]
fn attempt_is_begun_without_a_lock_that_an_ended_runtime_takes() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let handle = runtime.unwrap().handle().clone();
    let _entered = handle.enter();
    let server = Url::parse("https://mcp.example/mcp").unwrap();
    let access = MachineAccess::new(settings(&server, MachineGrant::ClientCredentials));
    let Headers::Wait(pending) = access.headers(&Method::POST, &server) else {
        panic!("a token without a request");
    };
    assert!(pending.now_or_never().unwrap().is_err());
}
