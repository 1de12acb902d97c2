//! Each combination of eras and transports: server requests and their responses keep their bytes.

use fanlight_tests::slicer::member;

use fanlight_testkit::recorder::Recorder;

use super::EVERYTHING;
use crate::clients::Client;
use crate::faults::backend;
use crate::recordings::{assert_plays, start_recordable};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

/// A server request, its params if any, and an answer, in text that an encoder would not write.
struct ServerRequest {
    method: &'static str,
    params: Option<&'static str>,
    answer: &'static str,
}

const SERVER_REQUESTS: [ServerRequest; 4] = [
    ServerRequest {
        method: "elicitation/create",
        params: Some(
            r#"{"message":"\u0041\/ ","requestedSchema":{"type":"object","properties":{"a":{"type":"number"}}},"x":[ 1E400,-0]}"#,
        ),
        answer: r#"{"action":"accept","content":{"a":1.0 , "s":"\u0041\/"},"x":1e-400}"#,
    },
    ServerRequest {
        method: "sampling/createMessage",
        params: Some(
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"\ud83d\ude00"}}],"maxTokens":1e1,"tools":[],"x":{}}"#,
        ),
        answer: r#"{"role":"assistant","content":{"type":"text","text":"\/","x":-0},"model":"m" ,"stopReason":"endTurn"}"#,
    },
    ServerRequest {
        method: "roots/list",
        params: None,
        answer: r#"{"roots":[{"uri":"file:\/\/\/r","name":"\u006e"}]}"#,
    },
    ServerRequest {
        method: "elicitation/create",
        params: Some(
            r#"{"mode":"url","message":"m","url":"https://example.test/\u0061","elicitationId":"e","x":1.0}"#,
        ),
        answer: r#"{"action":"decline" }"#,
    },
];

/// Sends all server requests at once and then the first one again, in the form of its era; returns
/// the client's answers as the result.
fn ask_on_call(backend: &Backend, era: Era) {
    match era {
        Era::Legacy => {
            let request = |(index, server_request): (usize, &ServerRequest)| {
                let params = server_request
                    .params
                    .map(|params| format!(r#","params":{params}"#))
                    .unwrap_or_default();
                format!(
                    r#"{{"jsonrpc":"2.0","id":"\u0071{index}","method":"{}"{params}}}"#,
                    server_request.method
                )
            };
            let all: Vec<String> = SERVER_REQUESTS.iter().enumerate().map(request).collect();
            let again = request((9, &SERVER_REQUESTS[0]));
            let got = |_: &Received, answers: &[std::sync::Arc<Received>]| {
                let results: Vec<&str> = answers
                    .iter()
                    .map(|answer| answer.member("result").unwrap())
                    .collect();
                format!(r#"{{"content":[],"got":[{}]}}"#, results.join(","))
            };
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            backend.on(
                "tools/call",
                Reply::conclude(got).asking(&all).asking(&[&again]),
            );
        }
        Era::Modern => {
            let input = |server_request: &ServerRequest| {
                let params = server_request
                    .params
                    .map(|params| format!(r#","params":{params}"#))
                    .unwrap_or_default();
                format!(r#"{{"method":"{}"{params}}}"#, server_request.method)
            };
            let all: Vec<String> = (0..)
                .zip(&SERVER_REQUESTS)
                .map(|(n, it)| format!(r#""k{n}":{}"#, input(it)))
                .collect();
            let input_required = |inputs: &str, state: &str| {
                format!(
                    r#"{{"resultType":"input_required","inputRequests":{{{inputs}}},"requestState":"{state}"}}"#
                )
            };
            backend.once(
                "tools/call",
                Reply::result(input_required(&all.join(","), r"\u0073\/1")),
            );
            let again = input_required(
                &format!(r#""k9":{}"#, input(&SERVER_REQUESTS[0])),
                r"\u0073\/2",
            );
            backend.once("tools/call", Reply::result(again));
        }
    }
}

async fn a_cell(client: (Era, Transport), server: (Era, Transport)) {
    let backend = backend(server.0, server.1).await;
    ask_on_call(&backend, server.0);
    let front = client;
    let config = config(&[backend.entry("only")]);
    let (mut client, admin) = start_recordable(EVERYTHING, &config, front).await;
    client.tool_names().await;
    let recorder = Recorder::start(admin, &[]).await;
    let mut relayed = Vec::new();
    let exchange = client
        .converse(
            "1",
            "tools/call",
            r#""name":"t","arguments":{"n":1.0}"#,
            |method, params| {
                relayed.push((method.to_owned(), params.map(str::to_owned)));
                let fits = |server_request: &&ServerRequest| {
                    server_request.method == method && server_request.params == params
                };
                SERVER_REQUESTS
                    .iter()
                    .find(fits)
                    .unwrap_or_else(|| panic!("{method} {params:?}"))
                    .answer
                    .to_owned()
            },
        )
        .await;
    let expected = SERVER_REQUESTS.iter().chain(&SERVER_REQUESTS[..1]);
    assert_eq!(
        relayed,
        expected
            .map(|it| (it.method.to_owned(), it.params.map(str::to_owned)))
            .collect::<Vec<_>>()
    );
    let calls = backend.received("tools/call");
    match server.0 {
        Era::Legacy => {
            let answers: Vec<&str> = SERVER_REQUESTS
                .iter()
                .chain(&SERVER_REQUESTS[..1])
                .map(|it| it.answer)
                .collect();
            assert_eq!(
                exchange.member("result.got"),
                format!("[{}]", answers.join(","))
            );
            assert_eq!(calls.len(), 1, "suspended, not sent again");
        }
        Era::Modern => {
            exchange.member("result.content");
            assert_eq!(calls.len(), 3);
            for (index, server_request) in SERVER_REQUESTS.iter().enumerate() {
                assert_eq!(
                    calls[1].member(&format!("params.inputResponses.k{index}")),
                    Some(server_request.answer)
                );
            }
            assert_eq!(
                calls[2].member("params.inputResponses.k9"),
                Some(SERVER_REQUESTS[0].answer)
            );
            assert_eq!(
                calls[1].member("params.requestState"),
                Some(r#""\u0073\/1""#)
            );
            assert_eq!(
                calls[2].member("params.requestState"),
                Some(r#""\u0073\/2""#)
            );
            assert!(
                calls
                    .iter()
                    .all(|call| call.member("params.arguments.n") == Some("1.0"))
            );
        }
    }
    let text = recorder.finish().await;
    drop(client);
    assert_plays(&text, (front.0, server.0), EVERYTHING).await;
}

macro_rules! combinations {
    ($($(#[$nightly:meta])? $name:ident: $client:ident over $front:ident to $server:ident over $back:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            a_cell((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
        })*
    };
}

for_all_combinations!(combinations);

/// A client never gets a server request for an undeclared capability; a legacy server gets the
/// error of its revision.
#[tokio::test]
async fn client_is_never_asked_without_the_capability() {
    for (client, front) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Http),
        (Era::Modern, Transport::Stdio),
    ] {
        for transport in [Transport::Http, Transport::Stdio] {
            let backend = backend(Era::Legacy, transport).await;
            let got = |_: &Received, answers: &[std::sync::Arc<Received>]| {
                format!(
                    r#"{{"content":[],"got":{}}}"#,
                    answers[0].member("error").expect("an error")
                )
            };
            backend.on("tools/call", Reply::conclude(got).asking(&[super::ASK]));
            let capabilities = r#"{"elicitation":{}}"#;
            let mut client = Client::start_with(
                capabilities,
                &config(&[backend.entry("only")]),
                client,
                front,
            )
            .await;
            let exchange = client.call("t").await;
            assert_eq!(exchange.member("result.got.code"), "-32601");
            assert!(exchange.before.is_empty(), "{:?}", exchange.before);
            let declared = backend.received("initialize");
            let declared = declared
                .last()
                .unwrap()
                .member("params.capabilities")
                .unwrap();
            assert!(member(declared, "roots").is_none(), "{declared}");
        }
    }
}
