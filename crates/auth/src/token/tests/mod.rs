//! Tests of the whole method with issuers on loopback.

mod attacks;
mod introspected;
mod key_sets;
mod proofs;

use std::time::Duration;

use fanlight_credentials::ConnectionFacts;
use fanlight_testkit::issuer::{
    Conduct, Issuer as FakeIssuer, Place, SigningKey, seconds_from_now,
};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json as value};

use super::*;
use crate::settings::{IssuerSettings, OAuthLimits};
use crate::testing::at_mcp;

const PUBLIC_URL: &str = "https://mcp.example.com";
const AUDIENCE: &str = "https://mcp.example.com/mcp";

/// An issuer with default settings.
fn trusted(issuer: &FakeIssuer) -> IssuerSettings {
    IssuerSettings {
        issuer: issuer.url().to_owned(),
        jwks_uri: None,
        audience: Vec::new(),
        claims: fanlight_config::Claims::default(),
        require: Vec::new(),
        authorities: None,
        introspection: None,
    }
}

fn settings(issuers: Vec<IssuerSettings>) -> OAuthSettings {
    // Tests verify many wrong tokens quickly.
    let limits = OAuthLimits {
        failures: 1_000_000,
        ..OAuthLimits::default()
    };
    OAuthSettings {
        issuers,
        public_url: Some(PUBLIC_URL.to_owned()),
        limits,
    }
}

fn tokens(settings: &OAuthSettings) -> Arc<Tokens> {
    Tokens::renew(None, Some(settings), None).unwrap()
}

/// Sends a token to the endpoint `/mcp` over a connection.
async fn show_over(
    tokens: &Arc<Tokens>,
    connection: &ConnectionFacts,
    token: &str,
) -> Result<Arc<Identity>, Denial> {
    show_to(tokens, connection, "/mcp", token).await
}

async fn show_to(
    tokens: &Arc<Tokens>,
    connection: &ConnectionFacts,
    endpoint: &str,
    token: &str,
) -> Result<Arc<Identity>, Denial> {
    let field = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, field)]);
    let client = connection.peer.map(|peer| peer.ip());
    let credentials = Credentials {
        client,
        endpoint,
        ..at_mcp(&headers, connection)
    };
    let bearer = Bearer::shown_in(&headers)?.expect("a token");
    Arc::clone(tokens)
        .authenticate(bearer, &credentials)
        .outcome()
        .await
}

/// Sends a token to the endpoint `/mcp`.
async fn show(tokens: &Arc<Tokens>, token: &str) -> Result<Arc<Identity>, Denial> {
    show_over(tokens, &ConnectionFacts::default(), token).await
}

/// Whether a token is remembered, so that it needs no request and no verification.
fn is_remembered(tokens: &Arc<Tokens>, token: &str) -> bool {
    tokens
        .memory
        .recall(&TokenHash::compute(token, "/mcp"), SystemTime::now())
        .is_some_and(|known| known.is_ok())
}

fn is_invalid(outcome: &Result<Arc<Identity>, Denial>) -> bool {
    matches!(outcome, Err(Denial::Invalid(_)))
}

fn is_unavailable(outcome: &Result<Arc<Identity>, Denial>) -> bool {
    matches!(outcome, Err(Denial::Unavailable(_)))
}

#[tokio::test]
async fn token_of_a_trusted_issuer_is_an_identity() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let mut claims = issuer.claims("ann", AUDIENCE, "mcp:read mcp:call");
    claims["groups"] = value!(["agents"]);
    let token = issuer.sign(&claims);
    let ann = show(&tokens, &token).await.unwrap();
    assert_eq!(ann.principal, Principal::new(issuer.url(), "ann"));
    assert_eq!(
        (&*ann.groups[0], &ann.scopes),
        (
            "agents",
            &fanlight_canonical::identity::Scopes::parse("mcp:read mcp:call")
        )
    );
    let expires =
        SystemTime::UNIX_EPOCH + Duration::from_secs(claims["exp"].as_u64().unwrap() + 30);
    assert_eq!(ann.validity.expires, Some(expires));
    let again = show(&tokens, &token).await.unwrap();
    assert!(
        Arc::ptr_eq(&ann, &again),
        "a remembered token is not verified again"
    );
    assert_eq!(
        (issuer.asked(Place::Metadata), issuer.asked(Place::Keys)),
        (1, 1)
    );
}

#[tokio::test]
async fn remembered_token_is_answered_at_once_without_allocations() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let token = issuer.token("ann", AUDIENCE, "");
    show(&tokens, &token).await.unwrap();
    let headers = HeaderMap::from_iter([(
        AUTHORIZATION,
        HeaderValue::try_from(format!("Bearer {token}")).unwrap(),
    )]);
    let connection = ConnectionFacts::default();
    let credentials = at_mcp(&headers, &connection);
    let bearer = Bearer::shown_in(&headers).unwrap().unwrap();
    let mut outcome = None;
    let cost = allocation_counter::measure(|| {
        outcome = Some(Arc::clone(&tokens).authenticate(bearer, &credentials));
    });
    assert!(
        matches!(outcome, Some(Authentication::Ready(Ok(_)))),
        "{outcome:?}"
    );
    assert_eq!(cost.count_total, 0, "a hash and a lookup");
}

#[tokio::test]
async fn all_safe_algorithms_are_verified() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let makers = [
        SigningKey::rs256,
        SigningKey::es256,
        SigningKey::es384,
        SigningKey::eddsa,
    ];
    makers.into_iter().for_each(|make| issuer.add_key(make));
    issuer.add_key(SigningKey::rs256);
    let keys: Vec<_> = makers
        .iter()
        .map(|make| Arc::new(make(&format!("{make:p}"))))
        .collect();
    issuer.publish(keys.clone());
    for key in &keys {
        let claims = issuer.claims("ann", AUDIENCE, "");
        let header = value!({ "alg": key.algorithm(), "kid": key.id() });
        assert!(
            show(&tokens, &key.sign(&header, &claims)).await.is_ok(),
            "{}",
            key.algorithm()
        );
    }
    let pss = keys[0].sign(
        &value!({ "alg": "PS256", "kid": keys[0].id() }),
        &issuer.claims("ann", AUDIENCE, ""),
    );
    assert!(show(&tokens, &pss).await.is_ok());
}

#[tokio::test]
async fn same_subject_of_two_issuers_is_two_principals() {
    let (one, other) = (
        FakeIssuer::start().await,
        FakeIssuer::start_with_path("/tenant").await,
    );
    let tokens = tokens(&settings(vec![trusted(&one), trusted(&other)]));
    let ann = show(&tokens, &one.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    let namesake = show(&tokens, &other.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    assert_ne!(ann.principal, namesake.principal);
}

#[tokio::test]
async fn token_for_one_endpoint_is_refused_at_others() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let token = issuer.token("ann", AUDIENCE, "");
    let connection = ConnectionFacts::default();
    assert!(show(&tokens, &token).await.is_ok());
    assert!(is_invalid(
        &show_to(&tokens, &connection, "/mcp/readers", &token).await
    ));
    let token = issuer.token("ann", "https://mcp.example.com/mcp/readers", "");
    assert!(is_invalid(&show(&tokens, &token).await));
    assert!(
        show_to(&tokens, &connection, "/mcp/readers", &token)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn token_opens_the_listener_of_operators_only_by_a_configured_audience() {
    let issuer = FakeIssuer::start().await;
    let connection = ConnectionFacts::default();
    let settings_of = |trusted| OAuthSettings {
        public_url: Some("https://mcp".to_owned()),
        ..settings(vec![trusted])
    };
    let by_url = tokens(&settings_of(trusted(&issuer)));
    for audience in [
        "https://mcpadmin",
        "https://mcpadmin/",
        "https://mcp",
        "https://mcp/",
        "https://mcp/admin",
        "admin",
    ] {
        let outcome = show_to(
            &by_url,
            &connection,
            "admin",
            &issuer.token("eve", audience, ""),
        )
        .await;
        assert!(is_invalid(&outcome), "{audience}");
    }
    assert!(
        show_to(
            &by_url,
            &connection,
            "/mcp",
            &issuer.token("ann", "https://mcp/mcp", "")
        )
        .await
        .is_ok()
    );
    let configured = IssuerSettings {
        audience: vec!["api://fanlight".to_owned()],
        ..trusted(&issuer)
    };
    let configured = tokens(&settings_of(configured));
    assert!(
        show_to(
            &configured,
            &connection,
            "admin",
            &issuer.token("ann", "api://fanlight", "")
        )
        .await
        .is_ok()
    );
}

#[tokio::test]
async fn expired_token_is_forgotten() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![trusted(&issuer)]);
    settings.limits.leeway = Duration::ZERO;
    let tokens = tokens(&settings);
    let mut claims = issuer.claims("ann", AUDIENCE, "");
    claims["exp"] = value!(seconds_from_now(2));
    let token = issuer.sign(&claims);
    let identity = show(&tokens, &token).await.unwrap();
    let rest = identity
        .validity
        .expires
        .unwrap()
        .duration_since(SystemTime::now())
        .unwrap_or_default();
    tokio::time::sleep(rest + Duration::from_millis(1)).await;
    assert!(is_invalid(&show(&tokens, &token).await));
}

#[tokio::test]
async fn wrong_tokens_of_one_peer_are_not_verified_above_its_budget() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![trusted(&issuer)]);
    settings.limits.failures = 5;
    let tokens = tokens(&settings);
    let from = |last| ConnectionFacts {
        peer: Some(([10, 0, 0, last], 1).into()),
        ..ConnectionFacts::default()
    };
    let (attacker, other) = (from(1), from(2));
    let good = issuer.token("ann", AUDIENCE, "");
    show_over(&tokens, &attacker, &good).await.unwrap();
    let mut throttled = 0;
    for number in 0..100 {
        let token = format!("{}{number}", issuer.token("eve", AUDIENCE, ""));
        match show_over(&tokens, &attacker, &token).await {
            Err(Denial::Throttled { .. }) => throttled += 1,
            outcome => assert!(is_invalid(&outcome), "{outcome:?}"),
        }
    }
    assert!(throttled > 80, "{throttled}");
    let new = issuer.token("ann", AUDIENCE, "");
    assert!(matches!(
        show_over(&tokens, &attacker, &new).await,
        Err(Denial::Throttled { .. })
    ));
    assert!(
        show_over(&tokens, &attacker, &good).await.is_ok(),
        "what is remembered passes"
    );
    assert!(
        show_over(&tokens, &other, &new).await.is_ok(),
        "another peer is not concerned"
    );
}

#[tokio::test]
async fn many_right_tokens_of_one_peer_are_not_throttled() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![trusted(&issuer)]);
    settings.limits.failures = 1;
    let tokens = tokens(&settings);
    let all: Vec<_> = (0..100)
        .map(|number| issuer.token(&format!("user-{number}"), AUDIENCE, ""))
        .collect();
    let outcomes =
        futures_util::future::join_all(all.iter().map(|token| show(&tokens, token))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(issuer.asked(Place::Keys), 1);
}

#[tokio::test]
async fn tokens_of_an_issuer_that_is_down_are_not_counted_as_wrong() {
    let (up, down) = (FakeIssuer::start().await, FakeIssuer::start().await);
    down.conduct_all(&Conduct::Down);
    let introspection = Some(introspected::asked(&down));
    for settings_of in [
        trusted(&down),
        IssuerSettings {
            introspection,
            ..trusted(&down)
        },
    ] {
        let mut settings = settings(vec![trusted(&up), settings_of]);
        settings.limits.failures = 1;
        let tokens = tokens(&settings);
        for _ in 0..10 {
            assert!(is_unavailable(
                &show(&tokens, &down.token("ann", AUDIENCE, "")).await
            ));
        }
        assert!(show(&tokens, &up.token("ann", AUDIENCE, "")).await.is_ok());
    }
}

#[tokio::test]
async fn requests_that_wait_for_keys_are_bounded() {
    let issuer = FakeIssuer::start().await;
    issuer.conduct(Place::Metadata, Conduct::Slow);
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let token = issuer.token("ann", AUDIENCE, "");
    let all = futures_util::future::join_all((0..WAITING + 10).map(|_| show(&tokens, &token)));
    let released = async {
        while issuer.asked(Place::Metadata) == 0 {
            tokio::task::yield_now().await;
        }
        issuer.conduct(Place::Metadata, Conduct::Good);
    };
    let (outcomes, ()) = tokio::join!(all, released);
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| is_unavailable(outcome))
            .count(),
        10
    );
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        WAITING
    );
}

#[tokio::test]
async fn changed_settings_keep_issuers_that_stay_and_revoke_others() {
    let (stays, goes) = (FakeIssuer::start().await, FakeIssuer::start().await);
    let old = tokens(&settings(vec![trusted(&stays), trusted(&goes)]));
    let (kept, lost) = (
        stays.token("ann", AUDIENCE, ""),
        goes.token("ben", AUDIENCE, ""),
    );
    let (ann, ben) = (
        show(&old, &kept).await.unwrap(),
        show(&old, &lost).await.unwrap(),
    );
    let new = Tokens::renew(Some(&old), Some(&settings(vec![trusted(&stays)])), None).unwrap();
    old.revoke_except(Some(&new));
    assert!(!ann.validity.revoked.is_cancelled() && ben.validity.revoked.is_cancelled());
    assert!(
        Arc::ptr_eq(&ann, &show(&new, &kept).await.unwrap()),
        "what is known is kept"
    );
    assert!(is_invalid(&show(&new, &lost).await));
    assert!(
        show(&old, &lost).await.is_err(),
        "also where the old settings are still in use"
    );
    let another = stays.token("eve", AUDIENCE, "");
    assert!(show(&new, &another).await.is_ok());
    assert_eq!(stays.asked(Place::Keys), 1, "its keys are kept");
    let restricted = IssuerSettings {
        require: vec![("sub".to_owned(), vec!["ben".to_owned()])],
        ..trusted(&stays)
    };
    let newer = Tokens::renew(Some(&new), Some(&settings(vec![restricted])), None).unwrap();
    new.revoke_except(Some(&newer));
    assert!(ann.validity.revoked.is_cancelled() && is_invalid(&show(&newer, &kept).await));
}

#[tokio::test]
async fn secrets_are_not_printed() {
    let issuer = FakeIssuer::start().await;
    let introspection = Some(introspected::asked(&issuer));
    let tokens = tokens(&settings(vec![
        trusted(&issuer),
        IssuerSettings {
            introspection,
            ..trusted(&issuer)
        },
    ]));
    let token = issuer.token("ann", AUDIENCE, "");
    let identity = show(&tokens, &token).await.unwrap();
    let printed = format!("{tokens:?} {identity:?}");
    assert!(
        !printed.contains(fanlight_testkit::issuer::CLIENT.1) && !printed.contains(&token),
        "{printed}"
    );
}
