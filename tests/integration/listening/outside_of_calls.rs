//! Server requests and log messages of legacy servers that belong to no call, sent to legacy clients.

use super::*;
use crate::scripted::{Stream, config};

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];

struct Connected {
    speaker: Speaker,
    /// A second server, so that lists and names are merged.
    _other: Speaker,
    ear: Ear,
    way: Stream,
}

/// A client with its own session at the server, and the server's stream to it.
async fn connected(front: Transport, back: Transport, capabilities: &str) -> Connected {
    let speaker = Speaker::start((Era::Legacy, back), "alpha").await;
    let other = Speaker::start((Era::Modern, other_transport(back)), "beta").await;
    let config = config(&[speaker.entry(), other.entry()]);
    let mut ear = Ear::open_with(capabilities, &config, (Era::Legacy, front), &[]).await;
    // The first call opens the session.
    ear.request("tools/call", r#""name":"alpha__t","arguments":{}"#).await;
    let way = match back {
        Transport::Http => {
            let call = speaker.backend.received("tools/call").remove(0);
            speaker.backend.stream_of(call.header("mcp-session-id").expect("a session")).await
        }
        Transport::Stdio => speaker.ways().await.pop().expect("a process"),
    };
    Connected { speaker, _other: other, ear, way }
}

async fn send(ear: &mut Ear, message: &str) {
    match &ear.stream {
        Some(_) => assert_eq!(ear.client.session().post(message).await.status, 202),
        None => ear.client.stdio().send(message).await,
    }
}

/// Some servers request the roots as soon as the client has connected.
#[tokio::test]
async fn server_may_request_roots_after_initialized() {
    for front in TRANSPORTS {
        for back in TRANSPORTS {
            let Connected { speaker, _other, mut ear, way } =
                connected(front, back, r#"{"roots":{"listChanged":true}}"#).await;
            let question = r#"{"jsonrpc":"2.0","id":"\u0071","method":"roots/list","params":{"x":1E400}}"#;
            way.message(question).await;
            let asked = ear.hear().await;
            assert_eq!(member(&asked, "method"), Some(r#""roots/list""#), "{front:?} {back:?}");
            assert_eq!(member(&asked, "params"), Some(r#"{"x":1E400}"#));
            let roots = r#"{"roots":[{"uri":"file:\/\/\/r"}],"y":-0}"#;
            let id = member(&asked, "id").expect("an id");
            send(&mut ear, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{roots}}}"#)).await;
            let answer = speaker.backend.answer_to(r#""\u0071""#, &speaker.backend.received("tools/call")[0]).await;
            assert_eq!(answer.member("result"), Some(roots), "{front:?} {back:?}");
        }
    }
}

/// A server request for which the client has not declared the capability is refused without asking the client.
#[tokio::test]
async fn client_without_the_capability_gets_no_request() {
    for back in TRANSPORTS {
        let Connected { speaker, _other, mut ear, way } = connected(Transport::Http, back, "{}").await;
        way.message(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#).await;
        let answer = speaker.backend.answer_to("7", &speaker.backend.received("tools/call")[0]).await;
        assert!(answer.member("error.code").is_some(), "{}", answer.text);
        ear.request("tools/list", "").await;
        speaker.backend.offers_tools(&["t", "new"]);
        speaker.says_tools_changed().await;
        ear.hears_tools_changed().await;
    }
}

#[tokio::test]
async fn log_messages_below_the_requested_level_are_dropped() {
    for front in TRANSPORTS {
        for back in TRANSPORTS {
            let Connected { speaker, _other, mut ear, way } = connected(front, back, "{}").await;
            let log = |level: &str| format!(r#""level":"{level}","logger":"l","data":{{"n":1.0,"level":"{level}"}}"#);
            speaker.say(&way, LOGGED, &log("debug")).await;
            let heard = ear.hear().await;
            assert_eq!(member(&heard, "params").map(str::to_owned), Some(format!("{{{}}}", log("debug"))));
            ear.request("logging/setLevel", r#""level":"warning""#).await;
            let told = speaker.backend.wait_for("logging/setLevel", 1).await;
            assert_eq!(told[0].member("params.level"), Some(r#""warning""#));
            // A server that ignores log levels.
            for level in ["info", "notice", "warning", "debug", "emergency"] {
                speaker.say(&way, LOGGED, &log(level)).await;
            }
            for level in ["warning", "emergency"] {
                let heard = ear.hear().await;
                assert_eq!(member(&heard, "params.data.level"), Some(format!("\"{level}\"").as_str()));
            }
        }
    }
}

/// No message is lost while a client has no stream for a moment.
#[tokio::test]
async fn messages_wait_while_the_client_has_no_stream() {
    let Connected { speaker, _other, mut ear, way } = connected(Transport::Http, Transport::Http, "{}").await;
    // It may be sent before the gateway notices that the stream is closed: hence the id to resume with.
    let primed = ear.stream.take().expect("a stream").whole_event().await.expect("a whole stream");
    speaker.say(&way, LOGGED, r#""level":"info","data":1.0"#).await;
    let last = primed.expect("an event").id;
    ear.stream = Some(ear.client.session().stream(last.as_deref()).await);
    let heard = ear.hear().await;
    assert_eq!(member(&heard, "params.data"), Some("1.0"), "{heard}");
}
