//! Signing in a user with a code, and attacks on it.

use fanlight_grants::oauth::{
    AuthorizationRequest, CallbackParameters, ClientMetadata, OAuthError, Provider, Scopes,
    TokenSet, TokenTarget, authorization_request, register,
};
use fanlight_testkit::authorization_server::AuthorizationServer;
use serde_json::json;
use url::form_urlencoded::Serializer;

use crate::{World, client, registration, requests, url};

const CALLBACK: &str = "http://127.0.0.1:9/oauth/callback";

fn target() -> TokenTarget {
    TokenTarget {
        resource: Some("https://mcp.example.com/mcp".to_owned()),
        scopes: Some(Scopes::read("a b")),
    }
}

fn begun(provider: &Provider) -> AuthorizationRequest {
    authorization_request(provider, &registration(provider), &url(CALLBACK), target()).unwrap()
}

/// The parameters that a browser brings back after following the link.
async fn browser(request: &AuthorizationRequest) -> CallbackParameters {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let answer = client.get(request.url.clone()).send().await.unwrap();
    let location = url(answer.headers()["location"].to_str().unwrap());
    CallbackParameters::from_query(location.query().unwrap()).unwrap()
}

fn callback(pairs: &[(&str, &str)]) -> CallbackParameters {
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    CallbackParameters::from_query(&query).unwrap()
}

async fn redeemed(
    provider: &Provider,
    request: &AuthorizationRequest,
    parameters: &CallbackParameters,
) -> Result<TokenSet, OAuthError> {
    client(&requests(), provider, &registration(provider))
        .redeem(request, parameters)
        .await
}

#[tokio::test]
async fn code_is_redeemed_with_its_verifier_and_resource() {
    let world = World::start().await;
    let provider = world.provider().await;
    let request = begun(&provider);
    let parameters = browser(&request).await;
    assert_eq!(parameters.state(), Some(request.state.expose()));
    let tokens = redeemed(&provider, &request, &parameters).await.unwrap();
    assert!(world.authority.is_valid(tokens.access_token.expose()));
    assert_eq!(tokens.scopes, Some(Scopes::read("a b")));
    for path in ["/authorize", "/token"] {
        let asked = &world.authority.asked(path)[0];
        assert_eq!(
            asked.parameter("resource"),
            Some("https://mcp.example.com/mcp")
        );
        assert_eq!(
            (
                asked.parameter("client_id"),
                asked.parameter("redirect_uri")
            ),
            (Some("fanlight"), Some(CALLBACK))
        );
    }
    // A code can be redeemed once.
    let again = redeemed(&provider, &request, &parameters)
        .await
        .unwrap_err();
    assert_eq!(again.refusal(), Some("invalid_grant"));
}

#[tokio::test]
async fn answer_of_another_sign_in_or_authorization_server_is_not_redeemed() {
    let world = World::start().await;
    let provider = world.provider().await;
    let request = begun(&provider);
    let (state, issuer) = (request.state.expose(), provider.issuer.as_str());
    let with_slash = format!("{issuer}/");
    let foreign = [
        callback(&[("code", "c"), ("iss", issuer)]),
        callback(&[("code", "c"), ("state", "other"), ("iss", issuer)]),
        callback(&[("code", "c"), ("state", ""), ("iss", issuer)]),
        callback(&[
            ("code", "c"),
            ("state", state),
            ("iss", "https://evil.example.com"),
        ]),
        callback(&[("code", "c"), ("state", state), ("iss", &with_slash)]),
        callback(&[("code", "c"), ("state", state)]),
        callback(&[("state", state), ("iss", issuer)]),
        callback(&[("code", ""), ("state", state), ("iss", issuer)]),
        callback(&[
            ("error", "evil text"),
            ("state", state),
            ("iss", "https://evil.example.com"),
        ]),
    ];
    for parameters in &foreign {
        let error = redeemed(&provider, &request, parameters).await.unwrap_err();
        assert!(matches!(error, OAuthError::ForeignCallback(_)), "{error}");
        assert!(!error.to_string().contains("evil text"));
    }
    assert!(world.authority.asked("/token").is_empty());
    for twice in ["code=a&code=b", "state=a&state=b", "iss=a&iss=b"] {
        assert!(CallbackParameters::from_query(twice).is_none(), "{twice}");
    }
}

#[tokio::test]
async fn code_of_one_authorization_server_is_not_sent_to_another() {
    let (world, evil) = (World::start().await, AuthorizationServer::start().await);
    let provider = world.provider().await;
    let request = begun(&provider);
    let parameters = browser(&request).await;
    let other = Provider::discover(&requests(), evil.url()).await.unwrap();
    let error = redeemed(&other, &request, &parameters).await.unwrap_err();
    assert!(matches!(error, OAuthError::ForeignCallback(_)), "{error}");
    assert!(evil.asked("/token").is_empty());
}

#[tokio::test]
async fn issuer_that_promises_nothing_may_leave_itself_out() {
    let world = World::start().await;
    world
        .authority
        .describe(json!({ "authorization_response_iss_parameter_supported": null }));
    let provider = world.provider().await;
    let request = begun(&provider);
    let brought = callback(&[("code", "c"), ("state", request.state.expose())]);
    // The code is forwarded, but does not exist.
    assert_eq!(
        redeemed(&provider, &request, &brought)
            .await
            .unwrap_err()
            .refusal(),
        Some("invalid_grant")
    );
}

#[tokio::test]
async fn nobody_is_signed_in_without_pkce() {
    let world = World::start().await;
    for methods in [json!(null), json!([]), json!(["plain"])] {
        world
            .authority
            .describe(json!({ "code_challenge_methods_supported": methods }));
        let provider = world.provider().await;
        let begun = authorization_request(
            &provider,
            &registration(&provider),
            &url(CALLBACK),
            target(),
        );
        assert!(matches!(begun, Err(OAuthError::NoPkce { .. })), "{begun:?}");
    }
}

#[tokio::test]
async fn request_survives_in_a_record_and_shows_no_secret() {
    let world = World::start().await;
    let provider = world.provider().await;
    let request = begun(&provider);
    let shown = format!("{request:?}");
    assert!(!shown.contains(request.state.expose()) && !shown.contains(request.verifier.expose()));
    let kept: AuthorizationRequest =
        serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
    let tokens = redeemed(&provider, &kept, &browser(&request).await)
        .await
        .unwrap();
    assert!(!format!("{tokens:?}").contains(tokens.access_token.expose()));
    let kept: TokenSet = serde_json::from_str(&serde_json::to_string(&tokens).unwrap()).unwrap();
    assert_eq!(kept.refresh_token, tokens.refresh_token);
}

#[tokio::test]
async fn refused_sign_in_says_why() {
    let world = World::start().await;
    let provider = world.provider().await;
    let request = begun(&provider);
    let answer = [
        ("error", "access_denied"),
        ("state", request.state.expose()),
        ("iss", provider.issuer.as_str()),
    ];
    assert_eq!(
        redeemed(&provider, &request, &callback(&answer))
            .await
            .unwrap_err()
            .refusal(),
        Some("access_denied")
    );
}

#[tokio::test]
async fn client_is_registered_as_the_authorization_server_wants_it() {
    let world = World::start().await;
    for (methods, method) in [
        (json!(["none"]), "none"),
        (json!(["client_secret_post"]), "client_secret_post"),
    ] {
        world
            .authority
            .describe(json!({ "token_endpoint_auth_methods_supported": methods }));
        let provider = world.provider().await;
        let metadata = ClientMetadata::new_code_client("Fanlight", &url(CALLBACK));
        let registered = register(&requests(), &provider, &metadata).await.unwrap();
        assert!(registered.client_id == "registered" && registered.is_valid_at(&provider));
        let sent: serde_json::Value =
            serde_json::from_str(&world.authority.asked("/register").pop().unwrap().body).unwrap();
        assert_eq!(
            (
                &sent["application_type"],
                &sent["token_endpoint_auth_method"]
            ),
            (&json!("native"), &json!(method))
        );
        assert_eq!(sent["redirect_uris"], json!([CALLBACK]));
        assert!(sent.get("client_id").is_none());
    }
    let web =
        ClientMetadata::new_code_client("Fanlight", &url("https://mcp.example.com/oauth/callback"));
    assert_eq!(web.application_type, "web");
}

#[tokio::test]
async fn registration_is_of_one_authorization_server() {
    let (world, other) = (World::start().await, AuthorizationServer::start().await);
    let provider = world.provider().await;
    let registered = registration(&provider);
    let elsewhere = Provider::discover(&requests(), other.url()).await.unwrap();
    assert!(registered.is_valid_at(&provider) && !registered.is_valid_at(&elsewhere));
}
