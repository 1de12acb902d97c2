//! Hand-written recordings, played to clients on stdio.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
    duplex, split,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

/// A head without servers.
const HEAD: &str = r#"{"recording":1,"fanlight":"1","started":"2026-01-01T00:00:00Z"}"#;

/// A recording of one client on stdio. `>` and `<` begin messages of the client and the server, and
/// the number is the time in milliseconds.
fn recorded(head: &str, messages: &[(u64, &str)]) -> Recording {
    let mut text = format!("{head}\n");
    for (ms, message) in messages {
        let (to, message) = match message.split_at(1) {
            (">", message) => ("server", message),
            (_, message) => ("client", message),
        };
        let line = json!({
            "us": ms * 1000, "side": "client", "endpoint": "/mcp", "connection": 1, "exchange": 1, "to": to,
            "kind": "line", "transport": "stdio", "text": message.trim(),
        });
        text += &format!("{line}\n");
    }
    Recording::parse(text.as_bytes()).unwrap()
}

struct Client {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Client {
    fn start(player: &Arc<Player>, era: Era) -> Self {
        let (ours, theirs) = duplex(1 << 20);
        let (output, input) = split(ours);
        let (reading, writing) = split(theirs);
        let connection = MockedClient::new(Arc::clone(player), era);
        let serving = tokio::spawn(async move {
            stdio::serve(connection, reading, writing).await.unwrap();
        });
        let output = BufReader::new(output).lines();
        Self {
            input,
            output,
            serving,
        }
    }

    async fn send(&mut self, text: &str) {
        let line = format!("{text}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> String {
        let line = timeout(Duration::from_secs(3600), self.output.next_line()).await;
        line.expect("a message").unwrap().unwrap()
    }

    async fn ask(&mut self, text: &str) -> String {
        self.send(text).await;
        self.next().await
    }

    /// Opens a session of a client that answers questions.
    async fn open(&mut self) {
        let params = r#"{"capabilities":{"elicitation":{}}}"#;
        let opening =
            format!(r#"{{"jsonrpc":"2.0","id":"o","method":"initialize","params":{params}}}"#);
        self.ask(&opening).await;
    }

    async fn call(&mut self, id: u64, arguments: &str) -> Value {
        let answer = self.ask(&call(&id.to_string(), arguments)).await;
        serde_json::from_str(&answer).unwrap()
    }
}

fn call(id: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
    )
}

fn player(recording: Recording, is_fast: bool) -> Arc<Player> {
    let script = Script::arrange(&recording, None).unwrap();
    Arc::new(Player {
        script,
        is_fast,
        author: None,
    })
}

fn request(text: &str) -> String {
    format!(">{}", call("1", text))
}

const ONE: &str = r#"<{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}"#;
const TWO: &str = r#"<{"result": {"n":2} ,"id":1,"jsonrpc":"2.0"}"#;

#[tokio::test(start_paused = true)]
async fn repeats_are_counted_for_each_connection_and_the_last_answer_stays() {
    let (asked, other) = (request(r#"{"a":1,"b":[1,2]}"#), request(r#"{"a":2}"#));
    let messages = [
        (0, &*asked),
        (1, ONE),
        (2, &other),
        (3, TWO),
        (4, &asked),
        (5, TWO),
    ];
    let player = player(recorded(HEAD, &messages), true);
    for _ in 0..2 {
        let mut client = Client::start(&player, Era::Legacy);
        let first = client.ask(&call("\"x\"", r#"{"b":[1.0,2],"a":1e0}"#)).await;
        assert_eq!(first, r#"{"jsonrpc":"2.0","id":"x","result":{"n":1.0}}"#);
        for id in ["7", "8"] {
            let next = client.ask(&call(id, r#"{"a":1,"b":[1,2]}"#)).await;
            assert_eq!(
                next,
                format!(r#"{{"result": {{"n":2}} ,"id":{id},"jsonrpc":"2.0"}}"#)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unrecorded_request_names_the_nearest_one_and_the_differences() {
    let (one, two) = (request(r#"{"a":1,"b":2,"c":3}"#), request(r#"{"a":9}"#));
    let messages = [(0, &*one), (1, ONE), (2, &two), (3, TWO)];
    let mut client = Client::start(&player(recorded(HEAD, &messages), true), Era::Legacy);
    let answer = client.call(5, r#"{"a":9,"d":"x"}"#).await;
    let error = &answer["error"];
    assert_eq!((&answer["id"], &error["code"]), (&json!(5), &json!(-32602)));
    assert_eq!(
        error["data"]["nearest"]["params"]["arguments"],
        json!({"a": 9})
    );
    assert_eq!(
        error["data"]["differs"],
        json!([{"pointer": "/params/arguments/d", "asked": "x"}])
    );
    let unknown = client
        .ask(r#"{"jsonrpc":"2.0","id":6,"method":"own/method"}"#)
        .await;
    let unknown: Value = serde_json::from_str(&unknown).unwrap();
    assert_eq!(unknown["error"]["code"], -32601);
    assert_eq!(
        unknown["error"]["data"],
        json!({"nearest": null, "differs": []})
    );
}

const ASK: &str =
    r#"<{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}"#;

fn answered(id: &str, content: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"city":"{content}"}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn answer_to_a_question_decides_how_the_call_goes_on() {
    let (asked, bern, rome) = (
        request("{}"),
        answered("\"q\"", "Bern"),
        answered("\"q\"", "Rome"),
    );
    let (bern, rome) = (format!(">{bern}"), format!(">{rome}"));
    let messages = [
        (0, &*asked),
        (1, ASK),
        (2, &bern),
        (3, ONE),
        (4, &asked),
        (5, ASK),
        (6, &rome),
        (7, TWO),
    ];
    let mut client = Client::start(&player(recorded(HEAD, &messages), true), Era::Legacy);
    client.open().await;
    let question: Value = serde_json::from_str(&client.ask(&call("1", "{}")).await).unwrap();
    assert_eq!(question["id"], "q");
    let answer = client.ask(&answered("\"q\"", "Rome")).await;
    assert_eq!(answer, TWO.trim_start_matches('<'));
    // The id of the question was used in this connection.
    let question: Value = serde_json::from_str(&client.ask(&call("2", "{}")).await).unwrap();
    assert_eq!(question["id"], "mock-1");
    let answer = client.ask(&answered("\"mock-1\"", "Bern")).await;
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":2,"result":{"n":1.0}}"#);
    client.ask(&call("3", "{}")).await;
    let answer = client.ask(&answered("\"mock-2\"", "Oslo")).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["id"], 3);
    let differs = &answer["error"]["data"]["differs"];
    assert_eq!(differs[0]["pointer"], "/result/content/city");
    assert_eq!(differs[0]["asked"], "Oslo");
}

#[tokio::test(start_paused = true)]
async fn client_is_not_asked_what_it_has_not_declared() {
    let (asked, answer) = (request("{}"), format!(">{}", answered("\"q\"", "Bern")));
    // The first question belongs to no call.
    let outside = ASK.replace("\"q\"", "\"p\"");
    let messages = [
        (0, INITIALIZE),
        (1, OPENED),
        (2, &outside),
        (3, &*asked),
        (4, ASK),
        (5, &answer),
        (6, ONE),
    ];
    let player = player(recorded(HEAD, &messages), true);
    let mut client = Client::start(&player, Era::Legacy);
    client.ask(INITIALIZE.trim_start_matches('>')).await;
    let answer = client.call(7, "{}").await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32021))
    );
    let required = &answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(required, &json!({"elicitation": {}}));
    let mut other = Client::start(&player, Era::Legacy);
    other.open().await;
    assert_eq!(other.next().await, outside.trim_start_matches('<'));
}

#[tokio::test(start_paused = true)]
async fn list_is_answered_whatever_the_client_says_to_a_question_meanwhile() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let (asked, answer) = (
        format!(">{list}"),
        format!(">{}", answered("\"q\"", "Bern")),
    );
    let listed = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
    let told = format!("<{listed}");
    let messages = [(0, &*asked), (1, ASK), (2, &*answer), (3, &*told)];
    let mut client = Client::start(&player(recorded(HEAD, &messages), true), Era::Legacy);
    client.open().await;
    assert_eq!(client.ask(list).await, ASK.trim_start_matches('<'));
    assert_eq!(client.ask(&answered("\"q\"", "Oslo")).await, listed);
}

#[tokio::test(start_paused = true)]
async fn modern_client_is_not_asked_what_it_has_not_declared() {
    let ask = |id: u8, capabilities: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
        )
    };
    let wanted = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"url"}}}}}"#;
    let asked = format!(">{}", ask(1, r#"{"elicitation":{"url":{}}}"#));
    let messages = [(0, &*asked), (1, &*format!("<{wanted}"))];
    let mut client = Client::start(&player(recorded(HEAD, &messages), true), Era::Modern);
    let refused = client.ask(&ask(2, r#"{"elicitation":{"form":{}}}"#)).await;
    assert!(
        refused.contains("-32021") && refused.contains(r#""url""#),
        "{refused}"
    );
    assert_eq!(
        client.ask(&ask(1, r#"{"elicitation":{"url":{}}}"#)).await,
        wanted
    );
}

#[tokio::test(start_paused = true)]
async fn progress_has_the_token_of_the_client_and_the_recorded_times() {
    let asked = r#">{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{},"_meta":{"progressToken":"p"}}}"#;
    let progress = r#"<{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.5}}"#;
    let messages = [(0, asked), (2000, progress), (5000, ONE)];
    let player = player(recorded(HEAD, &messages), false);
    let mut client = Client::start(&player, Era::Legacy);
    let began = Instant::now();
    let own = asked
        .replace(r#""p""#, "77")
        .replace("\"id\":1", "\"id\":9");
    let first = client.ask(own.trim_start_matches('>')).await;
    assert_eq!(began.elapsed().as_millis(), 2000);
    assert_eq!(
        first,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":0.5}}"#
    );
    assert_eq!(
        client.next().await,
        r#"{"jsonrpc":"2.0","id":9,"result":{"n":1.0}}"#
    );
    assert_eq!(began.elapsed().as_millis(), 5000);
    // A client that asks for no progress gets none.
    assert_eq!(
        client.ask(&call("1", "{}")).await,
        ONE.trim_start_matches('<')
    );
}

const INITIALIZE: &str = r#">{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
const INITIALIZED: &str = r#">{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const OPENED: &str = r#"<{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
const CHANGED: &str = r#"<{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

#[tokio::test(start_paused = true)]
async fn notification_outside_of_calls_comes_at_its_time_or_right_after_the_message_before() {
    let asked = request("{}");
    let messages = [
        (1000, INITIALIZE),
        (1001, OPENED),
        (1002, INITIALIZED),
        (4000, CHANGED),
        (4001, &asked),
        (4002, ONE),
        (9000, CHANGED),
    ];
    let changed = CHANGED.trim_start_matches('<');
    for is_fast in [false, true] {
        let player = player(recorded(HEAD, &messages), is_fast);
        let mut client = Client::start(&player, Era::Legacy);
        let began = Instant::now();
        // Another client opens with other parameters, and gets the same answer.
        let opening = INITIALIZE.replace(r#""name":"a""#, r#""name":"b""#);
        assert_eq!(
            client.ask(opening.trim_start_matches('>')).await,
            OPENED.trim_start_matches('<')
        );
        let came = client.ask(INITIALIZED.trim_start_matches('>')).await;
        assert_eq!(
            (came.as_str(), began.elapsed().as_secs()),
            (changed, if is_fast { 0 } else { 3 })
        );
        assert_eq!(
            client.ask(&call("1", "{}")).await,
            ONE.trim_start_matches('<')
        );
        assert_eq!(client.next().await, changed);
        assert_eq!(began.elapsed().as_secs(), if is_fast { 0 } else { 8 });
    }
}

#[tokio::test(start_paused = true)]
async fn opening_and_lists_of_the_head_are_answered() {
    let head = json!({
        "recording": 1, "fanlight": "1", "started": "2026-01-01T00:00:00Z",
        "servers": {"a": {
            "revision": "2025-11-25",
            "opening": r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#,
            "definitions": {"tools": [r#"{"name": "t"}"#, "not JSON"]},
        }},
    });
    // The first response answers a request before the recording, which ended before these were
    // answered.
    let asked = r#">{"jsonrpc":"2.0","id":8,"method":"prompts/list"}"#;
    let messages = [(0, ONE), (1, INITIALIZE), (2, asked)];
    let player = player(recorded(&head.to_string(), &messages), true);
    assert!(player.plays(Era::Legacy) && !player.plays(Era::Modern));
    let opening = player.script.opening(Era::Modern).unwrap();
    assert!(opening.get("supportedVersions").is_some() && opening.get("resultType").is_some());
    let mut client = Client::start(&player, Era::Legacy);
    for (request, result) in [
        (
            INITIALIZE.trim_start_matches('>'),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#,
        ),
        (r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, "{}"),
        (
            r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#,
            r#"{"tools":[{"name": "t"}]}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":0,"method":"prompts/list","params":{}}"#,
            r#"{"prompts":[]}"#,
        ),
    ] {
        let answer = client.ask(request).await;
        assert_eq!(
            answer,
            format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_ends_as_recorded() {
    let (open, cancelled) = (request(r#"{"a":1}"#), call("2", r#"{"a":2}"#));
    let cancelled = format!(">{cancelled}");
    let cancel =
        r#">{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let messages = [(0, &*cancelled), (1, cancel), (2, &*open)];
    let mut client = Client::start(&player(recorded(HEAD, &messages), true), Era::Legacy);
    client.send(&call("7", r#"{"a":2}"#)).await;
    client
        .send(&cancel.trim_start_matches('>').replace(":2}", ":7}"))
        .await;
    let answer = client.call(8, r#"{"a":1}"#).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(8), &json!(-32603))
    );
}

#[tokio::test(start_paused = true)]
async fn subscription_has_the_id_of_the_client() {
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let listen = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{}},"_meta":{{{meta}}}}}}}"#
        )
    };
    let told = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    let messages = [
        (0, &*format!(">{}", listen("\"l\""))),
        (10, &*format!("<{}", told("\"l\""))),
    ];
    let player = player(recorded(HEAD, &messages), true);
    assert!(player.plays(Era::Modern) && !player.plays(Era::Legacy));
    let mut client = Client::start(&player, Era::Modern);
    assert_eq!(client.ask(&listen("4")).await, told("4"));
    let refused: Value =
        serde_json::from_str(&client.ask(INITIALIZE.trim_start_matches('>')).await).unwrap();
    assert_eq!(refused["error"]["code"], -32022);
}

#[tokio::test(start_paused = true)]
async fn hostile_recording_and_client_harm_nothing() {
    let deep = format!(">{}", "[".repeat(100_000));
    let many = format!(">[{}]", vec![call("1", "{}"); 500].join(","));
    let messages = [
        (u64::MAX / 1000, request("{}").leak() as &str),
        (0, "<"),
        (1, &deep),
        (2, &many),
        (3, r#"<{"jsonrpc":"2.0","id":null,"result":{}}"#),
        (4, "<\u{0}"),
        (5, r#">{"jsonrpc":"2.0","id":"q","result":{}}"#),
        (7, ONE),
    ];
    let mut client = Client::start(&player(recorded(HEAD, &messages), false), Era::Legacy);
    for (sent, code) in [
        ("{", -32700),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
    ] {
        let answer: Value = serde_json::from_str(&client.ask(sent).await).unwrap();
        assert_eq!(answer["error"]["code"], code, "{sent}");
    }
    client.send("").await;
    let batch = format!("[{},{}]", call("\"a\"", "7"), call("\"b\"", "8"));
    client.send(&batch).await;
    let texts = [client.next().await, client.next().await];
    let refused = texts.iter().filter(|it| it.contains("-32602"));
    assert_eq!(refused.count(), 2, "{texts:?}");
}

#[test]
fn messages_of_one_server_are_played() {
    let text = [
        r#"{"recording":1,"fanlight":"1","started":"t","servers":{"a":{"revision":"2026-07-28"},"b":{}}}"#,
        r#"{"us":1,"side":"client","connection":1,"exchange":1,"to":"server","kind":"line","transport":"stdio","text":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"}"#,
        r#"{"us":1,"side":"server","server":"b","connection":2,"exchange":2,"to":"server","kind":"body","transport":"http","revision":"2026-07-28","text":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}"}"#,
        "",
    ];
    let recording = Recording::parse(text.join("\n").as_bytes()).unwrap();
    let script = |name| Script::arrange(&recording, name);
    assert!(script(None).unwrap().plays(Era::Legacy));
    assert!(script(Some("a")).unwrap().plays(Era::Modern));
    assert!(
        script(Some("b"))
            .unwrap()
            .takes_of(Era::Modern, &fanlight_protocol::Method::CallTool)
            .len()
            == 1
    );
    assert!(
        script(Some("c"))
            .err()
            .unwrap()
            .to_string()
            .contains("a, b")
    );
}
