//! Lists stored in `stateDir`: after a restart Fanlight serves them without starting the servers.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{LegacySession, legacy_request, listen, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::server_lives::{api, ask};
use crate::starting::{entry_after, server_when};

const SECRET: &str = "s3cret-value-of-a-variable";
const LISTS: [&str; 4] = [
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
];

/// A folder for `stateDir`.
struct Place(TempFile);

impl Place {
    fn new() -> Self {
        Self(TempFile::folder())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// A configuration with these entries.
    fn config(&self, entries: &[String]) -> String {
        let state = self.state();
        let state = state.display();
        let limits = "processStop=1s,listSettle=20ms";
        format!(
            r#"{{"mcpServers":{{{}}},"stateDir":"{state}","x-limits":"{limits}"}}"#,
            entries.join(",")
        )
    }

    /// The path of the store.
    fn store(&self) -> PathBuf {
        self.state().join("grants.redb")
    }
}

/// The output of this `fanlight state` command for a configuration.
async fn state(command: &str, config: &str) -> String {
    let file = TempFile::new("yaml", config);
    let run = fanlight()
        .args(["state", command, "--config"])
        .arg(file.path())
        .output();
    let output = within("the command", run).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server with an entry in each list.
async fn server(era: Era) -> Backend {
    let server = backend(era, Transport::Stdio).await;
    server.declares(r#"{"tools":{},"resources":{},"prompts":{}}"#);
    server.on(
        "resources/list",
        server.list("resources", r#"{"uri":"test://r","name":"r","x":1.0}"#),
    );
    server.on(
        "resources/templates/list",
        server.list(
            "resourceTemplates",
            r#"{"uriTemplate":"test://{t}","name":"t"}"#,
        ),
    );
    server.on("prompts/list", server.list("prompts", r#"{"name":"p"}"#));
    server
}

/// The result of each list, without the members that depend on time.
async fn lists(gateway: &Gateway) -> Vec<Value> {
    let mut all = Vec::new();
    for method in LISTS {
        let mut answer: Value = serde_json::from_str(&ask(gateway, method, "").await).unwrap();
        assert!(answer["result"].is_object(), "{method}: {answer}");
        answer["result"]["ttlMs"].take();
        all.push(answer["result"].take());
    }
    all
}

/// Runs Fanlight once and reads all lists.
async fn first_run(config: &str) -> Vec<Value> {
    let gateway = Gateway::start(config).await;
    let all = lists(&gateway).await;
    assert!(gateway.terminate().await.success());
    all
}

fn names(result: &Value) -> Vec<&str> {
    result["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn kept_lists_are_served_without_starting_the_server() {
    for era in [Era::Legacy, Era::Modern] {
        for (is_alone, start) in [(true, ""), (false, r#""start":"lazy""#)] {
            let (server, other) = (
                server(era).await,
                backend(Era::Modern, Transport::Http).await,
            );
            other.offers_tools(&["u"]);
            let place = Place::new();
            let mut entries = vec![server.entry_with("only", start)];
            entries.extend((!is_alone).then(|| other.entry("other")));
            let config = place.config(&entries);
            let before = first_run(&config).await;
            let (started, asked) = (server.started(), server.received("tools/list").len());
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_millis();

            let gateway = Gateway::start(&config).await;
            // Clients of both eras list and listen.
            let session = LegacySession::open(gateway.mcp).await;
            let mut of_session = session.stream(None).await;
            let mut listening = listen(gateway.mcp, "9", r#"{"toolsListChanged":true}"#).await;
            let first = listening.event().await.unwrap().unwrap();
            assert!(first.contains("toolsListChanged"), "{first}");
            assert_eq!(lists(&gateway).await, before, "{era:?} {is_alone}");
            let listed = session
                .post(&legacy_request("2", "tools/list", ""))
                .await
                .messages()
                .await
                .1;
            assert!(
                listed.contains("\"result\"") && listed.contains("t\""),
                "{listed}"
            );
            let catalogue = api(&gateway, "/api/catalogue").await;
            for list in ["tools", "resources", "resourceTemplates", "prompts"] {
                let read = catalogue[list]["backends"][0]["asOfMs"]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{catalogue}"));
                assert!(u128::from(read) <= now, "{read}");
                assert!(
                    is_alone || catalogue[list]["backends"][1]["asOfMs"].is_null(),
                    "{catalogue}"
                );
            }
            let state = api(&gateway, "/api/overview").await["backends"][0].clone();
            assert_eq!(
                (&state["state"], &state["error"]),
                (&json!("idle"), &Value::Null),
                "{era:?} {is_alone}"
            );
            assert_eq!(
                (server.started(), server.received("tools/list").len()),
                (started.clone(), asked)
            );

            // The first call starts the server, whose own list replaces the stored one.
            let tool = if is_alone {
                r#""name":"t""#
            } else {
                r#""name":"only__t""#
            };
            let answer = ask(&gateway, "tools/call", tool).await;
            assert!(
                answer.contains("\"result\""),
                "{era:?} {is_alone}: {answer}"
            );
            assert!(server.started().len() > started.len());
            server.wait_for("tools/list", asked + 1).await;
            within("lists of this run", async {
                while !api(&gateway, "/api/catalogue?kind=tools").await["tools"]["backends"][0]["asOfMs"].is_null() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            // The list is the same, so no change is announced.
            let end = gateway.terminate();
            let (rest, of_session, ended) =
                tokio::join!(listening.event(), of_session.event(), end);
            for rest in [rest, of_session] {
                assert!(
                    !rest
                        .ok()
                        .flatten()
                        .unwrap_or_default()
                        .contains("list_changed")
                );
            }
            assert!(ended.success());
        }
    }
}

#[tokio::test]
async fn kept_list_that_differs_from_the_servers_is_replaced_and_announced() {
    for (era, capabilities) in [
        (Era::Legacy, r#"{"tools":{}}"#),
        (Era::Modern, r#"{"tools":{}}"#),
        (Era::Legacy, r#"{"tools":{"listChanged":true}}"#),
        (Era::Modern, r#"{"tools":{"listChanged":true}}"#),
    ] {
        let server = server(era).await;
        server.declares(capabilities);
        server.on("subscriptions/listen", Reply::listening());
        let place = Place::new();
        let config = place.config(&[server.entry("only")]);
        let gateway = Gateway::start(&config).await;
        ask(&gateway, "tools/list", "").await;
        assert!(gateway.terminate().await.success());

        server.offers_tools(&["t", "new"]);
        let gateway = Gateway::start(&config).await;
        let session = LegacySession::open(gateway.mcp).await;
        let mut of_session = session.stream(None).await;
        let mut stream = listen(gateway.mcp, "9", r#"{"toolsListChanged":true}"#).await;
        assert!(
            stream
                .event()
                .await
                .unwrap()
                .unwrap()
                .contains("acknowledged")
        );
        let listed = ask(&gateway, "tools/list", "").await;
        assert!(!listed.contains("\"new\""), "{listed}");
        assert!(
            ask(&gateway, "tools/call", r#""name":"t""#)
                .await
                .contains("\"result\"")
        );
        for stream in [&mut stream, &mut of_session] {
            let changed = within("the change", stream.event()).await.unwrap().unwrap();
            assert!(
                changed.contains("notifications/tools/list_changed"),
                "{era:?} {capabilities}: {changed}"
            );
        }
        assert!(ask(&gateway, "tools/list", "").await.contains("\"new\""));
        assert!(gateway.terminate().await.success());

        // The new list is now the stored one.
        let started = server.started();
        let gateway = Gateway::start(&config).await;
        assert!(ask(&gateway, "tools/list", "").await.contains("\"new\""));
        assert_eq!(server.started(), started);
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn state_is_private_and_has_no_secrets() {
    let (server, place) = (server(Era::Modern).await, Place::new());
    let config =
        place.config(&[server.entry_with("only", &format!(r#""env":{{"TOKEN":"{SECRET}"}}"#))]);
    first_run(&config).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&place.state()), 0o700);
    let files = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    };
    let record = place.state().join("audit");
    assert_eq!(mode(&record), 0o700);
    let mut all = files(&place.state());
    all.retain(|path| *path != record);
    assert_eq!(all.len(), 2, "the key and the store: {all:?}");
    all.extend(files(&record));
    for file in all {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        let bytes = fs::read(&file).unwrap();
        assert!(
            !bytes
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes()),
            "{}",
            file.display()
        );
        // The store does not contain an argument of the command either.
        let address = server.command(&[]).1[0].clone();
        assert!(
            !bytes
                .windows(address.len())
                .any(|part| part == address.as_bytes()),
            "{}",
            file.display()
        );
    }
}

#[tokio::test]
async fn lists_of_a_server_that_was_defined_differently_are_not_served() {
    for changed in [
        r#""env":{"TOKEN":"other"}"#,
        r#""env":{"OTHER":"s3cret-value-of-a-variable"}"#,
        r#""era":"modern","env":{"TOKEN":"s3cret-value-of-a-variable"}"#,
        r#""cwd":"/","env":{"TOKEN":"s3cret-value-of-a-variable"}"#,
    ] {
        let (server, place) = (server(Era::Modern).await, Place::new());
        let secret = format!(r#""start":"lazy","env":{{"TOKEN":"{SECRET}"}}"#);
        first_run(&place.config(&[server.entry_with("only", &secret)])).await;
        let started = server.started();
        server.offers_tools(&["new"]);
        let config =
            place.config(&[server.entry_with("only", &format!(r#""start":"lazy",{changed}"#))]);
        let gateway = Gateway::start(&config).await;
        let listed = ask(&gateway, "tools/list", "").await;
        assert!(
            listed.contains("\"new\"") && !listed.contains("\"t\""),
            "{changed}: {listed}"
        );
        assert!(server.started().len() > started.len());
        gateway.log.line_with("definition has changed").await;
        assert!(!gateway.log.text().contains(SECRET));
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn store_that_cannot_be_trusted_is_not_served_from() {
    type Damage = fn(&Path);
    // The name of the damage, whether Fanlight replaces the store, and the damage.
    let damages: [(&str, bool, Damage); 6] = [
        ("cut off", true, |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("empty", true, |file| fs::write(file, "").unwrap()),
        ("no store", true, |file| {
            fs::write(file, "fanlight-lists/1 0 0").unwrap();
        }),
        ("open to others", false, |file| {
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("a link", false, |file| {
            let elsewhere = file.with_extension("elsewhere");
            fs::rename(file, &elsewhere).unwrap();
            symlink(elsewhere, file).unwrap();
        }),
        ("written with another key", true, |file| {
            let key = file.with_file_name("key");
            let mut bytes = fs::read(&key).unwrap();
            bytes[0] ^= 1;
            fs::write(key, bytes).unwrap();
        }),
    ];
    for (what, is_replaced, damage) in damages {
        let (server, place) = (server(Era::Legacy).await, Place::new());
        let config = place.config(&[server.entry("only")]);
        first_run(&config).await;
        server.offers_tools(&["new"]);
        damage(&place.store());
        let started = server.started();
        let gateway = Gateway::start(&config).await;
        let listed = ask(&gateway, "tools/list", "").await;
        assert!(
            listed.contains("\"new\"") && !listed.contains("\"t\""),
            "{what}: {listed}"
        );
        assert!(server.started().len() > started.len());
        assert!(gateway.terminate().await.success());
        let started = server.started();
        let gateway = Gateway::start(&config).await;
        assert!(
            ask(&gateway, "tools/list", "").await.contains("\"new\""),
            "{what}"
        );
        assert_eq!(server.started() == started, is_replaced, "{what}");
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn damaged_store_is_set_aside_and_the_rest_of_the_folder_stays() {
    let (server, place) = (server(Era::Modern).await, Place::new());
    let config = place.config(&[server.entry("only")]);
    first_run(&config).await;
    let key = fs::read(place.state().join("key")).unwrap();
    fs::write(place.store(), vec![0xff; 20_000]).unwrap();
    let gateway = Gateway::start(&config).await;
    gateway.log.line_with("the damaged file was renamed").await;
    assert!(ask(&gateway, "tools/list", "").await.contains("\"t\""));
    assert!(gateway.terminate().await.success());
    let names = fs::read_dir(place.state())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let aside: Vec<_> = names
        .filter(|name| name.starts_with("grants.damaged-"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read(place.state().join("key")).unwrap(), key);
}

#[tokio::test]
async fn state_commands_show_and_remove_stored_lists() {
    let (server, other) = (server(Era::Modern).await, server(Era::Modern).await);
    let (place, elsewhere) = (Place::new(), Place::new());
    let config = place.config(&[server.entry("only")]);
    let config_elsewhere = elsewhere.config(&[other.entry("secret-project")]);
    first_run(&config).await;
    first_run(&config_elsewhere).await;
    let shown = state("export", &config).await;
    let all: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (all.as_array().unwrap().len(), &all[0]["server"]),
        (1, &json!("only")),
        "{shown}"
    );
    assert!(
        all[0]["listsReadMs"]["tools"].is_u64() && !shown.contains("secret-project"),
        "{shown}"
    );
    let removed = state("purge", &config).await;
    assert!(removed.contains("removed 2 records"), "{removed}");
    assert_eq!(state("export", &config).await.trim(), "[]");
    assert!(
        state("export", &config_elsewhere)
            .await
            .contains("secret-project")
    );
    let started = server.started().len();
    let gateway = Gateway::start(&config).await;
    assert!(ask(&gateway, "tools/list", "").await.contains("\"t\""));
    assert!(server.started().len() > started);
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn kept_list_is_served_while_its_server_cannot_be_started() {
    let (server, place, gone) = (server(Era::Modern).await, Place::new(), TempFile::folder());
    // The program exists only during the first run.
    let entry: Value = serde_json::from_str(&format!("{{{}}}", server.entry("only"))).unwrap();
    let program = gone.path().join("server");
    symlink(entry["only"]["command"].as_str().unwrap(), &program).unwrap();
    let entry = json!({ "command": program, "args": entry["only"]["args"] });
    let config = place.config(&[format!(r#""only":{entry}"#)]);
    let before = first_run(&config).await;
    fs::remove_file(&program).unwrap();
    let gateway = Gateway::start(&config).await;
    assert_eq!(lists(&gateway).await, before);
    let failed = ask(&gateway, "tools/call", r#""name":"t""#).await;
    assert!(failed.contains(r#""mayHaveRun":false"#), "{failed}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn folder_that_others_can_reach_is_refused() {
    let (server, place) = (server(Era::Modern).await, Place::new());
    fs::DirBuilder::new()
        .mode(0o755)
        .create(place.state())
        .unwrap();
    fs::set_permissions(place.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = TempFile::new("yaml", &place.config(&[server.entry("only")]));
    let run = fanlight()
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--config",
        ])
        .arg(file.path())
        .output();
    let output = within("the end of fanlight", run).await.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("stateDir") && said.contains("chmod 700"),
        "{said}"
    );
    assert!(server.started().is_empty());
}

#[tokio::test]
async fn eager_server_is_started_at_once_and_its_lists_are_not_stored() {
    let (server, place) = (server(Era::Modern).await, Place::new());
    let config = place.config(&[server.entry_with("only", r#""start":"eager""#)]);
    first_run(&config).await;
    assert_eq!(state("export", &config).await.trim(), "[]");
    let started = server.started().len();
    let gateway = Gateway::start(&config).await;
    server.children(started + 1).await;
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn list_that_some_clients_see_less_of_is_not_kept() {
    let (server, place) = (server(Era::Modern).await, Place::new());
    server.declares(r#"{"tools":{"listChanged":true}}"#);
    server.on("subscriptions/listen", Reply::listening());
    server.on(
        "tools/list",
        Reply::compute(|request| {
            let more = match request.text.contains("com.example/x") {
                true => r#",{"name":"hidden","inputSchema":{"type":"object"}}"#,
                false => "",
            };
            Era::Modern.cacheable(&format!(
                r#""tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}{more}]"#
            ))
        }),
    );
    let config = place.config(&[server.entry_with("only", r#""start":"lazy""#)]);
    let gateway = Gateway::start(&config).await;
    assert!(!ask(&gateway, "tools/list", "").await.contains("hidden"));
    // The list is read once more, since it may have changed before the subscription.
    server.wait_for("tools/list", 2).await;
    ask(&gateway, "tools/list", "").await;
    let with_extension = r#"{"extensions":{"com.example/x":{}}}"#;
    let body = modern_request_with(with_extension, "1", "tools/list", "", "");
    let listed = post_modern(gateway.mcp, &body).await.messages().await.1;
    assert!(listed.contains("hidden"), "{listed}");
    assert!(!ask(&gateway, "tools/list", "").await.contains("hidden"));
    assert!(gateway.terminate().await.success());
    let gateway = Gateway::start(&config).await;
    let listed: Value = serde_json::from_str(&ask(&gateway, "tools/list", "").await).unwrap();
    assert_eq!(names(&listed["result"]), ["t"]);
    assert!(gateway.terminate().await.success());
}

/// Without `stateDir`, lists are stored in the user's state folder, and the servers are started all
/// the same.
#[tokio::test]
async fn lists_of_an_earlier_run_are_served_until_the_servers_have_started() {
    let (slow, fast) = (server(Era::Modern).await, server(Era::Modern).await);
    let (files, state) = (TempFile::folder(), TempFile::folder());
    let mut servers: Value = serde_json::from_str(&format!("{{{}}}", fast.entry("fast"))).unwrap();
    servers["slow"] = entry_after(
        &slow,
        r#"while [ ! -e "$F/go" ]; do sleep 0.05; done"#,
        &files,
        json!({}),
    );
    let path = files.path().join("fanlight.yaml");
    fs::write(
        &path,
        json!({ "mcpServers": servers, "x-limits": "list=120s" }).to_string(),
    )
    .unwrap();
    let go = files.path().join("go");
    fs::write(&go, "").unwrap();

    let start = || Gateway::start_at_with_env(path.clone(), "XDG_STATE_HOME", state.path());
    let first = start().await;
    server_when(&first, "slow", |server| server["state"] == "ready").await;
    let listed = ask(&first, "tools/list", "").await;
    assert!(listed.contains("slow__"), "{listed}");
    assert!(first.terminate().await.success());

    fs::remove_file(&go).unwrap();
    slow.offers_tools(&["added"]);
    let second = start().await;
    let kept = ask(&second, "tools/list", "").await;
    assert!(
        kept.contains("slow__") && !kept.contains("slow__added"),
        "{kept}"
    );
    let status = server_when(&second, "slow", |_| true).await;
    assert_eq!(
        status["state"], "connecting",
        "it is started though its lists are known"
    );
    fs::write(&go, "").unwrap();
    within("the list of the server itself", async {
        while !ask(&second, "tools/list", "").await.contains("slow__added") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(second.terminate().await.success());
}
