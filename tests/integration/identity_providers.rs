//! Users who sign in on pages at the issuer of their clients' tokens, through the real binary.

use std::fs;

use fanlight_testkit::browser::Browser;
use fanlight_testkit::identity_provider::IdentityProvider;
use fanlight_testkit::signing_in::{ANN, KEYS, SignInSetting, WITH_KEYS, is_result, link_in};

/// The client id of the gateway itself, which needs no registration.
const REGISTERED: &str = ", signIn: {clientId: fanlight}";

/// A setting whose clients have tokens of an identity provider. Users sign in there with these
/// settings.
async fn setting(sign_in: &str) -> (SignInSetting, IdentityProvider) {
    let provider = IdentityProvider::start().await;
    let setting = SignInSetting::start(&provider.lines(sign_in), r#"{"type":"user"}"#).await;
    (setting, provider)
}

/// The page on which users see where they are signed in.
fn connections(setting: &SignInSetting) -> String {
    format!("http://{}/connections", setting.gateway.mcp)
}

#[tokio::test]
async fn user_shows_at_the_issuer_of_the_tokens_that_a_link_is_theirs() {
    let (setting, provider) = setting(REGISTERED).await;
    let (mut browser, ann) = (Browser::default(), provider.access_token("ann"));
    let page = setting.page(&mut browser, Some(&ann)).await;
    assert!(
        page.text.contains(provider.url()) && !page.text.contains("credential"),
        "{page:?}"
    );
    let page = setting.identified(&mut browser, &ann).await;
    assert!(
        page.status == 200 && page.text.contains("knows you as ann"),
        "{page:?}"
    );
    let sent = browser.submit(&page, &[]).await;
    let done = browser.follow(sent).await;
    assert!(
        done.text.contains("signed in to notes"),
        "{done:?}\n{}",
        setting.gateway.log.text()
    );
    assert!(
        is_result(&setting.call(Some(&ann)).await),
        "{}",
        setting.gateway.log.text()
    );
    // Another token of the same user works; a token of another user does not.
    assert!(is_result(
        &setting.call(Some(&provider.access_token("ann"))).await
    ));
    assert!(link_in(&setting.call(Some(&provider.access_token("bob"))).await).is_some());
    let [asked] = &provider.server.asked("/authorize")[..] else {
        panic!("asked once")
    };
    let parameter = |name: &str| asked.parameter(name).unwrap_or_default().to_owned();
    assert_eq!(
        (parameter("scope"), parameter("code_challenge_method")),
        ("openid".to_owned(), "S256".to_owned())
    );
    assert_eq!(
        parameter("redirect_uri"),
        format!("{}/callback", connections(&setting))
    );
    assert!(
        parameter("nonce").len() >= 43 && parameter("state").len() >= 43,
        "{asked:?}"
    );
    let log = setting.gateway.log.text();
    assert!(
        !log.contains("at-of-ann") && !log.contains("rt-of-ann"),
        "{log}"
    );
}

#[tokio::test]
async fn fanlight_registers_itself_where_it_has_no_client() {
    let (setting, provider) = setting(", signIn: {}").await;
    for _ in 0..2 {
        let page = setting
            .identified(&mut Browser::default(), &provider.access_token("ann"))
            .await;
        assert!(
            page.text.contains("knows you as ann"),
            "{page:?}\n{}",
            setting.gateway.log.text()
        );
    }
    assert_eq!(provider.server.asked("/register").len(), 1);
}

#[tokio::test]
async fn user_sees_connections_after_signing_in() {
    let (setting, provider) = setting(REGISTERED).await;
    let mut browser = Browser::default();
    let page = browser.open(&connections(&setting)).await;
    assert!(
        page.text.contains("Sign in at") && !page.text.contains("credential"),
        "{page:?}"
    );
    let sent = browser.submit(&page, &[("action", "identify")]).await;
    let page = browser.follow(sent).await;
    assert!(
        page.url == connections(&setting) && page.text.contains("knows you as ann"),
        "{page:?}"
    );
    let sent = browser.submit(&page, &[("action", "connect")]).await;
    let page = browser.follow(sent).await;
    let sent = browser.submit(&page, &[]).await;
    assert!(
        browser
            .follow(sent)
            .await
            .text
            .contains("signed in to notes")
    );
    assert!(is_result(
        &setting.call(Some(&provider.access_token("ann"))).await
    ));
}

#[tokio::test]
async fn pending_sign_in_at_an_identity_provider_survives_a_restart() {
    let (mut setting, provider) = setting(REGISTERED).await;
    let (mut browser, ann) = (Browser::default(), provider.access_token("ann"));
    let page = setting.page(&mut browser, Some(&ann)).await;
    let sent = browser.submit(&page, &[("action", "identify")]).await;
    setting.restart().await;
    let page = browser.follow(sent).await;
    assert!(
        page.text.contains("knows you as ann"),
        "{page:?}\n{}",
        setting.gateway.log.text()
    );
}

#[tokio::test]
async fn browser_is_known_no_longer_than_the_key_that_has_shown_it() {
    let setting = SignInSetting::start(WITH_KEYS, r#"{"type":"user"}"#).await;
    let mut browser = Browser::default();
    let page = browser.open(&connections(&setting)).await;
    browser.submit(&page, &[("credential", ANN)]).await;
    assert!(
        browser
            .open(&connections(&setting))
            .await
            .text
            .contains("knows you as ann")
    );
    let others = KEYS
        .lines()
        .filter(|line| !line.contains("name: ann"))
        .collect::<Vec<_>>()
        .join("\n");
    fs::write(setting.folder.path().join("keys.yaml"), others).unwrap();
    setting.gateway.reload().await;
    let page = browser.open(&connections(&setting)).await;
    assert!(!page.text.contains("knows you"), "{page:?}");
}

#[tokio::test]
async fn browser_is_known_no_longer_than_users_sign_in_there() {
    for (from, to) in [
        (REGISTERED, ""),
        ("oauth:", "keys: {file: keys.yaml}, oauth:"),
        ("AUDIENCE", ""),
    ] {
        let (setting, provider) = setting(REGISTERED).await;
        let mut browser = Browser::default();
        setting
            .identified(&mut browser, &provider.access_token("ann"))
            .await;
        let url = connections(&setting);
        assert!(browser.open(&url).await.text.contains("knows you as ann"));
        let stays = to.contains("keys");
        match from {
            // Only another issuer is accepted.
            "AUDIENCE" => {
                setting
                    .reconfigure(provider.url(), "https://id.example.com")
                    .await;
            }
            _ => setting.reconfigure(from, to).await,
        }
        let page = browser.open(&url).await;
        assert_eq!(
            page.text.contains("knows you as ann"),
            stays,
            "{from}: {page:?}"
        );
    }
}
