//! Client keys: the file that contains them, while a gateway runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fanlight_testkit::slicer::{elements, member};

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    Connection, JSON_HEADERS, NEWEST_LEGACY, initialize, legacy_request, modern_headers,
    modern_request, post,
};
use crate::scripted::{Backend, Era, Transport};

/// A key, and its digest.
const CI: (&str, &str) = (
    "fanlight_00000000000000000000000000000000000000000002okinW",
    "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
);
const DEV: (&str, &str) = (
    "fanlight_1111111111111111111111111111111111111111111146EDT",
    "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
);

/// A gateway whose clients have keys, in a folder of its own.
struct Guarded {
    gateway: Gateway,
    folder: TempFile,
    backend: Backend,
}

impl Guarded {
    async fn start(keys: &str) -> Self {
        Self::start_with(keys, "").await
    }

    /// [`Self::start`] with more lines of configuration.
    async fn start_with(keys: &str, more: &str) -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), keys).unwrap();
        let config = format!(
            "auth: {{keys: {{file: keys.yaml}}}}\n{more}mcpServers: {{{}}}\n",
            backend.entry("only")
        );
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        Self {
            gateway,
            folder,
            backend,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("keys.yaml")
    }

    /// Replaces the file with keys in the way that editors do.
    fn write(&self, keys: &str) {
        fs::write(self.folder.path().join("new"), keys).unwrap();
        fs::rename(self.folder.path().join("new"), self.file()).unwrap();
    }

    /// The status of a request with this key.
    async fn status(&self, key: Option<&str>) -> u16 {
        status(&self.gateway, key).await
    }

    /// Waits until a request with this key has this status.
    async fn becomes(&self, key: &str, expected: u16) {
        within("a changed file with keys to take effect", async {
            while self.status(Some(key)).await != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

async fn status(gateway: &Gateway, key: Option<&str>) -> u16 {
    let body = modern_request("1", "tools/list", "", "");
    let mut headers = modern_headers(&body);
    headers.extend(key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))));
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    post(gateway.mcp, &headers, &body).await.status
}

fn entry((_, digest): (&str, &str), name: &str, more: &str) -> String {
    format!("- {{name: {name}, sha256: '{digest}'{more}}}\n")
}

#[tokio::test]
async fn changed_file_takes_effect_at_once() {
    let guarded = Guarded::start(&format!("keys:\n{}", entry(CI, "ci", ""))).await;
    assert_eq!(guarded.status(None).await, 401);
    assert_eq!(guarded.status(Some(CI.0)).await, 200);
    assert_eq!(guarded.status(Some(DEV.0)).await, 401);
    assert_eq!(guarded.status(Some("fanlight_x")).await, 401);
    assert_eq!(guarded.status(Some("other")).await, 401);
    guarded.write(&format!(
        "keys:\n{}{}",
        entry(CI, "ci", ""),
        entry(DEV, "dev", ", endpoints: [/mcp/other]")
    ));
    guarded.becomes(DEV.0, 403).await;
    guarded.write(&format!("keys:\n{}", entry(DEV, "dev", "")));
    guarded.becomes(CI.0, 401).await;
    assert_eq!(guarded.status(Some(DEV.0)).await, 200);
    guarded.write(&format!(
        "keys:\n{}",
        entry(DEV, "dev", ", expires: 2026-01-01")
    ));
    guarded.becomes(DEV.0, 401).await;
}

/// Runs `fanlight keys` with the configuration of `folder`; returns its exit status and output.
async fn keys(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = fanlight();
    command
        .arg("keys")
        .args(arguments)
        .arg("--config")
        .arg(folder.join("fanlight.yaml"))
        .stdin(Stdio::null());
    let output = within("the command", command.output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn made_key_works_at_once_until_it_is_revoked() {
    let guarded = Guarded::start("# Keys of the team.\nkeys: []\n").await;
    let folder = guarded.folder.path();
    fs::set_permissions(guarded.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let (code, key, shown) = keys(
        folder,
        &["new", "ci", "--groups", "agents,ops", "--expires", "90d"],
    )
    .await;
    assert!(
        code == 0 && shown.contains("- name: \"ci\"") && !shown.contains(key.trim()),
        "{shown}"
    );
    let key = key.trim_end();
    assert!(key.starts_with("fanlight_") && key.len() == 58, "{key}");
    guarded.becomes(key, 200).await;
    let written = fs::read_to_string(guarded.file()).unwrap();
    assert!(
        written.starts_with("# Keys of the team.\n") && !written.contains(key),
        "{written}"
    );
    assert_eq!(
        fs::metadata(guarded.file()).unwrap().permissions().mode() & 0o777,
        0o640,
        "as it was"
    );

    let second = keys(folder, &["new", "ci", "--endpoints", "/mcp"]).await.1;
    guarded.becomes(second.trim_end(), 200).await;
    let (_, listed, _) = keys(folder, &["list"]).await;
    assert!(
        listed.contains("agents ops") && listed.contains("never") && !listed.contains("fanlight_"),
        "{listed}"
    );
    let (_, listed, _) = keys(folder, &["list", "--json"]).await;
    let first_digest = member(elements(&listed).unwrap()[0], "sha256")
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let (code, told, _) = keys(folder, &["revoke", "ci", "--sha256", &first_digest[..10]]).await;
    assert!(code == 0 && told.contains("1 key of ci revoked"), "{told}");
    guarded.becomes(key, 401).await;
    assert_eq!(
        guarded.status(Some(second.trim_end())).await,
        200,
        "the key that has replaced it"
    );
    assert_eq!(keys(folder, &["revoke", "ci"]).await.0, 0);
    guarded.becomes(second.trim_end(), 401).await;
    let (code, _, why) = keys(folder, &["revoke", "ci"]).await;
    assert!(
        code == 1 && why.contains("has no key with this name"),
        "{why}"
    );
    assert_eq!(
        fs::read_to_string(guarded.file()).unwrap(),
        "# Keys of the team.\nkeys: []\n"
    );
}

#[tokio::test]
async fn first_request_with_a_new_key_is_served() {
    // Changes that only the file watcher sees would take effect after the test.
    let guarded = Guarded::start_with("keys: []\n", "x-limits: configSettle=1h\n").await;
    for name in ["ci", "dev"] {
        let key = keys(guarded.folder.path(), &["new", name]).await.1;
        assert_eq!(guarded.status(Some(key.trim_end())).await, 200, "{name}");
    }
    assert_eq!(guarded.status(Some(DEV.0)).await, 401);
    guarded.write("keys: {");
    assert_eq!(guarded.status(Some(DEV.0)).await, 401);
    guarded
        .gateway
        .log
        .line_with("configuration not reloaded")
        .await;
}

#[tokio::test]
async fn first_key_makes_the_file() {
    let folder = TempFile::folder();
    fs::write(
        folder.path().join("fanlight.yaml"),
        "auth: {keys: {file: keys.yaml}}\nmcpServers: {a: {url: 'http://h/'}}\n",
    )
    .unwrap();
    let validate = async || {
        let mut command = fanlight();
        let output = command
            .arg("validate")
            .arg("--config")
            .arg(folder.path().join("fanlight.yaml"))
            .output()
            .await
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, why) = validate().await;
    assert!(
        code == Some(2) && why.contains("`fanlight keys new NAME` makes a key"),
        "{why}"
    );
    assert_eq!(keys(folder.path(), &["list"]).await.0, 2);
    assert_eq!(
        keys(
            folder.path(),
            &[
                "new",
                "ci",
                "--scopes",
                "mcp:read",
                "--expires",
                "2099-01-01"
            ]
        )
        .await
        .0,
        0
    );
    let file = folder.path().join("keys.yaml");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(validate().await.0, Some(0));
    let before = fs::read_to_string(&file).unwrap();
    for (arguments, message) in [
        (&["new", "a b"][..], "cannot be the name of a key"),
        (&["new", "ci", "--scopes", "a b"], "is not a scope"),
        (
            &["new", "ci", "--endpoints", "mcp"],
            "is not the path of an endpoint",
        ),
        (
            &["new", "ci", "--expires", "tomorrow"],
            "is not a time at which a key can expire",
        ),
        (
            &["new", "ci", "--expires", "2001-01-01"],
            "would have expired already",
        ),
        (&["revoke", "nobody"], "has no key with this name"),
    ] {
        let (code, out, why) = keys(folder.path(), arguments).await;
        assert!(
            code != 0 && out.is_empty() && why.contains(message),
            "{arguments:?}: {why}"
        );
    }
    let (code, key, entry) = keys(folder.path(), &["new", "other", "--print"]).await;
    assert!(
        code == 0
            && key.starts_with("fanlight_")
            && entry.starts_with("keys:\n  - name: \"other\""),
        "{entry}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[tokio::test]
async fn file_that_others_can_write_is_warned_of() {
    let guarded = Guarded::start(&format!("keys:\n{}", entry(CI, "ci", ""))).await;
    fs::set_permissions(guarded.file(), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(guarded.gateway.reload().await.0, 200);
    guarded
        .gateway
        .log
        .line_with("other users of this machine can add keys")
        .await;
}

#[tokio::test]
async fn unusable_file_changes_nothing_and_is_explained() {
    let guarded = Guarded::start(&format!("keys:\n{}", entry(CI, "ci", ""))).await;
    for (keys, message) in [
        (
            "keys:\n- name: dev\n  sha256: fanlight_secret\n",
            "this is not a SHA-256 digest",
        ),
        ("keys: {", "malformed YAML"),
        ("keys:\n- {name: dev}\n", "`sha256` is missing"),
    ] {
        guarded.write(keys);
        let (status, report) = guarded.gateway.reload().await;
        assert!(
            status == 422 && report.contains(message) && !report.contains("fanlight_secret"),
            "{report}"
        );
        assert_eq!(guarded.status(Some(CI.0)).await, 200, "{keys}");
    }
    fs::remove_file(guarded.file()).unwrap();
    let (status, report) = guarded.gateway.reload().await;
    assert!(
        status == 422 && report.contains("there is no such file with keys"),
        "{report}"
    );
    assert_eq!(
        (guarded.status(Some(CI.0)).await, guarded.status(None).await),
        (200, 401)
    );
    guarded
        .gateway
        .log
        .line_with("configuration not reloaded")
        .await;
}

#[tokio::test]
async fn authentication_can_begin_and_end_while_clients_are_served() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let folder = TempFile::folder();
    let path = folder.path().join("fanlight.yaml");
    let config = |auth: &str| {
        fs::write(
            &path,
            format!("{auth}mcpServers: {{{}}}\n", backend.entry("only")),
        )
        .unwrap();
    };
    fs::write(
        folder.path().join("keys.yaml"),
        format!("keys:\n{}", entry(CI, "ci", "")),
    )
    .unwrap();
    config("");
    let gateway = Gateway::start_at(path.clone()).await;
    assert_eq!(status(&gateway, None).await, 200);
    config("auth: {keys: {file: keys.yaml}}\n");
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(
        (
            status(&gateway, None).await,
            status(&gateway, Some(CI.0)).await
        ),
        (401, 200)
    );
    config("auth: none\n");
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(
        (
            status(&gateway, None).await,
            status(&gateway, Some("anything")).await
        ),
        (200, 200)
    );
}

#[tokio::test]
async fn check_shows_authentication_and_likely_mistakes() {
    let (legacy, modern) = (
        Backend::start(Era::Legacy, Transport::Stdio).await,
        Backend::start(Era::Modern, Transport::Stdio).await,
    );
    let folder = TempFile::folder();
    let keys = [
        entry(CI, "ci", ", expires: 2020-01-01, endpoints: [/nowhere]"),
        entry(DEV, "dev", ""),
    ];
    fs::write(
        folder.path().join("keys.yaml"),
        format!("keys:\n{}", keys.concat()),
    )
    .unwrap();
    let check = async |auth: &str| {
        let entries = [
            legacy.entry_with("old", r#""session":"shared""#),
            modern.entry("new"),
        ]
        .join(",");
        fs::write(
            folder.path().join("fanlight.yaml"),
            format!("{auth}\nmcpServers: {{{entries}}}\n"),
        )
        .unwrap();
        let mut command = fanlight();
        command
            .arg("check")
            .arg("--config")
            .arg(folder.path().join("fanlight.yaml"))
            .stdin(Stdio::null());
        let output = within("the command", command.output()).await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = "auth:\n  keys: {file: keys.yaml}\n  oauth: [{issuer: 'https://id.example.com'}]\n  \
               proxy: {header: X-Forwarded-User, from: [0.0.0.0/0]}\n  socket: true";
    let shown = check(all).await;
    let lines = [
        "keys.yaml: 2 keys of 2 names",
        "with an access token of https://id.example.com",
        "the header x-forwarded-user on connections from 0.0.0.0/0",
        "of a Unix socket",
        "/.well-known/oauth-protected-resource/mcp",
    ];
    let places: Vec<_> = lines
        .iter()
        .map(|line| {
            shown
                .find(line)
                .unwrap_or_else(|| panic!("{line}: {shown}"))
        })
        .collect();
    assert!(places.is_sorted(), "{shown}");
    for warning in [
        "warning: all clients share one session with \"old\"",
        "new: each principal has a process of its own, besides one for lists",
        "warning: the key of ci expired at 2020-01-01T00:00:00Z",
        "warning: the key of ci is for the endpoint /nowhere, which does not exist",
        "warning: `auth.proxy.from` has 0.0.0.0/0",
        "warning: `auth.oauth` needs an https URL in `publicUrl`",
    ] {
        assert!(shown.contains(warning), "{warning}: {shown}");
    }
    assert!(
        check("auth: none")
            .await
            .contains("no authentication (`auth: none`)")
    );
    let shown = check("").await;
    assert!(
        shown.contains("no authentication: anyone") && !shown.contains("warning"),
        "{shown}"
    );
}

/// The status of a request with these headers from this local address.
async fn status_from(gateway: &Gateway, address: &str, more: &[(&str, &str)]) -> u16 {
    let body = modern_request("1", "tools/list", "", "");
    let headers = modern_headers(&body);
    let mut all: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    all.extend(JSON_HEADERS);
    all.extend(more);
    let mut connection = Connection::open_from(address.parse().unwrap(), gateway.mcp).await;
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await.status
}

#[tokio::test]
async fn header_of_a_proxy_counts_on_its_own_connections_alone() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let config = format!(
        "auth: {{proxy: {{header: X-Forwarded-User, from: [127.0.0.2]}}}}\nmcpServers: {{{}}}\n",
        backend.entry("only")
    );
    let gateway = Gateway::start(&config).await;
    let (proxy, other) = ("127.0.0.2", "127.0.0.3");
    assert_eq!(
        status_from(&gateway, proxy, &[("X-Forwarded-User", "ann")]).await,
        200
    );
    assert_eq!(
        status_from(&gateway, proxy, &[("x-forwarded-user", "J\u{fc}rgen")]).await,
        200
    );
    let claims = [
        ("X-Forwarded-User", "ann"),
        ("X-Forwarded-For", "127.0.0.2"),
        ("Forwarded", "for=127.0.0.2"),
    ];
    for (address, headers) in [
        (other, &claims[..]),
        (proxy, &[]),
        (proxy, &[("X_Forwarded_User", "root")]),
        (proxy, &[("X-Forwarded-User", "")]),
        (proxy, &[("X-Forwarded-User ", "root")]),
    ] {
        assert!(
            matches!(status_from(&gateway, address, headers).await, 400 | 401),
            "{address} {headers:?}"
        );
    }
    for twice in [["root", "ann"], ["ann", "ann"]] {
        let headers = twice.map(|name| ("X-Forwarded-User", name));
        assert_eq!(
            status_from(&gateway, proxy, &headers).await,
            400,
            "{twice:?}"
        );
    }
}

#[tokio::test]
async fn revoked_key_ends_streams_and_sessions() {
    let guarded = Guarded::start(&format!(
        "keys:\n{}{}",
        entry(CI, "ci", ""),
        entry(DEV, "dev", "")
    ))
    .await;
    let bearer = |key: &str| format!("Bearer {key}");
    let listen = modern_request(
        "1",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let (ci, dev) = (bearer(CI.0), bearer(DEV.0));
    let open = async |authorization: &str| {
        let headers = modern_headers(&listen);
        let mut all: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        all.push(("Authorization", authorization));
        let mut stream = post(guarded.gateway.mcp, &all, &listen).await;
        assert!(
            stream
                .event()
                .await
                .unwrap()
                .unwrap()
                .contains("acknowledged")
        );
        stream
    };
    let (mut of_ci, mut of_dev) = (open(&ci).await, open(&dev).await);
    let opened = post(
        guarded.gateway.mcp,
        &[("Authorization", &ci)],
        &initialize(NEWEST_LEGACY, "{}"),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    opened.finish().await;
    let ping = async |authorization: &str| {
        let headers = [
            ("Authorization", authorization),
            ("Mcp-Session-Id", &session),
            ("MCP-Protocol-Version", NEWEST_LEGACY),
        ];
        post(
            guarded.gateway.mcp,
            &headers,
            &legacy_request("1", "ping", ""),
        )
        .await
        .status
    };
    assert_eq!((ping(&ci).await, ping(&dev).await), (200, 404));
    guarded.write(&format!("keys:\n{}", entry(DEV, "dev", "")));
    // The stream ends, with or without an error.
    within("the stream of the revoked key to end", async {
        while let Ok(Some(_)) = of_ci.event().await {}
    })
    .await;
    assert_eq!((ping(&ci).await, ping(&dev).await), (401, 404));
    // The stream of the other key stays open.
    guarded.backend.offers_tools(&["t", "new"]);
    let ended = tokio::time::timeout(Duration::from_millis(200), of_dev.event()).await;
    assert!(ended.is_err(), "{ended:?}");
}
