//! The sign-in at an issuer: the binding between the issuer's answer and the browser that began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fanlight_admin::{AdminSettings, SignInIssuer};
use fanlight_canonical::identity::{Identity, Principal, Source};
use fanlight_credentials::{Begun, SignIn, SignInError};
use fanlight_http::PublicUrl;
use http::{Method, StatusCode};

use crate::people::{People, identity, roles};
use crate::scene::{Answer, Scene, fake};

/// Issuers that accept the code `of-NAME`, and give each attempt the next number.
#[derive(Debug, Default)]
pub(crate) struct Issuers(AtomicU32);

#[async_trait]
impl SignIn for Issuers {
    async fn begin(&self, issuer: &str, redirect_uri: &str) -> Result<Begun, SignInError> {
        assert!(
            redirect_uri.ends_with("/sign-in/callback"),
            "{redirect_uri}"
        );
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        let location = format!("{issuer}/authorize?state=state-{number}");
        let attempt = format!("{issuer} state-{number} verifier nonce");
        Ok(Begun { location, attempt })
    }

    async fn finish(
        &self,
        attempt: &str,
        _: Option<&str>,
        query: &str,
    ) -> Result<(Arc<Identity>, String), SignInError> {
        let (issuer, rest) = attempt.split_once(' ').unwrap();
        let state = rest.split(' ').next().unwrap();
        if !query.contains(&format!("state={state}")) || !query.ends_with(state) {
            return Err(SignInError::Refused(
                "the answer is not of this sign-in".into(),
            ));
        }
        let code = query.strip_prefix("code=of-");
        let name = code.and_then(|code| code.split('&').next());
        let name = name.ok_or(SignInError::Refused("the code is not accepted".into()))?;
        Ok((issued_identity(issuer, name), format!("{issuer} {name}")))
    }

    async fn identify(&self, proof: &str) -> Result<Arc<Identity>, SignInError> {
        let (issuer, name) = proof.split_once(' ').unwrap();
        Ok(issued_identity(issuer, name))
    }
}

fn issued_identity(issuer: &str, name: &str) -> Arc<Identity> {
    let group = if name == "ann" { "ops" } else { "others" };
    Arc::new(Identity {
        principal: Principal::new(issuer, name),
        ..identity(name, Source::Token, &[group])
    })
}

fn at(issuer: &str) -> SignInIssuer {
    SignInIssuer {
        issuer: issuer.into(),
        client_id: Some("fanlight".into()),
    }
}

pub(crate) fn settings() -> AdminSettings {
    AdminSettings {
        sign_in: vec![at("https://id.example"), at("https://other.example")],
        public_url: PublicUrl::parse("http://127.0.0.1"),
        roles: roles(),
        ..AdminSettings::default()
    }
}

async fn scene() -> Scene {
    with(settings()).await
}

async fn with(settings: AdminSettings) -> Scene {
    let issuers = Arc::new(Issuers::default());
    Scene::signing_in(vec![fake("a", &[])], settings, Arc::new(People), issuers).await
}

/// A request from the listener's own page.
pub(crate) async fn post(scene: &Scene, path: &str, cookie: Option<&str>, body: &str) -> Answer {
    let origin = format!("http://{}", scene.address);
    let mut headers = vec![
        ("content-type", "application/json"),
        ("origin", origin.as_str()),
    ];
    headers.extend(cookie.map(|cookie| ("cookie", cookie)));
    scene.send(Method::POST, path, &headers, body).await
}

pub(crate) fn cookies(answer: &Answer) -> Vec<String> {
    let set = answer
        .headers
        .get_all("set-cookie")
        .iter()
        .map(|value| value.to_str().unwrap());
    set.map(|cookie| cookie.split(';').next().unwrap().to_owned())
        .collect()
}

pub(crate) const BEGIN: &str = r#"{"issuer":"https://id.example"}"#;

/// Begins a sign-in; returns the cookie and the `state`.
pub(crate) async fn begin(scene: &Scene) -> (String, String) {
    let begun = post(scene, "/api/session/issuer", None, BEGIN).await;
    assert_eq!(begun.status, StatusCode::OK, "{}", begun.text);
    let set = begun.headers["set-cookie"].to_str().unwrap();
    assert!(
        set.contains("; HttpOnly; SameSite=Strict") && set.contains("Max-Age=600"),
        "{set}"
    );
    assert!(
        !set.contains("verifier")
            && !begun.text.contains("verifier")
            && !begun.text.contains("nonce")
    );
    let state = begun
        .text
        .split("state=")
        .nth(1)
        .unwrap()
        .trim_end_matches("\"}")
        .to_owned();
    (cookies(&begun).remove(0), state)
}

pub(crate) async fn finish(scene: &Scene, cookie: Option<&str>, state: &str, code: &str) -> Answer {
    post(
        scene,
        "/api/session/issuer/answer",
        cookie,
        &format!(r#"{{"query":"code={code}&state={state}"}}"#),
    )
    .await
}

#[tokio::test]
async fn browser_that_began_is_signed_in_with_the_answer() {
    let scene = scene().await;
    let ways = scene.get("/api/session").await.text;
    assert!(
        ways.contains(r#""identity":null"#)
            && ways.contains(r#""issuers":["https://id.example","https://other.example"]"#),
        "{ways}"
    );
    let (cookie, state) = begin(&scene).await;
    let signed = finish(&scene, Some(&cookie), &state, "of-ann").await;
    assert_eq!(signed.status, StatusCode::OK, "{}", signed.text);
    assert!(
        signed
            .text
            .contains(r#""name":"ann","source":"sign-in","role":"operator""#),
        "{}",
        signed.text
    );
    let set = cookies(&signed);
    assert!(
        set.len() == 2 && set[1].ends_with("sign-in-0=") || set[1].ends_with('='),
        "the attempt is forgotten: {set:?}"
    );
    let answer = scene
        .send(Method::GET, "/api/overview", &[("cookie", &set[0])], "")
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    // A changed client at the issuer ends the session.
    let mut changed = settings();
    changed.sign_in[0].client_id = Some("another".into());
    scene.live.replace(AdminSettings {
        address: Some(scene.address),
        ..changed
    });
    let answer = scene
        .send(Method::GET, "/api/overview", &[("cookie", &set[0])], "")
        .await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

/// Login CSRF by an attacker's own code, and answers to other attempts.
#[tokio::test]
async fn answer_in_another_browser_signs_nobody_in() {
    let scene = scene().await;
    let (cookie, state) = begin(&scene).await;
    let (other_cookie, other_state) = begin(&scene).await;
    let (kept, end) = cookie.split_at(cookie.len() - 10);
    let tampered = format!(
        "{kept}{}{}",
        if end.starts_with('A') { "B" } else { "A" },
        &end[1..]
    );
    for (cookie, state) in [
        (None, state.as_str()),
        (Some(other_cookie.as_str()), &state),
        (Some(&cookie), &other_state),
        (Some(&cookie), ""),
        (Some(&tampered), &state),
        (Some(&format!("{cookie}; {other_cookie}")), &state),
        (Some(&cookie.replace("-sign-in", "")), &state),
    ] {
        let answer = finish(&scene, cookie, state, "of-ann").await;
        assert_eq!(
            answer.status,
            StatusCode::UNAUTHORIZED,
            "{cookie:?} {state}: {}",
            answer.text
        );
        assert!(
            cookies(&answer).iter().all(|cookie| cookie.ends_with('=')),
            "no session: {:?}",
            cookies(&answer)
        );
    }
    // Opening the redirect address changes nothing by itself.
    let callback = format!("/sign-in/callback?code=of-ann&state={state}");
    let page = scene
        .send(
            Method::GET,
            &callback,
            &[("sec-fetch-site", "cross-site")],
            "",
        )
        .await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.headers.contains_key("set-cookie") && !page.text.contains("of-ann"));
    assert_eq!(
        finish(&scene, Some(&cookie), &state, "of-ann").await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn answers_that_are_refused_sign_nobody_in_and_are_throttled() {
    let scene = with(AdminSettings {
        max_sign_in_failures: 3,
        ..settings()
    })
    .await;
    let (cookie, state) = begin(&scene).await;
    let known = finish(&scene, Some(&cookie), &state, "of-eve").await;
    assert_eq!(known.status, StatusCode::FORBIDDEN, "{}", known.text);
    assert!(known.text.contains("eve has no role"), "{}", known.text);
    for _ in 0..3 {
        let (cookie, state) = begin(&scene).await;
        assert_eq!(
            finish(&scene, Some(&cookie), &state, "guess").await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    let (cookie, state) = begin(&scene).await;
    assert_eq!(
        finish(&scene, Some(&cookie), &state, "of-ann").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn sign_in_that_took_too_long_or_is_of_another_site_is_refused() {
    let scene = with(AdminSettings {
        sign_in_timeout: Duration::ZERO,
        ..settings()
    })
    .await;
    let begun = post(&scene, "/api/session/issuer", None, BEGIN).await;
    let late = finish(&scene, Some(&cookies(&begun)[0]), "state-0", "of-ann").await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED);
    assert!(late.text.contains("took too long"), "{}", late.text);
    for path in ["/api/session/issuer", "/api/session/issuer/answer"] {
        let headers = [
            ("content-type", "application/json"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(
            scene.send(Method::POST, path, &headers, "{}").await.status,
            StatusCode::FORBIDDEN
        );
        let headers = [("content-type", "text/plain")];
        assert_eq!(
            scene.send(Method::POST, path, &headers, "{}").await.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        );
    }
    let plain = Scene::start(vec![fake("a", &[])], AdminSettings::default()).await;
    assert_eq!(
        post(&plain, "/api/session/issuer", None, BEGIN)
            .await
            .status,
        StatusCode::NOT_FOUND
    );
}

/// Only the issuer at which a browser began can answer, and only issuers in the settings in force
/// get requests.
#[tokio::test]
async fn sign_in_is_at_a_configured_issuer_alone() {
    let scene = scene().await;
    for issuer in ["https://evil.example", "https://id.example/", "", "7"] {
        let body = format!(r#"{{"issuer":"{issuer}"}}"#);
        let answer = post(&scene, "/api/session/issuer", None, &body).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{issuer}");
        assert!(cookies(&answer).is_empty());
    }
    for body in ["", "{}", r#"{"issuer":7}"#] {
        let answer = post(&scene, "/api/session/issuer", None, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
    }
    let (cookie, state) = begin(&scene).await;
    scene.live.replace(AdminSettings {
        address: Some(scene.address),
        sign_in: vec![at("https://other.example")],
        ..settings()
    });
    let answer = finish(&scene, Some(&cookie), &state, "of-ann").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    // Without a URL for browsers to come back to, nobody is sent away.
    scene.live.replace(AdminSettings {
        address: Some(scene.address),
        public_url: None,
        ..settings()
    });
    let answer = post(&scene, "/api/session/issuer", None, BEGIN).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}
