//! Server definitions that an operator approves at one replica.

use std::fs;

use fanlight_testkit::harness::{Gateway, TempFile, fanlight};
use fanlight_testkit::slicer::member;

use crate::group::{admin, until};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::valkey::Valkey;

const SAFE: &str = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object"}}"#;
const CHANGED: &str =
    r#"{"name":"read","description":"Reads all.","inputSchema":{"type":"object"}}"#;

/// A replica's folder with its own lock file of pins.
struct Place(TempFile);

impl Place {
    fn new(config: &str) -> Self {
        let folder = TempFile::folder();
        fs::write(folder.path().join("fanlight.json"), config).unwrap();
        Self(folder)
    }

    fn lock(&self) -> std::path::PathBuf {
        self.0.path().join("fanlight.lock.json")
    }

    async fn gateway(&self) -> Gateway {
        let gateway = Gateway::start_at(self.0.path().join("fanlight.json")).await;
        gateway.log.line_with("joined the other replicas").await;
        gateway
    }
}

async fn shows_tool(gateway: &Gateway) -> bool {
    let listed = post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .text()
        .await;
    listed.contains(r#""name":"read""#)
}

#[tokio::test]
async fn definition_that_is_approved_at_one_replica_is_approved_at_all_for_the_same_file() {
    let (valkey, backend) = (
        Valkey::start().await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    backend.declares(r#"{"tools":{}}"#);
    let lists = |tool: &str| backend.on("tools/list", backend.list("tools", tool));
    lists(SAFE);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let config = format!(
        r#"{{"pins":{{"mode":"hold"}},"keys":["{}"],"replicas":{{"valkey":"{}"}},"mcpServers":{{{}}}}}"#,
        "1".repeat(64),
        valkey.url(),
        backend.entry("files")
    );
    let (one, other) = (Place::new(&config), Place::new(&config));
    let pin = fanlight()
        .arg("pin")
        .arg("--config")
        .arg(one.0.path().join("fanlight.json"))
        .output()
        .await
        .unwrap();
    assert!(
        pin.status.success(),
        "{}",
        String::from_utf8_lossy(&pin.stderr)
    );
    fs::copy(one.lock(), other.lock()).unwrap();
    lists(CHANGED);
    let (first, second) = tokio::join!(one.gateway(), other.gateway());
    assert!(
        !shows_tool(&first).await && !shows_tool(&second).await,
        "it is held"
    );
    let pins = admin(&first, "GET", "/api/pins").await.1;
    let id = pins
        .split(r#""id":""#)
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("an id")
        .to_owned();
    let before = fs::read_to_string(one.lock()).unwrap();
    assert_eq!(
        admin(&first, "POST", &format!("/api/pins/{id}/approve"))
            .await
            .0,
        200
    );
    for gateway in [&first, &second] {
        until("the tool", async || shows_tool(gateway).await).await;
    }
    assert_eq!(
        fs::read_to_string(one.lock()).unwrap(),
        before,
        "the file is left to whoever keeps it"
    );
    // The key lives as long as somebody reads it.
    let keys = valkey.ask("KEYS fanlight:{pins}:*").await;
    let key = keys
        .lines()
        .find(|line| line.starts_with("fanlight:"))
        .unwrap();
    valkey.ask(&format!("EXPIRE {key} 100")).await;
    let later = other.gateway().await;
    until("the tool", async || shows_tool(&later).await).await;
    let lives = valkey.ask(&format!("TTL {key}")).await;
    let lives = lives
        .lines()
        .find_map(|line| line.strip_prefix(':'))
        .unwrap();
    assert!(lives.parse::<u64>().unwrap() > 364 * 86_400, "{lives}");
    // An approval does not apply to another lock file.
    let third = Place::new(&config);
    fs::write(third.lock(), before.replacen('{', "{ ", 1)).unwrap();
    let elsewhere = third.gateway().await;
    assert!(!shows_tool(&elsewhere).await);
    assert_eq!(
        member(&admin(&elsewhere, "GET", "/api/pins").await.1, "pins.held"),
        Some("true")
    );
}
