//! The record of who called what, through the real binary.

use std::fs;
use std::path::Path;

use fanlight_tests::slicer::{member, plain_string};
use futures_util::future::join_all;

use crate::clients::Client;
use crate::harness::{Gateway, TempFile, fanlight};
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport};

/// The key of Ann, who belongs to `dev`.
const KEYS: &str = "keys:\n  \
    - {name: ann, groups: [dev], sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n";
const ANN: &str = fanlight_testkit::signing_in::ANN;

/// A gateway whose record is in a folder of its own.
struct Scene {
    backend: Backend,
    gateway: Gateway,
    folder: TempFile,
}

impl Scene {
    /// With these members of `audit`, and more of the configuration.
    async fn start(audit: &str, more: &str) -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["look", "break", "fail"]);
        backend.on("tools/call", Reply::result(Era::Modern.complete(r#""content":[]"#)));
        let failed = Era::Modern.complete(r#""content":[],"isError":true"#);
        backend.on_target("tools/call", "break", Reply::result(failed));
        backend.on_target("tools/call", "fail", Reply::error(r#"{"code":-32000,"message":"no"}"#));
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        let config = format!(
            r#"{{"stateDir":"state","audit":{{{audit}}},"auth":{{"keys":{{"file":"keys.yaml"}}}}{more},"mcpServers":{{{}}}}}"#,
            backend.entry("files")
        );
        fs::write(folder.path().join("fanlight.json"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
        Self { backend, gateway, folder }
    }

    async fn call(&self, key: &str, params: &str) -> String {
        let body = modern_request("1", "tools/call", params, "");
        let bearer = format!("Bearer {key}");
        let headers = modern_headers(&body);
        let own = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).chain([("Authorization", bearer.as_str())]).collect();
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection.request("POST", "/mcp", &headers, body.as_bytes()).await;
        connection.response().await.messages().await.1
    }

    /// What a command about the record prints.
    async fn audit(&self, args: &[&str]) -> (bool, String) {
        audit(self.folder.path(), args).await
    }
}

async fn audit(folder: &Path, args: &[&str]) -> (bool, String) {
    let config = folder.join("fanlight.json");
    let output = fanlight().arg("audit").args(args).arg("--config").arg(config).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn call(tool: &str) -> String {
    format!(r#""name":"{tool}","arguments":{{"path":"/data","apiKey":"sesame-1"}}"#)
}

#[tokio::test]
async fn who_called_what_is_known_by_default() {
    let scene = Scene::start("", "").await;
    for tool in ["look", "break", "fail", "unknown"] {
        scene.call(ANN, &call(tool)).await;
    }
    scene.call("fanlight_wrong", &call("look")).await;
    scene.gateway.terminate().await;
    let (is_ok, lines) = audit(scene.folder.path(), &["query", "--json", "--action", "tools/call"]).await;
    assert!(is_ok, "{lines}");
    let lines: Vec<_> = lines.lines().collect();
    let outcomes: Vec<_> = lines.iter().map(|line| plain_string(member(line, "outcome").unwrap()).unwrap()).collect();
    assert_eq!(outcomes, ["ok", "error", "tool_error", "ok"]);
    let look = lines[3];
    for (name, expected) in [
        ("principal", "key#ann"),
        ("who", "ann"),
        ("authentication", "key"),
        ("era", "modern"),
        ("endpoint", "/mcp"),
        ("server", "files"),
        ("item", "look"),
        ("decision", "allow"),
    ] {
        assert_eq!(member(look, name).and_then(plain_string), Some(expected), "{name}: {look}");
    }
    assert!(member(look, "durationUs").is_some() && member(look, "responseBytes").is_some(), "{look}");
    assert_eq!(member(lines[1], "code"), Some("-32000"));
    let (_, denied) = audit(scene.folder.path(), &["query", "--outcome", "refused"]).await;
    assert!(denied.contains("authentication"), "{denied}");
    // Nothing of the arguments, and no key.
    let files = scene.folder.path().join("state/audit");
    let text = fs::read_to_string(files.join("audit.jsonl")).unwrap();
    assert!(!text.contains("sesame") && !text.contains("/data") && !text.contains(ANN), "{text}");
    let (is_ok, verified) = audit(scene.folder.path(), &["verify"]).await;
    assert!(is_ok && verified.contains("are as they were written"), "{verified}");
    let (_, used) = audit(scene.folder.path(), &["usage", "--tool", "files/*"]).await;
    let row = used.lines().find(|line| line.contains("files/break")).unwrap();
    assert!(row.contains("key#ann") && row.split_whitespace().nth(3) == Some("1"), "{used}");
    // One line is changed.
    fs::write(files.join("audit.jsonl"), text.replacen("\"item\":\"break\"", "\"item\":\"brake\"", 1)).unwrap();
    let (is_ok, verified) = audit(scene.folder.path(), &["verify"]).await;
    assert!(!is_ok && verified.contains("was changed"), "{verified}");
}

#[tokio::test]
async fn calls_of_both_eras_over_every_transport_are_recorded() {
    for (era, transport) in
        [(Era::Legacy, Transport::Http), (Era::Modern, Transport::Stdio), (Era::Legacy, Transport::Stdio)]
    {
        let backend = Backend::start(era, Transport::Http).await;
        backend.offers_tools(&["look"]);
        backend.on(
            "tools/call",
            Reply::result(if era == Era::Modern {
                era.complete(r#""content":[]"#)
            } else {
                r#"{"content":[]}"#.to_owned()
            }),
        );
        let folder = TempFile::folder();
        let file = folder.path().join("record.jsonl");
        let config =
            format!(r#"{{"audit":{{"file":{:?},"required":true}},"mcpServers":{{{}}}}}"#, file, backend.entry("files"));
        let mut client = Client::start(&config, era, transport).await;
        client.call("look").await.member("result.content");
        // It is on the disk before the call runs.
        let text = fs::read_to_string(&file).unwrap();
        let decided =
            text.lines().find(|line| line.contains(r#""outcome":"decided""#)).unwrap_or_else(|| panic!("{text}"));
        assert!(
            decided.contains(r#""action":"tools/call""#)
                && decided.contains(&format!("{:?}", if era == Era::Modern { "modern" } else { "legacy" })),
            "{decided}"
        );
    }
}

#[tokio::test]
async fn request_that_cannot_be_recorded_is_not_carried_out() {
    let folder = TempFile::folder();
    // A file that never takes anything.
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["look"]);
    backend.on("tools/call", Reply::result(Era::Modern.complete(r#""content":[]"#)));
    let file = folder.path().join("audit.jsonl");
    let config =
        format!(r#"{{"audit":{{"file":{file:?},"required":true}},"mcpServers":{{{}}}}}"#, backend.entry("files"));
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    client.call("look").await.member("result.content");
    // The limit on the size of files is that of a disk that is full.
    let pid = rustix::process::Pid::from_raw(i32::try_from(client.gateway().pid()).unwrap());
    let full = rustix::process::Rlimit { current: Some(0), maximum: None };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, full).unwrap();
    let refused = client.call("look").await;
    assert_eq!(refused.member("error.code"), "-32603", "{}", refused.answer);
    assert!(refused.member("error.message").contains("could not be put on record"), "{}", refused.answer);
    assert_eq!(backend.received("tools/call").len(), 1);
    client.gateway().log.line_with("the audit record cannot be written").await;
    let free = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, free).unwrap();
    client.call("look").await.member("result.content");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().any(|line| line.contains(r#""event":"lost""#)), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_every_acknowledged_call_is_in_a_record_that_verifies() {
    let mut scene = Scene::start(r#""required":true,"arguments":"full""#, "").await;
    let calls = (0..40).map(|number| {
        let scene = &scene;
        async move {
            let answer = scene
                .call(ANN, &format!(r#""name":"look","arguments":{{"number":{number},"password":"sesame-2"}}"#))
                .await;
            member(&answer, "result").is_some().then_some(number)
        }
    });
    let answered: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
    scene.gateway.kill().await;
    assert_eq!(answered.len(), 40);
    let text = fs::read_to_string(scene.folder.path().join("state/audit/audit.jsonl")).unwrap();
    for number in answered {
        assert!(text.contains(&format!(r#""arguments":{{"number":{number},"password":"***"}}"#)), "{number}: {text}");
    }
    assert!(!text.contains("sesame"), "{text}");
    let (is_ok, verified) = scene.audit(&["verify"]).await;
    assert!(is_ok, "{verified}");
    assert_eq!(scene.backend.received("tools/call").len(), 40);
}
