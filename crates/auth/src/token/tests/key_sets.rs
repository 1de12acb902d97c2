//! Issuers' keys: read, rotated, unavailable and hostile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

/// Tokens of `issuer` with limits changed so that its keys are read as often as a test needs.
fn impatient(issuer: &FakeIssuer, change: fn(&mut OAuthLimits)) -> Arc<Tokens> {
    let mut settings = settings(vec![trusted(issuer)]);
    change(&mut settings.limits);
    tokens(&settings)
}

#[tokio::test]
async fn keys_are_found_by_each_kind_of_discovery() {
    for path in ["", "/tenant/1"] {
        let issuer = FakeIssuer::start_with_path(path).await;
        let tokens = tokens(&settings(vec![trusted(&issuer)]));
        assert!(
            show(&tokens, &issuer.token("ann", AUDIENCE, ""))
                .await
                .is_ok(),
            "{path}"
        );
    }
    let issuer = FakeIssuer::start().await;
    issuer.conduct(Place::Metadata, Conduct::Status(404));
    let tokens = tokens(&settings(vec![IssuerSettings {
        jwks_uri: Some(issuer.jwks_uri()),
        ..trusted(&issuer)
    }]));
    assert!(
        show(&tokens, &issuer.token("ann", AUDIENCE, ""))
            .await
            .is_ok()
    );
    assert_eq!(issuer.asked(Place::Metadata), 0);
}

#[tokio::test]
async fn nothing_is_read_before_a_token_needs_it() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    assert!(is_invalid(
        &show(&tokens, &issuer.token("ann", "other", "")).await
    ));
    assert_eq!(
        (issuer.asked(Place::Metadata), issuer.asked(Place::Keys)),
        (0, 0)
    );
}

#[tokio::test]
async fn tokens_without_key_identifier_need_a_single_suitable_key() {
    let issuer = FakeIssuer::start().await;
    let (ec, rsa) = (
        Arc::new(SigningKey::es256("a")),
        Arc::new(SigningKey::rs256("b")),
    );
    issuer.publish(vec![Arc::clone(&ec), Arc::clone(&rsa)]);
    let clear = tokens(&settings(vec![trusted(&issuer)]));
    let token = |key: &SigningKey| {
        key.sign(
            &value!({ "alg": key.algorithm() }),
            &issuer.claims("ann", AUDIENCE, ""),
        )
    };
    assert!(show(&clear, &token(&ec)).await.is_ok() && show(&clear, &token(&rsa)).await.is_ok());
    issuer.publish(vec![Arc::clone(&ec), Arc::new(SigningKey::es256("c"))]);
    let unclear = tokens(&settings(vec![trusted(&issuer)]));
    assert!(is_invalid(&show(&unclear, &token(&ec)).await));
}

#[tokio::test]
async fn unknown_keys_are_asked_for_once_in_a_while() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| {
        limits.unknown_key = Duration::from_secs(3600);
    });
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    for number in 0..100 {
        let key = SigningKey::es256(&format!("unknown-{number}"));
        let header = value!({ "alg": "ES256", "kid": key.id() });
        assert!(is_invalid(
            &show(
                &tokens,
                &key.sign(&header, &issuer.claims("ann", AUDIENCE, ""))
            )
            .await
        ));
    }
    assert_eq!(issuer.asked(Place::Keys), 1);
}

#[tokio::test]
async fn rotated_keys_are_read_by_the_first_token_that_names_them() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.unknown_key = Duration::ZERO);
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    issuer.rotate();
    let rotated: Vec<_> = (0..50)
        .map(|number| issuer.token(&format!("user-{number}"), AUDIENCE, ""))
        .collect();
    let outcomes =
        futures_util::future::join_all(rotated.iter().map(|token| show(&tokens, token))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(issuer.asked(Place::Keys), 2, "one request for all of them");
}

#[tokio::test]
async fn removed_key_is_used_no_more_after_keys_were_read_again() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.unknown_key = Duration::ZERO);
    let old = issuer.key();
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    issuer.rotate();
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    let header = value!({ "alg": "ES256", "kid": old.id() });
    assert!(is_invalid(
        &show(
            &tokens,
            &old.sign(&header, &issuer.claims("ann", AUDIENCE, ""))
        )
        .await
    ));
}

#[tokio::test]
async fn accepted_token_ends_when_its_key_is_published_no_more() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.unknown_key = Duration::ZERO);
    let first = issuer.token("ann", AUDIENCE, "");
    let ann = show(&tokens, &first).await.unwrap();
    issuer.add_key(SigningKey::es256);
    let second = issuer.token("ben", AUDIENCE, "");
    let ben = show(&tokens, &second).await.unwrap();
    assert!(is_remembered(&tokens, &first), "both keys are published");
    // Publishes only the newer key, and shows a token that causes a new reading.
    issuer.publish(vec![issuer.key()]);
    let unknown = SigningKey::es256("unknown");
    let header = value!({ "alg": "ES256", "kid": "unknown" });
    assert!(is_invalid(
        &show(
            &tokens,
            &unknown.sign(&header, &issuer.claims("eve", AUDIENCE, ""))
        )
        .await
    ));
    assert!(is_invalid(&show(&tokens, &first).await));
    assert!(
        ann.validity.revoked.is_cancelled(),
        "its streams and calls end"
    );
    assert!(
        Arc::ptr_eq(&ben, &show(&tokens, &second).await.unwrap()),
        "a key that stays is not verified with again"
    );
}

#[tokio::test]
async fn keys_of_tokens_that_are_remembered_are_read_again() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.refresh = Duration::ZERO);
    let token = issuer.token("ann", AUDIENCE, "");
    show(&tokens, &token).await.unwrap();
    issuer.rotate();
    // No other token is sent that could cause a reading.
    while show(&tokens, &token).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(is_invalid(&show(&tokens, &token).await));
}

#[tokio::test]
async fn known_keys_serve_while_others_are_asked_for() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.unknown_key = Duration::ZERO);
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    issuer.conduct_all(&Conduct::Slow);
    let unknown = SigningKey::es256("unknown");
    let unknown = unknown.sign(
        &value!({ "alg": "ES256", "kid": "unknown" }),
        &issuer.claims("ann", AUDIENCE, ""),
    );
    let waiting = tokio::spawn({
        let (tokens, unknown) = (Arc::clone(&tokens), unknown.clone());
        async move { show(&tokens, &unknown).await }
    });
    while issuer.asked(Place::Metadata) < 2 {
        tokio::task::yield_now().await;
    }
    assert!(
        show(&tokens, &issuer.token("ben", AUDIENCE, ""))
            .await
            .is_ok()
    );
    assert!(!waiting.is_finished());
    issuer.conduct_all(&Conduct::Good);
    assert!(is_invalid(&waiting.await.unwrap()));
}

#[tokio::test]
async fn old_keys_serve_while_the_issuer_is_down_for_a_bounded_time() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| {
        limits.refresh = Duration::ZERO;
        limits.stale = Duration::from_secs(2);
    });
    let began = Instant::now();
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    issuer.conduct_all(&Conduct::Down);
    loop {
        let outcome = show(&tokens, &issuer.token("ben", AUDIENCE, "")).await;
        match began.elapsed() < Duration::from_secs(2) {
            true => assert!(outcome.is_ok(), "{outcome:?}"),
            false if outcome.is_ok() => assert!(began.elapsed() < Duration::from_secs(10)),
            false => break assert!(is_unavailable(&outcome), "{outcome:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn keys_in_use_are_read_again_in_the_background() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.refresh = Duration::ZERO);
    while issuer.asked(Place::Keys) < 5 {
        tokio::task::yield_now().await;
        show(&tokens, &issuer.token("ann", AUDIENCE, ""))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn issuer_that_is_down_harms_its_own_tokens_alone() {
    let (up, down) = (FakeIssuer::start().await, FakeIssuer::start().await);
    down.conduct_all(&Conduct::Down);
    let tokens = tokens(&settings(vec![trusted(&down), trusted(&up)]));
    assert!(is_unavailable(
        &show(&tokens, &down.token("ann", AUDIENCE, "")).await
    ));
    assert!(show(&tokens, &up.token("ann", AUDIENCE, "")).await.is_ok());
    let asked = down.asked(Place::Metadata);
    for _ in 0..100 {
        assert!(is_unavailable(
            &show(&tokens, &down.token("ann", AUDIENCE, "")).await
        ));
    }
    assert!(
        down.asked(Place::Metadata) <= asked + 2,
        "it is asked once a second at most"
    );
    down.conduct_all(&Conduct::Good);
    let recovered = async {
        while show(&tokens, &down.token("ann", AUDIENCE, ""))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), recovered)
        .await
        .unwrap();
}

#[tokio::test]
async fn slow_issuer_is_waited_for_as_long_as_configured() {
    let issuer = FakeIssuer::start().await;
    issuer.conduct_all(&Conduct::Slow);
    let tokens = impatient(&issuer, |limits| {
        limits.request = Duration::from_millis(200);
    });
    assert!(is_unavailable(
        &show(&tokens, &issuer.token("ann", AUDIENCE, "")).await
    ));
}

#[tokio::test]
async fn clients_that_leave_do_not_end_the_reading_of_keys() {
    let issuer = FakeIssuer::start().await;
    issuer.conduct(Place::Keys, Conduct::Slow);
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let token = issuer.token("ann", AUDIENCE, "");
    let (started, left) = (AtomicBool::new(false), show(&tokens, &token));
    tokio::select! {
        _ = left => panic!("keys were read"),
        () = async { while issuer.asked(Place::Keys) == 0 { tokio::task::yield_now().await } } => {
            started.store(true, Ordering::Relaxed);
        }
    }
    issuer.conduct(Place::Keys, Conduct::Good);
    assert!(show(&tokens, &token).await.is_ok());
    assert_eq!(
        (started.load(Ordering::Relaxed), issuer.asked(Place::Keys)),
        (true, 1)
    );
}

#[tokio::test]
async fn hostile_answers_are_bounded_and_refused() {
    let key = SigningKey::es256("key-0").jwk();
    let many = (0..101).map(|number| {
        let mut key = key.clone();
        key["kid"] = value!(number.to_string());
        key
    });
    let hostile = [
        Conduct::Text(" ".repeat(257 << 10)),
        Conduct::Text(value!({ "keys": many.collect::<Vec<_>>() }).to_string()),
        Conduct::Text(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))),
        Conduct::Text(r#"{"keys":[],"keys":[]}"#.to_owned()),
        Conduct::Text(
            value!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0", "kid": "key-0" }] }).to_string(),
        ),
        Conduct::Text("<html>".to_owned()),
        Conduct::Text(String::new()),
        Conduct::Status(500),
        Conduct::Status(204),
        Conduct::Down,
    ];
    for conduct in hostile {
        let issuer = FakeIssuer::start().await;
        issuer.conduct(Place::Keys, conduct.clone());
        let tokens = tokens(&settings(vec![trusted(&issuer)]));
        let outcome = show(&tokens, &issuer.token("ann", AUDIENCE, "")).await;
        assert!(is_unavailable(&outcome), "{conduct:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (issuer, evil) = (FakeIssuer::start().await, FakeIssuer::start().await);
    evil.publish(vec![issuer.key()]);
    issuer.conduct(Place::Keys, Conduct::Redirect(evil.jwks_uri()));
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    assert!(is_unavailable(
        &show(&tokens, &issuer.token("ann", AUDIENCE, "")).await
    ));
    assert_eq!(evil.asked(Place::Keys), 0);
}

#[tokio::test]
async fn metadata_of_other_issuers_and_unsafe_places_of_keys_are_refused() {
    let refused = [
        value!({ "issuer": "https://other.example.com" }),
        value!({ "issuer": null }),
        value!({ "jwks_uri": null }),
        value!({ "jwks_uri": "http://10.0.0.1/keys" }),
        value!({ "jwks_uri": "file:///etc/passwd" }),
    ];
    for members in refused {
        let issuer = FakeIssuer::start().await;
        issuer.describe(members.clone());
        let tokens = tokens(&settings(vec![trusted(&issuer)]));
        let outcome = show(&tokens, &issuer.token("ann", AUDIENCE, "")).await;
        assert!(is_unavailable(&outcome), "{members}: {outcome:?}");
    }
}

#[tokio::test]
async fn key_set_without_usable_keys_does_not_replace_another() {
    let issuer = FakeIssuer::start().await;
    let tokens = impatient(&issuer, |limits| limits.refresh = Duration::ZERO);
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    issuer.conduct(Place::Keys, Conduct::Text(r#"{"keys":[]}"#.to_owned()));
    let before = issuer.asked(Place::Keys);
    while issuer.asked(Place::Keys) < before + 3 {
        tokio::task::yield_now().await;
        show(&tokens, &issuer.token("ann", AUDIENCE, ""))
            .await
            .unwrap();
    }
}
