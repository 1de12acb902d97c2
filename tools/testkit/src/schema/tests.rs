//! Tests of the checks themselves: valid messages pass, and each kind of mistake is found. Without
//! the schemas these tests only print that they are missing.

use super::*;
use crate::raw_client::{LEGACY, NEWEST_LEGACY, initialize, legacy_request, modern_request};
use crate::scripted::{Era, Task};

/// A peer that has negotiated `revision`, in one direction.
fn peer(direction: Direction, revision: &str) -> Option<Peer> {
    let Some(official) = official::installed() else {
        eprintln!("NOT CHECKED: the official schemas are not here (FANLIGHT_SPEC)");
        return None;
    };
    let peer = Checks::against(Some(official), direction).peer("it");
    peer.negotiated(revision);
    Some(peer)
}

fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#)
}

/// The definitions that a message violates.
fn broken(peer: &Peer, text: &str) -> Vec<String> {
    let definition = |shown: &String| {
        shown
            .split("not a ")
            .nth(1)
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .to_owned()
    };
    let mut definitions: Vec<String> = peer.violations(text).iter().map(definition).collect();
    definitions.dedup();
    definitions
}

#[test]
fn definition_table_names_only_definitions_of_the_schemas() {
    let Some(official) = official::installed() else {
        return;
    };
    let names: Vec<&str> = LEGACY
        .iter()
        .copied()
        .chain([MODERN, official::EXT_TASKS])
        .collect();
    for definition in definitions::all() {
        assert!(
            names.iter().any(|name| official.defines(name, definition)),
            "{definition}"
        );
    }
}

#[test]
fn result_is_checked_against_the_method_of_its_request() {
    for revision in LEGACY {
        let Some(client) = peer(Direction::ToClient, revision) else {
            return;
        };
        client.sent(&legacy_request("1", "tools/list", ""), None);
        assert!(broken(&client, &result("1", r#"{"tools":[]}"#)).is_empty());
        assert_eq!(
            broken(&client, &result("1", r#"{"prompts":[]}"#)),
            ["ListToolsResult"]
        );
        assert_eq!(
            broken(&client, &result("1", r#"{"tools":[{"name":"t"}]}"#)),
            ["ListToolsResult"]
        );
        assert_eq!(
            broken(&client, &result("2", r#"{"tools":[]}"#)),
            ["JSONRPCResponse"]
        );
    }
    let Some(client) = peer(Direction::ToClient, NEWEST_LEGACY) else {
        return;
    };
    client.sent(&modern_request("1", "tools/list", "", ""), None);
    assert_eq!(
        broken(&client, &result("1", r#"{"tools":[]}"#)),
        ["ListToolsResult"],
        "the request's own revision"
    );
    let whole = r#"{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}"#;
    assert!(broken(&client, &result("1", whole)).is_empty());
}

#[test]
fn tool_result_may_be_incomplete() {
    let Some(client) = peer(Direction::ToClient, MODERN) else {
        return;
    };
    client.sent(
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
        None,
    );
    let ask = r#"{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#;
    let wanted = format!(r#"{{"resultType":"input_required","inputRequests":{{"a":{ask}}}}}"#);
    assert!(broken(&client, &result("1", &wanted)).is_empty());
    let nameless = wanted.replace("elicitation/create", "no/such");
    assert_eq!(
        broken(&client, &result("1", &nameless)),
        ["InputRequiredResult"]
    );
    let task = r#"{"resultType":"task","taskId":"t","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":1}"#;
    assert!(broken(&client, &result("1", task)).is_empty());
    assert_eq!(
        broken(&client, &result("1", &task.replace("taskId", "id"))),
        ["CreateTaskResult"]
    );
    assert!(
        broken(
            &client,
            &result("1", r#"{"resultType":"of tomorrow","x":1}"#)
        )
        .is_empty()
    );
    assert_eq!(
        broken(&client, &result("1", r#"{"resultType":"complete"}"#)),
        ["CallToolResult"]
    );
}

#[test]
fn request_is_refused_in_a_revision_without_it() {
    let ask = legacy_request(
        "1",
        "elicitation/create",
        r#""message":"?","requestedSchema":{"type":"object","properties":{}}"#,
    );
    for revision in LEGACY {
        let Some(client) = peer(Direction::ToClient, revision) else {
            return;
        };
        let expected: &[&str] = if revision < "2025-06-18" {
            &["ElicitRequest"]
        } else {
            &[]
        };
        assert_eq!(broken(&client, &ask), expected, "{revision}");
        assert_eq!(
            broken(&client, &legacy_request("1", "tools/list", "")),
            ["ListToolsRequest"],
            "not a method of a server"
        );
        assert!(
            broken(&client, &legacy_request("1", "x/unknown", "")).is_empty(),
            "unknown methods may be forwarded"
        );
    }
    let Some(client) = peer(Direction::ToClient, MODERN) else {
        return;
    };
    assert_eq!(broken(&client, &ask), ["ServerRequest"]);
    let Some(backend) = peer(Direction::ToBackend, MODERN) else {
        return;
    };
    assert!(broken(&backend, &modern_request("1", "tools/list", "", "")).is_empty());
    assert_eq!(
        broken(&backend, &modern_request("1", "ping", "", "")),
        ["PingRequest"]
    );
    assert_eq!(
        broken(&backend, &legacy_request("1", "tools/list", "")),
        ["ListToolsRequest"],
        "without _meta"
    );
    let task = r#""taskId":"t""#;
    assert!(broken(&backend, &modern_request("1", "tasks/get", task, "")).is_empty());
    assert_eq!(
        broken(&backend, &modern_request("1", "tasks/get", "", "")),
        ["GetTaskRequest"]
    );
    let Some(backend) = peer(Direction::ToBackend, NEWEST_LEGACY) else {
        return;
    };
    assert!(broken(&backend, &initialize("2024-11-05", "{}")).is_empty());
    assert!(
        broken(&backend, &modern_request("1", "server/discover", "", "")).is_empty(),
        "a probe"
    );
}

#[test]
fn notification_error_and_envelope_are_checked() {
    let Some(client) = peer(Direction::ToClient, MODERN) else {
        return;
    };
    let progress = notification(
        "notifications/progress",
        r#""progressToken":1,"progress":0.5"#,
    );
    assert!(broken(&client, &progress).is_empty());
    assert_eq!(
        broken(&client, &progress.replace("0.5", "\"half\"")),
        ["ProgressNotification"]
    );
    assert_eq!(
        broken(&client, &notification("notifications/initialized", "")),
        ["InitializedNotification"]
    );
    assert!(broken(&client, &notification("notifications/of/tomorrow", "")).is_empty());
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":[],"requested":"x"}}}"#;
    assert!(broken(&client, error).is_empty());
    assert_eq!(
        broken(&client, &error.replace("supported", "other")),
        ["UnsupportedProtocolVersionError"]
    );
    assert!(!broken(&client, &error.replace("\"message\":\"m\",", "")).is_empty());
    for wrong in [
        "",
        "not JSON",
        "7",
        "[]7",
        r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
    ] {
        assert!(
            broken(&client, wrong).contains(&"JSONRPCMessage".to_owned()),
            "{wrong}"
        );
    }
}

#[test]
fn handshake_sets_the_revision_and_batches_belong_to_one() {
    let Some(client) = peer(Direction::ToClient, NEWEST_LEGACY) else {
        return;
    };
    client.sent(&initialize("2025-03-26", "{}"), None);
    let agreed = r#"{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"n","version":"1"}}"#;
    let batch = format!(
        "[{},{}]",
        notification("notifications/message", r#""level":"info","data":1"#),
        result("0", agreed)
    );
    assert_eq!(broken(&client, &batch), ["JSONRPCMessage"]);
    assert_eq!(client.revision().as_deref(), Some("2025-03-26"));
    assert!(broken(&client, &batch).is_empty());
    assert_eq!(
        broken(&client, &batch.replace("info", "loud")),
        ["LoggingMessageNotification"]
    );
}

#[test]
fn response_to_a_backend_is_checked_against_its_request() {
    let Some(backend) = peer(Direction::ToBackend, NEWEST_LEGACY) else {
        return;
    };
    backend.sent(
        &legacy_request("\"a\"", "elicitation/create", r#""message":"?""#),
        None,
    );
    assert!(
        broken(
            &backend,
            &result("\"a\"", r#"{"action":"accept","content":{}}"#)
        )
        .is_empty()
    );
    assert_eq!(
        broken(&backend, &result("\"a\"", r#"{"action":"maybe"}"#)),
        ["ElicitResult"]
    );
}

#[test]
fn excused_messages_pass_and_others_fail_the_test() {
    let Some(client) = peer(Direction::ToClient, MODERN) else {
        return;
    };
    client.sent(
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
        None,
    );
    client.checks.excuse(
        "CallToolResult",
        "",
        "the violation is the one of the backend",
    );
    client.received(&result("1", "{}"));
    client.checks.excuse(
        "ProgressNotification",
        "/params/progress",
        "the violation is the one of the backend",
    );
    client.received(&notification(
        "notifications/progress",
        r#""progressToken":1,"progress":"half""#,
    ));
    client.checks.conclude();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.received("{}")));
    assert!(panicked.is_err());
    let elsewhere = notification(
        "notifications/progress",
        r#""progressToken":[],"progress":1"#,
    );
    assert_eq!(broken(&client, &elsewhere), ["ProgressNotification"]);
    let concluded =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.checks.conclude()));
    assert!(concluded.is_err());
}

/// Tests of tasks then need no excuse.
#[test]
fn scripted_tasks_fit_the_schema() {
    let task = Task {
        id: "t",
        status: "completed",
        ttl: 1,
        poll: 1,
    };
    let call = r#""name":"t","task":{}"#;
    for era in [Era::Legacy, Era::Modern] {
        let (revision, request): (_, fn(&str, &str) -> String) = match era {
            Era::Legacy => (NEWEST_LEGACY, |method, params| {
                legacy_request("1", method, params)
            }),
            Era::Modern => (MODERN, |method, params| {
                modern_request("1", method, params, "")
            }),
        };
        let Some(client) = peer(Direction::ToClient, revision) else {
            return;
        };
        client.sent(&request("tools/call", call), None);
        client.received(&result("1", &task.created(era)));
        let payload = if era == Era::Modern {
            r#""result":{}"#
        } else {
            ""
        };
        client.received(&task.notification(era, payload));
        client.sent(&request("tasks/get", r#""taskId":"t""#), None);
        client.received(&result("1", &task.got(era, payload)));
    }
}
