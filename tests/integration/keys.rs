//! Keys of clients: the file that has them, while a gateway runs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{modern_headers, modern_request, post};
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
    _backend: Backend,
}

impl Guarded {
    async fn start(keys: &str) -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), keys).unwrap();
        let config = format!("auth: {{keys: {{file: keys.yaml}}}}\nmcpServers: {{{}}}\n", backend.entry("only"));
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        Self { gateway, folder, _backend: backend }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("keys.yaml")
    }

    /// Replaces the file with keys, as editors do.
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
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
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
    guarded.write(&format!("keys:\n{}{}", entry(CI, "ci", ""), entry(DEV, "dev", ", endpoints: [/mcp/other]")));
    guarded.becomes(DEV.0, 403).await;
    guarded.write(&format!("keys:\n{}", entry(DEV, "dev", "")));
    guarded.becomes(CI.0, 401).await;
    assert_eq!(guarded.status(Some(DEV.0)).await, 200);
    guarded.write(&format!("keys:\n{}", entry(DEV, "dev", ", expires: 2026-01-01")));
    guarded.becomes(DEV.0, 401).await;
}

#[tokio::test]
async fn unusable_file_changes_nothing_and_is_explained() {
    let guarded = Guarded::start(&format!("keys:\n{}", entry(CI, "ci", ""))).await;
    for (keys, message) in [
        ("keys:\n- name: dev\n  sha256: fanlight_secret\n", "this is not a SHA-256 digest"),
        ("keys: {", "malformed YAML"),
        ("keys:\n- {name: dev}\n", "`sha256` is missing"),
    ] {
        guarded.write(keys);
        let (status, report) = guarded.gateway.reload().await;
        assert!(status == 422 && report.contains(message) && !report.contains("fanlight_secret"), "{report}");
        assert_eq!(guarded.status(Some(CI.0)).await, 200, "{keys}");
    }
    fs::remove_file(guarded.file()).unwrap();
    let (status, report) = guarded.gateway.reload().await;
    assert!(status == 422 && report.contains("there is no such file with keys"), "{report}");
    assert_eq!((guarded.status(Some(CI.0)).await, guarded.status(None).await), (200, 401));
    guarded.gateway.log.line_with("configuration not reloaded").await;
}

#[tokio::test]
async fn authentication_can_begin_and_end_while_clients_are_served() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let folder = TempFile::folder();
    let path = folder.path().join("fanlight.yaml");
    let config = |auth: &str| fs::write(&path, format!("{auth}mcpServers: {{{}}}\n", backend.entry("only"))).unwrap();
    fs::write(folder.path().join("keys.yaml"), format!("keys:\n{}", entry(CI, "ci", ""))).unwrap();
    config("");
    let gateway = Gateway::start_at(path.clone()).await;
    assert_eq!(status(&gateway, None).await, 200);
    config("auth: {keys: {file: keys.yaml}}\n");
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!((status(&gateway, None).await, status(&gateway, Some(CI.0)).await), (401, 200));
    config("auth: none\n");
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!((status(&gateway, None).await, status(&gateway, Some("anything")).await), (200, 200));
}
