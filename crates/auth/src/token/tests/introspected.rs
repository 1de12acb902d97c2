//! Tokens verified by introspection.

use fanlight_config::{Introspection, Secret};
use fanlight_testkit::issuer::CLIENT;

use super::*;

/// The introspection settings for `issuer`.
pub(super) fn asked(issuer: &FakeIssuer) -> Introspection {
    let endpoint = Some(issuer.introspection_endpoint());
    Introspection {
        endpoint,
        client_id: CLIENT.0.to_owned(),
        client_secret: Some(Secret::new(CLIENT.1)),
    }
}

pub(super) fn introspected(issuer: &FakeIssuer) -> IssuerSettings {
    IssuerSettings {
        introspection: Some(asked(issuer)),
        ..trusted(issuer)
    }
}

#[tokio::test]
async fn issuer_is_asked_about_opaque_tokens_once() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected(&issuer)]));
    let token = issuer.opaque(issuer.claims("ann", AUDIENCE, "mcp:read"));
    let ann = show(&tokens, &token).await.unwrap();
    assert_eq!(ann.principal, Principal::new(issuer.url(), "ann"));
    assert_eq!(
        ann.scopes,
        fanlight_canonical::identity::Scopes::parse("mcp:read")
    );
    let exp = ann
        .validity
        .expires
        .unwrap()
        .duration_since(SystemTime::now())
        .unwrap();
    assert!(exp > Duration::from_secs(3600) && exp <= Duration::from_secs(3630));
    assert!(Arc::ptr_eq(&ann, &show(&tokens, &token).await.unwrap()));
    assert_eq!(
        (
            issuer.asked(Place::Introspection),
            issuer.asked(Place::Metadata)
        ),
        (1, 0)
    );
}

#[tokio::test]
async fn endpoint_is_discovered() {
    let issuer = FakeIssuer::start().await;
    let introspection = Some(Introspection {
        endpoint: None,
        ..asked(&issuer)
    });
    let tokens = tokens(&settings(vec![IssuerSettings {
        introspection,
        ..trusted(&issuer)
    }]));
    for _ in 0..3 {
        assert!(
            show(&tokens, &issuer.opaque(issuer.claims("ann", AUDIENCE, "")))
                .await
                .is_ok()
        );
    }
    assert_eq!(issuer.asked(Place::Metadata), 1);
}

#[tokio::test]
async fn token_is_asked_about_again_after_a_while() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![introspected(&issuer)]);
    settings.limits.introspection = Duration::ZERO;
    let tokens = tokens(&settings);
    let token = issuer.opaque(issuer.claims("ann", AUDIENCE, ""));
    show(&tokens, &token).await.unwrap();
    assert!(!is_remembered(&tokens, &token));
    issuer.revoke(&token);
    assert!(is_invalid(&show(&tokens, &token).await));
}

#[tokio::test]
async fn inactive_tokens_are_refused_and_not_remembered() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected(&issuer)]));
    assert!(is_invalid(&show(&tokens, "opaque-later").await));
    issuer.activate("opaque-later", issuer.claims("ann", AUDIENCE, ""));
    assert!(show(&tokens, "opaque-later").await.is_ok());
}

#[tokio::test]
async fn answers_are_checked() {
    let issuer = FakeIssuer::start().await;
    let settings_of = IssuerSettings {
        require: vec![("client_id".to_owned(), vec!["test".to_owned()])],
        ..introspected(&issuer)
    };
    let tokens = tokens(&settings(vec![settings_of]));
    let refused = [
        value!({ "iss": "https://other.example.com" }),
        value!({ "aud": "other" }),
        value!({ "aud": Value::Null }),
        value!({ "exp": seconds_from_now(-60) }),
        value!({ "nbf": seconds_from_now(60) }),
        value!({ "sub": "" }),
        value!({ "client_id": "other" }),
        value!({ "cnf": { "jkt": "x" } }),
    ];
    for members in refused {
        let mut claims = issuer.claims("ann", AUDIENCE, "");
        for (name, member) in members.as_object().unwrap() {
            claims[name] = member.clone();
        }
        let outcome = show(&tokens, &issuer.opaque(claims)).await;
        assert!(is_invalid(&outcome), "{members}: {outcome:?}");
    }
    let mut claims = issuer.claims("ann", AUDIENCE, "");
    claims.as_object_mut().unwrap().remove("iss");
    assert!(show(&tokens, &issuer.opaque(claims)).await.is_ok());
}

#[tokio::test]
async fn hostile_answers_are_bounded_and_refused() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected(&issuer)]));
    let right = issuer.claims("ann", AUDIENCE, "").to_string();
    let members = right.trim_start_matches('{');
    let unusable = [
        Conduct::Text(format!(
            r#"{{"active":true,"x":"{}",{members}"#,
            "x".repeat(257 << 10)
        )),
        Conduct::Text(format!(r#"{{"active":false,"active":true,{members}"#)),
        Conduct::Text(format!("[{right}]")),
        Conduct::Text("<html>".to_owned()),
        Conduct::Status(401),
        Conduct::Status(500),
        Conduct::Redirect(issuer.introspection_endpoint()),
        Conduct::Down,
    ];
    for (number, conduct) in unusable.into_iter().enumerate() {
        issuer.conduct(Place::Introspection, conduct.clone());
        let outcome = show(&tokens, &format!("opaque-{number}")).await;
        assert!(is_unavailable(&outcome), "{conduct:?}: {outcome:?}");
    }
    for active in ["1", "\"true\"", "null", "[true]"] {
        issuer.conduct(
            Place::Introspection,
            Conduct::Text(format!(r#"{{"active":{active},{members}"#)),
        );
        assert!(is_invalid(&show(&tokens, "opaque").await), "{active}");
    }
}

#[tokio::test]
async fn same_token_is_asked_about_once_at_a_time() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected(&issuer)]));
    let token = issuer.opaque(issuer.claims("ann", AUDIENCE, ""));
    issuer.conduct(Place::Introspection, Conduct::Slow);
    let all = futures_util::future::join_all((0..50).map(|_| show(&tokens, &token)));
    let released = async {
        while issuer.asked(Place::Introspection) == 0 {
            tokio::task::yield_now().await;
        }
        issuer.conduct(Place::Introspection, Conduct::Good);
    };
    let (outcomes, ()) = tokio::join!(all, released);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(issuer.asked(Place::Introspection), 1);
}

#[tokio::test]
async fn requests_at_the_same_time_are_bounded() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![introspected(&issuer)]);
    settings.limits.introspections = 2;
    let tokens = tokens(&settings);
    issuer.conduct(Place::Introspection, Conduct::Slow);
    let all: Vec<_> = (0..100)
        .map(|_| issuer.opaque(issuer.claims("ann", AUDIENCE, "")))
        .collect();
    let shown = futures_util::future::join_all(all.iter().map(|token| show(&tokens, token)));
    let released = async {
        while issuer.asked(Place::Introspection) < 2 {
            tokio::task::yield_now().await;
        }
        let asked = issuer.asked(Place::Introspection);
        issuer.conduct(Place::Introspection, Conduct::Good);
        asked
    };
    let (outcomes, asked) = tokio::join!(shown, released);
    let refused = outcomes
        .iter()
        .filter(|outcome| is_unavailable(outcome))
        .count();
    assert_eq!(
        (
            asked,
            refused,
            outcomes.iter().filter(|outcome| outcome.is_ok()).count()
        ),
        (2, 68, 32)
    );
}

#[tokio::test]
async fn waiting_tokens_use_the_budget_of_their_peer() {
    let issuer = FakeIssuer::start().await;
    let mut settings = settings(vec![introspected(&issuer)]);
    settings.limits.failures = 3;
    let tokens = tokens(&settings);
    issuer.conduct(Place::Introspection, Conduct::Slow);
    let all: Vec<_> = (0..20).map(|number| format!("opaque-{number}")).collect();
    let shown = futures_util::future::join_all(all.iter().map(|token| show(&tokens, token)));
    let released = async {
        while issuer.asked(Place::Introspection) < 3 {
            tokio::task::yield_now().await;
        }
        issuer.conduct(Place::Introspection, Conduct::Good);
    };
    let (outcomes, ()) = tokio::join!(shown, released);
    let throttled = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Denial::Throttled { .. })))
        .count();
    assert!(throttled >= 15, "{throttled}");
}

#[tokio::test]
async fn opaque_tokens_find_their_issuer_among_several() {
    let (one, other, down) = (
        FakeIssuer::start().await,
        FakeIssuer::start().await,
        FakeIssuer::start().await,
    );
    down.conduct_all(&Conduct::Down);
    let both = tokens(&settings(vec![introspected(&one), introspected(&other)]));
    let identity = show(&both, &other.opaque(other.claims("ann", AUDIENCE, "")))
        .await
        .unwrap();
    assert_eq!(identity.principal, Principal::new(other.url(), "ann"));
    let with_down = tokens(&settings(vec![introspected(&down), introspected(&other)]));
    assert!(
        show(&with_down, &other.opaque(other.claims("ann", AUDIENCE, "")))
            .await
            .is_ok()
    );
    assert!(
        is_unavailable(&show(&with_down, "unknown").await),
        "it may be one of the issuer that is down"
    );
}

#[tokio::test]
async fn issuer_with_introspection_is_asked_about_its_jwts_too() {
    let (signing, asked) = (FakeIssuer::start().await, FakeIssuer::start().await);
    let tokens = tokens(&settings(vec![trusted(&signing), introspected(&asked)]));
    let token = asked.token("ann", AUDIENCE, "");
    assert!(
        is_invalid(&show(&tokens, &token).await),
        "a right signature is not enough"
    );
    asked.activate(&token, asked.claims("ann", AUDIENCE, ""));
    assert!(show(&tokens, &token).await.is_ok());
    let before = asked.asked(Place::Introspection);
    assert!(
        show(&tokens, &signing.token("ann", AUDIENCE, ""))
            .await
            .is_ok()
    );
    assert!(is_invalid(
        &show(
            &tokens,
            &FakeIssuer::start().await.token("ann", AUDIENCE, "")
        )
        .await
    ));
    assert_eq!(
        asked.asked(Place::Introspection),
        before,
        "tokens of others are not sent to it"
    );
}

#[tokio::test]
async fn identity_without_known_expiry_ends_soon() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected(&issuer)]));
    let mut claims = issuer.claims("ann", AUDIENCE, "");
    claims.as_object_mut().unwrap().remove("exp");
    let identity = show(&tokens, &issuer.opaque(claims)).await.unwrap();
    assert!(identity.validity.expires.unwrap() <= SystemTime::now() + Duration::from_secs(60));
}

#[tokio::test]
async fn token_that_the_issuer_does_not_answer_for_does_not_concern_others() {
    let issuer = FakeIssuer::start().await;
    let introspection = Some(Introspection {
        endpoint: None,
        ..asked(&issuer)
    });
    let tokens = tokens(&settings(vec![IssuerSettings {
        introspection,
        ..trusted(&issuer)
    }]));
    for status in [400, 403, 404, 413, 500] {
        issuer.conduct(Place::Introspection, Conduct::Status(status));
        let outcome = show(&tokens, &format!("opaque-{status}")).await;
        assert!(
            if status == 400 {
                is_invalid(&outcome)
            } else {
                is_unavailable(&outcome)
            },
            "{status}: {outcome:?}"
        );
        issuer.conduct(Place::Introspection, Conduct::Good);
        // At once, although the metadata were read within the last second.
        let good = show(&tokens, &issuer.opaque(issuer.claims("ann", AUDIENCE, ""))).await;
        assert!(good.is_ok(), "{status}: {good:?}");
    }
}
