//! Large results: shortened for clients, and kept whole for a while.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use data_encoding::BASE64;
use fanlight_testkit::recorder::{self, Recorder};
use serde_json::{Value, json};

use crate::clients::{Client, Exchange};
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::http_recorder::{HttpRecorder, says};
use crate::raw_client::{
    LegacySession, legacy_request, listen, modern_headers, modern_request, post, post_modern,
};
use crate::recordings::{assert_mocks, start_recordable};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::server_lives::text_at;
use fanlight_testkit::signing_in::{ANN, BOB};

/// The usual `results.inline`.
const INLINE: usize = 32 << 10;

const COMBINATIONS: [(Era, Transport); 4] = [
    (Era::Modern, Transport::Http),
    (Era::Legacy, Transport::Http),
    (Era::Modern, Transport::Stdio),
    (Era::Legacy, Transport::Stdio),
];

/// A text of lines, with characters of one to four bytes and some that JSON escapes.
fn lines(count: usize) -> String {
    let line = |n: usize| format!("{n}: \"é\" \\ € 𝄞\n");
    (0..count).map(line).collect()
}

/// A server with these members of the result of its tool `t`.
async fn server(era: Era, transport: Transport, members: &str) -> Backend {
    let server = Backend::start(era, transport).await;
    server.offers_tools(&["t"]);
    server.on("tools/call", Reply::result(era.complete(members)));
    server
}

fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, Value::from(text))
}

/// A configuration with `results` for the endpoint, or for each server.
fn config(results: &str, of_servers: bool, servers: &[&Backend], more: &str) -> String {
    let names = ["a", "b", "c"].iter().zip(servers);
    let entry = |(name, server): (&&str, &&Backend)| {
        let entry = server.entry(name);
        match of_servers {
            true => entry.replacen(":{", &format!(r#":{{"results":{results},"#), 1),
            false => entry,
        }
    };
    let servers: Vec<_> = names.map(entry).collect();
    let endpoints = match of_servers {
        true => String::new(),
        false => format!(r#""endpoints":{{"/mcp":{{"results":{results}}}}},"#),
    };
    format!(
        r#"{{{more}{endpoints}"mcpServers":{{{}}}}}"#,
        servers.join(",")
    )
}

/// The answer's result as a value.
fn result(exchange: &Exchange) -> Value {
    serde_json::from_str(exchange.member("result")).unwrap()
}

/// The links to the parts that a result lacks.
fn links(result: &Value) -> Vec<String> {
    let blocks = result["content"].as_array().unwrap().iter();
    let links = blocks.filter(|block| block["type"] == "resource_link");
    links
        .map(|link| link["uri"].as_str().unwrap().to_owned())
        .collect()
}

/// The contents of a resource.
async fn read(client: &mut Client, uri: &str) -> Value {
    let params = format!(r#""uri":"{uri}""#);
    let exchange = client.request("1", "resources/read", &params, "").await;
    result(&exchange)["contents"][0].clone()
}

/// The message of the error for reading a resource, whose code is the revision's for unknown ones.
async fn refusal(client: &mut Client, uri: &str, code: i64) -> String {
    let params = format!(r#""uri":"{uri}""#);
    let exchange = client.request("1", "resources/read", &params, "").await;
    assert_eq!(exchange.member("error.code"), code.to_string(), "{uri}");
    exchange.member("error.message").to_owned()
}

/// The bytes of contents of a resource that are no text.
fn base64(contents: &Value) -> Vec<u8> {
    let blob = contents["blob"].as_str().unwrap();
    BASE64.decode(blob.as_bytes()).unwrap()
}

async fn read_tool(client: &mut Client, arguments: &str) -> Value {
    let params = format!(r#""name":"read_result","arguments":{arguments}"#);
    result(&client.request("1", "tools/call", &params, "").await)
}

fn unknown(era: Era) -> i64 {
    match era {
        Era::Modern => -32602,
        Era::Legacy => -32002,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_results_are_read_whole_and_in_parts() {
    let text = lines(3000);
    let data = "QUJD".repeat(20_000);
    let rows: Vec<_> = (0..2000)
        .map(|n| format!(r#"{{ "id":{n}.0, "a/b":"\u0041" }}"#))
        .collect();
    let structured = format!(r#"{{ "rows":[{}]}}"#, rows.join(", "));
    let members = format!(
        r#""content":[{},{{"type":"image","data":"{data}","mimeType":"image/png"}},{{"type":"resource","resource":{{"uri":"test://e","mimeType":"text/x","text":{}}}}},{}],"structuredContent":{structured},"_meta":{{"x":1.00}}"#,
        text_block(&text),
        Value::from(text.as_str()),
        text_block("short"),
    );
    for (at, (era, transport)) in COMBINATIONS.into_iter().enumerate() {
        for several in [false, true] {
            let one = server(era, transport, &members).await;
            let other = server(Era::Modern, Transport::Http, &members).await;
            let servers: &[&Backend] = if several { &[&one, &other] } else { &[&one] };
            let config = config("{}", at % 2 == 0, servers, "");
            let mut client = Client::start(&config, era, transport).await;
            let name = if several { "a__t" } else { "t" };
            let names = client.tool_names().await;
            assert!(names.contains(&"read_result".to_owned()), "{names:?}");
            let called = client.call(name).await;
            assert!(
                called.answer.len() <= INLINE + 200,
                "{}",
                called.answer.len()
            );
            assert!(called.answer.contains(r#""x":1.00"#));
            let short = result(&called);
            assert!(short.get("structuredContent").is_none());
            let blocks = short["content"].as_array().unwrap();
            let head = blocks[0]["text"].as_str().unwrap();
            assert!(head.starts_with(&text[..1000]) && head.contains("text, 3000 lines"));
            assert!(blocks.iter().any(|block| block["text"] == "short"));
            let [of_text, of_image, of_resource, of_rows] = &links(&short)[..] else {
                panic!("{short}")
            };
            assert_eq!(read(&mut client, of_text).await["text"], text);
            assert_eq!(read(&mut client, of_resource).await["text"], text);
            let image = read(&mut client, of_image).await;
            assert_eq!(
                (&image["blob"], &image["mimeType"]),
                (&data.as_str().into(), &"image/png".into())
            );
            assert_eq!(read(&mut client, of_rows).await["text"], structured);

            let mut whole = Vec::new();
            while whole.len() < text.len() {
                let (from, to) = (whole.len(), whole.len() + 9_998);
                let part = read(&mut client, &format!("{of_text}?bytes={from}-{to}")).await;
                match part.get("text") {
                    Some(part) => whole.extend_from_slice(part.as_str().unwrap().as_bytes()),
                    // Cut through a character.
                    None => whole.extend(base64(&part)),
                }
            }
            assert_eq!(whole, text.as_bytes());
            let mut by_lines = String::new();
            for from in (1..=3000).step_by(700) {
                let part = read(
                    &mut client,
                    &format!("{of_text}?lines={from}-{}", from + 699),
                )
                .await;
                by_lines += part["text"].as_str().unwrap();
            }
            assert_eq!(by_lines, text);
            let piece = read(&mut client, &format!("{of_rows}?pointer=/rows/10/a~1b")).await;
            assert_eq!(
                (&piece["text"], &piece["mimeType"]),
                (&r#""\u0041""#.into(), &"application/json".into())
            );
            let encoded = read(&mut client, &format!("{of_rows}?pointer=%2Frows%2F11")).await;
            assert_eq!(encoded["text"], rows[11]);
            assert_eq!(
                read(&mut client, &format!("{of_image}?bytes=3-5")).await["blob"],
                "QUJD"
            );
            for wrong in [
                "bytes=99999999-99999999",
                "lines=3001-3001",
                "pointer=/a",
                "bytes=2-1",
                "x=1",
            ] {
                refusal(&mut client, &format!("{of_text}?{wrong}"), -32602).await;
            }
            // The scheme of a URI has no case.
            let capitals = of_text.replacen("fanlight-result", "Fanlight-Result", 1);
            assert_eq!(read(&mut client, &capitals).await["text"], text);
            for wrong in [
                format!("{of_text}0"),
                "fanlight-result:invented/content/0".to_owned(),
                "FANLIGHT-RESULT:invented/content/0".to_owned(),
            ] {
                let message = refusal(&mut client, &wrong, unknown(era)).await;
                assert_eq!(message, r#""Resource not found""#);
            }

            let part = read_tool(
                &mut client,
                &format!(r#"{{"uri":"{of_text}","lines":"2-3"}}"#),
            )
            .await;
            let expected: String = text.split_inclusive('\n').skip(1).take(2).collect();
            assert_eq!(part["content"][0]["text"], expected);
            let part =
                read_tool(&mut client, &format!(r#"{{"uri":"{of_image}?bytes=0-2"}}"#)).await;
            assert_eq!(part["content"][0]["resource"]["blob"], "QUJD");
            for wrong in [
                format!(r#"{{"uri":"{of_text}"}}"#),
                format!(r#"{{"uri":"{of_text}","bytes":"x"}}"#),
                r#"{"uri":"fanlight-result:invented"}"#.to_owned(),
                r#"{"uri":"test://e"}"#.to_owned(),
                "{}".to_owned(),
            ] {
                assert_eq!(
                    read_tool(&mut client, &wrong).await["isError"],
                    true,
                    "{wrong}"
                );
            }
            let listed = client.request("1", "resources/list", "", "").await;
            assert!(
                !listed.answer.contains("fanlight-result"),
                "{}",
                listed.answer
            );
            assert!(
                one.received("resources/read").is_empty(),
                "no server gets such a request"
            );
        }
    }
}

#[tokio::test]
async fn promised_structure_and_short_answers_stay_whole() {
    let rows = vec!["1.0"; 20_000].join(", ");
    let members = format!(
        r#""content":[{}],"structuredContent":{{"rows":[{rows}]}}"#,
        text_block(&rows)
    );
    for (era, transport) in COMBINATIONS {
        let one = server(era, transport, &members).await;
        one.on(
            "tools/list",
            one.list("tools", r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},{"name":"read_result","inputSchema":{"type":"object"}}"#),
        );
        let mut client = Client::start(&config("{}", false, &[&one], ""), era, transport).await;
        let short = client.call("t").await;
        let whole = format!(r#"{{"rows":[{rows}]}}"#);
        assert_eq!(short.member("result.structuredContent"), whole);
        assert_eq!(links(&result(&short)).len(), 1);
        // A tool of a server has the name of Fanlight's.
        let names = client.tool_names().await;
        assert_eq!(names, ["t", "read_result", "fanlight__read_result"]);
        client.call("read_result").await;
        assert_eq!(one.received("tools/call").len(), 2);
        one.on(
            "tools/call",
            Reply::result(era.complete(r#""content":[],"x":1E400"#)),
        );
        assert!(
            client
                .call("t")
                .await
                .answer
                .contains(r#""content":[],"x":1E400"#)
        );
    }
}

#[tokio::test]
async fn lean_lists_have_the_tool_and_indirect_calls_are_shortened_alike() {
    let members = format!(r#""content":[{}]"#, text_block(&lines(3000)));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let config =
        config("{}", false, &[&one], "").replace(r#""results":{}"#, r#""results":{},"lean":{}"#);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    assert_eq!(
        client.tool_names().await,
        ["find_tools", "call_tool", "read_result"]
    );
    let params = r#""name":"call_tool","arguments":{"name":"t","arguments":{}}"#;
    let called = client.request("1", "tools/call", params, "").await;
    let uri = &links(&result(&called))[0];
    let arguments = format!(r#"{{"uri":"{uri}","bytes":"0-3"}}"#);
    assert_eq!(
        read_tool(&mut client, &arguments).await["content"][0]["text"],
        "0: \""
    );
    let params = format!(
        r#""name":"call_tool","arguments":{{"name":"read_result","arguments":{arguments}}}"#
    );
    let called = client.request("1", "tools/call", &params, "").await;
    assert_eq!(result(&called)["content"][0]["text"], "0: \"");
}

const KEYS: &str = "keys:\n  \
    - {name: ann, groups: [lead], sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n  \
    - {name: bob, groups: [staff], sha256: \"c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2\"}\n";

/// The answer to a modern request with a key.
async fn ask_as(gateway: &Gateway, key: &str, method: &str, params: &str) -> Value {
    let body = modern_request("1", method, params, "");
    let headers = modern_headers(&body);
    let bearer = format!("Bearer {key}");
    let mut all: Vec<_> = headers
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    all.push(("Authorization", &bearer));
    let text = post(gateway.mcp, &all, &body).await.text().await;
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn results_belong_to_their_principal_or_session() {
    let members = format!(r#""content":[{}]"#, text_block(&lines(3000)));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let folder = TempFile::folder();
    fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let path = folder.path().join("fanlight.json");
    let auth = r#""auth":{"keys":{"file":"keys.yaml"}},"#;
    fs::write(&path, config("{}", false, &[&one], auth)).unwrap();
    let gateway = Gateway::start_at(path).await;
    let called = ask_as(&gateway, ANN, "tools/call", r#""name":"t""#).await;
    let uri = &links(&called["result"])[0];
    let read = |uri: &str| format!(r#""uri":"{uri}""#);
    let own = ask_as(&gateway, ANN, "resources/read", &read(uri)).await;
    assert_eq!(own["result"]["contents"][0]["text"], lines(3000));
    let invented = uri.replacen(['A', 'B', 'c'], "x", 1);
    let mut refused = Vec::new();
    for (key, uri) in [(BOB, uri), (BOB, &invented), (ANN, &invented)] {
        let answer = ask_as(&gateway, key, "resources/read", &read(uri)).await;
        refused.push(answer["error"].to_string().replace(uri.as_str(), "URI"));
    }
    assert!(
        refused
            .iter()
            .all(|one| *one == refused[0] && one.contains("Resource not found")),
        "{refused:?}"
    );

    let gateway = Gateway::start(&config("{}", false, &[&one], "")).await;
    let (mine, other) = (
        LegacySession::open(gateway.mcp).await,
        LegacySession::open(gateway.mcp).await,
    );
    let call = legacy_request("1", "tools/call", r#""name":"t""#);
    let called: Value = serde_json::from_str(&mine.post(&call).await.text().await).unwrap();
    let request = legacy_request("2", "resources/read", &read(&links(&called["result"])[0]));
    assert!(mine.post(&request).await.text().await.contains("contents"));
    assert!(other.post(&request).await.text().await.contains("-32002"));
    let modern = modern_request(
        "3",
        "resources/read",
        &read(&links(&called["result"])[0]),
        "",
    );
    assert!(
        post_modern(gateway.mcp, &modern)
            .await
            .text()
            .await
            .contains("-32602")
    );
}

#[tokio::test]
async fn results_are_dropped_after_their_time_and_the_oldest_for_lack_of_room() {
    let members = format!(r#""content":[{}]"#, text_block(&lines(3000)));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let mut client = Client::start(
        &config(r#"{"keepFor":"1s"}"#, false, &[&one], ""),
        Era::Modern,
        Transport::Http,
    )
    .await;
    let uri = links(&result(&client.call("t").await)).remove(0);
    let gone = async {
        loop {
            let params = format!(r#""uri":"{uri}""#);
            let answer = client
                .request("1", "resources/read", &params, "")
                .await
                .answer;
            if answer.contains("Resource not found") {
                return;
            }
        }
    };
    within("the end of the result", gone).await;

    let results = r#"{"memory":"1MiB"}"#;
    let mut client = Client::start(
        &config(results, true, &[&one], ""),
        Era::Legacy,
        Transport::Stdio,
    )
    .await;
    let mut uris = Vec::new();
    for _ in 0..200 {
        uris.push(links(&result(&client.call("t").await)).remove(0));
    }
    let length = lines(3000).len();
    let fit = (1 << 20) / length;
    for (at, uri) in uris.iter().rev().enumerate() {
        if at < fit {
            assert_eq!(
                read(&mut client, &format!("{uri}?bytes=0-0")).await["text"],
                "0"
            );
        } else if at < fit + 3 || at > 197 {
            refusal(&mut client, uri, -32002).await;
        }
    }
    // A result that fits nowhere is not shortened.
    let long = format!(r#""content":[{}]"#, text_block(&lines(60_000)));
    one.on("tools/call", Reply::result(Era::Modern.complete(&long)));
    assert_eq!(
        result(&client.call("t").await)["content"][0]["text"],
        lines(60_000)
    );
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(fs::read(entry.path()).unwrap()),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_beyond_the_memory_are_sealed_on_disk_and_a_full_disk_shortens_nothing() {
    let text = lines(60_000);
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let folder = TempFile::folder();
    let state = folder.path().join("state");
    let more = format!(r#""stateDir":"{}","#, state.display());
    let config = config(r#"{"memory":"1MiB","disk":"2MiB"}"#, false, &[&one], &more);
    let path = folder.path().join("fanlight.json");
    fs::write(&path, &config).unwrap();
    let mut gateway = Gateway::start_at(path.clone()).await;
    let ask = async |gateway: &Gateway, method: &str, params: &str| -> Value {
        let body = modern_request("1", method, params, "");
        serde_json::from_str(&post_modern(gateway.mcp, &body).await.text().await).unwrap()
    };
    let call = async |gateway: &Gateway| ask(gateway, "tools/call", r#""name":"t""#).await;
    let uris = [
        links(&call(&gateway).await["result"]).remove(0),
        links(&call(&gateway).await["result"]).remove(0),
    ];
    let results = state.join("results");
    let has = |part: &[u8]| {
        files(&results)
            .iter()
            .any(|file| file.windows(part.len()).any(|at| at == part))
    };
    assert!(
        files(&results).iter().any(|file| file.len() > text.len())
            && !has(&text.as_bytes()[1000..1100])
    );
    let params = format!(r#""uri":"{}""#, uris[1]);
    assert_eq!(
        ask(&gateway, "resources/read", &params).await["result"]["contents"][0]["text"],
        text
    );
    let params = format!(r#""uri":"{}?bytes=1100000-1100010""#, uris[1]);
    let part = ask(&gateway, "resources/read", &params).await;
    let contents = &part["result"]["contents"][0];
    let bytes = contents["text"]
        .as_str()
        .map_or_else(|| base64(contents), |text| text.into());
    assert_eq!(bytes, text.as_bytes()[1_100_000..=1_100_010]);
    let params = format!(r#""uri":"{}""#, uris[0]);
    let gone = ask(&gateway, "resources/read", &params).await;
    assert_eq!(gone["error"]["code"], -32602, "the disk has room for one");

    gateway.kill().await;
    assert!(!files(&results).is_empty());
    let gateway = Gateway::start_at(path).await;
    assert!(
        files(&results).iter().all(Vec::is_empty),
        "what an earlier run left is removed"
    );
    // The folder cannot be made.
    fs::remove_dir_all(&results).unwrap();
    fs::write(&results, "").unwrap();
    for _ in 0..3 {
        assert_eq!(call(&gateway).await["result"]["content"][0]["text"], text);
    }
    let problem = "cannot be written below stateDir";
    gateway.log.line_with(problem).await;
    assert_eq!(gateway.log.text().matches(problem).count(), 1);
}

#[tokio::test]
async fn disk_that_is_full_shortens_nothing_and_keeps_what_it_has() {
    let text = lines(60_000);
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let folder = TempFile::folder();
    let more = format!(r#""stateDir":"{}","#, folder.path().display());
    let config = config(r#"{"memory":"1MiB"}"#, false, &[&one], &more);
    // Two results fit.
    let size = (text.len() * 5 / 2).to_string();
    let gateway = Gateway::start_with_disk(&config, folder.path(), &size).await;
    let ask = async |method: &str, params: &str| -> Value {
        let body = modern_request("1", method, params, "");
        serde_json::from_str(&post_modern(gateway.mcp, &body).await.text().await).unwrap()
    };
    let mut uris = Vec::new();
    for at in 0..5 {
        let called = ask("tools/call", r#""name":"t""#).await;
        match at {
            0 | 1 => uris.push(links(&called["result"]).remove(0)),
            _ => assert!(called["result"]["content"][0]["text"] == text, "{at}"),
        }
    }
    for uri in uris {
        let read = ask("resources/read", &format!(r#""uri":"{uri}""#)).await;
        assert!(read["result"]["contents"][0]["text"] == text, "{uri}");
    }
    let problem = "cannot be written below stateDir";
    gateway.log.line_with(problem).await;
    assert_eq!(gateway.log.text().matches(problem).count(), 1);
    assert!(gateway.log.text().contains("No space left"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_many_mib_and_odd_escapes_pass() {
    let text = lines(400_000);
    assert!(text.len() > 8 << 20);
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let mut client = Client::start(
        &config("{}", false, &[&one], ""),
        Era::Modern,
        Transport::Http,
    )
    .await;
    let called = client.call("t").await;
    assert!(called.answer.len() <= INLINE + 200);
    let uri = links(&result(&called)).remove(0);
    let whole = read(&mut client, &uri).await;
    assert!(whole["text"] == text, "the whole text");
    let part = read(&mut client, &format!("{uri}?lines=399999-400000")).await;
    assert!(text.ends_with(part["text"].as_str().unwrap()));

    let odd = r"\ud800 ".repeat(20_000);
    let members = format!(r#""content":[{{"type":"text","text":"{odd}"}}]"#);
    one.on("tools/call", Reply::result(Era::Modern.complete(&members)));
    let called = client.call("t").await;
    let uri = links(&result(&called)).remove(0);
    let params = format!(r#""uri":"{uri}""#);
    let exchange = client.request("1", "resources/read", &params, "").await;
    assert!(
        exchange.answer.contains(&format!(r#""text":"{odd}""#)),
        "as the server wrote it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly, with an optimized program"]
async fn result_of_64_mib_is_read_in_parts_from_memory_and_disk() {
    // Without optimizations, shortening takes 8 s instead of 0.3 s: too long on a busy machine.
    if std::env::var_os("FANLIGHT_TEST_BINARY").is_none() {
        return;
    }
    // The largest message of a server has 64 MiB, and each line ends with two bytes of JSON.
    let (mut text, mut ends) = (String::new(), vec![0]);
    while text.len() + ends.len() < (64 << 20) - (1 << 10) {
        let number = ends.len();
        text += &format!("{number} {}\n", "é€𝄞x".repeat(number % 40));
        ends.push(text.len());
    }
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let one = server(Era::Modern, Transport::Http, &members).await;
    for memory in ["64MiB", "1MiB"] {
        let folder = TempFile::folder();
        let state = folder.path().join("state");
        let more = format!(r#""stateDir":"{}","#, state.display());
        let results = format!(r#"{{"memory":"{memory}"}}"#);
        let config = config(&results, false, &[&one], &more);
        let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
        let uri = links(&result(&client.call("t").await)).remove(0);
        for start in (0..text.len()).step_by(1 << 20) {
            let end = text.len().min(start + (1 << 20));
            let part = read(&mut client, &format!("{uri}?bytes={start}-{}", end - 1)).await;
            let bytes = match part["text"].as_str() {
                Some(part) => part.as_bytes().to_vec(),
                None => base64(&part),
            };
            assert!(bytes == text.as_bytes()[start..end], "{memory} {start}");
        }
        for start in (0..ends.len() - 1).step_by(5000) {
            let end = (ends.len() - 1).min(start + 5000);
            let part = read(&mut client, &format!("{uri}?lines={}-{end}", start + 1)).await;
            let expected = &text[ends[start]..ends[end]];
            assert!(part["text"] == expected, "{memory} {start}");
        }
    }
}

#[tokio::test]
async fn revisions_without_links_get_none() {
    let members = format!(r#""content":[{}]"#, text_block(&lines(3000)));
    let one = server(Era::Legacy, Transport::Http, &members).await;
    let gateway = Gateway::start(&config("{}", false, &[&one], "")).await;
    for (revision, has_links) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-06-18", true),
    ] {
        let session = LegacySession::open_as(gateway.mcp, revision).await;
        let call = legacy_request("1", "tools/call", r#""name":"t""#);
        let answer = session.post(&call).await.text().await;
        assert_eq!(answer.contains("resource_link"), has_links, "{revision}");
        let start = answer.find("fanlight-result:").unwrap();
        let uri: String = answer[start..].chars().take_while(|c| *c != ' ').collect();
        let read = legacy_request(
            "2",
            "resources/read",
            &format!(r#""uri":"{uri}?lines=1-1""#),
        );
        assert!(
            session.post(&read).await.text().await.contains("0: "),
            "{revision}"
        );
    }
}

#[tokio::test]
async fn result_of_a_task_is_shortened_alike() {
    const TIMES: &str =
        r#""createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#;
    let text = lines(3000);
    let one = Backend::start(Era::Legacy, Transport::Http).await;
    one.offers_tools(&["t"]);
    one.declares(r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#);
    let task = format!(r#"{{"task":{{"taskId":"t-1","status":"completed",{TIMES}}}}}"#);
    one.on("tools/call", Reply::result(task));
    let done = format!(r#"{{"content":[{}],"x":1.0}}"#, text_block(&text));
    one.on("tasks/result", Reply::result(done));
    for of_servers in [false, true] {
        let config = config("{}", of_servers, &[&one], "");
        let mut client = Client::start(&config, Era::Legacy, Transport::Http).await;
        let params = r#""name":"t","arguments":{},"task":{"ttl":600000}"#;
        let made = client.request("1", "tools/call", params, "").await;
        let params = format!(r#""taskId":{}"#, made.member("result.task.taskId"));
        let got = client.request("2", "tasks/result", &params, "").await;
        assert!(got.answer.len() <= INLINE + 200, "{}", got.answer.len());
        assert_eq!(got.member("result.x"), "1.0");
        let uri = links(&result(&got)).remove(0);
        assert_eq!(read(&mut client, &uri).await["text"], text);
    }
}

#[tokio::test]
async fn hooks_traces_and_the_audit_log_see_the_whole() {
    let text = lines(3000);
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let one = server(Era::Modern, Transport::Http, &members).await;
    let hook = HttpRecorder::start(|_| says(r#"{"decision":"allow"}"#)).await;
    let folder = TempFile::folder();
    let state = folder.path().join("state");
    let state = state.display();
    let more = format!(
        r#""stateDir":"{state}","hooks":[{{"url":"http://{}/judge","timeout":"10s","when":["result"]}}],"#,
        hook.address
    );
    let config = config("{}", false, &[&one], &more);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let called = client.call("t").await;
    let uri = links(&result(&called)).remove(0);
    let judged: Value = serde_json::from_str(&hook.requests()[0].text()).unwrap();
    assert_eq!(judged["result"]["content"][0]["text"], text);

    let traces = text_at(client.gateway(), "/api/traces?tool=t&limit=1").await;
    let traces: Value = serde_json::from_str(&traces).unwrap();
    let id = traces["traces"][0]["traceId"].as_str().unwrap();
    let trace = text_at(client.gateway(), &format!("/api/traces/{id}")).await;
    assert!(trace.contains("fanlight.shortened"), "{trace}");
    // Content has the beginning of the server's own result.
    assert!(trace.contains("0: ") && !trace.contains(&uri), "{trace}");
    let params = format!(
        r#""ref":{{"type":"ref/resource","uri":"{uri}"}},"argument":{{"name":"x","value":""}}"#
    );
    client
        .request("1", "completion/complete", &params, "")
        .await;
    let written = async {
        loop {
            let text = text_at(client.gateway(), "/api/audit").await;
            let entries: Value = serde_json::from_str(&text).unwrap();
            let entries = entries["entries"].as_array().unwrap();
            let find = |action: &str| entries.iter().find(|entry| entry["action"] == action);
            if let (Some(call), Some(_)) = (find("tools/call"), find("completion/complete")) {
                return (call["responseBytes"].as_u64().unwrap(), text);
            }
        }
    };
    let (bytes, entries) = within("the entries", written).await;
    assert!(bytes > 2 * INLINE as u64);
    assert!(!entries.contains(&uri), "{entries}");
}

#[tokio::test]
async fn error_of_a_tool_stays_whole() {
    let text = lines(3000);
    let members = |is_error| format!(r#""content":[{}],"isError":{is_error}"#, text_block(&text));
    for (era, transport) in COMBINATIONS {
        let one = server(era, transport, &members(true)).await;
        let mut client = Client::start(&config("{}", false, &[&one], ""), era, transport).await;
        let called = client.call("t").await;
        assert!(called.answer.contains(&members(true)));
        one.on("tools/call", Reply::result(era.complete(&members(false))));
        assert_eq!(links(&result(&client.call("t").await)).len(), 1);
    }
}

#[tokio::test]
async fn tool_that_reads_results_is_announced_when_it_comes_and_goes() {
    let one = server(Era::Legacy, Transport::Http, r#""content":[]"#).await;
    let two = server(Era::Modern, Transport::Http, r#""content":[]"#).await;
    one.declares(r#"{"tools":{"listChanged":true}}"#);
    for servers in [&[&one][..], &[&one, &two]] {
        for of_servers in [false, true] {
            let with = config("{}", of_servers, servers, "");
            let without = with.replace(r#""results":{},"#, "");
            let without = without.replace(r#""results":{}"#, "");
            assert!(!without.contains("results"));
            let gateway = Gateway::start(&without).await;
            let session = LegacySession::open(gateway.mcp).await;
            let mut stream = session.stream(None).await;
            let mut listening = listen(gateway.mcp, "1", r#"{"toolsListChanged":true}"#).await;
            let acknowledged = listening.event().await.unwrap().unwrap();
            // A single server decides what its clients hear: here nothing.
            let is_honoured = acknowledged.contains("toolsListChanged");
            assert_eq!(is_honoured, servers.len() > 1, "{acknowledged}");
            for (config, is_listed) in [(&with, true), (&without, false)] {
                gateway.configure(config);
                assert_eq!(gateway.reload().await.0, 200);
                let mut streams = vec![&mut stream];
                streams.extend(is_honoured.then_some(&mut listening));
                for stream in streams {
                    let event = within("the announcement", stream.event()).await;
                    let event = event.unwrap().unwrap();
                    assert!(event.contains("tools/list_changed"), "{event}");
                }
                let list = modern_request("1", "tools/list", "", "");
                let list = post_modern(gateway.mcp, &list).await.text().await;
                assert_eq!(list.contains("read_result"), is_listed, "{list}");
            }
        }
    }
}

#[tokio::test]
async fn no_server_gets_a_subscription_to_a_kept_result() {
    const FILTER: &str = r#"{"resourceSubscriptions":["Fanlight-Result:x/content/0","test://r"]}"#;
    for era in [Era::Modern, Era::Legacy] {
        let [one, two] = [
            server(era, Transport::Http, r#""content":[]"#).await,
            server(era, Transport::Http, r#""content":[]"#).await,
        ];
        for server in [&one, &two] {
            server.declares(r#"{"tools":{},"resources":{"subscribe":true}}"#);
            let resource = server.list("resources", r#"{"uri":"test://r","name":"r"}"#);
            server.on("resources/list", resource);
            server.on("resources/subscribe", Reply::result("{}"));
            server.serves_get();
        }
        for servers in [&[&one][..], &[&one, &two]] {
            let gateway = Gateway::start(&config("{}", false, servers, "")).await;
            let mut listening = listen(gateway.mcp, "1", FILTER).await;
            let acknowledged = listening.event().await.unwrap().unwrap();
            assert!(!acknowledged.contains("fanlight-result"), "{acknowledged}");
            let session = LegacySession::open(gateway.mcp).await;
            for method in ["resources/subscribe", "resources/unsubscribe"] {
                let request = legacy_request("2", method, r#""uri":"fanlight-result:x/content/0""#);
                let answer = session.post(&request).await.text().await;
                assert!(answer.contains("-32002"), "{answer}");
            }
        }
        for server in [&one, &two] {
            let received = ["subscriptions/listen", "resources/subscribe"]
                .map(|method| server.received(method))
                .concat();
            let has = |uri: &str| received.iter().any(|one| one.text.contains(uri));
            assert!(!has("fanlight-result"), "{received:?}");
        }
        let method = match era {
            Era::Modern => "subscriptions/listen",
            Era::Legacy => "resources/subscribe",
        };
        let received = one.wait_for(method, 1).await;
        assert!(received.iter().any(|one| one.text.contains("test://r")));
    }
}

#[tokio::test]
async fn recording_has_a_result_whole_and_shortened_and_is_played() {
    let text = lines(3000);
    let members = format!(r#""content":[{}]"#, text_block(&text));
    let tool =
        r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
    for (era, transport) in COMBINATIONS {
        let servers = [
            server(era, transport, &members).await,
            server(Era::Modern, Transport::Http, &members).await,
        ];
        for server in &servers {
            server.on("tools/list", server.list("tools", tool));
        }
        let config = config("{}", false, &servers.each_ref(), "");
        let (mut client, admin) = start_recordable("{}", &config, (era, transport)).await;
        let recorder = Recorder::start(admin, &[]).await;
        client.tool_names().await;
        let uri = links(&result(&client.call("a__t").await)).remove(0);
        read(&mut client, &format!("{uri}?bytes=0-9")).await;
        let arguments = format!(r#"{{"uri":"{uri}","lines":"2-3"}}"#);
        read_tool(&mut client, &arguments).await;
        let recording = recorder.finish().await;
        drop(client);
        let all = recorder::lines(&recording);
        let has = |side: &str, part: &str| {
            let mut of_side = all.iter().filter(|line| line["side"] == side);
            of_side.any(|line| line["text"].as_str().unwrap().contains(part))
        };
        let whole = text_block(&text);
        assert!(has("server", &whole) && !has("server", &uri));
        assert!(has("client", &uri) && !has("client", &whole));

        let file = TempFile::new("jsonl", &recording);
        let path = file.path().to_str().unwrap();
        let mock = ["mock", path, "--fast"].map(str::to_owned);
        let of_client = all.iter().filter(|line| line["side"] == "client");
        assert_mocks(&mock, &of_client.collect::<Vec<_>>(), era, "{}").await;
        // Another gateway gives the result another URI.
        let config = TempFile::new("yaml", &config);
        let other = ["stdio", "--config", config.path().to_str().unwrap()].map(str::to_owned);
        for tested in [mock, other] {
            let program = fanlight().as_std().get_program().to_owned();
            let mut command = fanlight();
            command.args(["replay", path, "--json", "--"]).arg(program);
            command.args(tested).stdin(Stdio::null());
            let output = within("the replay", command.output()).await.unwrap();
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            assert_eq!(report["differences"], json!([]), "{output:?}");
            // Reads of kept results are not sent.
            assert_eq!(report["compared"], 4, "{output:?}");
        }
    }
}
