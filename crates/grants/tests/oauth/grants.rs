//! The token endpoint with each kind of grant, and clients' authentication there.

use fanlight_config::settings::Secret;
use fanlight_grants::fetch::FetchError;
use fanlight_grants::oauth::{
    Client, ClientCredentials, ClientRegistration, ConfiguredClient, ID_JAG, ID_TOKEN, OAuthError,
    ProofKey, Scopes, SigningKey, TokenExchange, TokenKind, TokenTarget, TypedToken,
};
use fanlight_testkit::authorization_server::{Asked, payload};
use serde_json::json;

use crate::{World, client, registration, requests};

fn target() -> TokenTarget {
    TokenTarget {
        resource: Some("https://mcp.example.com/mcp".to_owned()),
        scopes: Some(Scopes::read("b a")),
    }
}

fn named(credentials: ClientCredentials) -> ConfiguredClient {
    ConfiguredClient {
        id: "fan light".to_owned(),
        credentials,
    }
}

/// The token request of a client with these credentials, at an authorization server with these
/// authentication methods.
async fn asked_by(credentials: ClientCredentials, methods: serde_json::Value) -> Asked {
    let world = World::start().await;
    world
        .authority
        .describe(json!({ "token_endpoint_auth_methods_supported": methods }));
    let (requests, provider) = (requests(), world.provider().await);
    let registration = ClientRegistration::from_configured(&provider, &named(credentials));
    client(&requests, &provider, &registration)
        .client_credentials(&target())
        .await
        .unwrap();
    world.authority.asked("/token").remove(0)
}

#[tokio::test]
async fn client_shows_who_it_is_as_the_authorization_server_wants() {
    let secret = || ClientCredentials::Secret(Secret::new("a&b:ü"));
    let basic = asked_by(
        secret(),
        json!(["client_secret_post", "client_secret_basic"]),
    )
    .await;
    // Both parts are form-encoded (RFC 6749, 2.3.1); in plain text: "fan+light:a%26b%3A%C3%BC".
    assert_eq!(
        basic.header("authorization"),
        Some("Basic ZmFuK2xpZ2h0OmElMjZiJTNBJUMzJUJD")
    );
    assert_eq!(
        (
            // Authorization servers of the Python SDK want it beside the header.
            basic.parameter("client_id"),
            basic.parameter("client_secret")
        ),
        (Some("fan light"), None)
    );
    assert_eq!(
        (basic.parameter("scope"), basic.parameter("resource")),
        (Some("a b"), Some("https://mcp.example.com/mcp"))
    );
    assert_eq!(
        asked_by(secret(), json!(null))
            .await
            .header("authorization"),
        basic.header("authorization")
    );
    let post = asked_by(secret(), json!(["client_secret_post"])).await;
    assert_eq!(
        (
            post.parameter("client_secret"),
            post.header("authorization")
        ),
        (Some("a&b:ü"), None)
    );
    let none = asked_by(ClientCredentials::None, json!(["none"])).await;
    assert_eq!(
        (none.parameter("client_id"), none.header("authorization")),
        (Some("fan light"), None)
    );
}

#[tokio::test]
async fn key_signs_an_assertion_for_the_issuer() {
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let key = SigningKey::from_pem(&Secret::new(pem)).unwrap();
    let asked = asked_by(ClientCredentials::Key(key), json!(["private_key_jwt"])).await;
    let claims = payload(asked.parameter("client_assertion").unwrap());
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("fan light"), &json!("fan light"))
    );
    let audience = claims["aud"].as_str().unwrap();
    assert!(
        audience.starts_with("http://127.0.0.1:") && !audience.ends_with("/token"),
        "{audience}"
    );
    assert_eq!(asked.parameter("client_secret"), None);
}

#[tokio::test]
async fn tokens_are_exchanged_and_assertions_redeemed() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    let (subject, target) = (Secret::new("subject"), target());
    let exchange = TokenExchange {
        subject: TypedToken {
            token: &subject,
            kind: ID_TOKEN,
        },
        audience: Some("crm"),
        requested_type: None,
        target: &target,
    };
    client.exchange(&exchange).await.unwrap();
    client
        .redeem_assertion(&Secret::new("assertion"), &target)
        .await
        .unwrap();
    let [exchanged, redeemed] = &world.authority.asked("/token")[..] else {
        panic!("two requests")
    };
    for (name, value) in [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("subject_token", "subject"),
        ("subject_token_type", ID_TOKEN),
        ("audience", "crm"),
        ("scope", "a b"),
    ] {
        assert_eq!(exchanged.parameter(name), Some(value), "{name}");
    }
    assert_eq!(
        redeemed.parameter("grant_type"),
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    assert_eq!(redeemed.parameter("assertion"), Some("assertion"));
}

#[tokio::test]
async fn identity_assertion_is_nothing_else() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    let token = Secret::new("id-token");
    let subject = TypedToken {
        token: &token,
        kind: ID_TOKEN,
    };
    let refused = client
        .identity_assertion(subject, "https://as.example.com", &target())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, OAuthError::Fetch(FetchError::Malformed { .. })),
        "{refused}"
    );
    world
        .authority
        .grants_with(json!({ "issued_token_type": ID_JAG, "token_type": "N_A" }));
    let assertion = client
        .identity_assertion(subject, "https://as.example.com", &target())
        .await
        .unwrap();
    assert!(world.authority.is_valid(assertion.expose()));
    let asked = world.authority.asked("/token").pop().unwrap();
    assert_eq!(
        (
            asked.parameter("audience"),
            asked.parameter("requested_token_type")
        ),
        (Some("https://as.example.com"), Some(ID_JAG))
    );
}

#[tokio::test]
async fn refreshed_tokens_keep_members_that_the_answer_lacks() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    world
        .authority
        .grants_with(json!({ "refresh_token": null, "scope": null, "expires_in": "60" }));
    let tokens = client
        .refresh(&Secret::new("old"), &target())
        .await
        .unwrap();
    assert_eq!(tokens.refresh_token, Some(Secret::new("old")));
    // The scopes are unchanged.
    assert_eq!(tokens.scopes, None);
    assert_eq!(world.authority.asked("/token")[0].parameter("scope"), None);
    assert!(tokens.ends_within(std::time::Duration::from_secs(61)));
    assert!(!tokens.ends_within(std::time::Duration::from_secs(30)));
    world
        .authority
        .grants_with(json!({ "refresh_token": "new", "expires_in": null }));
    let tokens = client
        .refresh(&Secret::new("old"), &target())
        .await
        .unwrap();
    assert_eq!(
        (tokens.refresh_token, tokens.expires_at),
        (Some(Secret::new("new")), None)
    );
}

#[tokio::test]
async fn refusals_are_told_by_their_code() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    // Some servers refuse with a success status.
    for status in [400, 401, 200] {
        world.authority.on_token(move |_| {
            (
                status,
                json!({ "error": "invalid_client", "error_description": "no\u{1b}" }),
            )
        });
        let refused = client.client_credentials(&target()).await.unwrap_err();
        assert_eq!(refused.refusal(), Some("invalid_client"));
        assert!(
            !refused.is_temporary() && !refused.to_string().contains('\u{1b}'),
            "{refused}"
        );
    }
    for granted in [
        json!({ "access_token": "", "token_type": "Bearer" }),
        json!({ "access_token": "x", "token_type": "mac" }),
    ] {
        world.authority.on_token(move |_| (200, granted.clone()));
        assert!(matches!(
            client.client_credentials(&target()).await,
            Err(OAuthError::Fetch(FetchError::Malformed { .. }))
        ));
    }
    world.authority.on_token(|_| (503, json!({})));
    assert!(
        client
            .client_credentials(&target())
            .await
            .unwrap_err()
            .is_temporary()
    );
}

#[tokio::test]
async fn tokens_are_bound_to_a_key_with_the_nonce_that_is_wanted() {
    let world = World::start().await;
    world.authority.wants_nonce("n-1");
    let (requests, provider) = (requests(), world.provider().await);
    let (registration, key) = (registration(&provider), ProofKey::generate().unwrap());
    let client = Client {
        proof_key: Some(&key),
        ..client(&requests, &provider, &registration)
    };
    let tokens = client.client_credentials(&target()).await.unwrap();
    assert_eq!(tokens.kind, TokenKind::Dpop);
    let [first, second] = &world.authority.asked("/token")[..] else {
        panic!("two requests")
    };
    let proof = |asked: &Asked| payload(asked.header("dpop").unwrap());
    assert_eq!(
        (&proof(first)["nonce"], &proof(second)["nonce"]),
        (&json!(null), &json!("n-1"))
    );
    assert_ne!(proof(first)["jti"], proof(second)["jti"]);
    assert_eq!(proof(second)["htu"], json!(provider.token_endpoint));
    // Such a token cannot be sent without its key.
    let url = world.url();
    let message = fanlight_grants::oauth::Message {
        method: &http::Method::POST,
        url: &url,
    };
    assert!(tokens.headers(message, None, None).is_err());
    let shown = tokens.headers(message, None, Some(&key)).unwrap();
    assert!(
        shown["authorization"]
            .to_str()
            .unwrap()
            .starts_with("DPoP ")
            && shown["authorization"].is_sensitive()
    );
}

#[tokio::test]
async fn token_is_given_back() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    let tokens = client.client_credentials(&target()).await.unwrap();
    client
        .revoke(&tokens.access_token, "access_token")
        .await
        .unwrap();
    assert!(!world.authority.is_valid(tokens.access_token.expose()));
    assert_eq!(
        world.authority.asked("/revoke")[0].parameter("token_type_hint"),
        Some("access_token")
    );
}

/// A token document that some servers send does not have all that RFC 6749, 5.1, requires.
#[tokio::test]
async fn token_without_a_type_and_scopes_as_a_list_are_accepted() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    for (members, scopes) in [
        (json!({ "token_type": null, "scope": ["b", "a"] }), "a b"),
        (json!({ "scope": ["b a", "c"] }), "a b c"),
        (json!({ "scope": [] }), ""),
        (json!({ "token_type": "bearer", "scope": null }), "a b"),
    ] {
        world.authority.grants_with(members.clone());
        let tokens = client.client_credentials(&target()).await.unwrap();
        assert_eq!(tokens.kind, TokenKind::Bearer, "{members}");
        assert_eq!(tokens.scopes, Some(Scopes::read(scopes)), "{members}");
    }
    for members in [json!({ "token_type": "mac" }), json!({ "token_type": "" })] {
        world.authority.grants_with(members);
        assert!(client.client_credentials(&target()).await.is_err());
    }
}

#[tokio::test]
async fn refused_resource_says_which_option_helps() {
    let world = World::start().await;
    let (requests, provider) = (requests(), world.provider().await);
    let registration = registration(&provider);
    let client = client(&requests, &provider, &registration);
    let entra = "AADSTS901002: The 'resource' request parameter is not supported.";
    for (refusal, is_about_it) in [
        (json!({ "error": "invalid_target" }), true),
        (
            json!({ "error": "invalid_request", "error_description": entra }),
            true,
        ),
        (json!({ "error": "invalid_client" }), false),
    ] {
        let answer = refusal.clone();
        world.authority.on_token(move |_| (400, answer.clone()));
        let advised = |error: OAuthError| error.to_string().contains("resourceParameter: omit");
        let refused = client.client_credentials(&target()).await.unwrap_err();
        assert_eq!(advised(refused), is_about_it, "{refusal}");
        let without = TokenTarget::default();
        let refused = client.client_credentials(&without).await.unwrap_err();
        assert!(!advised(refused), "{refusal}: there was none");
    }
}
