//! A server that requires its users to sign in, with its authorization server, behind a gateway.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Child;

use crate::authorization_server::AuthorizationServer;
use crate::browser::{Browser, Page};
use crate::harness::{Gateway, Log, TempFile, fanlight};
use crate::ports;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Protection, Reply, Transport};

/// The key of a client.
pub const ANN: &str = "fanlight_00000000000000000000000000000000000000000002okinW";
/// The key of another client.
pub const BOB: &str = "fanlight_1111111111111111111111111111111111111111111146EDT";

/// The file with the digests of both keys.
pub const KEYS: &str = "keys:\n  \
    - {name: ann, sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n  \
    - {name: bob, sha256: \"c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2\"}\n";

/// The lines of a configuration whose clients have keys.
pub const WITH_KEYS: &str = "auth: {keys: {file: keys.yaml}}\n";

/// A server that requires its users to sign in, its authorization server, and a gateway in front of
/// it.
pub struct SignInSetting {
    /// The gateway.
    pub gateway: Gateway,
    /// The server, called `notes`, with one tool `t`.
    pub backend: Backend,
    /// Its authorization server.
    pub authorization: Arc<AuthorizationServer>,
    /// The folder of the configuration.
    pub folder: TempFile,
}

impl SignInSetting {
    /// A setting with unauthenticated clients.
    pub async fn local() -> Self {
        Self::start("", r#"{"type":"user"}"#).await
    }

    /// A setting whose clients have keys.
    pub async fn with_keys() -> Self {
        Self::start(WITH_KEYS, r#"{"type":"user"}"#).await
    }

    /// A setting whose clients have keys and the rights that the policies in `p.cedar` give.
    pub async fn under(policies: &str) -> Self {
        let more = format!("{WITH_KEYS}policy: {{files: [p.cedar]}}\n");
        Self::start_with(&more, r#"{"type":"user"}"#, policies).await
    }

    /// A setting with more lines of configuration, and this `auth` of the server.
    pub async fn start(more: &str, auth: &str) -> Self {
        Self::start_with(more, auth, "").await
    }

    /// [`Self::start`] with these policies in `p.cedar`.
    pub async fn start_with(more: &str, auth: &str, policies: &str) -> Self {
        let authorization = Arc::new(AuthorizationServer::start().await);
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let valid = Arc::clone(&authorization);
        backend.protect(Protection::by_token(
            &backend.url(),
            authorization.url(),
            move |token| valid.is_valid(token),
        ));
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        fs::write(folder.path().join("p.cedar"), policies).unwrap();
        let entry = backend.entry_with("notes", &format!(r#""auth":{auth}"#));
        let (clients, operators) = (ports::free(), ports::free());
        let config = format!(
            "stateDir: state\nlisten: \"{clients}\"\nadmin: {{listen: \"{operators}\"}}\n{more}mcpServers: {{{entry}}}\n"
        );
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at_addresses_of(folder.path().join("fanlight.yaml")).await;
        Self {
            gateway,
            backend,
            authorization,
            folder,
        }
    }

    /// The file of the configuration.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("fanlight.yaml")
    }

    /// Kills the gateway and starts it again.
    pub async fn restart(&mut self) {
        self.gateway.kill().await;
        self.gateway = Gateway::start_at_addresses_of(self.config()).await;
    }

    /// Starts another gateway with the same configuration, at other addresses.
    pub async fn another(&self) -> Gateway {
        Gateway::start_at(self.config()).await
    }

    /// Starts `fanlight login` without a browser; also returns the address that it shows its user.
    pub async fn login(&self) -> (Child, String) {
        let mut command = fanlight();
        command
            .args(["login", "notes", "--no-browser", "--config"])
            .arg(self.config());
        let mut login = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Log::print("login", login.stderr.take().unwrap());
        let line = said.line_with("machine: ").await;
        let (_, address) = line.split_once("machine: ").unwrap();
        (login, address.trim().to_owned())
    }

    /// The answer to a call of the tool with this key.
    pub async fn call(&self, key: Option<&str>) -> String {
        call(&self.gateway, key).await
    }

    /// The answer to a request with this key.
    pub async fn ask(&self, method: &str, params: &str, key: Option<&str>) -> String {
        ask(&self.gateway, method, params, key).await
    }

    /// The link in the answer to a call.
    pub async fn link(&self, key: Option<&str>) -> String {
        let answer = self.call(key).await;
        let link = link_in(&answer);
        link.unwrap_or_else(|| panic!("no link in {answer}\n{}", self.gateway.log.text()))
    }

    /// The page behind a new link, before the user agrees.
    pub async fn page(&self, browser: &mut Browser, key: Option<&str>) -> Page {
        let page = browser.open(&self.link(key).await).await;
        assert_eq!(page.status, 200, "{page:?}\n{}", self.gateway.log.text());
        page
    }

    /// The page behind a new link of a client with this token, after its user has signed in at the
    /// identity provider.
    pub async fn identified(&self, browser: &mut Browser, token: &str) -> Page {
        let page = self.page(browser, Some(token)).await;
        let sent = browser.submit(&page, &[("action", "identify")]).await;
        assert_eq!(sent.status, 303, "{sent:?}\n{}", self.gateway.log.text());
        browser.follow(sent).await
    }

    /// Changes the configuration while the gateway runs.
    pub async fn reconfigure(&self, from: &str, to: &str) {
        let config = fs::read_to_string(self.config()).unwrap();
        assert!(config.contains(from), "{config}");
        fs::write(self.config(), config.replace(from, to)).unwrap();
        let (status, report) = self.gateway.reload().await;
        assert_eq!(status, 200, "{report}");
    }

    /// Agrees on the page of a new link; returns the answer that redirects to the authorization
    /// server.
    pub async fn agree(&self, browser: &mut Browser, key: Option<&str>) -> Page {
        let page = self.page(browser, key).await;
        let fields: Vec<_> = key.map(|key| ("credential", key)).into_iter().collect();
        browser.submit(&page, &fields).await
    }

    /// Signs a user in with a separate browser.
    pub async fn sign_in(&self, key: Option<&str>) {
        let mut browser = Browser::default();
        let sent = self.agree(&mut browser, key).await;
        let done = browser.follow(sent).await;
        let is_done = done.status == 200 && done.text.contains("signed in to notes");
        assert!(is_done, "{done:?}\n{}", self.gateway.log.text());
    }

    /// The credentials that came with calls to the server, in order.
    pub fn credentials(&self) -> Vec<String> {
        let calls = self.backend.received("tools/call");
        calls
            .iter()
            .map(|call| call.header("authorization").unwrap_or_default().to_owned())
            .collect()
    }

    /// The number of token requests with this kind of grant.
    pub fn asked_for_tokens(&self, grant: &str) -> usize {
        let asked = self.authorization.asked("/token");
        asked
            .iter()
            .filter(|asked| asked.parameter("grant_type") == Some(grant))
            .count()
    }
}

/// The answer of a gateway to a call of the tool with this key.
pub async fn call(gateway: &Gateway, key: Option<&str>) -> String {
    ask(gateway, "tools/call", r#""name":"t","arguments":{}"#, key).await
}

/// The answer of a gateway to a request with this key.
pub async fn ask(gateway: &Gateway, method: &str, params: &str, key: Option<&str>) -> String {
    let body = modern_request("1", method, params, "");
    let own = modern_headers(&body);
    let shown = key.map(|key| format!("Bearer {key}"));
    let mut headers = JSON_HEADERS.to_vec();
    headers.extend(
        own.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    headers.extend(shown.iter().map(|shown| ("Authorization", shown.as_str())));
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection.response().await.text().await
}

/// The address in an answer that a user has to open.
pub fn link_in(answer: &str) -> Option<String> {
    let begin = answer.find("/connect/")?;
    let begin = answer[..begin].rfind("http://")?;
    let link = answer[begin..]
        .split(|character: char| character == '"' || character.is_whitespace())
        .next()?;
    Some(link.to_owned())
}

/// Whether an answer is a result.
pub fn is_result(answer: &str) -> bool {
    answer.contains("\"result\"") && link_in(answer).is_none()
}
