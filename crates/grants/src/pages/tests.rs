//! Tests that need no authorization server.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use fanlight_canonical::identity::Identity;
use fanlight_config::settings::Secret;
use fanlight_credentials::{ConnectionFacts, Open};
use fanlight_protocol::seal::Keys;
use futures_util::future::BoxFuture;
use http::Request;
use http::header::COOKIE;

use super::connect::BEGUN;
use super::*;
use crate::fetch::Trust;
use crate::oauth::{AuthorizationRequest, Provider, TokenTarget};
use crate::record::{BegunSignIn, GivenFor};
use crate::{
    Folder, GrantChange, GrantChangeEnd, GrantRecord, NoKeyring, NotOnRecord, ServerSettings,
    Store, server,
};
use tempfile::TempDir;

const PUBLIC: &str = "http://127.0.0.1:8080";
const COOKIE_VALUE: &str = "a browser";

struct Setting {
    pages: SignInPages,
    _folder: TempDir,
}

/// Rules by which anybody may sign in anywhere.
#[derive(Debug)]
struct Anybody;

impl SignInRules for Anybody {
    fn number(&self) -> u64 {
        0
    }

    fn permits(&self, _: &Arc<Identity>, _: Option<IpAddr>, _: &str) -> bool {
        true
    }
}

/// No audit log.
#[derive(Debug)]
struct NoRecord;

impl GrantRecord for NoRecord {
    fn begins(&self, _: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn record_end(&self, _: GrantChange<'_>, _: &GrantChangeEnd<'_>) {}
}

fn setting() -> Setting {
    let folder = TempDir::new().unwrap();
    let store = Store::open(
        &Folder::open(&folder.path().join("state")).unwrap(),
        &Keys::default(),
        &NoKeyring,
    )
    .unwrap();
    let links = Arc::new(Links::new(&store).unwrap());
    let pages = SignInPages::new(
        Grants::new(store, Arc::new(NoRecord)),
        links,
        Arc::new(Open::default()),
        Arc::new(Anybody),
    )
    .unwrap();
    Setting {
        pages,
        _folder: folder,
    }
}

impl Setting {
    async fn get(&self, path: &str) -> Response<String> {
        let cookie = format!("fanlight-browser-8080={COOKIE_VALUE}");
        let request = Request::get(path)
            .header("host", "127.0.0.1:8080")
            .header(COOKIE, cookie)
            .body(())
            .unwrap();
        let (head, ()) = request.into_parts();
        let loopback = [127, 0, 0, 1].into();
        let connection = ConnectionFacts {
            local: Some(loopback),
            peer: Some((loopback, 1).into()),
            ..ConnectionFacts::default()
        };
        let request = PageRequest {
            head: &head,
            form: b"",
            connection: &connection,
            client: None,
            public_url: Some(PUBLIC),
        };
        self.pages.answer(request).await
    }

    /// Stores a pending sign-in that expires at this time; returns its `state`.
    async fn keep(&self, expires: SystemTime) -> String {
        let (issuer, endpoint) = (
            "http://127.0.0.1:1".to_owned(),
            Url::parse("http://127.0.0.1:1/token").unwrap(),
        );
        let state = format!("x.{}", self.pages.seal.seal_for(&[2], BEGUN).unwrap());
        let record = BegunSignIn {
            principal: vec![2],
            server: "notes".to_owned(),
            provider: Provider::from_token_endpoint(issuer.clone(), endpoint.clone()),
            client: None,
            proof_key: None,
            request: AuthorizationRequest {
                url: endpoint,
                state: Secret::new(state.clone()),
                verifier: Secret::new("v"),
                nonce: None,
                issuer,
                names_itself: false,
                redirect_uri: Url::parse("http://127.0.0.1:8080/oauth/callback").unwrap(),
                target: TokenTarget::default(),
            },
            browser: digest(&SHA256, COOKIE_VALUE.as_bytes()).as_ref().to_vec(),
            rules: 0,
            expires,
            given_for: GivenFor {
                origin: String::new(),
                client_id: String::new(),
            },
        };
        let place = self.pages.place_of(&state).unwrap();
        self.pages
            .grants
            .store()
            .put(&place, &record)
            .await
            .unwrap();
        state
    }
}

#[tokio::test]
async fn answer_that_is_late_is_not_taken() {
    let setting = setting();
    let soon = SystemTime::now() + Duration::from_secs(60);
    let back = |state: &str| format!("/oauth/callback?code=x&state={state}");
    let late = setting
        .keep(SystemTime::now() - Duration::from_secs(1))
        .await;
    let late = setting.get(&back(&late)).await;
    assert!(
        late.status() == StatusCode::FORBIDDEN && late.body().contains("took too long"),
        "{late:?}"
    );
    // Within its time it gets as far as the server, which is unknown here.
    let soon = setting.keep(soon).await;
    for (state, status) in [("x", 403), (&soon, 404), (&soon, 403)] {
        assert_eq!(setting.get(&back(state)).await.status(), status);
    }
}

#[test]
fn sign_ins_of_one_address_leave_room_for_others() {
    let asking = setting().pages.asking;
    let turn = |address: [u8; 4]| asking.reserve(&Some(address.into()), 1).ok();
    let held: Vec<_> = (0..ASKING).map_while(|_| turn([192, 0, 2, 1])).collect();
    assert!(held.len() == ASKING / 2 && turn([192, 0, 2, 2]).is_some());
}

#[tokio::test]
async fn link_opens_with_the_keys_of_the_store_alone() {
    let (one, other) = (setting(), setting());
    let handle = one
        .pages
        .links
        .handle(&Owner::new(b"ann", "notes"), None)
        .unwrap();
    assert_eq!(
        one.pages.links.open(&handle).unwrap().owner,
        Owner::new(b"ann", "notes")
    );
    assert!(other.pages.links.open(&handle).is_none());
    let mut changed = handle.clone().into_bytes();
    changed[20] ^= 1;
    assert!(
        one.pages
            .links
            .open(&String::from_utf8_lossy(&changed))
            .is_none()
    );
    assert_eq!(
        other.get(&format!("/connect/{handle}")).await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn document_about_the_client_is_there_over_https_only_and_names_one_issuer() {
    let setting = setting();
    let issuer = crate::sign_in::issuer_name("https://id.example.com");
    let path = format!("{DOCUMENT}/{issuer}.json");
    assert_eq!(setting.get(&path).await.status(), StatusCode::NOT_FOUND);
    for other in ["", ".json", "/x.json", "/../x.json"] {
        assert!(!setting.pages.serves(&format!("{DOCUMENT}{other}")));
    }
    let request = Request::get(&path)
        .header("host", "mcp.example.com")
        .body(())
        .unwrap();
    let (head, ()) = request.into_parts();
    let (connection, public_url) = (ConnectionFacts::default(), Some("https://mcp.example.com"));
    let request = PageRequest {
        head: &head,
        form: b"",
        connection: &connection,
        client: None,
        public_url,
    };
    let document = setting.pages.answer(request).await;
    let document: serde_json::Value = serde_json::from_str(document.body()).unwrap();
    assert_eq!(
        document["client_id"],
        format!("https://mcp.example.com{path}")
    );
    let redirect_uris = ["oauth", "connections"]
        .map(|place| format!("https://mcp.example.com/{place}/callback/{issuer}"));
    assert_eq!(document["redirect_uris"], serde_json::json!(redirect_uris));
}

#[tokio::test]
async fn what_a_user_has_for_a_server_is_for_where_that_was_configured() {
    let setting = setting();
    let grants = &setting.pages.grants;
    let [earlier, later] =
        ["https://a.example/mcp", "https://b.example/mcp"].map(|url| Url::parse(url).unwrap());
    let at = |url: &Url| ServerSettings {
        name: "files".to_owned(),
        url: url.clone(),
        method: server::Method::Key {
            header: http::header::AUTHORIZATION,
            prefix: "Bearer ".to_owned(),
        },
        trust: Trust::in_server(url.clone()),
    };
    grants.add(at(&earlier)).unwrap();
    assert!(grants.user_access_at(b"ann", "files", &earlier).is_some());
    grants.add(at(&later)).unwrap();
    assert!(grants.user_access_at(b"ann", "files", &later).is_some());
    assert!(
        grants.user_access_at(b"ann", "files", &earlier).is_none(),
        "whoever reaches it there still"
    );
}

#[test]
fn text_of_a_server_cannot_look_like_another_on_a_page() {
    let mut page = Page::new("Sign in to a\u{202e}b");
    page.facts([(
        "where",
        "https://evil.example/\u{202e}moc.doog\u{2066}<b>".to_owned(),
    )]);
    let html = page.answer().into_body();
    assert!(
        html.contains(r"evil.example/\u202emoc.doog\u2066&lt;b&gt;"),
        "{html}"
    );
    assert!(!html.contains(['\u{202e}', '\u{2066}']), "{html}");
}
