//! The core against backends that answer from a script.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use fanlight_backend::{BackendClient, BackendError, BackendState, CallContext, Pending, ServerMessages};
use fanlight_protocol::Message;
use fanlight_protocol::result::ServerDescription;

use super::*;
use crate::settings::ListLimits;

mod tasks;

/// Answers each `method` or `method params` from a script; records what it was sent.
struct Fake {
    name: &'static str,
    description: Result<&'static str, BackendError>,
    script: HashMap<String, Scripted>,
    received: Mutex<Vec<String>>,
}

#[derive(Clone)]
enum Scripted {
    Body(&'static str),
    /// After half the time that a list may take.
    Late(&'static str),
    Fails(BackendError),
    Hangs,
}

const ALL: &str = r#"{"capabilities":{"tools":{},"resources":{},"prompts":{},"logging":{}},"serverInfo":{"name":"x"}}"#;

fn fake(name: &'static str, script: &[(&str, &'static str)]) -> Fake {
    let script = script.iter().map(|(key, body)| ((*key).to_owned(), Scripted::Body(body))).collect();
    Fake { name, description: Ok(ALL), script, received: Mutex::default() }
}

fn unreachable() -> BackendError {
    BackendError::Unreachable { reason: "connection refused".into() }
}

impl BackendClient for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        let description = self.description.clone().map(|text| Json::literal(text).into());
        Box::pin(async move { description })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        let params = call.params.as_ref().map(|params| format!(" {params}")).unwrap_or_default();
        let request = format!("{}{params}", call.method);
        self.received.lock().unwrap().push(request.clone());
        let scripted = self.script.get(&request).or_else(|| self.script.get(call.method.as_str())).cloned();
        Box::pin(async move {
            let body = match scripted {
                Some(Scripted::Body(body)) => body,
                Some(Scripted::Late(body)) => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    body
                }
                Some(Scripted::Fails(error)) => return Err(error),
                Some(Scripted::Hangs) => std::future::pending().await,
                None => r#""error":{"code":-32601,"message":"no"}"#,
            };
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
            let Ok(Message::Response(response)) = Message::parse(Bytes::from(text), 64) else { panic!("script") };
            Ok(response)
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(async move { Ok(Listening::new(listen.interest, ())) })
    }

    fn end_session(&self, _: SessionKey) {}

    fn status(&self) -> BackendStatus {
        BackendStatus { attempted: true, state: BackendState::Ready, era: None, revision: None, transport: "stdio" }
    }
}

struct Scene {
    gateway: Gateway,
    backends: Vec<Arc<Fake>>,
}

fn scene(backends: Vec<Fake>) -> Scene {
    scene_with(backends.into_iter().map(|backend| (backend, None)).collect(), 1000)
}

fn scene_with(backends: Vec<(Fake, Option<&str>)>, page_size: usize) -> Scene {
    let (backends, prefixes): (Vec<_>, Vec<_>) =
        backends.into_iter().map(|(fake, prefix)| (Arc::new(fake), prefix)).unzip();
    let entries = backends.iter().zip(prefixes).map(|(fake, prefix)| BackendEntry {
        client: Arc::<Fake>::clone(fake),
        prefix: prefix.map(str::to_owned),
        permits_tool: None,
    });
    let settings = GatewaySettings {
        backends: entries.collect(),
        lists: ListLimits { timeout: Duration::from_secs(1), pages: 5, entries: 100, page_size },
        max_tasks: 100,
        keys: fanlight_protocol::seal::Keys::default(),
        identity: Json::literal(r#"{"name":"fanlight","version":"0"}"#),
    };
    Scene { gateway: Gateway::new(settings).unwrap(), backends }
}

impl Scene {
    async fn ask(&self, method: &str, params: Option<&str>) -> String {
        let call = Call {
            method: Method::from_name(method),
            params: params.map(|text| Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()),
            context: CallContext::internal(),
            messages: ServerMessages::nowhere(),
        };
        self.gateway.handle(call).await.body().as_text().to_owned()
    }

    fn received(&self, backend: usize) -> Vec<String> {
        std::mem::take(&mut *self.backends[backend].received.lock().unwrap())
    }
}

fn error_of(body: &str) -> (i64, String) {
    let error = Json::parse(Bytes::copy_from_slice(body.as_bytes()), 64).unwrap();
    (error.get("code").unwrap().as_i64().unwrap(), error.get("message").unwrap().as_str().unwrap().into_owned())
}

#[tokio::test]
async fn one_backend_is_passed_through() {
    let scene = scene(vec![fake(
        "a",
        &[
            ("tools/list", r#""result":{ "tools" : [],"nextCursor":"c" }"#),
            ("new/method {\"x\":1.0}", r#""result":{"y":2.0}"#),
        ],
    )]);
    assert_eq!(scene.ask("tools/list", Some(r#"{"cursor":"mine"}"#)).await, r#"{ "tools" : [],"nextCursor":"c" }"#);
    assert_eq!(scene.received(0), [r#"tools/list {"cursor":"mine"}"#]);
    assert_eq!(scene.ask("new/method", Some(r#"{"x":1.0}"#)).await, r#"{"y":2.0}"#);
    assert_eq!(scene.ask("server/discover", None).await, ALL);
}

#[tokio::test]
async fn tools_of_several_backends_are_listed_and_called_by_prefix() {
    let tool = |n: &'static str| ("tools/call", n);
    let scene = scene(vec![
        fake(
            "a",
            &[
                ("tools/list", r#""result":{"tools":[{ "x" : 1.0,"name":"t\u0031" }],"_meta":{"k":1}}"#),
                tool(r#""result":{"content":[],"from":"a"}"#),
            ],
        ),
        fake(
            "b",
            &[
                ("tools/list", r#""result":{"tools":[{"name":"t1"}]}"#),
                tool(r#""error":{"code":-5,"message":"b says","data":[1.0]}"#),
            ],
        ),
    ]);
    let list = scene.ask("tools/list", None).await;
    assert_eq!(list, r#"{"tools":[{ "x" : 1.0,"name":"a__t\u0031" },{"name":"b__t1"}],"_meta":{"k":1}}"#);
    scene.received(0);
    let called = scene.ask("tools/call", Some(r#"{"arguments":{"n":1E400},"name":"a__t1"}"#)).await;
    assert_eq!(called, r#"{"content":[],"from":"a"}"#);
    assert_eq!(scene.received(0), [r#"tools/call {"arguments":{"n":1E400},"name":"t\u0031"}"#]);
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"b__t1"}"#)).await,
        r#"{"code":-5,"message":"b says","data":[1.0]}"#
    );
    assert_eq!(
        error_of(&scene.ask("tools/call", Some(r#"{"name":"zzz"}"#)).await),
        (-32602, "Unknown tool: zzz".into())
    );
    assert_eq!(error_of(&scene.ask("tools/call", None).await).1, "params.name is missing");
    assert_eq!(error_of(&scene.ask("tools/call", Some(r#"{"name":"a__t1","name":"b__t1"}"#)).await).0, -32602);
    assert_eq!(error_of(&scene.ask("new/method", None).await), (-32601, "Method not found: new/method".into()));
}

#[tokio::test]
async fn a_prefixed_name_finds_its_backend_without_a_list() {
    let scene = scene(vec![fake("a", &[]), fake("b", &[("tools/call", r#""result":{"ok":1}"#)])]);
    assert_eq!(scene.ask("tools/call", Some(r#"{"name":"b__hidden"}"#)).await, r#"{"ok":1}"#);
    assert_eq!(scene.received(1), [r#"tools/call {"name":"hidden"}"#]);
    assert!(scene.received(0).is_empty());
}

#[tokio::test]
async fn pages_are_read_to_the_end_and_cut_anew() {
    let scene = scene_with(
        vec![
            (
                fake(
                    "a",
                    &[
                        ("tools/list", r#""result":{"tools":[{"name":"1"},{"name":"2"}],"nextCursor":""}"#),
                        (r#"tools/list {"cursor":""}"#, r#""result":{"tools":[{"name":"3"}]}"#),
                    ],
                ),
                None,
            ),
            (fake("b", &[("tools/list", r#""result":{"tools":[{"name":"4"}]}"#)]), None),
        ],
        2,
    );
    let mut names = Vec::new();
    let mut params = None;
    loop {
        let page = Json::parse(scene.ask("tools/list", params.as_deref()).await.into(), 64).unwrap();
        let tools = page.get("tools").unwrap();
        names.push(
            tools
                .elements()
                .map(|tool| tools.slice(tool).get("name").unwrap().to_string())
                .collect::<Vec<_>>()
                .join(" "),
        );
        match page.get("nextCursor") {
            Some(cursor) => params = Some(format!(r#"{{"cursor":{cursor}}}"#)),
            None => break,
        }
    }
    assert_eq!(names, [r#""a__1" "a__2""#, r#""a__3" "b__4""#]);
    let foreign = scene.ask("prompts/list", params.as_deref()).await;
    assert_eq!(error_of(&foreign).0, -32602, "{foreign}");
    assert_eq!(error_of(&scene.ask("tools/list", Some(r#"{"cursor":"x"}"#)).await).0, -32602);
}

#[tokio::test(start_paused = true)]
async fn a_bad_backend_costs_only_its_own_part() {
    let good = fake("good", &[("tools/list", r#""result":{"tools":[{"name":"t"}]}"#)]);
    let mut slow = fake("slow", &[]);
    slow.script.insert("tools/list".into(), Scripted::Hangs);
    let mut gone = fake("gone", &[]);
    gone.description = Err(unreachable());
    gone.script.insert("tools/call".into(), Scripted::Fails(unreachable()));
    let looping = fake("looping", &[("tools/list", r#""result":{"tools":[],"nextCursor":"same"}"#)]);
    let scene = scene(vec![slow, good, gone, looping]);
    let list = scene.ask("tools/list", None).await;
    let expected = r#"{"tools":[{"name":"good__t"}],"_meta":{"dev.fanlight/backends":{"slow":{"outcome":"timeout","reason":"did not answer within 1s"},"good":{"outcome":"ok"},"gone":{"outcome":"unreachable","reason":"cannot be reached: connection refused"},"looping":{"outcome":"error","reason":"the list was cut off: it repeated a cursor"}}}}"#;
    assert_eq!(list, expected);
    assert_eq!(scene.received(3).len(), 2);
    let (code, message) = error_of(&scene.ask("tools/call", Some(r#"{"name":"gone__t"}"#)).await);
    assert_eq!(code, -31001);
    assert!(message.contains("\"gone\"") && message.contains("can be sent again"), "{message}");
}

#[tokio::test]
async fn colliding_names_go_to_the_first_and_are_reported() {
    let list = [("tools/list", r#""result":{"tools":[{"name":"t"}]}"#), ("tools/call", r#""result":{}"#)];
    let scene = scene_with(vec![(fake("a", &list), Some("")), (fake("b", &list), Some(""))], 10);
    let expected =
        r#"{"tools":[{"name":"t"}],"_meta":{"dev.fanlight/collisions":[{"name":"t","kept":"a","other":"b"}]}}"#;
    assert_eq!(scene.ask("tools/list", None).await, expected);
    scene.received(0);
    assert_eq!(scene.ask("tools/call", Some(r#"{"name":"t"}"#)).await, "{}");
    assert_eq!(scene.received(0), [r#"tools/call {"name":"t"}"#]);
}

#[tokio::test]
async fn a_uri_that_two_claim_stays_readable_twice() {
    let backend = |name, read| {
        fake(
            name,
            &[
                ("resources/list", r#""result":{"resources":[{"uri":"f:\/\/x","name":"X"}]}"#),
                ("resources/templates/list", r#""result":{"resourceTemplates":[]}"#),
                ("resources/read", read),
            ],
        )
    };
    let scene =
        scene(vec![backend("a", r#""result":{"contents":["a"]}"#), backend("b", r#""result":{"contents":["b"]}"#)]);
    let list = scene.ask("resources/list", None).await;
    let expected = r#"{"resources":[{"uri":"f:\/\/x","name":"X"},{"uri":"fanlight://b/f://x","name":"X"}],"_meta":{"dev.fanlight/collisions":[{"uri":"f://x","kept":"a","other":"b","alias":"fanlight://b/f://x"}]}}"#;
    assert_eq!(list, expected);
    assert_eq!(scene.ask("resources/read", Some(r#"{"uri":"f://x"}"#)).await, r#"{"contents":["a"]}"#);
    assert_eq!(scene.ask("resources/read", Some(r#"{"uri":"fanlight://b/f://x"}"#)).await, r#"{"contents":["b"]}"#);
    assert_eq!(scene.received(1).last().unwrap(), r#"resources/read {"uri":"f://x"}"#);
}

#[tokio::test]
async fn resources_are_found_by_template_and_else_by_asking_in_turn() {
    let empty = ("resources/list", r#""result":{"resources":[]}"#);
    let a = fake(
        "a",
        &[
            empty,
            ("resources/templates/list", r#""result":{"resourceTemplates":[]}"#),
            ("resources/read", r#""error":{"code":-32002,"message":"none"}"#),
        ],
    );
    let b = fake(
        "b",
        &[
            empty,
            ("resources/templates/list", r#""result":{"resourceTemplates":[{"uriTemplate":"t://{x}"}]}"#),
            ("resources/read", r#""result":{"contents":[]}"#),
            ("completion/complete", r#""result":{"completion":{}}"#),
        ],
    );
    let scene = scene(vec![a, b]);
    assert_eq!(scene.ask("resources/read", Some(r#"{"uri":"t://7"}"#)).await, r#"{"contents":[]}"#);
    assert!(scene.received(0).iter().all(|request| !request.starts_with("resources/read")));
    assert_eq!(scene.ask("resources/read", Some(r#"{"uri":"u://7"}"#)).await, r#"{"contents":[]}"#);
    assert_eq!(scene.received(0).last().unwrap(), r#"resources/read {"uri":"u://7"}"#);
    let complete = r#"{"ref":{"type":"ref/resource","uri":"t://{x}"},"argument":{"name":"x","value":""}}"#;
    assert_eq!(scene.ask("completion/complete", Some(complete)).await, r#"{"completion":{}}"#);
}

#[tokio::test]
async fn prompts_are_completed_under_their_own_names() {
    let list = r#""result":{"prompts":[{"name":"p"}]}"#;
    let scene = scene(vec![
        fake("a", &[("prompts/list", list)]),
        fake(
            "b",
            &[
                ("prompts/list", list),
                ("completion/complete", r#""result":{}"#),
                ("prompts/get", r#""result":{"messages":[]}"#),
            ],
        ),
    ]);
    let complete = r#"{"ref":{"type":"ref/prompt","name":"b__p"},"argument":{}}"#;
    assert_eq!(scene.ask("completion/complete", Some(complete)).await, "{}");
    assert_eq!(
        scene.received(1).last().unwrap(),
        r#"completion/complete {"ref":{"type":"ref/prompt","name":"p"},"argument":{}}"#
    );
    assert_eq!(scene.ask("prompts/get", Some(r#"{"name":"b__p"}"#)).await, r#"{"messages":[]}"#);
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_fan_out() {
    let list = [("tools/list", r#""result":{"tools":[]}"#)];
    let scene = scene(vec![fake("a", &list), fake("b", &list)]);
    let (first, second) = tokio::join!(scene.ask("tools/list", None), scene.ask("tools/list", None));
    assert_eq!(first, second);
    assert_eq!(scene.received(0).len(), 1);
    scene.ask("tools/list", None).await;
    assert_eq!(scene.received(0).len(), 1, "a later request asks again");
}

#[tokio::test]
async fn the_log_level_goes_to_all_who_log() {
    let scene = scene(vec![fake("a", &[("logging/setLevel", r#""result":{}"#)]), fake("b", &[])]);
    assert_eq!(scene.ask("logging/setLevel", Some(r#"{"level":"debug"}"#)).await, "{}");
    assert_eq!(scene.received(1), [r#"logging/setLevel {"level":"debug"}"#]);
}

#[tokio::test]
async fn mirrored_parameters_are_known_by_the_visible_name() {
    let list = r#""result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}]}"#;
    let scene = scene(vec![fake("a", &[("tools/list", list)]), fake("b", &[])]);
    let headers = scene.gateway.param_headers("a__t").await;
    assert_eq!(headers[0].name, "R");
    assert!(scene.gateway.param_headers("b__t").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_holds_up_no_call_of_another() {
    let list =
        r#""result":{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}]}"#;
    let mut slow = fake("slow", &[]);
    for method in ["tools/list", "resources/read", "logging/setLevel"] {
        slow.script.insert(method.into(), Scripted::Hangs);
    }
    let read = r#""result":{"contents":[]}"#;
    let good = fake("good", &[("tools/list", list), ("resources/read", read), ("logging/setLevel", r#""result":{}"#)]);
    let scene = scene(vec![slow, good]);
    let began = tokio::time::Instant::now();
    assert_eq!(scene.gateway.param_headers("good__t").await[0].name, "R");
    assert_eq!(began.elapsed(), Duration::ZERO, "the other's list is not waited for");
    // An unlisted resource is asked for in turn, and the next in turn is not kept waiting for ever.
    assert_eq!(scene.ask("resources/read", Some(r#"{"uri":"x://y"}"#)).await, r#"{"contents":[]}"#);
    assert_eq!(scene.ask("logging/setLevel", Some(r#"{"level":"info"}"#)).await, "{}");
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
}
