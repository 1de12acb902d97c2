//! Slow-starting servers, as operators and clients see them meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{StdioClient, legacy_request, listen, modern_request, post_modern};
use crate::scripted::{Backend, Era, Transport};
use crate::server_lives::{api, ask};

/// An entry of a scripted server that first runs this shell script. `$F` is a folder for files.
pub(crate) fn entry_after(server: &Backend, script: &str, folder: &TempFile, more: Value) -> Value {
    let entry: Value = serde_json::from_str(&format!("{{{}}}", server.entry("only"))).unwrap();
    let mut entry = entry["only"].clone();
    let own = [entry["command"].clone(), entry["args"][0].clone()];
    entry["command"] = json!("sh");
    entry["args"] = json!([
        "-c",
        format!("{script}\nexec \"$0\" \"$@\""),
        own[0],
        own[1]
    ]);
    entry["env"] = json!({ "F": folder.path() });
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    entry
}

/// Waits until the server of this name in `/api/backends` satisfies `is_right`.
pub(crate) async fn server_when(
    gateway: &Gateway,
    name: &str,
    is_right: impl Fn(&Value) -> bool,
) -> Value {
    within("the state of the server", async {
        loop {
            let all = api(gateway, "/api/backends").await;
            let server = all["backends"]
                .as_array()
                .unwrap()
                .iter()
                .find(|server| server["name"] == name)
                .unwrap();
            if is_right(server) {
                return server.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Writes a line to standard error every tenth of a second until the file `go` exists.
const INSTALL: &str = r#"i=0; while [ ! -e "$F/go" ]; do i=$((i+1)); echo "npm http fetch s3cret $i" >&2; sleep 0.1; done"#;

fn go(folder: &TempFile) {
    std::fs::write(folder.path().join("go"), "").unwrap();
}

#[tokio::test]
async fn process_that_writes_to_standard_error_is_not_ended() {
    for (era, configured) in [
        (Era::Legacy, "auto"),
        (Era::Modern, "auto"),
        (Era::Modern, "modern"),
    ] {
        let (server, folder) = (backend(era, Transport::Stdio).await, TempFile::folder());
        let entry = entry_after(
            &server,
            INSTALL,
            &folder,
            json!({ "startTimeout": "400ms", "era": configured }),
        );
        let timeouts = json!({ "call": "600ms" });
        let gateway = Gateway::start(
            &json!({ "mcpServers": { "only": entry }, "timeouts": timeouts, "x-limits": "connect=200ms,probe=100ms" }).to_string(),
        )
        .await;
        let starting = server_when(&gateway, "only", |server| {
            server["starting"]["seconds"].as_f64() > Some(1.5)
        })
        .await;
        assert!(
            starting["starting"]["lastLine"]
                .as_str()
                .unwrap()
                .starts_with("npm http fetch s3cret "),
            "{starting}"
        );
        assert!(
            starting["starting"]["since"].as_f64() > Some(1e12),
            "{starting}"
        );
        assert_eq!(
            (&starting["state"], &starting["failure"]),
            (&json!("connecting"), &Value::Null)
        );
        let refused = ask(&gateway, "tools/call", r#""name":"t""#).await;
        let refused: Value = serde_json::from_str(&refused).unwrap();
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("still starting, for ") && message.contains("was not carried out"),
            "{message}"
        );
        assert!(!message.contains("s3cret"), "{message}");
        assert_eq!(refused["error"]["data"]["outcome"], "starting");
        assert_eq!(refused["error"]["data"]["mayHaveRun"], false);
        go(&folder);
        let ready = server_when(&gateway, "only", |server| server["state"] == "ready").await;
        assert_eq!(
            (&ready["starting"], &ready["failure"], &ready["restarts"]),
            (&Value::Null, &Value::Null, &json!(0))
        );
        assert_eq!(server.started().len(), 1, "it was ended and started again");
        assert!(
            ask(&gateway, "tools/call", r#""name":"t""#)
                .await
                .contains("\"result\"")
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn initialize_waits_for_the_only_server() {
    let (server, folder) = (
        backend(Era::Legacy, Transport::Stdio).await,
        TempFile::folder(),
    );
    let entry = entry_after(&server, INSTALL, &folder, json!({}));
    let gateway = Gateway::start(
        &json!({ "mcpServers": { "only": entry }, "x-limits": "connect=100ms,probe=100ms" })
            .to_string(),
    )
    .await;
    let later = async {
        server_when(&gateway, "only", |server| {
            server["starting"]["seconds"].as_f64() > Some(0.5)
        })
        .await;
        go(&folder);
    };
    let opening = crate::raw_client::LegacySession::open(gateway.mcp);
    let (session, ()) = tokio::join!(opening, later);
    let answer = session
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await;
    let mut answer = answer;
    assert!(answer.messages().await.1.contains("\"result\""));
    assert!(gateway.terminate().await.success());
}

/// If the client had to wait, the answers would take as long as the list time-out, which is longer
/// than the test waits.
#[tokio::test]
async fn client_gets_available_lists_and_a_notification_about_a_slow_server() {
    let (slow, fast) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Legacy, Transport::Stdio).await,
    );
    let folder = TempFile::folder();
    fast.offers_tools(&["u"]);
    let mut servers: Value = serde_json::from_str(&format!("{{{}}}", fast.entry("fast"))).unwrap();
    servers["slow"] = entry_after(&slow, INSTALL, &folder, json!({}));
    let config =
        json!({ "mcpServers": servers, "x-limits": "list=120s,listWait=1s,listSettle=20ms" })
            .to_string();
    let mut gateway = Gateway::stdio(&config);
    let mut client = StdioClient::new(&mut gateway);
    let described: Value = serde_json::from_str(&client.initialize("2025-11-25").await).unwrap();
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(
            described["capabilities"][kind]["listChanged"], true,
            "{described}"
        );
    }
    let (_, list) = client.call(&legacy_request("1", "tools/list", "")).await;
    assert!(
        list.contains("fast__u") && !list.contains("slow__t"),
        "{list}"
    );
    // A call to a tool that the list lacks waits for its server.
    let call = legacy_request("2", "tools/call", r#""name":"slow__t""#);
    client.send(&call).await;
    go(&folder);
    let mut messages = Vec::new();
    while !(messages
        .iter()
        .any(|message: &String| message.contains("tools/list_changed"))
        && messages.iter().any(|message| message.contains("\"id\":2")))
    {
        messages.push(
            within("the announcement and the answer", client.receive())
                .await
                .unwrap(),
        );
    }
    let answer = messages
        .iter()
        .find(|message| message.contains("\"id\":2"))
        .unwrap();
    assert!(answer.contains("\"result\""), "{answer}");
    let (_, list) = client.call(&legacy_request("3", "tools/list", "")).await;
    assert!(
        list.contains("fast__u") && list.contains("slow__t"),
        "{list}"
    );
    client.close_input();
    assert!(gateway.ended().await.success());
}

/// Some clients read a list once, and end soon after.
#[tokio::test]
async fn list_waits_for_a_slow_server_and_is_served_at_once_in_the_next_run() {
    let (slow, fast) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let (folder, state) = (TempFile::folder(), TempFile::folder());
    let mut servers: Value = serde_json::from_str(&format!("{{{}}}", fast.entry("fast"))).unwrap();
    servers["slow"] = entry_after(&slow, "sleep 4", &folder, json!({}));
    let state = state.path().join("state");
    let config = json!({ "mcpServers": servers, "stateDir": state, "x-limits": "processStop=1s" });
    for run in 0..2 {
        let began = std::time::Instant::now();
        let mut gateway = Gateway::stdio(&config.to_string());
        let mut client = StdioClient::new(&mut gateway);
        let (_, list) = client
            .call(&modern_request("1", "tools/list", "", ""))
            .await;
        assert!(list.contains("slow__t"), "{run}: {list}");
        assert!(run == 0 || began.elapsed() < Duration::from_secs(3));
        client.close_input();
        assert!(gateway.ended().await.success());
    }
}

#[tokio::test]
async fn call_waits_for_a_slow_server_and_reports_progress_that_increases() {
    let (server, folder) = (
        backend(Era::Legacy, Transport::Stdio).await,
        TempFile::folder(),
    );
    let entry = entry_after(&server, "sleep 1", &folder, json!({}));
    let limits = "connect=100ms,startProgress=100ms";
    let config = json!({ "mcpServers": { "only": entry }, "x-limits": limits });
    let mut gateway = Gateway::stdio(&config.to_string());
    let mut client = StdioClient::new(&mut gateway);
    for (token, meta) in [(true, r#""progressToken":"p""#), (false, "")] {
        let request = modern_request("1", "tools/call", r#""name":"t""#, meta);
        let (messages, answer) = client.call(&request).await;
        assert!(answer.contains("\"result\""), "{answer}");
        let progress: Vec<f64> = messages
            .iter()
            .map(|message| serde_json::from_str::<Value>(message).unwrap()["params"].take())
            .filter(|params| params["progressToken"] == "p")
            .map(|params| params["progress"].as_f64().unwrap())
            .collect();
        assert_eq!(progress.len() > 2, token, "{messages:?}");
        assert!(
            progress.is_sorted_by(|one, next| one < next),
            "{progress:?}"
        );
    }
    client.close_input();
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn lists_do_not_wait_for_a_starting_server_and_change_when_it_has_started() {
    let (slow, fast) = (
        backend(Era::Modern, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let folder = TempFile::folder();
    fast.offers_tools(&["u"]);
    let entry = entry_after(&slow, INSTALL, &folder, json!({ "startTimeout": "2s" }));
    let mut servers: Value = serde_json::from_str(&format!("{{{}}}", fast.entry("fast"))).unwrap();
    servers["slow"] = entry;
    let limits = "connect=300ms,list=300ms,listSettle=20ms";
    let gateway =
        Gateway::start(&json!({ "mcpServers": servers, "x-limits": limits }).to_string()).await;
    let list: Value = serde_json::from_str(&ask(&gateway, "tools/list", "").await).unwrap();
    let text = list.to_string();
    assert!(
        text.contains("fast__u") && !text.contains("slow__t") && !text.contains("s3cret"),
        "{text}"
    );
    let outcome = &list["result"]["_meta"]["dev.fanlight/backends"]["slow"];
    assert_eq!(outcome["outcome"], "starting");
    assert!(
        outcome["reason"]
            .as_str()
            .unwrap()
            .contains("still starting"),
        "{outcome}"
    );
    let mut listening = listen(gateway.mcp, "7", r#"{"toolsListChanged":true}"#).await;
    assert!(listening.is_event_stream());
    let acknowledged = listening.event().await.unwrap().unwrap();
    assert!(acknowledged.contains("acknowledged"), "{acknowledged}");
    go(&folder);
    let changed = within("the announcement", listening.event())
        .await
        .unwrap()
        .unwrap();
    assert!(
        changed.contains("notifications/tools/list_changed"),
        "{changed}"
    );
    assert!(ask(&gateway, "tools/list", "").await.contains("slow__t"));
    assert_eq!(slow.started().len(), 1);
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn process_is_ended_when_it_is_silent_or_writes_for_ever() {
    let silent = json!({ "command": "sh", "args": ["-c", "echo once >&2; exec sleep 1000"], "startTimeout": "1s" });
    let endless = json!({ "command": "sh", "args": ["-c", INSTALL], "env": { "F": "/nowhere" }, "startTimeout": "1s" });
    let config = json!({
        "mcpServers": { "silent": silent, "endless": endless },
        "x-limits": "processStop=100ms,startTotal=3s",
    });
    let gateway = Gateway::start(&config.to_string()).await;
    for (name, limit, line) in [
        ("silent", "1s", "once"),
        ("endless", "3s", "npm http fetch s3cret"),
    ] {
        let server = server_when(&gateway, name, |server| !server["failure"].is_null()).await;
        let failure = &server["failure"];
        assert_eq!(
            failure["what"].as_str().unwrap(),
            format!("cannot be connected to: it did not answer within {limit}"),
            "{failure}"
        );
        let stderr = failure["stderr"].as_array().unwrap();
        assert!(
            stderr.last().unwrap().as_str().unwrap().starts_with(line),
            "{failure}"
        );
        assert!(
            failure["remedy"]
                .as_str()
                .unwrap()
                .contains("`startTimeout`"),
            "{failure}"
        );
    }
    let (_, ready) = crate::server_lives::get(&gateway, "/readyz", &[]).await;
    assert!(ready.contains("\"ready\":false"), "{ready}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn log_of_a_starting_server_can_be_followed() {
    let (server, folder) = (
        backend(Era::Modern, Transport::Stdio).await,
        TempFile::folder(),
    );
    let entry = entry_after(&server, INSTALL, &folder, json!({}));
    let config = json!({ "mcpServers": { "only": entry }, "x-limits": "adminEvents=50ms" });
    let gateway = Gateway::start(&config.to_string()).await;
    for path in ["/api/backends/only/log?follow", "/api/log?follow"] {
        let mut connection = crate::raw_client::Connection::open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        let mut response = connection.response().await;
        assert!(response.is_event_stream(), "{}", response.status);
        for number in 1..=5 {
            let line: Value =
                serde_json::from_str(&response.event().await.unwrap().unwrap()).unwrap();
            let text = format!("npm http fetch s3cret {number}");
            assert_eq!(
                (&line["server"], &line["stream"], &line["text"]),
                (&json!("only"), &json!("stderr"), &json!(text))
            );
        }
    }
    let missing = crate::server_lives::get(&gateway, "/api/backends/none/log?follow", &[]).await;
    assert_eq!(missing.0, 404);
    let request = modern_request("1", "tools/list", "", "");
    go(&folder);
    server_when(&gateway, "only", |server| server["state"] == "ready").await;
    assert!(
        post_modern(gateway.mcp, &request)
            .await
            .messages()
            .await
            .1
            .contains("\"result\"")
    );
    assert!(gateway.terminate().await.success());
}
