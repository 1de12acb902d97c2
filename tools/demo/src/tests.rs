//! Both servers over in-memory streams: their answers, and the members that the schema requires.

mod running;

use std::io::Cursor;

use serde_json::{Value, json};

/// Sends whole lines and returns all answers.
fn exchange(modern: bool, lines: &str) -> Vec<Value> {
    let mut output = Vec::new();
    let input = Cursor::new(lines.as_bytes().to_vec());
    if modern {
        super::serve_modern(input, &mut output).unwrap();
    } else {
        super::serve_legacy(input, &mut output).unwrap();
    }
    messages(&output)
}

fn messages(output: &[u8]) -> Vec<Value> {
    output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;

fn legacy(method: &str, params: &Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let answers = exchange(false, &format!("{INITIALIZE}{request}\n"));
    assert_eq!(answers.len(), 2, "{answers:?}");
    answers[1].clone()
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let answers = exchange(true, &format!("{request}\n"));
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

/// Checks by hand that a result has the members that the revisions' schemas require; `kind` names
/// the result.
fn check_result(kind: &str, result: &Value) {
    let all = |list: &Value, members: &[&str]| {
        for entry in list.as_array().unwrap() {
            for member in members {
                assert!(
                    entry[member].is_string(),
                    "{kind}: `{member}` missing in {entry}"
                );
            }
        }
    };
    match kind {
        "tools/list" => {
            all(&result["tools"], &["name"]);
            for tool in result["tools"].as_array().unwrap() {
                assert_eq!(tool["inputSchema"]["type"], "object");
            }
        }
        "tools/call" => all(&result["content"], &["type", "text"]),
        "resources/list" => all(&result["resources"], &["uri", "name"]),
        "resources/templates/list" => all(&result["resourceTemplates"], &["uriTemplate", "name"]),
        "resources/read" => all(&result["contents"], &["uri", "text"]),
        "prompts/list" => all(&result["prompts"], &["name"]),
        "prompts/get" => {
            all(&result["messages"], &["role"]);
            for message in result["messages"].as_array().unwrap() {
                assert!(message["content"]["text"].is_string());
            }
        }
        "completion/complete" => assert!(result["completion"]["values"].is_array()),
        "server/discover" => {
            assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
            assert!(result["capabilities"].is_object());
        }
        other => panic!("no expectation for {other}"),
    }
}

#[test]
fn legacy_negotiates_each_revision_and_offers_the_newest_otherwise() {
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let answers = exchange(false, &INITIALIZE.replace("2025-11-25", asked));
        let result = &answers[0]["result"];
        assert_eq!(result["protocolVersion"], answered);
        assert!(result["capabilities"]["tools"].is_object());
        assert!(
            result["serverInfo"]["name"].is_string() && result["serverInfo"]["version"].is_string()
        );
    }
}

#[test]
fn legacy_answers_nothing_but_ping_before_initialize() {
    let answers = exchange(
        false,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"server/discover\"}\n\
         {\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/list\"}\n",
    );
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(answers[1]["error"]["code"], -32601);
    assert_eq!(answers[2]["error"]["code"], -32601);
}

#[test]
fn legacy_results_have_the_members_the_schema_requires() {
    for (method, params) in [
        ("tools/list", json!({})),
        (
            "tools/call",
            json!({ "name": "search_books", "arguments": { "query": "austen" } }),
        ),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "library://books/emma" })),
        (
            "resources/read",
            json!({ "uri": "library://authors/Jane%20Austen" }),
        ),
        ("prompts/list", json!({})),
        (
            "prompts/get",
            json!({ "name": "recommend_book", "arguments": { "genre": "horror" } }),
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "recommend_book" }, "argument": { "name": "genre", "value": "r" } }),
        ),
    ] {
        let answer = legacy(method, &params);
        assert_eq!(answer["id"], 7);
        check_result(method, &answer["result"]);
        assert!(
            answer["result"].get("resultType").is_none(),
            "2026-07-28 only: {answer}"
        );
    }
}

#[test]
fn search_books_is_structured_and_says_the_same_as_text() {
    let answer = legacy(
        "tools/call",
        &json!({ "name": "search_books", "arguments": { "query": "AUSTEN", "limit": 1 } }),
    );
    let structured = &answer["result"]["structuredContent"];
    assert_eq!(structured["total"], 2);
    assert_eq!(structured["books"].as_array().unwrap().len(), 1);
    let text: Value =
        serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, structured);
}

#[test]
fn completion_offers_each_value_once_and_only_what_begins_so() {
    let answer = legacy(
        "completion/complete",
        &json!({ "ref": { "type": "ref/resource", "uri": "library://authors/{author}" }, "argument": { "name": "author", "value": "j" } }),
    );
    assert_eq!(
        answer["result"]["completion"]["values"],
        json!(["Jane Austen"])
    );
}

#[test]
fn errors_carry_the_code_of_the_revision() {
    let unknown = json!({ "uri": "library://books/none" });
    assert_eq!(legacy("resources/read", &unknown)["error"]["code"], -32002);
    assert_eq!(modern("resources/read", unknown)["error"]["code"], -32602);
    assert_eq!(legacy("tasks/list", &json!({}))["error"]["code"], -32601);
    assert_eq!(modern("ping", json!({}))["error"]["code"], -32601);
    assert_eq!(
        legacy("tools/call", &json!({ "name": "none" }))["error"]["code"],
        -32602
    );
    assert_eq!(
        legacy("tools/list", &json!({ "cursor": "x" }))["error"]["code"],
        -32602
    );
}

#[test]
fn logging_starts_when_asked_for() {
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_books","arguments":{"query":""}}}"#;
    let level = r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#;
    assert_eq!(exchange(false, &format!("{INITIALIZE}{call}\n")).len(), 2);
    let answers = exchange(false, &format!("{INITIALIZE}{level}\n{call}\n"));
    assert_eq!(answers[1]["result"], json!({}));
    assert_eq!(answers[2]["method"], "notifications/message");
    assert_eq!(answers[2]["params"]["level"], "info");
    assert_eq!(answers[3]["id"], 2);
}

#[test]
fn modern_results_have_the_members_the_schema_requires() {
    for (method, params, cacheable) in [
        ("server/discover", json!({}), true),
        ("tools/list", json!({}), true),
        (
            "tools/call",
            json!({ "name": "roll_dice", "arguments": { "seed": 1 } }),
            false,
        ),
        ("resources/list", json!({}), true),
        ("resources/templates/list", json!({}), true),
        ("resources/read", json!({ "uri": "workshop://units" }), true),
        ("prompts/list", json!({}), true),
        (
            "prompts/get",
            json!({ "name": "plan_build", "arguments": { "what": "a table" } }),
            false,
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "plan_build" }, "argument": { "name": "what", "value": "a b" } }),
            false,
        ),
    ] {
        let answer = modern(method, params);
        let result = &answer["result"];
        check_result(method, result);
        assert_eq!(result["resultType"], "complete");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "fanlight-demo-workshop"
        );
        assert_eq!(result.get("ttlMs").is_some(), cacheable, "{method}");
        assert_eq!(result.get("cacheScope").is_some(), cacheable, "{method}");
    }
}

#[test]
fn modern_entries_carry_what_a_gateway_could_lose() {
    for tool in modern("tools/list", json!({}))["result"]["tools"]
        .as_array()
        .unwrap()
    {
        for member in ["title", "icons", "annotations", "_meta"] {
            assert!(tool.get(member).is_some(), "{member} missing in {tool}");
        }
    }
}

#[test]
fn modern_tools_compute() {
    let call = |name: &str, arguments: Value| {
        modern(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
    };
    let converted = call(
        "convert_units",
        json!({ "value": 2, "from": "km", "to": "m" }),
    );
    assert_eq!(
        converted["result"]["structuredContent"],
        json!({ "value": 2000.0, "unit": "m" })
    );
    let mixed = call(
        "convert_units",
        json!({ "value": 2, "from": "km", "to": "kg" }),
    );
    assert_eq!(mixed["result"]["isError"], true);
    let roll = |seed: u64| {
        call("roll_dice", json!({ "count": 9, "seed": seed }))["result"]["structuredContent"]
            .clone()
    };
    assert_eq!(roll(1), roll(1));
    assert_ne!(roll(1)["rolls"], roll(2)["rolls"]);
    let failed = call("fail", json!({ "reason": "no glue" }));
    assert_eq!(failed["result"]["isError"], true);
    assert_eq!(failed["result"]["content"][0]["text"], "no glue");
    assert!(failed["result"].get("structuredContent").is_none());
}

#[test]
fn modern_requests_must_say_version_and_capabilities() {
    for (params, code) in [
        ("{}", -32602),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            -32602,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            -32602,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            -32022,
        ),
    ] {
        for method in ["server/discover", "tools/list"] {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n"
            );
            assert_eq!(exchange(true, &line)[0]["error"]["code"], code, "{line}");
        }
    }
}

#[test]
fn modern_names_its_versions_to_an_older_client() {
    let answers = exchange(true, INITIALIZE);
    let error = &answers[0]["error"];
    assert_eq!(error["code"], -32022);
    assert_eq!(
        error["data"],
        json!({ "supported": ["2026-07-28"], "requested": "2025-11-25" })
    );
    assert!(error["message"].as_str().unwrap().contains("2026-07-28"));
}

#[test]
fn unreadable_messages_are_answered_and_the_next_one_is_served() {
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n";
    for (line, code, id) in [
        ("{\"jsonrpc\":\"2.0\",", -32700, json!(null)),
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
            json!(null),
        ),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
            -32600,
            json!(1),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
            -32600,
            json!(null),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}",
            -32600,
            json!(1),
        ),
    ] {
        let answers = exchange(false, &format!("{line}\n\n{ping}"));
        assert_eq!(answers[0]["error"]["code"], code, "{line}");
        assert_eq!(answers[0]["id"], id, "{line}");
        assert_eq!(
            answers[1],
            json!({ "jsonrpc": "2.0", "id": 9, "result": {} })
        );
    }
    let unreadable = &exchange(true, "nonsense\n")[0];
    assert!(
        unreadable.get("id").is_none(),
        "2026-07-28 leaves an unknown id out: {unreadable}"
    );
}

#[test]
fn line_over_the_limit_is_refused_and_the_next_one_is_served() {
    let mut input = vec![b' '; 16 * 1024 * 1024 + 1];
    input.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n");
    let mut output = Vec::new();
    super::serve_legacy(Cursor::new(input), &mut output).unwrap();
    let answers = messages(&output);
    assert_eq!(answers[0]["error"]["code"], -32600);
    assert_eq!(answers[1]["id"], 9);
}

#[test]
fn last_line_needs_no_line_break() {
    let answers = exchange(false, "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}");
    assert_eq!(answers[0]["id"], 9);
}

#[test]
fn schemas_state_the_limits() {
    let tools = legacy("tools/list", &json!({}))["result"]["tools"].clone();
    let of = |name: &str| &tools[1]["inputSchema"]["properties"][name]["maximum"];
    assert_eq!(*of("to"), json!(crate::library::MAX_COUNT));
    assert_eq!(*of("delay_ms"), json!(crate::library::MAX_DELAY_MS));
    let tools = modern("tools/list", json!({}))["result"]["tools"].clone();
    let dice = &tools[1]["inputSchema"]["properties"];
    assert_eq!(dice["count"]["maximum"], json!(crate::workshop::MAX_DICE));
    assert_eq!(dice["sides"]["maximum"], json!(crate::workshop::MAX_SIDES));
    let units = json!(crate::workshop::unit_names());
    for name in ["from", "to"] {
        assert_eq!(tools[0]["inputSchema"]["properties"][name]["enum"], units);
    }
}
