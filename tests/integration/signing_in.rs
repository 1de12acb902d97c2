//! Servers that each user signs in to, through the real binary: the link, the pages, the tokens, and what is kept.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::slicer;

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Protection, Transport};

/// Keys of clients, and their digests.
const KEYS: [(&str, &str, &str); 2] = [
    (
        "ann",
        "fanlight_00000000000000000000000000000000000000000002okinW",
        "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
    ),
    (
        "bob",
        "fanlight_1111111111111111111111111111111111111111111146EDT",
        "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
    ),
];

/// A server that wants its users to sign in, with its authorization server, behind a gateway.
struct Setting {
    gateway: Gateway,
    backend: Backend,
    authorization: Arc<AuthorizationServer>,
    folder: TempFile,
}

impl Setting {
    /// One whose clients are not authenticated.
    async fn local() -> Self {
        Self::start("").await
    }

    /// One whose clients have keys.
    async fn with_keys() -> Self {
        Self::start("auth: {keys: {file: keys.yaml}}\n").await
    }

    async fn start(more: &str) -> Self {
        let authorization = Arc::new(AuthorizationServer::start().await);
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let valid = Arc::clone(&authorization);
        let protection = Protection::by_token(&backend.url(), authorization.url(), move |token| valid.is_valid(token));
        backend.protect(protection);
        let folder = TempFile::folder();
        let keys = KEYS.map(|(name, _, digest)| format!("  - {{name: {name}, sha256: \"{digest}\"}}\n"));
        fs::write(folder.path().join("keys.yaml"), format!("keys:\n{}", keys.concat())).unwrap();
        let entry = backend.entry_with("notes", r#""auth":{"type":"user"}"#);
        let config = format!("stateDir: state\n{more}mcpServers: {{{entry}}}\n");
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        Self { gateway, backend, authorization, folder }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("fanlight.yaml")
    }

    /// The answer to a call of the only tool with this key.
    async fn call(&self, key: Option<&str>) -> String {
        call(&self.gateway, key).await
    }

    /// The link that a call is answered with.
    async fn link(&self, key: Option<&str>) -> String {
        let answer = self.call(key).await;
        link_in(&answer).unwrap_or_else(|| panic!("no link in {answer}\n{}", self.gateway.log.text()))
    }

    /// Has a user sign in, in a browser of its own.
    async fn sign_in(&self, key: Option<&str>) -> Page {
        let mut browser = Browser::default();
        let page = browser.open(&self.link(key).await).await;
        let fields: Vec<_> = key.map(|key| ("credential", key)).into_iter().collect();
        let sent = browser.submit(&page, &fields).await;
        browser.follow(sent).await
    }

    /// The tokens that the server was shown with calls, in order.
    fn shown(&self) -> Vec<String> {
        let calls = self.backend.received("tools/call");
        calls.iter().map(|call| call.header("authorization").unwrap_or_default().to_owned()).collect()
    }
}

async fn call(gateway: &Gateway, key: Option<&str>) -> String {
    let body = modern_request("1", "tools/call", r#""name":"t","arguments":{}"#, "");
    let own = modern_headers(&body);
    let shown = key.map(|key| format!("Bearer {key}"));
    let mut headers = JSON_HEADERS.to_vec();
    headers.extend(own.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    headers.extend(shown.iter().map(|shown| ("Authorization", shown.as_str())));
    let mut connection = Connection::open(gateway.mcp).await;
    connection.request("POST", "/mcp", &headers, body.as_bytes()).await;
    connection.response().await.text().await
}

/// The address that an error has a user open.
fn link_in(answer: &str) -> Option<String> {
    let elicitations = slicer::member_at(answer, &["error", "data", "elicitations"])?;
    let first = slicer::elements(elicitations)?.into_iter().next()?;
    slicer::plain_string(slicer::member(first, "url")?).map(str::to_owned)
}

#[tokio::test]
async fn user_of_this_machine_signs_in_by_a_link() {
    let setting = Setting::local().await;
    let link = setting.link(None).await;
    assert!(link.starts_with(&format!("http://{}/connect/", setting.gateway.mcp)), "{link}");
    let mut browser = Browser::default();
    let page = browser.open(&link).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.text.contains("notes") && page.text.contains(setting.authorization.url()), "{page:?}");
    assert!(setting.authorization.asked("/authorize").is_empty(), "nothing is begun by the link alone");
    let sent = browser.submit(&page, &[]).await;
    assert_eq!(sent.status, 303, "{sent:?}");
    let done = browser.follow(sent).await;
    assert!(done.status == 200 && done.text.contains("signed in to notes"), "{done:?}\n{}", setting.gateway.log.text());
    let answer = setting.call(None).await;
    assert!(answer.contains("\"result\""), "{answer}\n{}", setting.gateway.log.text());
    assert_eq!(setting.shown(), ["Bearer token-1"]);
}
