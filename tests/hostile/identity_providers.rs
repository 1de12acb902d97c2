//! Attacks on the sign-in of users at the issuer of their clients' tokens: foreign ID tokens,
//! answers that belong to no sign-in of the browser, and other users' browsers.

use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::identity_provider::{IdentityProvider, Signature};
use fanlight_testkit::issuer::seconds_from_now;
use fanlight_testkit::signing_in::{SignInSetting, link_in};
use serde_json::json;

async fn setting() -> (SignInSetting, IdentityProvider) {
    let provider = IdentityProvider::start().await;
    let lines = provider.lines(", signIn: {clientId: fanlight}");
    (
        SignInSetting::start(&lines, r#"{"type":"user"}"#).await,
        provider,
    )
}

/// Makes a browser begin to sign in at the identity provider; returns the redirect back.
async fn begun(
    setting: &SignInSetting,
    provider: &IdentityProvider,
    browser: &mut Browser,
) -> String {
    begun_by(setting, &provider.access_token("ann"), browser).await
}

/// [`begun`] for the link of a client with this access token.
async fn begun_by(setting: &SignInSetting, token: &str, browser: &mut Browser) -> String {
    let page = setting.page(browser, Some(token)).await;
    let sent = browser.submit(&page, &[("action", "identify")]).await;
    browser.open(&sent.location()).await.location()
}

/// An access token that has the required claims.
fn token_with(provider: &IdentityProvider) -> String {
    let claims = json!({ "hd": "example.com", "realm": { "roles": ["staff"] } });
    provider.access_token_with("ann", &claims)
}

/// Checks that the answer was refused and that the browser has no user.
async fn assert_nobody(setting: &SignInSetting, browser: &mut Browser, refused: &Page, what: &str) {
    assert_eq!(refused.status, 403, "{what}: {refused:?}");
    let page = browser
        .open(&format!("http://{}/connections", setting.gateway.mcp))
        .await;
    assert!(!page.text.contains("knows you"), "{what}: {page:?}");
    assert!(
        setting.authorization.asked("/authorize").is_empty(),
        "{what}"
    );
}

#[tokio::test]
async fn id_token_that_is_not_for_this_sign_in_is_refused() {
    let (setting, provider) = setting().await;
    let past = seconds_from_now(-7200);
    for claims in [
        json!({ "iss": "https://evil.example" }),
        json!({ "iss": null }),
        json!({ "aud": "another-client" }),
        json!({ "aud": ["fanlight", "another-client"] }),
        json!({ "aud": ["fanlight", "another-client"], "azp": "another-client" }),
        json!({ "azp": "another-client" }),
        json!({ "aud": null }),
        json!({ "nonce": "another" }),
        json!({ "nonce": null }),
        json!({ "exp": past }),
        json!({ "exp": null }),
        json!({ "iat": seconds_from_now(7200) }),
        json!({ "iat": null }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": ["ann"] }),
    ] {
        provider.changes_id_tokens(claims.clone());
        let mut browser = Browser::default();
        let back = begun(&setting, &provider, &mut browser).await;
        let refused = browser.open(&back).await;
        assert_nobody(&setting, &mut browser, &refused, &claims.to_string()).await;
    }
    provider.changes_id_tokens(json!({}));
    for signature in [Signature::None, Signature::OfAnotherKey] {
        provider.signs(signature);
        let mut browser = Browser::default();
        let back = begun(&setting, &provider, &mut browser).await;
        let refused = browser.open(&back).await;
        assert_nobody(&setting, &mut browser, &refused, &format!("{signature:?}")).await;
    }
}

/// A user whose access tokens are refused could sign in otherwise.
#[tokio::test]
async fn id_token_without_a_required_claim_is_refused() {
    let provider = IdentityProvider::start().await;
    let lines = provider.lines(
        ", require: {hd: [example.com], /realm/roles: [staff, ops]}, signIn: {clientId: fanlight}",
    );
    let setting = SignInSetting::start(&lines, r#"{"type":"user"}"#).await;
    let roles = |role: &str| json!({ "roles": [role] });
    for claims in [
        json!({}),
        json!({ "hd": "example.com" }),
        json!({ "realm": roles("staff") }),
        json!({ "hd": "evil.example", "realm": roles("staff") }),
        json!({ "hd": true, "realm": roles("staff") }),
        json!({ "hd": "example.com", "realm": roles("guest") }),
        json!({ "hd": "example.com", "realm": { "roles": "ops staff" } }),
    ] {
        provider.changes_id_tokens(claims.clone());
        let mut browser = Browser::default();
        let back = begun_by(&setting, &token_with(&provider), &mut browser).await;
        let refused = browser.open(&back).await;
        assert_nobody(&setting, &mut browser, &refused, &claims.to_string()).await;
    }
    provider.changes_id_tokens(json!({ "hd": "example.com", "realm": roles("ops") }));
    let mut browser = Browser::default();
    let back = begun_by(&setting, &token_with(&provider), &mut browser).await;
    assert_eq!(browser.open(&back).await.status, 303);
}

#[tokio::test]
async fn access_token_of_a_client_is_no_sign_in() {
    let (setting, provider) = setting().await;
    let (mut browser, token) = (Browser::default(), provider.access_token("ann"));
    let page = setting.page(&mut browser, Some(&token)).await;
    let refused = browser.submit(&page, &[("credential", &token)]).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(setting.authorization.asked("/authorize").is_empty());
}

#[tokio::test]
async fn answer_without_the_cookie_of_the_browser_that_began_is_refused() {
    let (setting, provider) = setting().await;
    let (mut attacker, mut victim) = (Browser::default(), Browser::default());
    let back = begun(&setting, &provider, &mut attacker).await;
    let refused = victim.open(&back).await;
    assert_nobody(&setting, &mut victim, &refused, "without any cookie").await;
    // The victim's own cookie does not help either.
    begun(&setting, &provider, &mut victim).await;
    let refused = victim.open(&back).await;
    assert_nobody(&setting, &mut victim, &refused, "with its own cookie").await;
    assert!(
        provider.server.asked("/token").is_empty(),
        "no code was redeemed"
    );
}

#[tokio::test]
async fn answer_is_taken_once_and_only_where_it_belongs() {
    let (setting, provider) = setting().await;
    let mut browser = Browser::default();
    let back = begun(&setting, &provider, &mut browser).await;
    // The answer is not valid at the callback for servers' authorization servers.
    let elsewhere = back.replace("/connections/callback", "/oauth/callback");
    assert_ne!(elsewhere, back);
    assert_eq!(browser.open(&elsewhere).await.status, 403);
    assert_eq!(browser.open(&back).await.status, 303);
    assert_eq!(browser.open(&back).await.status, 403);
    assert_eq!(provider.server.asked("/token").len(), 1);
}

/// The gateway asks the identity provider once for a cookie that the browser keeps, not for ten
/// minutes.
#[tokio::test]
async fn cookie_that_a_browser_was_told_to_forget_is_worth_nothing() {
    let (setting, provider) = setting().await;
    let (mut browser, mut copy) = (Browser::default(), Browser::default());
    let back = begun(&setting, &provider, &mut browser).await;
    browser
        .cookie_names()
        .iter()
        .for_each(|name| copy.steal(&browser, name));
    assert_eq!(browser.open(&back).await.status, 303);
    assert_eq!(copy.open(&back).await.status, 403);
    assert_eq!(provider.server.asked("/token").len(), 1);
}

#[tokio::test]
async fn answer_that_was_changed_spends_the_sign_in() {
    let (setting, provider) = setting().await;
    let issuer = provider.url().replace(':', "%3A");
    let own = format!("iss={issuer}");
    for (from, to) in [
        ("state=", "state=x"),
        (own.as_str(), "iss=http%3A%2F%2Fevil.example"),
        (own.as_str(), "x=y"),
        ("code=", "x="),
    ] {
        let mut browser = Browser::default();
        let back = begun(&setting, &provider, &mut browser).await;
        let changed = back.replace(from, to);
        assert_ne!(changed, back);
        let refused = browser.open(&changed).await;
        assert_nobody(&setting, &mut browser, &refused, to).await;
        assert_eq!(browser.open(&back).await.status, 403, "{to}");
    }
    assert!(provider.server.asked("/token").is_empty());
}

/// A server's authorization server passes on an identity provider's answer as its own (mix-up).
#[tokio::test]
async fn code_of_an_identity_provider_reaches_no_authorization_server_of_a_server() {
    let (setting, provider) = setting().await;
    let (mut browser, ann) = (Browser::default(), provider.access_token("ann"));
    let page = setting.identified(&mut browser, &ann).await;
    let sent = browser.submit(&page, &[]).await;
    let back = browser.open(&sent.location()).await.location();
    let own = setting.authorization.url().replace(':', "%3A");
    let mixed = back.replace(
        &format!("iss={own}"),
        &format!("iss={}", provider.url().replace(':', "%3A")),
    );
    assert_ne!(mixed, back);
    assert_eq!(browser.open(&mixed).await.status, 403);
    assert!(setting.authorization.asked("/token").is_empty());
}

#[tokio::test]
async fn user_other_than_the_caller_cannot_sign_in() {
    let (setting, provider) = setting().await;
    let (mut browser, ann) = (Browser::default(), provider.access_token("ann"));
    provider.signs_in("bob");
    let page = setting.identified(&mut browser, &ann).await;
    assert!(!page.text.contains("knows you as ann"), "{page:?}");
    // Bob's browser cannot accept Ann's link.
    let refused = browser.submit(&page, &[("action", "accept")]).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(setting.authorization.asked("/authorize").is_empty());
    assert!(link_in(&setting.call(Some(&ann)).await).is_some());
}

#[tokio::test]
async fn cookies_of_a_known_browser_are_worth_nothing_one_by_one() {
    let (setting, provider) = setting().await;
    let mut browser = Browser::default();
    setting
        .identified(&mut browser, &provider.access_token("ann"))
        .await;
    let url = format!("http://{}/connections", setting.gateway.mcp);
    assert!(browser.open(&url).await.text.contains("knows you as ann"));
    for name in browser.cookie_names() {
        let mut thief = Browser::default();
        thief.steal(&browser, &name);
        assert!(!thief.open(&url).await.text.contains("knows you"), "{name}");
    }
}

/// A user follows another user's link and signs in as themselves: the gateway stores no tokens.
#[tokio::test]
async fn sign_in_for_the_link_of_another_user_keeps_no_tokens() {
    let provider = IdentityProvider::start().await;
    let auth = format!(
        r#"{{"type":"exchange","tokenEndpoint":"{}/token"}}"#,
        provider.url()
    );
    let setting =
        SignInSetting::start(&provider.lines(", signIn: {clientId: fanlight}"), &auth).await;
    provider.signs_in("bob");
    let (ann, bob) = (provider.access_token("ann"), provider.access_token("bob"));
    let mut browser = Browser::default();
    let refused = setting.identified(&mut browser, &ann).await;
    assert_nobody(&setting, &mut browser, &refused, "the link of ann").await;
    for token in [&ann, &bob] {
        assert!(link_in(&setting.call(Some(token)).await).is_some());
    }
    assert!(provider.asked_for_tokens("token-exchange").is_empty());
}

#[tokio::test]
async fn renewed_id_token_of_another_user_is_not_used() {
    let provider = IdentityProvider::start().await;
    let auth = format!(
        r#"{{"type":"exchange","tokenEndpoint":"{}/token"}}"#,
        provider.url()
    );
    let setting =
        SignInSetting::start(&provider.lines(", signIn: {clientId: fanlight}"), &auth).await;
    provider.lifetime(0);
    let ann = provider.access_token("ann");
    let page = setting.identified(&mut Browser::default(), &ann).await;
    assert!(page.text.contains("signed in to notes"), "{page:?}");
    provider.changes_id_tokens(json!({ "sub": "bob" }));
    let answer = setting.call(Some(&ann)).await;
    assert!(
        answer.contains("\"error\"") && link_in(&answer).is_none(),
        "{answer}"
    );
    assert!(
        provider.asked_for_tokens("token-exchange").is_empty() && setting.credentials().is_empty()
    );
}

#[tokio::test]
async fn sign_in_that_the_policy_denies_meanwhile_keeps_no_tokens() {
    let provider = IdentityProvider::start().await;
    let auth = format!(
        r#"{{"type":"exchange","tokenEndpoint":"{}/token"}}"#,
        provider.url()
    );
    let lines = provider.lines(", signIn: {clientId: fanlight}") + "policy: {files: [p.cedar]}\n";
    let everything = "permit(principal, action, resource);";
    let setting = SignInSetting::start_with(&lines, &auth, everything).await;
    let (mut browser, ann) = (Browser::default(), provider.access_token("ann"));
    let page = setting.page(&mut browser, Some(&ann)).await;
    let sent = browser.submit(&page, &[("action", "identify")]).await;
    let policies =
        format!("{everything}\nforbid(principal, action == Action::\"signIn\", resource);");
    std::fs::write(setting.folder.path().join("p.cedar"), policies).unwrap();
    let (status, report) = setting.gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    let refused = browser.follow(sent).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    // A policy that permits it again does not bring tokens back.
    std::fs::write(setting.folder.path().join("p.cedar"), everything).unwrap();
    setting.gateway.reload().await;
    assert!(link_in(&setting.call(Some(&ann)).await).is_some());
    assert!(provider.asked_for_tokens("token-exchange").is_empty());
}
