//! Servers that the command line names by URL and that require a sign-in, through the real binary.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::sync::Arc;

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::browser::Browser;
use fanlight_testkit::scripted::{Protection, REFUSED, Verdict};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{TempFile, fanlight, signal_and_wait, within};
use crate::scripted::{Backend, Era, Gate, Reply, Transport};

/// A server, its authorization server, and a user with a browser.
struct Setting {
    backend: Backend,
    authorization: Arc<AuthorizationServer>,
    home: TempFile,
}

impl Setting {
    async fn start() -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let authorization = Arc::new(AuthorizationServer::start().await);
        let setting = Self {
            backend,
            authorization,
            home: TempFile::folder(),
        };
        setting.rely_on(&setting.authorization);
        setting
    }

    /// Makes the server accept only this authorization server's tokens.
    fn rely_on(&self, authorization: &Arc<AuthorizationServer>) {
        let valid = Arc::clone(authorization);
        let taken = Protection::by_token(&self.backend.url(), authorization.url(), move |token| {
            valid.is_valid(token)
        });
        self.backend.protect(taken);
    }

    /// A command of the user, whose browser notes the URL to open.
    fn command(&self, arguments: &[&str]) -> Command {
        let browser = self.home.path().join("browser");
        let opened = self.opened();
        fs::write(
            &browser,
            format!(
                "#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}\n",
                opened.display()
            ),
        )
        .unwrap();
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = fanlight();
        command
            .args(arguments)
            .env("BROWSER", browser)
            .env("XDG_STATE_HOME", self.home.path().join("state"));
        command
            .current_dir(self.home.path())
            .env_remove("FANLIGHT_TOKEN");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn opened(&self) -> std::path::PathBuf {
        self.home.path().join("opened")
    }

    /// The outcome of a command without a sign-in.
    async fn run(&self, arguments: &[&str]) -> Output {
        let output = within("the command", self.command(arguments).output())
            .await
            .unwrap();
        assert!(
            !self.opened().exists(),
            "{arguments:?} has opened a browser: {}",
            shown(&output)
        );
        output
    }

    /// The outcome of a command whose user signs in. `bring` may change the URL that the browser is
    /// redirected to.
    async fn run_signing_in(&self, arguments: &[&str], bring: impl Fn(String) -> String) -> Output {
        let (command, mut errors) = self.signing_in(arguments, bring).await;
        let mut said = Vec::new();
        let (output, read) = tokio::join!(
            within("the command", command.wait_with_output()),
            errors.read_to_end(&mut said)
        );
        read.unwrap();
        Output {
            stderr: said,
            ..output.unwrap()
        }
    }

    /// A command whose user has signed in, and the rest of its standard error. Without a terminal,
    /// only `login` opens a browser.
    async fn signing_in(
        &self,
        arguments: &[&str],
        bring: impl Fn(String) -> String,
    ) -> (Child, Box<dyn AsyncRead + Unpin>) {
        let is_opened = arguments[0] == "login";
        let more: &[&str] = if is_opened { &[] } else { &["--no-browser"] };
        let mut command = self.command(&[arguments, more].concat()).spawn().unwrap();
        let mut errors = BufReader::new(command.stderr.take().unwrap());
        let mut said = String::new();
        let announced = if is_opened {
            "opening in a browser: "
        } else {
            "in a browser on this machine: "
        };
        let url = within("the address", async {
            loop {
                let from = said.len();
                assert_ne!(errors.read_line(&mut said).await.unwrap(), 0, "{said}");
                if let Some((_, url)) = said[from..].split_once(announced) {
                    return url.trim().to_owned();
                }
            }
        })
        .await;
        if is_opened {
            within("the browser", async {
                while !self.opened().exists() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            assert_eq!(fs::read_to_string(self.opened()).unwrap().trim(), url);
            fs::remove_file(self.opened()).unwrap();
        }
        let mut browser = Browser::default();
        let back = browser.open(&url).await.location();
        assert_eq!(browser.open(&bring(back)).await.status, 200);
        (
            command,
            Box::new(Cursor::new(said.into_bytes()).chain(errors)),
        )
    }

    async fn call(&self) -> Output {
        self.run(&["call", "t", "--url", &self.backend.url()]).await
    }

    /// Calls the tool and signs in.
    async fn call_signing_in(&self) -> Output {
        self.run_signing_in(&["call", "t", "--url", &self.backend.url()], |back| back)
            .await
    }

    /// The credentials of the calls.
    fn calls(&self) -> Vec<String> {
        let calls = self.backend.received("tools/call");
        calls
            .iter()
            .map(|call| call.header("authorization").unwrap_or_default().to_owned())
            .collect()
    }
}

fn shown(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn has_succeeded(output: &Output) {
    assert!(output.status.success(), "{}", shown(output));
}

#[tokio::test]
async fn call_of_a_server_by_its_url_signs_in_once() {
    let setting = Setting::start().await;
    let output = setting.call_signing_in().await;
    has_succeeded(&output);
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)));
    assert_eq!(
        result["content"],
        json!([]),
        "standard output is the result alone"
    );
    let [asked] = &setting.authorization.asked("/authorize")[..] else {
        panic!("asked once")
    };
    assert_eq!(asked.parameter("code_challenge_method"), Some("S256"));
    assert_eq!(
        asked.parameter("resource"),
        Some(setting.backend.url().as_str())
    );
    assert!(
        asked
            .parameter("redirect_uri")
            .unwrap()
            .starts_with("http://127.0.0.1:"),
        "{asked:?}"
    );
    // Another process needs no browser, and renews the expired token.
    has_succeeded(&setting.call().await);
    setting.authorization.revoke_all();
    has_succeeded(&setting.call().await);
    assert_eq!(
        setting.calls(),
        ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
    );
    has_succeeded(
        &setting
            .run(&["list", "tools", "--url", &setting.backend.url()])
            .await,
    );
    assert!(!shown(&output).contains("token-1"), "{}", shown(&output));
}

#[tokio::test]
async fn connections_at_urls_are_shown_and_ended() {
    let setting = Setting::start().await;
    let url = setting.backend.url();
    let output = setting.run(&["logout", &url]).await;
    assert!(
        !output.status.success() && shown(&output).contains("not signed in at"),
        "{}",
        shown(&output)
    );
    let output = setting.run_signing_in(&["login", &url], |back| back).await;
    assert!(
        output.status.success() && shown(&output).contains("signed in to"),
        "{}",
        shown(&output)
    );
    let output = setting.run(&["connections", "--json"]).await;
    has_succeeded(&output);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&all[0]["server"], &all[0]["issuer"]),
        (&json!(url), &json!(setting.authorization.url())),
        "{all}"
    );
    has_succeeded(&setting.call().await);
    // A configuration in the folder has its own grants, apart from these.
    let config =
        format!("stateDir: own\nmcpServers: {{notes: {{url: \"{url}\", auth: {{type: user}}}}}}\n");
    fs::write(setting.home.path().join("fanlight.yaml"), config).unwrap();
    let output = setting
        .run(&["connections", "--config", "fanlight.yaml"])
        .await;
    assert!(
        shown(&output).contains("notes") && shown(&output).contains(&url),
        "{}",
        shown(&output)
    );
    has_succeeded(&setting.run(&["logout", &url]).await);
    assert_eq!(setting.authorization.asked("/revoke").len(), 2);
    assert!(!setting.run(&["logout", &url]).await.status.success());
    has_succeeded(&setting.call_signing_in().await);
}

#[tokio::test]
async fn refused_sign_in_ends_the_call() {
    let setting = Setting::start().await;
    let refuse = |back: String| {
        back.replace(
            "code=",
            "error=access_denied&error_description=not+today&x=",
        )
    };
    let output = setting
        .run_signing_in(&["call", "t", "--url", &setting.backend.url()], refuse)
        .await;
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(
        shown(&output).contains("refuses the sign-in: access_denied (not today)"),
        "{}",
        shown(&output)
    );
    assert!(setting.calls().is_empty());
    assert!(setting.authorization.asked("/token").is_empty());
}

#[tokio::test]
async fn server_that_moves_to_another_issuer_has_its_user_sign_in_there() {
    let setting = Setting::start().await;
    has_succeeded(&setting.call_signing_in().await);
    let other = Arc::new(AuthorizationServer::start().await);
    other.grants_with(json!({"access_token": "elsewhere"}));
    setting.rely_on(&other);
    let output = setting.call_signing_in().await;
    has_succeeded(&output);
    let said = shown(&output);
    assert!(
        said.contains("another authorization server than before") && said.contains(other.url()),
        "{said}"
    );
    assert_eq!(setting.calls(), ["Bearer token-1", "Bearer elsewhere"]);
    // One authorization server's credentials are not sent to the other.
    let asked = other.asked("/token");
    assert!(
        asked
            .iter()
            .all(|asked| !asked.body.contains("refresh-1") && !asked.body.contains("token-1")),
        "{asked:?}"
    );
    has_succeeded(&setting.call().await);
}

#[tokio::test]
async fn server_that_refuses_the_token_of_the_sign_in_is_asked_no_more() {
    let setting = Setting::start().await;
    let issuer = setting.authorization.url();
    setting
        .backend
        .protect(Protection::by_token(&setting.backend.url(), issuer, |_| {
            false
        }));
    let output = setting.call_signing_in().await;
    assert!(!output.status.success(), "{}", shown(&output));
    assert!(
        shown(&output).contains("does not accept the token of your sign-in"),
        "{}",
        shown(&output)
    );
    assert_eq!(setting.authorization.asked("/authorize").len(), 1);
}

#[tokio::test]
async fn command_without_a_terminal_shows_sign_in_requirements_at_once() {
    let setting = Setting::start().await;
    let url = setting.backend.url();
    for command in [
        ["call", "t", "--url", &url],
        ["list", "tools", "--url", &url],
    ] {
        let output = setting.run(&command).await;
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let said = shown(&output);
        assert!(
            said.contains(setting.authorization.url())
                && said.contains("`fanlight login` with its URL"),
            "{said}"
        );
        assert!(said.contains("FANLIGHT_TOKEN"), "{said}");
    }
    assert!(setting.authorization.asked("/authorize").is_empty());
    assert!(
        !setting.home.path().join("state").exists(),
        "nothing is kept"
    );
}

#[tokio::test]
async fn interrupt_ends_a_call_also_after_its_user_has_signed_in() {
    let setting = Setting::start().await;
    let gate = Gate::new();
    setting.backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let arguments = ["call", "t", "--url", &setting.backend.url()];
    let (mut command, _errors) = setting.signing_in(&arguments, |back| back).await;
    gate.reached(1).await;
    let status = signal_and_wait(&mut command, rustix::process::Signal::INT).await;
    assert_eq!(status.code(), Some(130), "{status}");
    // The grant is stored.
    gate.open();
    has_succeeded(&setting.call().await);
}

/// By redirects, a server could collect the tokens of another server's users, or have its own sent
/// in the clear.
#[tokio::test]
async fn redirects_are_told_and_not_followed() {
    let (setting, other) = (
        Setting::start().await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    let elsewhere = other.url();
    setting.backend.protect(Protection {
        resource: None,
        challenge: String::new(),
        accepts: Arc::new(move |_| Verdict::Refused(307, vec![("location", elsewhere.clone())])),
    });
    for command in ["call", "list"] {
        let arguments = [
            command,
            if command == "call" { "t" } else { "tools" },
            "--url",
            &setting.backend.url(),
        ];
        let mut command = setting.command(&arguments);
        let output = within(
            "the command",
            command.env("FANLIGHT_TOKEN", "mine").output(),
        )
        .await
        .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let said = shown(&output);
        assert!(
            said.contains(&format!("redirects to {}", other.url())) && !said.contains("mine"),
            "{said}"
        );
    }
    for method in ["server/discover", "initialize", "tools/list", "tools/call"] {
        assert!(other.received(method).is_empty(), "{method}");
    }
}

#[tokio::test]
async fn key_in_the_environment_is_shown_and_nobody_signs_in() {
    let setting = Setting::start().await;
    let arguments = ["call", "t", "--url", &setting.backend.url()];
    let output = within(
        "call",
        setting
            .command(&arguments)
            .env("FANLIGHT_TOKEN", "mine")
            .output(),
    )
    .await
    .unwrap();
    assert!(
        !output.status.success() && shown(&output).contains("in FANLIGHT_TOKEN"),
        "{}",
        shown(&output)
    );
    assert!(setting.authorization.paths().is_empty() && !setting.opened().exists());
}

#[tokio::test]
async fn check_of_a_url_shows_sign_in_requirements_and_uses_the_grant() {
    let setting = Setting::start().await;
    let url = setting.backend.url();
    // There is no terminal, so nobody can sign in.
    let output = setting.run(&["check", &url]).await;
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(setting.authorization.url())
            && said.contains("`fanlight login` with its URL"),
        "{said}"
    );
    let output = setting.run(&["check", &url, "--json"]).await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["isGood"], &found["signIn"]["registration"]),
        (&json!(false), &json!("dynamic")),
        "{found}"
    );
    assert!(
        !setting.home.path().join("state").exists(),
        "nothing is kept for a question"
    );
    setting
        .authorization
        .describe(json!({"registration_endpoint": null}));
    let output = setting.run(&["check", &url]).await;
    assert!(
        shown(&output).contains("register a client there"),
        "{}",
        shown(&output)
    );
    setting.authorization.describe(json!({}));
    // The JSON names the address only if a sign-in is needed.
    let output = setting
        .run_signing_in(&["check", &url, "--json"], |back| back)
        .await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.get("signIn"), None, "{found}");
    let output = setting.run(&["check", &url, "--json"]).await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.get("signIn"), None, "{found}");
    assert!(
        found["eras"]
            .as_array()
            .unwrap()
            .iter()
            .any(|era| era["isServed"] == true),
        "{found}"
    );
    assert!(!shown(&output).contains("token-1"), "{}", shown(&output));
    // A server that requires no credentials gets none.
    let open = Backend::start(Era::Modern, Transport::Http).await;
    setting.run(&["check", &open.url()]).await;
    assert!(
        open.received("tools/list")
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );
    assert!(open.received(REFUSED).is_empty());
}
