//! `fanlight record`: the file has what the peers of the gateway sent and received. `fanlight mock`
//! and `fanlight replay` play it.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use fanlight_testkit::recorder::{Recorder, lines};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::clients::Client;
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, StdioClient, legacy_request, modern_request, post_modern,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::server_requests::EVERYTHING;

macro_rules! recorded {
    ($($(#[$nightly:meta])? $name:ident: $client:ident over $front:ident to $server:ident over $back:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            calls_are_recorded_as_sent((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
        })*
    };
}

for_all_combinations!(recorded);

/// The messages of one side in one direction.
fn messages<'a>(all: &'a [Value], side: &str, to: &str) -> Vec<&'a Value> {
    let of = |line: &&Value| line["side"] == side && line["to"] == to;
    all.iter().filter(of).collect()
}

fn texts<'a>(messages: &[&'a Value]) -> Vec<&'a str> {
    messages
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect()
}

/// Starts a gateway, and a client of it with these capabilities; returns the admin address, too.
pub(crate) async fn start_recordable(
    capabilities: &str,
    config: &str,
    front: (Era, Transport),
) -> (Client, SocketAddr) {
    let admin = fanlight_testkit::ports::free();
    let of_stdio = config.replacen('{', &format!(r#"{{"admin":{{"listen":"{admin}"}},"#), 1);
    let config = match front.1 {
        Transport::Http => config,
        Transport::Stdio => &of_stdio,
    };
    let client = Client::start_with(capabilities, config, front.0, front.1).await;
    let admin = match front.1 {
        Transport::Http => client.gateway().admin,
        Transport::Stdio => admin,
    };
    (client, admin)
}

/// Plays a recording of one client and one server, in these eras. A client of the mock gets the bytes
/// that the recorded client got, and a gateway in front of the server's mock those that the server
/// sent. Then replays the recording against both mocks, without a difference.
pub(crate) async fn assert_plays(text: &str, (client, server): (Era, Era), capabilities: &str) {
    let file = TempFile::new("jsonl", text);
    let all = lines(text);
    let name = all[0]["servers"].as_object().unwrap().keys().next();
    let mock = |more: &[&str]| {
        let arguments = ["mock", file.path().to_str().unwrap(), "--fast"];
        let all = arguments.iter().chain(more).copied();
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let clients = (mock(&[]), "client", client, capabilities);
    let servers = mock(&["--server", name.unwrap()]);
    for (mock, side, era, capabilities) in [clients, (servers, "server", server, EVERYTHING)] {
        let mut recorded: Vec<_> = all.iter().filter(|line| line["side"] == side).collect();
        if side == "server" {
            // The gateway reads lists in a connection of its own, or without a client's request.
            let caused = recorded.iter().rfind(|line| line["cause"].is_u64());
            let connection = caused.unwrap()["connection"].clone();
            recorded.retain(|line| line["connection"] == connection);
            if !opens(&recorded) {
                recorded.retain(|line| line["cause"].is_u64());
            }
        }
        assert_mocks(&mock, &recorded, era, capabilities).await;
        let program = fanlight().as_std().get_program().to_owned();
        let mut command = fanlight();
        command.arg("replay").arg(file.path());
        command.args(["--all", "--json"]);
        if (side, client, server) == ("client", Era::Modern, Era::Legacy) {
            // Requests of a legacy client get no structured content but objects from this mock.
            command.args(["--ignore", "/result/structuredContent"]);
        }
        command.arg("--").arg(program).args(&mock);
        command.stdin(Stdio::null());
        let output = within("the replay", command.output()).await.unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let is_same = report["differences"] == json!([]) && report["declined"] == json!([]);
        assert!(output.status.success() && is_same, "{output:?}\n{text}");
        assert!(report["compared"].as_u64().unwrap() > 2, "{report}");
    }
}

/// Whether a session was opened while it was recorded.
fn opens(recorded: &[&Value]) -> bool {
    let is_opening = |text: &str| text.contains(r#""method":"initialize""#);
    recorded
        .iter()
        .any(|line| line["text"].as_str().is_some_and(is_opening))
}

/// Sends what was recorded to a mock on stdio, which answers with the same bytes.
pub(crate) async fn assert_mocks(
    mock: &[String],
    recorded: &[&Value],
    era: Era,
    capabilities: &str,
) {
    let mut command = fanlight();
    command.args(mock);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut mock = command.spawn().unwrap();
    let (input, output) = (mock.stdin.take().unwrap(), mock.stdout.take().unwrap());
    let mut client = StdioClient::unchecked(input, output);
    if era == Era::Legacy && !opens(recorded) {
        client.initialize_with(NEWEST_LEGACY, capabilities).await;
    }
    for message in recorded {
        let text = message["text"].as_str().unwrap();
        match &message["to"] {
            to if to == "server" => client.send(text).await,
            _ => assert_eq!(
                client.receive().await.as_deref(),
                Some(text),
                "{recorded:#?}"
            ),
        }
    }
}

/// Further requests of a recorded conversation.
const MORE: [(&str, &str); 4] = [
    ("resources/read", r#""uri":"test://r""#),
    ("prompts/get", r#""name":"p""#),
    (
        "completion/complete",
        r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}"#,
    ),
    ("tools/call", r#""name":"fails","arguments":{"n":1e0}"#),
];

/// Lets a server answer [`MORE`].
fn offer_more(backend: &Backend, era: Era) {
    backend.offers_tools(&["t", "fails"]);
    backend.on("prompts/list", backend.list("prompts", r#"{"name":"p"}"#));
    let resource = r#"{"uri":"test://r","name":"r"}"#;
    backend.on("resources/list", backend.list("resources", resource));
    let read = r#""contents":[{"uri":"test://r","text":"\u0041 \/","x":1.0e1}]"#;
    backend.on("resources/read", Reply::result(era.cacheable(read)));
    let prompt =
        r#""messages":[{"role":"user","content":{"type":"text","text":"x"}}],"x":[ 1.50 ]"#;
    backend.on("prompts/get", Reply::result(era.complete(prompt)));
    let values = r#""completion":{"values":["x"],"total":1.0}"#;
    backend.on("completion/complete", Reply::result(era.complete(values)));
    let error = Reply::error(r#"{"code":4711,"message":"no","data":{ "a":1.0}}"#);
    backend.on_target("tools/call", "fails", error);
}

async fn calls_are_recorded_as_sent(front: (Era, Transport), back: (Era, Transport)) {
    let backend = Backend::start(back.0, back.1).await;
    let result = r#""content":[],"structuredContent":{ "n" : 1.0e5,"s":"\u0041\/ü" },"x-y":[1.0]"#;
    let result = back.0.complete(result);
    backend.on("tools/call", Reply::result(result).streamed());
    offer_more(&backend, back.0);
    let config = config(&[backend.entry("s")]);
    let (mut client, admin) = start_recordable("{}", &config, front).await;
    client.call("t").await;
    let recorder = Recorder::start(admin, &[]).await;
    let (params, meta) = (r#""name":"t","arguments":{ "x" : 1.50 }"#, "");
    let request = client.request_text("77", "tools/call", params, meta);
    let answer = client
        .request("77", "tools/call", params, meta)
        .await
        .answer;
    for (method, params) in MORE {
        client.request("78", method, params, meta).await;
    }
    let text = recorder.finish().await;
    drop(client);
    assert_plays(&text, (front.0, back.0), "{}").await;
    let all = lines(&text);
    let asked = messages(&all, "client", "server");
    assert!(texts(&asked).contains(&&*request), "{all:?}");
    let answered = messages(&all, "client", "client");
    assert!(texts(&answered).contains(&&*answer), "{answer} in {all:?}");
    // The server got the second call, whose cause is the client's message.
    let received = backend.received("tools/call");
    let sent = messages(&all, "server", "server");
    let sent: Vec<_> = sent
        .into_iter()
        .filter(|line| line["text"] == received[1].text)
        .collect();
    assert_eq!(sent.len(), 1, "{all:?}");
    let of_request = asked.iter().find(|line| line["text"] == *request).unwrap();
    assert_eq!(sent[0]["cause"], of_request["exchange"]);
    let replies = messages(&all, "server", "client");
    let reply = replies
        .iter()
        .find(|line| line["cause"] == of_request["exchange"])
        .unwrap();
    assert!(
        reply["text"]
            .as_str()
            .unwrap()
            .contains(r#"{ "n" : 1.0e5,"s":"\u0041\/ü" }"#),
        "{reply}"
    );
    let end = all.last().unwrap();
    assert_eq!(
        (&end["end"]["reason"], &end["end"]["whole"]),
        (&"interrupted".into(), &true.into())
    );
    let server = &all[0]["servers"]["s"];
    assert!(
        server["definitions"]["tools"][0]
            .as_str()
            .unwrap()
            .contains(r#""name":"t""#),
        "{server}"
    );
    assert_eq!(server["digests"]["tools"][0].as_str().unwrap().len(), 64);
    assert!(server["opening"].is_string() && server["revision"].is_string());
}

async fn two_servers(endpoints: &str) -> (Gateway, [Backend; 2]) {
    let mut all = Vec::new();
    for name in ["a", "b"] {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&[name]);
        all.push(backend);
    }
    let config = config(&[all[0].entry("one"), all[1].entry("two")]);
    let config = config.replacen('{', &format!("{{{endpoints}"), 1);
    let gateway = Gateway::start(&config).await;
    (gateway, all.try_into().ok().unwrap())
}

#[tokio::test]
async fn one_endpoint_is_recorded_with_what_it_causes() {
    let (gateway, _servers) =
        two_servers(r#""endpoints":{"/mcp":{},"/mcp/one":{"servers":["one"]}},"#).await;
    let recorder = Recorder::start(gateway.admin, &["--endpoint", "/mcp"]).await;
    let body = |tool: &str| {
        modern_request(
            "1",
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
            "",
        )
    };
    post_modern(gateway.mcp, &body("one__a")).await.text().await;
    let mut elsewhere = crate::raw_client::Connection::open(gateway.mcp).await;
    let call = body("a");
    let headers = crate::raw_client::modern_headers(&call);
    let mut all = crate::raw_client::JSON_HEADERS.to_vec();
    all.extend(headers.iter().map(|(name, value)| (&**name, &**value)));
    elsewhere
        .request("POST", "/mcp/one", &all, call.as_bytes())
        .await;
    elsewhere.response().await.text().await;
    let all = lines(&recorder.finish().await);
    assert_eq!(all[0]["endpoint"], "/mcp");
    let clients = messages(&all, "client", "server");
    assert_eq!(clients.len(), 1, "{all:?}");
    let calls = messages(&all, "server", "server");
    assert!(
        !calls.is_empty()
            && calls
                .iter()
                .all(|line| line["cause"] == clients[0]["exchange"]),
        "{all:?}"
    );
}

#[tokio::test]
async fn one_server_is_recorded_and_the_file_is_private() {
    let (gateway, _servers) = two_servers("").await;
    let recorder = Recorder::start(gateway.admin, &["--server", "two"]).await;
    let mode = std::fs::metadata(recorder.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    for tool in ["one__a", "two__b"] {
        let params = format!(r#""name":"{tool}","arguments":{{}}"#);
        let body = modern_request("1", "tools/call", &params, "");
        post_modern(gateway.mcp, &body).await.text().await;
    }
    // There is one recording at a time, and no file is overwritten.
    let again = |more: &[&str]| {
        let mut command = fanlight();
        command.arg("record").arg(recorder.path());
        command
            .args(["--admin", &format!("http://{}", gateway.admin)])
            .args(more);
        command
    };
    let refused = within("the refusal", again(&[]).output()).await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let all = lines(&recorder.finish().await);
    assert_eq!(messages(&all, "client", "server").len(), 2);
    let servers = messages(&all, "server", "server");
    assert!(
        !servers.is_empty() && servers.iter().all(|line| line["server"] == "two"),
        "{all:?}"
    );
    assert_eq!(all[0]["servers"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn recording_ends_by_itself_at_its_time_and_size() {
    let (gateway, _servers) = two_servers("").await;
    let recorder = Recorder::start(gateway.admin, &["--for", "200ms"]).await;
    let all = lines(&recorder.ended().await);
    assert_eq!(all.last().unwrap()["end"]["reason"], "time");
    let recorder = Recorder::start(gateway.admin, &["--max-bytes", "4KiB"]).await;
    let body = modern_request("1", "tools/list", "", "");
    for _ in 0..20 {
        post_modern(gateway.mcp, &body).await.text().await;
    }
    let all = lines(&recorder.ended().await);
    let end = &all.last().unwrap()["end"];
    assert_eq!(
        (&end["reason"], &end["whole"]),
        (&"size".into(), &false.into())
    );
}

#[tokio::test]
async fn session_has_one_connection_and_no_id_in_the_file() {
    let (gateway, _servers) = two_servers("").await;
    let recorder = Recorder::start(gateway.admin, &[]).await;
    let session = LegacySession::open(gateway.mcp).await;
    for id in ["1", "2"] {
        session
            .post(&legacy_request(id, "tools/list", ""))
            .await
            .text()
            .await;
    }
    let text = recorder.finish().await;
    let id = session
        .headers()
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))
        .unwrap()
        .1
        .to_owned();
    assert!(!text.contains(&id));
    let all = lines(&text);
    let numbers: std::collections::HashSet<_> = messages(&all, "client", "server")
        .iter()
        .map(|line| line["connection"].as_u64())
        .collect();
    assert_eq!(numbers.len(), 1, "{all:?}");
}

/// Reads a request, whose body is one JSON object or empty.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut read = String::new();
    loop {
        let end = match read.contains("application/json") {
            true => "}",
            false => "\r\n\r\n",
        };
        if read.ends_with(end) {
            return read;
        }
        let mut bytes = Vec::new();
        let count = stream.read_buf(&mut bytes).await.unwrap();
        assert!(count > 0, "the whole request");
        read += std::str::from_utf8(&bytes).unwrap();
    }
}

#[tokio::test]
async fn interrupted_recording_has_what_a_busy_gateway_still_sends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = listener.local_addr().unwrap();
    let whole = r#"{"recording":1,"fanlight":"1","started":"2026-01-01T00:00:00Z"}
{"us":9,"end":{"reason":"interrupted","whole":true,"messages":0}}
"#;
    let gateway = tokio::spawn(async move {
        let (mut recording, _) = listener.accept().await.unwrap();
        let asked = read_request(&mut recording).await;
        assert!(asked.starts_with("POST /api/recording "), "{asked}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n";
        recording.write_all(head.as_bytes()).await.unwrap();
        let (mut ending, _) = listener.accept().await.unwrap();
        let asked = read_request(&mut ending).await;
        assert!(asked.starts_with("POST /api/recording/end "), "{asked}");
        let done = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        ending.write_all(done.as_bytes()).await.unwrap();
        recording.write_all(whole.as_bytes()).await.unwrap();
    });
    let recorder = Recorder::start(admin, &[]).await;
    assert_eq!(recorder.finish().await, whole);
    within("the gateway", gateway).await.unwrap();
}
