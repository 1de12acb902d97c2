//! Tokens that no issuer would make.

use fanlight_testkit::issuer::base64url;
use proptest::prelude::*;

use super::*;

/// An issuer with a key of each type, and a method that trusts it.
async fn target() -> (FakeIssuer, Arc<Tokens>) {
    let issuer = FakeIssuer::start().await;
    let keys = [
        SigningKey::es256("ec"),
        SigningKey::rs256("rsa"),
        SigningKey::eddsa("ed"),
    ];
    issuer.publish(keys.into_iter().map(Arc::new).collect());
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    show(&tokens, &issuer.token("ann", AUDIENCE, ""))
        .await
        .unwrap();
    (issuer, tokens)
}

/// Valid claims with these members replaced; `null` removes one.
fn claims(issuer: &FakeIssuer, members: &Value) -> Value {
    let mut claims = issuer.claims("ann", AUDIENCE, "");
    for (name, member) in members.as_object().unwrap() {
        match member {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            member => claims[name] = member.clone(),
        }
    }
    claims
}

#[tokio::test]
async fn headers_that_choose_other_keys_or_algorithms_are_refused() {
    let (issuer, tokens) = target().await;
    let right = issuer.claims("ann", AUDIENCE, "");
    let own = SigningKey::es256("ec");
    let evil = FakeIssuer::start().await;
    let headers = [
        // A key of another type.
        value!({ "alg": "RS256", "kid": "ec" }),
        value!({ "alg": "ES256", "kid": "rsa" }),
        value!({ "alg": "EdDSA", "kid": "ec" }),
        value!({ "alg": "ES384", "kid": "ec" }),
        value!({ "alg": "none", "kid": "ec" }),
        value!({ "alg": "HS256", "kid": "ec" }),
        value!({ "kid": "ec" }),
        value!({ "alg": "ES256", "kid": "ec", "crit": ["kid"] }),
        value!({ "alg": "ES256", "kid": "ec", "jwk": own.jwk() }),
        value!({ "alg": "ES256", "kid": "ec", "jku": evil.jwks_uri() }),
        value!({ "alg": "ES256", "kid": "ec", "x5u": evil.jwks_uri() }),
        value!({ "alg": "ES256", "kid": "ec", "x5c": ["MIIB"] }),
        value!({ "alg": "ES256", "kid": "ec", "typ": "logout+jwt" }),
        value!({ "alg": "ES256", "kid": "ED" }),
        value!({ "alg": "ES256", "kid": ["ec"] }),
    ];
    for header in headers {
        // For some of them, the signature is right.
        for key in [&*issuer.key(), &own] {
            let outcome = show(&tokens, &key.sign(&header, &right)).await;
            assert!(is_invalid(&outcome), "{header}: {outcome:?}");
        }
    }
    assert_eq!(evil.asked(Place::Keys), 0);
    let duplicate = issuer.key().sign_text(
        r#"{"alg":"none","alg":"ES256","kid":"ec"}"#,
        &right.to_string(),
    );
    assert!(is_invalid(&show(&tokens, &duplicate).await));
}

#[tokio::test]
async fn tokens_signed_by_other_keys_are_refused() {
    let (issuer, tokens) = target().await;
    let right = issuer.claims("ann", AUDIENCE, "");
    for own in [
        SigningKey::es256("ec"),
        SigningKey::rs256("rsa"),
        SigningKey::eddsa("ed"),
    ] {
        let header = value!({ "alg": own.algorithm(), "kid": own.id() });
        assert!(
            is_invalid(&show(&tokens, &own.sign(&header, &right)).await),
            "{}",
            own.algorithm()
        );
    }
    // Signed by another trusted issuer.
    let other = FakeIssuer::start().await;
    other.publish(vec![Arc::new(SigningKey::es256("ec"))]);
    let both = super::tokens(&settings(vec![trusted(&issuer), trusted(&other)]));
    assert!(is_invalid(&show(&both, &other.sign(&right)).await));
    assert!(show(&both, &issuer.sign(&right)).await.is_ok());
}

#[tokio::test]
async fn public_key_is_no_secret_for_hmac() {
    let (issuer, tokens) = target().await;
    let message = |header: Value| {
        let claims = issuer.claims("ann", AUDIENCE, "").to_string();
        format!(
            "{}.{}",
            base64url(header.to_string().as_bytes()),
            base64url(claims.as_bytes())
        )
    };
    for jwk in [SigningKey::rs256("rsa").jwk(), issuer.key().jwk()] {
        for name in ["HS256", "RS256", "ES256", "hs256"] {
            let message = message(value!({ "alg": name, "kid": jwk["kid"] }));
            let secret =
                aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, jwk.to_string().as_bytes());
            let signature = aws_lc_rs::hmac::sign(&secret, message.as_bytes());
            let token = format!("{message}.{}", base64url(signature.as_ref()));
            assert!(is_invalid(&show(&tokens, &token).await), "{name}");
        }
    }
}

#[tokio::test]
async fn unsigned_and_badly_signed_tokens_are_refused() {
    let (issuer, tokens) = target().await;
    let token = issuer.token("ann", AUDIENCE, "");
    let (message, signature) = token.rsplit_once('.').unwrap();
    let unsigned = [
        format!("{message}."),
        format!("{message}.{}", base64url(&[0; 64])),
        format!("{message}.{}", base64url(&[0xff; 64])),
        format!("{message}.{signature}A"),
        format!("{message}.{signature}="),
        format!("{message}.{}", &signature[1..]),
        format!("{message}.{}", base64url(&[0x30, 0x06, 2, 1, 0, 2, 1, 0])),
        format!("{message}.{signature}.{signature}"),
        message.to_owned(),
    ];
    for token in unsigned {
        assert!(is_invalid(&show(&tokens, &token).await), "{token}");
    }
    assert!(show(&tokens, &token).await.is_ok());
}

#[tokio::test]
async fn claims_of_other_tokens_are_refused() {
    let (issuer, tokens) = target().await;
    let refused = [
        value!({ "exp": null }),
        value!({ "exp": seconds_from_now(-31) }),
        value!({ "exp": "9999999999" }),
        value!({ "exp": 1e300 }),
        value!({ "nbf": seconds_from_now(120) }),
        value!({ "iat": seconds_from_now(120) }),
        value!({ "aud": null }),
        value!({ "aud": "fanlight" }),
        value!({ "aud": "https://other.example.com/mcp" }),
        value!({ "iss": null }),
        value!({ "iss": format!("{}/", issuer.url()) }),
        value!({ "iss": issuer.url().to_uppercase() }),
        value!({ "iss": [issuer.url()] }),
        value!({ "iss": "https://evil.example" }),
        value!({ "sub": null }),
        value!({ "sub": "" }),
        value!({ "cnf": { "jkt": "x" } }),
        value!({ "at_hash": "x" }),
    ];
    for members in refused {
        let outcome = show(&tokens, &issuer.sign(&claims(&issuer, &members))).await;
        assert!(is_invalid(&outcome), "{members}: {outcome:?}");
    }
    assert!(
        show(
            &tokens,
            &issuer.sign(&claims(&issuer, &value!({ "exp": seconds_from_now(-25) })))
        )
        .await
        .is_ok()
    );
}

#[tokio::test]
async fn unknown_issuers_are_asked_nothing() {
    let (issuer, tokens) = target().await;
    let evil = FakeIssuer::start().await;
    assert!(is_invalid(
        &show(&tokens, &evil.token("ann", AUDIENCE, "")).await
    ));
    let asked = (
        evil.asked(Place::Metadata),
        evil.asked(Place::Keys),
        evil.asked(Place::Introspection),
    );
    assert_eq!((asked, issuer.asked(Place::Keys)), ((0, 0, 0), 1));
}

#[tokio::test]
async fn bound_token_needs_the_certificate_of_its_client() {
    let (issuer, tokens) = target().await;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"certificate");
    let bound = issuer.sign(&claims(
        &issuer,
        &value!({ "cnf": { "x5t#S256": base64url(hash.as_ref()) } }),
    ));
    let with = |certificate: &[u8]| ConnectionFacts {
        certificate: Some(certificate.into()),
        ..Default::default()
    };
    for _ in 0..2 {
        assert!(is_invalid(&show(&tokens, &bound).await));
        assert!(is_invalid(
            &show_over(&tokens, &with(b"other"), &bound).await
        ));
        assert!(
            show_over(&tokens, &with(b"certificate"), &bound)
                .await
                .is_ok()
        );
    }
}

#[test]
fn changed_tokens_are_never_accepted() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (issuer, tokens) = runtime.block_on(target());
    let token = issuer.token("ann", AUDIENCE, "");
    let change = (0..token.len(), any::<char>(), 0..4_usize);
    proptest!(ProptestConfig::with_cases(2000), |((at, with, how) in change)| {
        let mut changed: Vec<char> = token.chars().collect();
        match how {
            0 => changed[at] = with,
            1 => changed.insert(at, with),
            2 => drop(changed.remove(at)),
            _ => changed.truncate(at),
        }
        let changed: String = changed.into_iter().collect();
        let mut headers = HeaderMap::new();
        // Only valid header fields arrive.
        if let Ok(field) = HeaderValue::from_bytes(format!("Bearer {changed}").as_bytes()) && changed != token {
            headers.insert(AUTHORIZATION, field);
            let connection = ConnectionFacts::default();
            let credentials = at_mcp(&headers, &connection);
            if let Ok(Some(bearer)) = Bearer::shown_in(&headers) {
                let outcome = runtime.block_on(Arc::clone(&tokens).authenticate(bearer, &credentials).outcome());
                prop_assert!(is_invalid(&outcome), "{changed}");
            }
        }
    });
}
