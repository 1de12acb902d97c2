//! Discovering a server's authorization server, and servers' attempts to mislead a client.

use fanlight_grants::fetch::{FetchError, Requests, Trust};
use fanlight_grants::oauth::{Challenge, Discovered, OAuthError, Provider, Scopes, discover};
use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::issuer::Conduct;
use fanlight_testkit::tls::Authority;
use serde_json::json;

use crate::{World, requests, url};

const METADATA: &str = "/.well-known/oauth-authorization-server";

async fn found(world: &World, challenge: Option<&Challenge>) -> Result<Discovered, OAuthError> {
    discover(&requests(), &world.url(), challenge, None).await
}

#[tokio::test]
async fn authorization_server_is_found_through_the_metadata_of_the_server() {
    let world = World::start().await;
    let discovered = found(&world, None).await.unwrap();
    assert_eq!(discovered.resource, world.server.url());
    assert_eq!(discovered.provider.issuer, world.authority.url());
    assert_eq!((discovered.scopes, discovered.needs_proofs), (None, false));
    let challenge = Challenge {
        scopes: Some(Scopes::read("b a")),
        is_dpop: true,
        ..Challenge::default()
    };
    world
        .authority
        .describe(json!({ "dpop_signing_alg_values_supported": ["ES256"] }));
    let challenged = found(&world, Some(&challenge)).await.unwrap();
    assert_eq!(
        (challenged.scopes, challenged.needs_proofs),
        (Some(Scopes::read("a b")), true)
    );
}

#[tokio::test]
async fn places_are_asked_in_the_specified_order() {
    let world = World::start().await;
    world.authority.conduct(METADATA, Conduct::Status(404));
    assert!(matches!(
        found(&world, None).await,
        Err(OAuthError::NoMetadata { .. })
    ));
    assert_eq!(
        world.authority.paths(),
        [METADATA, "/.well-known/openid-configuration"]
    );
}

#[tokio::test]
async fn server_that_has_failed_leads_nowhere_else() {
    let world = World::start().await;
    for conduct in [Conduct::Status(503), Conduct::Down] {
        world.authority.conduct(METADATA, conduct);
        assert!(found(&world, None).await.unwrap_err().is_temporary());
    }
    assert!(world.authority.paths().iter().all(|path| path == METADATA));
}

#[tokio::test]
async fn issuer_is_compared_by_each_character() {
    let world = World::start().await;
    let issuer = world.authority.url().to_owned();
    for other in [
        format!("{issuer}/"),
        issuer.to_uppercase(),
        issuer.replace("127.0.0.1", "localhost"),
    ] {
        world.authority.describe(json!({ "issuer": other }));
        let error = found(&world, None).await.unwrap_err();
        assert!(
            matches!(&error, OAuthError::OtherIssuer { named, .. } if *named == other),
            "{error}"
        );
    }
    // The next place is not tried, since its answer would be just as foreign.
    assert!(world.authority.paths().iter().all(|path| path == METADATA));
}

#[tokio::test]
async fn metadata_of_another_server_are_refused() {
    let (world, other) = (World::start().await, AuthorizationServer::start().await);
    for resource in [
        format!("{}x", world.server.url()),
        "https://mcp.example.com/mcp".to_owned(),
        "no URL".to_owned(),
    ] {
        let document = format!(
            r#"{{"resource":"{resource}","authorization_servers":["{}"]}}"#,
            world.authority.url()
        );
        other.conduct("/metadata", Conduct::Text(document));
        let challenge = Challenge {
            resource_metadata: Some(url(&format!("{}/metadata", other.url()))),
            ..Challenge::default()
        };
        let error = found(&world, Some(&challenge)).await.unwrap_err();
        assert!(matches!(error, OAuthError::OtherResource { .. }), "{error}");
    }
    assert!(world.authority.paths().is_empty());
}

#[tokio::test]
async fn other_authorization_server_than_the_named_one_is_refused() {
    let world = World::start().await;
    let refused = discover(
        &requests(),
        &world.url(),
        None,
        Some("https://id.example.com"),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(refused, OAuthError::OtherAuthorizationServer { .. }),
        "{refused}"
    );
    assert!(world.authority.paths().is_empty());
    let issuer = world.authority.url();
    assert!(
        discover(&requests(), &world.url(), None, Some(issuer))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn server_without_metadata_is_its_own_authorization_server() {
    let authority = AuthorizationServer::start().await;
    let server = url(&format!("{}/mcp", authority.url()));
    let discovered = discover(&requests(), &server, None, None).await.unwrap();
    assert_eq!(
        (
            discovered.provider.issuer.as_str(),
            discovered.resource.as_str()
        ),
        (authority.url(), server.as_str())
    );
    authority.conduct(METADATA, Conduct::Status(404));
    let provider = discover(&requests(), &server, None, None)
        .await
        .unwrap()
        .provider;
    let at = |path| url(&format!("{}{path}", authority.url()));
    assert_eq!(
        (provider.token_endpoint.clone(), provider.has_pkce()),
        (at("/token"), true)
    );
    assert_eq!(
        (
            provider.authorization_endpoint,
            provider.registration_endpoint
        ),
        (Some(at("/authorize")), Some(at("/register")))
    );
}

#[tokio::test]
async fn metadata_lead_to_no_forbidden_place() {
    let world = World::start().await;
    for endpoint in [
        "http://10.0.0.1/token",
        "https://169.254.169.254/token",
        "file:///etc/passwd",
        "http://id.example.com/",
    ] {
        world
            .authority
            .describe(json!({ "token_endpoint": endpoint }));
        assert!(
            matches!(
                found(&world, None).await,
                Err(OAuthError::Fetch(FetchError::Forbidden { .. }))
            ),
            "{endpoint}"
        );
    }
    for link in [
        "javascript:alert(1)",
        "file:///bin/sh",
        "http://id.example.com/authorize",
    ] {
        world
            .authority
            .describe(json!({ "authorization_endpoint": link }));
        assert!(
            matches!(
                found(&world, None).await,
                Err(OAuthError::Fetch(FetchError::Forbidden { .. }))
            ),
            "{link}"
        );
    }
}

#[tokio::test]
async fn remote_server_leads_neither_to_this_machine_nor_into_its_network() {
    let inner = AuthorizationServer::start().await;
    let port = url(inner.url()).port().unwrap();
    let requests = Requests::new(&Trust::in_server(url("https://mcp.example.com/mcp"))).unwrap();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
    ];
    for host in hosts {
        for scheme in ["http", "https"] {
            let place = url(&format!("{scheme}://{host}:{port}/metadata"));
            let refused = requests
                .get_json::<serde_json::Value>(&place)
                .await
                .unwrap_err();
            assert!(
                matches!(refused, FetchError::Forbidden { .. }),
                "{place}: {refused}"
            );
        }
    }
    assert!(inner.paths().is_empty());
}

#[tokio::test]
async fn certificate_is_of_an_authority_that_is_trusted() {
    let authority = Authority::new();
    let provider = AuthorizationServer::start_over_tls(&authority.server()).await;
    let mut trust = Trust::in_server(url("https://127.0.0.1:9/mcp"));
    let untrusting = Requests::new(&trust).unwrap();
    let refused = Provider::discover(&untrusting, provider.url())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, OAuthError::Fetch(FetchError::NoAnswer { .. })),
        "{refused}"
    );
    trust.authorities = Some(authority.pem().into_bytes());
    let trusting = Requests::new(&trust).unwrap();
    assert!(Provider::discover(&trusting, provider.url()).await.is_ok());
    // The issuer is a host name, which must be resolved.
    let issuer = provider.url().replace("127.0.0.1", "localhost");
    provider.describe(json!({ "issuer": issuer }));
    assert!(Provider::discover(&trusting, &issuer).await.is_ok());
    trust.authorities = Some(b"no certificate".to_vec());
    assert!(Requests::new(&trust).is_err());
}

#[tokio::test]
async fn redirects_are_not_followed_and_long_answers_not_read() {
    let (world, other) = (World::start().await, AuthorizationServer::start().await);
    world.authority.conduct(
        METADATA,
        Conduct::Redirect(format!("{}{METADATA}", other.url())),
    );
    let error = found(&world, None).await.unwrap_err();
    assert!(
        error.to_string().contains("redirects are not followed"),
        "{error}"
    );
    assert!(other.paths().is_empty());
    world.authority.conduct(
        METADATA,
        Conduct::Text(format!("\"{}\"", "x".repeat(256 << 10))),
    );
    assert!(matches!(
        found(&world, None).await,
        Err(OAuthError::Fetch(FetchError::TooLong { .. }))
    ));
}

#[tokio::test]
async fn member_that_is_there_twice_is_refused() {
    let authority = AuthorizationServer::start().await;
    let issuer = authority.url();
    let twice = format!(
        r#"{{"issuer":"{issuer}","token_endpoint":"{issuer}/a","token_endpoint":"{issuer}/b"}}"#
    );
    authority.conduct(METADATA, Conduct::Text(twice));
    assert!(Provider::discover(&requests(), issuer).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn slow_server_is_left_after_ten_seconds() {
    let authority = AuthorizationServer::start().await;
    authority.conduct(METADATA, Conduct::Slow);
    let error = Provider::discover(&requests(), authority.url())
        .await
        .unwrap_err();
    assert!(
        matches!(error, OAuthError::Fetch(FetchError::Timeout { .. })),
        "{error}"
    );
}
