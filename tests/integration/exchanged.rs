//! Servers that get a token exchanged for the user's token from an identity provider, through the
//! real binary.

use std::sync::Arc;

use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::identity_provider::IdentityProvider;
use fanlight_testkit::scripted::Protection;
use fanlight_testkit::signing_in::{SignInSetting, is_result, link_in};
use futures_util::future::join_all;

use crate::scripted::{Backend, Era, Reply, Transport};

const SIGN_IN: &str = ", signIn: {clientId: fanlight, clientSecret: s3cret}";

/// A setting whose server gets tokens that the identity provider exchanges for the users' tokens.
async fn with_exchange() -> (SignInSetting, IdentityProvider) {
    let provider = IdentityProvider::start().await;
    let auth = format!(
        r#"{{"type":"exchange","tokenEndpoint":"{}/token","audience":"crm"}}"#,
        provider.url()
    );
    let setting = SignInSetting::start(&provider.lines(SIGN_IN), &auth).await;
    let valid = Arc::clone(&provider.server);
    setting.backend.protect(Protection::by_token(
        &setting.backend.url(),
        provider.url(),
        move |token| valid.is_valid(token),
    ));
    (setting, provider)
}

/// Signs a user in by the link that a call returned.
async fn sign_in(setting: &SignInSetting, provider: &IdentityProvider, user: &str) -> Page {
    provider.signs_in(user);
    let page = setting
        .identified(&mut Browser::default(), &provider.access_token(user))
        .await;
    assert!(
        page.text.contains("signed in to notes"),
        "{page:?}\n{}",
        setting.gateway.log.text()
    );
    page
}

#[tokio::test]
async fn each_user_reaches_the_server_with_an_exchanged_token() {
    let (setting, provider) = with_exchange().await;
    let (ann, bob) = (provider.access_token("ann"), provider.access_token("bob"));
    sign_in(&setting, &provider, "ann").await;
    assert!(
        is_result(&setting.call(Some(&ann)).await),
        "{}",
        setting.gateway.log.text()
    );
    assert!(
        link_in(&setting.call(Some(&bob)).await).is_some(),
        "nobody is served by the token of another"
    );
    sign_in(&setting, &provider, "bob").await;
    for _ in 0..3 {
        assert!(
            is_result(&setting.call(Some(&bob)).await)
                && is_result(&setting.call(Some(&ann)).await)
        );
    }
    let of = |user: &str| format!("Bearer exchanged-of-{user}-");
    let expected = ["ann", "bob", "ann", "bob", "ann", "bob", "ann"].map(of);
    let shown = setting.credentials();
    assert!(
        shown
            .iter()
            .zip(&expected)
            .all(|(shown, own)| shown.starts_with(own)),
        "{shown:?}"
    );
    assert_eq!(shown.len(), expected.len());
    let exchanges = provider.asked_for_tokens("token-exchange");
    assert_eq!(exchanges.len(), 2);
    let parameter = |name: &str| exchanges[0].parameter(name).unwrap_or_default().to_owned();
    assert!(parameter("subject_token").starts_with("at-of-ann-"));
    assert_eq!(
        parameter("subject_token_type"),
        "urn:ietf:params:oauth:token-type:access_token"
    );
    assert_eq!(parameter("audience"), "crm");
    let begun = &provider.server.asked("/authorize")[0];
    assert_eq!(begun.parameter("scope"), Some("offline_access openid"));
    let state = std::fs::read(setting.folder.path().join("state/grants.redb")).unwrap();
    assert!(
        !state
            .windows(6)
            .any(|part| part == b"at-of-" || part == b"rt-of-"),
        "tokens are kept in the clear"
    );
}

#[tokio::test]
async fn server_that_exchanges_at_one_issuer_is_not_for_users_of_another() {
    let (own, other) = (
        IdentityProvider::start().await,
        IdentityProvider::start().await,
    );
    let (first, second) = (own.lines(SIGN_IN), other.lines(SIGN_IN));
    let lines = format!(
        "{}, {}",
        first.trim_end_matches("]}\n"),
        second.trim_start_matches("auth: {oauth: [")
    );
    let url = own.url();
    let auth = format!(r#"{{"type":"exchange","issuer":"{url}","tokenEndpoint":"{url}/token"}}"#);
    let setting = SignInSetting::start(&lines, &auth).await;
    let answer = setting.call(Some(&own.access_token("ann"))).await;
    assert!(link_in(&answer).is_some(), "{answer}");
    let answer = setting.call(Some(&other.access_token("bob"))).await;
    assert!(
        link_in(&answer).is_none() && answer.contains("error"),
        "{answer}"
    );
    assert!(own.server.asked("/token").is_empty());
}

#[tokio::test]
async fn id_token_of_each_user_is_exchanged_for_an_identity_assertion() {
    let provider = IdentityProvider::start().await;
    let setting = SignInSetting::start(
        &provider.lines(SIGN_IN),
        r#"{"type":"enterprise","clientId":"at-resource"}"#,
    )
    .await;
    sign_in(&setting, &provider, "ann").await;
    assert!(
        is_result(&setting.call(Some(&provider.access_token("ann"))).await),
        "{}",
        setting.gateway.log.text()
    );
    let [asked] = &provider.asked_for_tokens("token-exchange")[..] else {
        panic!("asked once")
    };
    let parameter = |name: &str| asked.parameter(name).unwrap_or_default().to_owned();
    assert_eq!(
        parameter("requested_token_type"),
        "urn:ietf:params:oauth:token-type:id-jag"
    );
    assert_eq!(
        parameter("subject_token_type"),
        "urn:ietf:params:oauth:token-type:id_token"
    );
    assert_eq!(
        (parameter("audience").as_str(), parameter("resource")),
        (setting.authorization.url(), setting.backend.url())
    );
    assert_eq!(
        fanlight_testkit::authorization_server::payload(&parameter("subject_token"))["sub"],
        "ann"
    );
    assert!(
        asked
            .header("authorization")
            .is_some_and(|shown| shown.starts_with("Basic ")),
        "as the client of the sign-in"
    );
    let redeemed = setting.authorization.asked("/token");
    assert_eq!(redeemed[0].parameter("assertion"), Some("jag-of-ann"));
}

/// A token is bound to the server, not to its name in the configuration: another server with the
/// same name does not get it.
#[tokio::test]
async fn token_is_sent_only_to_the_server_that_it_was_issued_for() {
    let (setting, provider) = with_exchange().await;
    let ann = provider.access_token("ann");
    sign_in(&setting, &provider, "ann").await;
    assert!(
        is_result(&setting.call(Some(&ann)).await),
        "{}",
        setting.gateway.log.text()
    );
    let other = Backend::start(Era::Modern, Transport::Http).await;
    other.offers_tools(&["t"]);
    other.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    setting
        .reconfigure(&setting.backend.url(), &other.url())
        .await;
    assert!(
        is_result(&setting.call(Some(&ann)).await),
        "{}",
        setting.gateway.log.text()
    );
    let shown = other.received("tools/call")[0]
        .header("authorization")
        .unwrap_or_default()
        .to_owned();
    assert!(
        shown.starts_with("Bearer exchanged-of-ann-") && !setting.credentials().contains(&shown),
        "{shown}"
    );
    let exchanges = provider.asked_for_tokens("token-exchange");
    assert_eq!(
        exchanges.last().unwrap().parameter("resource"),
        Some(other.url().as_str())
    );
}

#[tokio::test]
async fn sign_in_that_has_ended_is_renewed_once_for_many_calls() {
    let (setting, provider) = with_exchange().await;
    provider.lifetime(0);
    sign_in(&setting, &provider, "ann").await;
    let ann = provider.access_token("ann");
    let answers = join_all((0..50).map(|_| setting.call(Some(&ann)))).await;
    for answer in &answers {
        assert!(
            is_result(answer),
            "{answer}\n{}",
            setting.gateway.log.text()
        );
    }
    assert_eq!(provider.asked_for_tokens("refresh_token").len(), 1);
    assert_eq!(provider.asked_for_tokens("token-exchange").len(), 1);
}

#[tokio::test]
async fn sign_in_survives_a_restart() {
    let (mut setting, provider) = with_exchange().await;
    sign_in(&setting, &provider, "ann").await;
    setting.restart().await;
    assert!(
        is_result(&setting.call(Some(&provider.access_token("ann"))).await),
        "{}",
        setting.gateway.log.text()
    );
}

#[tokio::test]
async fn user_who_signs_out_is_served_no_longer() {
    let (setting, provider) = with_exchange().await;
    let ann = provider.access_token("ann");
    sign_in(&setting, &provider, "ann").await;
    assert!(is_result(&setting.call(Some(&ann)).await));
    let mut browser = Browser::default();
    let page = browser
        .open(&format!("http://{}/connections", setting.gateway.mcp))
        .await;
    let sent = browser.submit(&page, &[("action", "identify")]).await;
    let page = browser.follow(sent).await;
    assert!(page.text.contains("signed in at"), "{page:?}");
    let page = browser.submit(&page, &[("action", "sign-out")]).await;
    assert!(page.text.contains("not signed in"), "{page:?}");
    assert!(link_in(&setting.call(Some(&ann)).await).is_some());
    assert_eq!(provider.server.asked("/revoke").len(), 2);
}

#[tokio::test]
async fn user_removed_by_the_identity_provider_signs_in_again() {
    let (mut setting, provider) = with_exchange().await;
    sign_in(&setting, &provider, "ann").await;
    sign_in(&setting, &provider, "bob").await;
    let (ann, bob) = (provider.access_token("ann"), provider.access_token("bob"));
    assert!(
        is_result(&setting.call(Some(&ann)).await) && is_result(&setting.call(Some(&bob)).await)
    );
    provider.removes("ann");
    // Her stored token is discarded.
    setting.restart().await;
    assert!(
        link_in(&setting.call(Some(&ann)).await).is_some(),
        "{}",
        setting.gateway.log.text()
    );
    assert!(
        is_result(&setting.call(Some(&bob)).await),
        "{}",
        setting.gateway.log.text()
    );
}
